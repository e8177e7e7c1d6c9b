//! Runs over several hosts: shards of a plan, jobs of Slurm, and the merge of their databases.

mod evidence_files;
mod merge;
mod shard_database;
mod shard_plan;
mod slurm_jobs;
mod slurm_output;
mod volcano;

pub(crate) use merge::{
    DatabaseInUse, HostsOfCache, MergeReport, MergeRequest, merge_databases, require_merged_shards,
    started_shards,
};
pub(crate) use shard_database::{ShardProgress, ShardState, open_shard, shard_progress};
pub(crate) use shard_plan::ShardPlan;
pub(crate) use slurm_jobs::{
    SlurmRequest, SlurmStatus, SlurmSubmission, devices_of_job, own_program, render_slurm_sweep, state_word,
    submit_script,
};
pub(crate) use slurm_output::{QueuedTask, expand_hosts};
pub(crate) use volcano::{VOLCANO_VALUES, volcano_manifest};
