//! Output about runs, plans and grids, for users and programs: event sinks, files of a run, tables and JSON.
//!
//! Standard output has data (tables and JSON lines), standard error everything else.

mod audit;
mod collectives;
mod diff;
pub(crate) mod fitted_table;
mod grid;
mod grid_plot;
mod history;
mod inputs;
mod json;
mod live_lines;
mod merge;
mod noise;
mod output_format;
mod plan;
mod print;
mod progress;
mod rebuild;
mod recorder;
mod reparse;
mod run_state;
mod status;
mod status_table;
mod summary_tables;
mod sweep;
mod terminal;
mod terminal_echo;
mod text;
mod timeline;
mod timestamp;
mod waiting_line;
mod why;

pub(crate) use audit::{audit_json, audit_table};
pub(crate) use collectives::{
    FitReport, GroupChoice, ModelReport, fit_json, fit_text, groups_json, groups_table, model_json,
    model_text,
};
pub(crate) use diff::{diff_json, diff_summary, diff_table, failed_note};
pub(crate) use grid::{GridRequest, grid_json, grid_notes, grid_shapes, grid_table};
pub(crate) use grid_plot::coverage_plot;
pub(crate) use history::{PastRun, RunStatus, run_history, runs_json, runs_table, verdict_counts};
pub(crate) use inputs::{SignatureParts, distinguishable_inputs};
pub(crate) use json::JsonLines;
pub(crate) use merge::{MergeReport, merge_json, merge_text};
pub(crate) use noise::{noise_json, noise_text};
pub(crate) use output_format::OutputFormat;
pub(crate) use plan::{FurtherCollections, PlanTotals, PlannedAction, RecordedShares, plan_table};
pub(crate) use print::{
    Verbosity, is_output_incomplete, note_simulated, print_data, print_note, print_output, set_verbosity,
    without_error_numbers,
};
pub(crate) use progress::CheckProgress;
pub(crate) use rebuild::{RebuildReport, SalvageReport, rebuild_json, rebuild_text};
pub(crate) use recorder::{RunRecorder, case_log, collection_log};
pub(crate) use reparse::{
    AttemptDifference, LeftEvidence, MissingKernelRows, ReparseReport, WrittenRows, reparse_json,
    reparse_summary, reparse_table,
};
pub(crate) use run_state::{DeviceActivity, DeviceStatus, RunPhase, RunState};
pub(crate) use status::RunStatusFile;
pub(crate) use status_table::status_table;
pub(crate) use summary_tables::{kernels_table, rules_table};
pub(crate) use sweep::{SweepLine, SweepPreview};
pub(crate) use terminal::{
    TextStyle, notes_have_colors, output_has_colors, output_width, painted, print_paged, set_colors,
};
pub(crate) use text::{TextReporter, device_ranges, format_count};
pub(crate) use timeline::{timeline_json, write_timeline};
pub(crate) use timestamp::{Timestamp, format_clock, format_duration};
pub(crate) use waiting_line::WaitingLine;
pub(crate) use why::why_page;

use crate::measure::events::RunEvent;

pub(crate) trait EventSink {
    fn on_event(&mut self, event: &RunEvent);
}
