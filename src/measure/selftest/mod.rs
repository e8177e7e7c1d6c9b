//! Experiments on a new host: each compares an assumption of the measurements with evidence from the device, and ends
//! with pass, fail or unknown.
//!
//! An experiment is one file with a function that collects evidence (scripts under msprof, logs, raw output) and pure
//! functions that evaluate it. Scripts are started by the `collect.sh` of runs, so that what an experiment proves is
//! what runs use.

mod cache_bandwidth;
mod call_errors;
mod case_replay;
mod catalogue_entries;
pub(crate) mod command;
mod core_clock;
mod device_numbers;
mod entry_cases;
mod entry_table;
mod evidence;
mod exit_codes;
mod finding;
mod gangs;
mod heaviest_rows;
mod host_software;
mod kernel_steps;
mod production_agreement;
mod profiler_overhead;
mod record_loss;
mod recorded_rows;
mod repeated_collections;
mod results;
mod suite;
mod summary;

pub(crate) use evidence::SelftestContext;
pub(crate) use finding::{EvidenceError, ExperimentReport, ExperimentStatus};
pub(crate) use heaviest_rows::heaviest_rows;
pub(crate) use production_agreement::COMPARED_ROWS;
pub(crate) use results::{
    SelftestDescription, append_report, missing_selftest, new_selftest_folder, store_description,
    stored_selftests,
};
pub(crate) use suite::{EXPERIMENTS, run_experiments};
pub(crate) use summary::{markdown_report, report_line, status_counts, summary_table};
