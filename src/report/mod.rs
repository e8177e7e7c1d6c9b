//! What a person or a program sees of a run: sinks for events, and tables.
//!
//! Layer 4: imports `model`, `events`, `spec`, `grid`, `render` and `store`; the engine never imports it. Standard
//! output carries data (the closing table, JSON lines), standard error everything else.

mod audit;
mod grid;
mod grid_plot;
mod history;
mod json;
mod output_format;
mod plan;
mod plot_file;
mod progress;
mod recorder;
mod run_state;
mod show;
mod status;
mod status_table;
mod summary_tables;
mod text;
mod timeline;
mod timestamp;

use std::{
    io::{self, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

pub use audit::{audit_json, audit_table};
pub use grid::{GridRequest, grid_json, grid_notes, grid_table};
pub use grid_plot::coverage_plot;
pub use history::{PastRun, RunStatus, history, runs_json, runs_table};
pub use json::JsonLines;
pub use output_format::OutputFormat;
pub use plan::{PlanTotals, PlannedAction, plan_table};
pub use plot_file::{ImageFile, ImageFileError};
pub use recorder::RunRecorder;
pub use run_state::{DeviceActivity, DeviceSnapshot, DeviceStatus, RunPhase, RunState, RunningCollection};
pub use show::{ShownCase, cases_table, shown_cases, summary};
pub use status::RunStatusFile;
pub use status_table::status_table;
pub use summary_tables::{closing_table, kernels_table};
pub use text::{TextReporter, ranges};
pub use timeline::{TimelineError, timeline, write_timeline};
pub use timestamp::Timestamp;

use crate::events::RunEvent;

/// Hears what happens in a run.
pub trait EventSink {
    /// Takes note of an event.
    fn on_event(&mut self, event: &RunEvent);
}

static DATA_LOST: AtomicBool = AtomicBool::new(false);

/// Prints data. A reader that has gone away is no error; any other failure is said once and remembered.
pub fn print_data(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error)
            if error.kind() != io::ErrorKind::BrokenPipe && !DATA_LOST.swap(true, Ordering::Relaxed) =>
        {
            print_note(&format!(
                "error: cannot write to standard output: {error}\nhint: check the space there"
            ));
        }
        _ => {}
    }
}

/// Whether data could not be printed.
#[must_use]
pub fn is_output_incomplete() -> bool {
    DATA_LOST.load(Ordering::Relaxed)
}

/// Prints a line for a person.
pub fn print_note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
