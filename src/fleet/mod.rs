//! Runs over several hosts: shards of a plan, and the merge of their databases.
//!
//! Layer 5: imports `exit`, `domain`, `files`, `config`, `catalogue`, `render`, `ledger`, `database`, `plan`, `evidence`, `engine`,
//! `report` and `session`.

mod evidence_files;
mod merge;
mod shard_database;
mod shard_plan;
mod volcano;

pub(crate) use merge::{MergeRequest, merge_databases, started_shards};
pub(crate) use shard_database::{ShardProgress, open_shard, shard_progress};
pub(crate) use shard_plan::ShardPlan;
pub(crate) use volcano::{VOLCANO_VALUES, volcano_manifest};
