//! Readers of the vendor's output: kernel records in CSVs and databases, traces. They read in streams and by
//! column name; they never write and never start a program.

mod attention_dump;
mod attributes;
mod collective_benchmark;
mod columns;
mod core_clock;
mod core_usage;
mod device_evidence;
mod discover;
mod error;
mod exporter_files;
mod groups;
mod host_calls;
mod ingest;
mod kernel_record;
mod missing_tables;
mod newest_export;
mod operator_details;
mod prelude;
mod profile_ranks;
pub(crate) mod profile_records;
mod profiler_info;
mod recorded_collectives;
mod records;
mod sqlite;
pub(crate) mod timeline;
mod trace_events;

pub use attention_dump::{AttentionDump, read_attention_dumps};
pub use attributes::{RankCounts, add_attributes};
pub(crate) use collective_benchmark::{CollectiveBenchmark, parse_element_type};
pub use columns::COUNTERS;
pub(crate) use columns::{CELLS, Column, NeededColumns, is_recorded};
#[cfg(test)]
pub(crate) use core_clock::ClockSample;
pub use core_clock::LowClock;
pub(crate) use core_clock::{CoreClock, CoreClocks, REACHED};
pub use device_evidence::{DeviceEvidence, device_of_profile};
pub(crate) use device_evidence::{only_device, stated_facts};
pub use discover::{DiscoveredProfiles, ProfileFile, SkippedPath, collection_summaries};
pub(crate) use error::{ProfileError, RecordPosition};
pub(crate) use exporter_files::{
    LossOfExporter, MissingRows, exporter_loss, launches_without_row, log_of_table,
};
pub(crate) use groups::UNNAMED;
pub use groups::{GroupStatistics, RecordGroup, RecordGroups, ShapelessRecords};
pub use ingest::add_table;
pub(crate) use ingest::record_problems;
pub(crate) use missing_tables::profiles_without_records;
pub(crate) use newest_export::newest_exports;
pub use profile_ranks::{ProfileRanks, leave_out_copies};
pub use profiler_info::stack_of_profile;
pub(crate) use recorded_collectives::{
    CollectiveSignature, RecordedCollectives, RecordedDurations, RecordedGroup,
};
pub use records::{KernelRow, REHEARSAL_PREFIX, RecordReader};
pub(crate) use sqlite::{DatabaseRow, NameCell, ProfileDatabase, StringTable, is_database};
pub(crate) use trace_events::{TraceError, TraceEvent, for_each_trace_event, plain_text};
