//! Output of the program: data on standard output, notes on standard error.

use std::{
    io::{self, Write as _},
    mem,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
};

use super::{
    TextStyle,
    terminal::{notes_have_colors, painted},
};
use crate::kernel::DataKind;

static OUTPUT_INCOMPLETE: AtomicBool = AtomicBool::new(false);
/// Detail of the notes.
static VERBOSITY: AtomicU8 = AtomicU8::new(Verbosity::Normal as u8);

/// Detail of the notes on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Errors and warnings alone.
    Quiet,
    Normal,
    /// Also a line for each case and collection of a run.
    Verbose,
}

/// Sets the detail of the notes for the rest of the process.
pub(crate) fn set_verbosity(verbosity: Verbosity) {
    VERBOSITY.store(verbosity as u8, Ordering::Relaxed);
}

/// Returns true if only errors and warnings are printed.
pub(super) fn is_quiet() -> bool {
    VERBOSITY.load(Ordering::Relaxed) == Verbosity::Quiet as u8
}

/// Returns true if lines for each case and collection are printed.
pub(super) fn is_verbose() -> bool {
    VERBOSITY.load(Ordering::Relaxed) == Verbosity::Verbose as u8
}

/// Prints data to standard output. A closed pipe is not an error; any other failure is reported once and remembered.
pub(crate) fn print_data(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error)
            if error.kind() != io::ErrorKind::BrokenPipe
                && !OUTPUT_INCOMPLETE.swap(true, Ordering::Relaxed) =>
        {
            print_note(&format!(
                "error: cannot write to standard output: {error}\nhint: check the free space of its file system"
            ));
        }
        _ => {}
    }
}

/// Returns true if data could not be printed.
pub(crate) fn is_output_incomplete() -> bool {
    OUTPUT_INCOMPLETE.load(Ordering::Relaxed)
}

/// Words at the start of a line that have a colour. Notes with the first two are never left out.
const MARKED: [(&str, TextStyle); 3] =
    [("error:", TextStyle::Bad), ("warning:", TextStyle::Doubtful), ("hint:", TextStyle::Faint)];

/// Prints a line to standard error; a quiet command prints only errors and warnings.
pub(crate) fn print_note(line: &str) {
    let is_important = MARKED[..2].iter().any(|(word, _)| line.starts_with(word));
    if is_important || !is_quiet() {
        let line = without_error_numbers(line);
        let _ = writeln!(io::stderr().lock(), "{}", marked_text(&line, notes_have_colors()));
    }
}

/// Removes the numbers of errors of the system, ` (os error 2)`, and the names of temporary files behind them.
pub(crate) fn without_error_numbers(text: &str) -> String {
    const START: &str = " (os error ";
    let mut parts = text.split(START);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((_, rest)) = part.split_once(')').filter(|(number, _)| number.parse::<i32>().is_ok()) else {
            plain += START;
            plain += part;
            continue;
        };
        let path = rest.strip_prefix(" at path \"").and_then(|path| path.split_once('"'));
        plain += path.map_or(rest, |(_, rest)| rest);
    }
    plain
}

/// Prints a note if the durations of a database of this kind are simulated.
pub(crate) fn note_simulated(kind: DataKind) {
    if kind == DataKind::Rehearsal {
        print_note("the durations of this database are simulated");
    }
}

/// Returns a text whose lines have their first word in its colour, if it has one.
fn marked_text(text: &str, is_painted: bool) -> String {
    if !is_painted {
        return text.to_owned();
    }
    let marked = |line: &str| {
        let found = MARKED.iter().find_map(|(word, style)| Some((word, style, line.strip_prefix(word)?)));
        found.map_or_else(|| line.to_owned(), |(word, style, rest)| painted(word, *style) + rest)
    };
    text.split('\n').map(marked).collect::<Vec<_>>().join("\n")
}

/// Copies the output of another program to standard error.
pub(crate) fn print_output(output: &[u8]) {
    let _ = io::stderr().lock().write_all(output);
}

/// Warns that a file in the folder of a run cannot be written.
pub(super) fn report_write_error(path: &Path, error: &io::Error) {
    print_note(&format!("warning: cannot write `{}`: {error}; the run continues without it", path.display()));
}

/// Warns if a file in the folder of a run could not be written; only once, which `has_failed` records.
pub(super) fn report_first_error(written: io::Result<()>, path: &Path, has_failed: &mut bool) {
    if let Err(error) = written
        && !mem::replace(has_failed, true)
    {
        report_write_error(path, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_their_text_alone() {
        let temporary =
            "cannot write into `d`: No such file (os error 2) at path \"d/.tmp\"; fix it (os error 13)";
        assert_eq!(without_error_numbers(temporary), "cannot write into `d`: No such file; fix it");
        for other in ["an (os error 2", "an (os error two) here", " (os error )"] {
            assert_eq!(without_error_numbers(other), other);
        }
    }

    #[test]
    fn first_words_of_errors_and_hints_have_colours() {
        let text = "error: no `error:` in this line\nhint: fix it\nother: line";
        assert_eq!(marked_text(text, false), text);
        assert_eq!(
            marked_text(text, true),
            "\u{1b}[31merror:\u{1b}[0m no `error:` in this line\n\u{1b}[2mhint:\u{1b}[0m fix it\nother: line"
        );
    }
}
