//! Analysis of recorded runs for `timeline`, `modules` and `compare`: which runs are read, and tables, JSON, CSV and pages.

mod comparison;
mod module_tables;
mod recorded_runs;
mod step_lanes;
mod step_times;

pub(crate) use comparison::{
    ComparisonReport, JoinedDatabase, comparison_csv, comparison_json, comparison_page, comparison_text,
};
pub(crate) use module_tables::{ModulesReport, modules_csv, modules_json, modules_text, modules_workbook};
pub(crate) use recorded_runs::{
    AloneDatabase, ComparedRun, modules_of_run, nothing_on_device, peak_of_run, read_all_runs, require_steps,
};
pub(crate) use step_lanes::step_lanes;
pub(crate) use step_times::{StepTimesReport, step_times_json, step_times_text};
