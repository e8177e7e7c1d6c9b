//! Output of the program: data on standard output, notes on standard error.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    mem,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
};

use clap::ColorChoice;

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
pub(crate) fn is_quiet() -> bool {
    VERBOSITY.load(Ordering::Relaxed) == Verbosity::Quiet as u8
}

/// Returns true if lines for each case and collection are printed.
pub(crate) fn is_verbose() -> bool {
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
pub(crate) fn report_write_error(path: &Path, error: &io::Error) {
    print_note(&format!("warning: cannot write `{}`: {error}; the run continues without it", path.display()));
}

/// Warns if a file in the folder of a run could not be written; only once, which `has_failed` records.
pub(crate) fn report_first_error(written: io::Result<()>, path: &Path, has_failed: &mut bool) {
    if let Err(error) = written
        && !mem::replace(has_failed, true)
    {
        report_write_error(path, &error);
    }
}

/// Choice of the user about colours.
static COLORS: AtomicU8 = AtomicU8::new(AUTO);
const AUTO: u8 = 0;
const ALWAYS: u8 = 1;
const NEVER: u8 = 2;

/// Colour of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextStyle {
    Good,
    Doubtful,
    Bad,
    /// Of hints, and of what was not attempted.
    Faint,
}

impl TextStyle {
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Doubtful => "33",
            Self::Bad => "31",
            Self::Faint => "2",
        }
    }
}

/// Returns a text in its colour.
pub(crate) fn painted(text: &str, style: TextStyle) -> String {
    format!("\u{1b}[{}m{text}\u{1b}[0m", style.code())
}

/// Sets the choice about colours for the rest of the process.
pub(crate) fn set_colors(choice: ColorChoice) {
    let choice = match choice {
        ColorChoice::Auto => AUTO,
        ColorChoice::Always => ALWAYS,
        ColorChoice::Never => NEVER,
    };
    COLORS.store(choice, Ordering::Relaxed);
}

/// Returns true if a stream has colours: as chosen, else on a terminal, unless `NO_COLOR` is set or the terminal has none.
fn has_colors(is_terminal: bool) -> bool {
    match COLORS.load(Ordering::Relaxed) {
        ALWAYS => true,
        NEVER => false,
        _ => is_terminal && is_empty("NO_COLOR") && !is_dumb(),
    }
}

pub(crate) fn is_empty(variable: &str) -> bool {
    env::var_os(variable).is_none_or(|value| value.is_empty())
}

pub(crate) fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// Returns true if standard output has colours.
pub(crate) fn output_has_colors() -> bool {
    has_colors(io::stdout().is_terminal())
}

/// Returns true if standard error has colours.
pub(crate) fn notes_have_colors() -> bool {
    has_colors(io::stderr().is_terminal())
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
