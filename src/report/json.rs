//! Every event as one JSON object a line.

use super::{Sink, print_data};
use crate::events::Event;

/// Prints events as JSON lines on standard output.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonLines;

impl Sink for JsonLines {
    fn on_event(&mut self, event: &Event) {
        if let Ok(line) = serde_json::to_string(event) {
            print_data(&format!("{line}\n"));
        }
    }
}
