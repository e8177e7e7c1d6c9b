//! Everything that is printed: tables, pages, JSON, progress.
//! Each answer of a command has one file with its records, its table and its text.

pub(crate) mod adapt;
pub(crate) mod audit;
pub(crate) mod cases;
pub(crate) mod cells;
pub(crate) mod collected_ranks;
pub(crate) mod collectives;
pub(crate) mod compare;
pub(crate) mod coverage;
pub(crate) mod coverage_page;
pub(crate) mod diff;
pub(crate) mod emit;
pub(crate) mod fill;
pub(crate) mod grid;
pub(crate) mod grid_plot;
pub(crate) mod junit;
pub(crate) mod kernel_gaps;
pub(crate) mod kernels;
pub(crate) mod lookup;
pub(crate) mod m6;
pub(crate) mod models;
pub(crate) mod noise;
pub(crate) mod plan;
mod prelude;
pub(crate) mod progress;
pub(crate) mod question_audit;
pub(crate) mod repair;
pub(crate) mod rules;
pub(crate) mod run_end;
pub(crate) mod run_lines;
pub(crate) mod run_markdown;
pub(crate) mod run_modules;
pub(crate) mod run_page;
pub(crate) mod run_plots;
pub(crate) mod run_results;
pub(crate) mod run_timeline;
pub(crate) mod run_trace;
pub(crate) mod runs;
#[cfg(test)]
mod schemas;
pub(crate) mod slurm;
pub(crate) mod status;
pub(crate) mod step_lanes;
mod svg;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod why;
