//! Lines on a terminal that are drawn again in place.
//!
//! Between two draws the cursor is at the start of the first line. A terminal that becomes narrower moves the cursor with that
//! line, whether it wraps the lines below again or cuts them, so that erasing from the cursor on removes all of them, and no
//! output above.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use crate::base::print::is_quiet;

/// Least time between two draws that are not forced.
const INTERVAL: Duration = Duration::from_millis(250);
/// Size of a terminal that does not state it, in columns and lines.
const USUAL_SIZE: (usize, usize) = (80, 24);
/// Erases the line and those below. Some terminals keep what is erased from their first cell on, as they do for `clear`, so that it
/// begins behind a space.
const ERASE: &str = "\r \u{1b}[J\r";

/// The lines on standard error; they are removed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct LiveLines {
    drawn: Option<Instant>,
}

impl LiveLines {
    /// Returns lines without content; `None` for a quiet command, and without a terminal that can move its cursor.
    pub(super) fn on_stderr() -> Option<Self> {
        let is_dumb = env::var_os("TERM").is_none_or(|terminal| terminal.is_empty() || terminal == "dumb");
        (io::stderr().is_terminal() && !is_dumb && !is_quiet()).then(Self::default)
    }

    /// Returns true if enough time has passed since the last draw.
    pub(super) fn is_due(&self) -> bool {
        self.drawn.is_none_or(|drawn| drawn.elapsed() >= INTERVAL)
    }

    /// Draws lines in place of the earlier ones, cut to the present size of the terminal.
    pub(super) fn draw(&mut self, lines: &[String]) {
        write_to_terminal(&frame(lines, terminal_size()));
        self.drawn = Some(Instant::now());
    }

    /// Removes the lines from the screen.
    pub(super) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            write_to_terminal(ERASE);
        }
    }
}

impl Drop for LiveLines {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes a text at once. A terminal that was closed shows nothing.
fn write_to_terminal(text: &str) {
    let mut terminal = io::stderr().lock();
    let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}

/// Returns columns and lines of the terminal of standard error.
pub(super) fn terminal_size() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stderr());
    let size = size.map(|(width, height)| (usize::from(width.0), usize::from(height.0)));
    size.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(USUAL_SIZE)
}

/// Returns the text that draws lines over earlier ones and returns the cursor to their start. The terminal does not wrap them
/// while they are drawn, because it may have become narrower since its size was read. Lines that it has no space for are left out.
fn frame(lines: &[String], (width, height): (usize, usize)) -> String {
    // Behind a line of the full width, the cursor would be on its last letter.
    let cut = |line: &String| line.chars().take(width - 1).collect::<String>();
    let shown: Vec<String> = lines.iter().take(height).map(cut).collect();
    let up = match shown.len() {
        0 | 1 => String::new(),
        lines => format!("\u{1b}[{}A", lines - 1),
    };
    format!("\r\u{1b}[?7l{}\u{1b}[J\u{1b}[?7h\r{up}", shown.join("\u{1b}[K\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_the_terminal_and_the_cursor_returns_to_the_first() {
        let lines = ["4752/11289 cases", "device 0  idle", "device 1  idle"].map(str::to_owned);
        assert_eq!(
            frame(&lines, (12, 2)),
            "\r\u{1b}[?7l4752/11289 \u{1b}[K\r\ndevice 0  i\u{1b}[J\u{1b}[?7h\r\u{1b}[1A"
        );
        assert_eq!(frame(&lines[..1], (80, 24)), "\r\u{1b}[?7l4752/11289 cases\u{1b}[J\u{1b}[?7h\r");
    }
}
