//! Event sink of `run --format json`: one JSON object per line.

use super::{EventSink, print_data};
use crate::measure::events::RunEvent;

/// Prints events as JSON lines on standard output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JsonLines;

impl EventSink for JsonLines {
    fn on_event(&mut self, event: &RunEvent) {
        if let Ok(line) = serde_json::to_string(event) {
            print_data(&format!("{line}\n"));
        }
    }
}
