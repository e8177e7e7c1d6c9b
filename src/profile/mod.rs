//! Reads what the vendor's tools write: kernel records of a profile in CSVs and databases, `npu-smi`.
//!
//! Layer 1: imports `model` and `stats`. Reads streaming and by column name; never writes and never
//! starts a program.

mod attention_dump;
mod attributes;
mod columns;
mod discover;
mod error;
mod groups;
mod host_calls;
mod ingest;
mod kernel_record;
pub mod npu_smi;
mod operator_details;
mod records;
mod software_versions;
mod sqlite;

pub use attention_dump::{AttentionDump, read_attention_dumps};
pub use attributes::add_attributes;
pub use columns::{COUNTERS, OtherTable};
pub use discover::{DiscoveredProfiles, ProfileFile, SkippedPath, collection_summaries, find_profiles};
pub use error::{ProfileError, RecordPosition, ShapelessKind};
pub use groups::{GroupStatistics, RecordGroup, RecordGroups};
pub use host_calls::{HostCalls, describe_attention};
pub use ingest::{ReadOptions, add_table};
pub use records::{KernelRow, REHEARSAL_PREFIX, RecordReader};
pub use software_versions::stack_of_profile;
