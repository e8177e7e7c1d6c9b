//! Experiments on a new host: each compares an assumption of the measurements with evidence from the device, and ends
//! with pass, fail or unknown.
//!
//! An experiment collects evidence (scripts under msprof, logs, raw output) and evaluates it by functions that are tested
//! without a device. Scripts are started by the `collect.sh` of runs, so that what an experiment proves is what runs use.

mod cache_bandwidth;
mod catalogue_entries;
pub(crate) mod command;
mod core_clock;
mod device_numbers;
mod evidence;
mod experiment;
mod gangs;
mod host_software;
mod kernel_steps;
mod marked_launches;
mod production_agreement;
mod profiler_overhead;
mod repeated_collections;
mod results;
mod run_disturbance;

pub(crate) use experiment::{
    EXPERIMENTS, ExperimentReport, affected_kernels, report_line, status_counts, summary_table,
};
pub(crate) use results::markdown_report;
