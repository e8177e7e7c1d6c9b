//! What a person or a program sees of a run: sinks for events, and tables.
//!
//! Layer 4: imports `model` and `events`; the engine never imports it. Standard output carries data
//! (the closing table, JSON lines), standard error everything else.

mod human;
mod json;
mod table;

pub use human::Human;
pub use json::JsonLines;
pub use table::closing_table;

use std::io::{self, Write as _};

use crate::events::Event;

/// Hears what happens in a run.
pub trait Sink {
    /// Takes note of an event.
    fn on_event(&mut self, event: &Event);
}

/// Prints data; a reader that has gone away is no error.
pub fn print_data(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a line for a person.
pub fn print_note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
