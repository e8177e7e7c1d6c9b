//! Output of the program: data on standard output, notes on standard error.

use std::{
    io::{self, Write as _},
    mem,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use super::live_text::print_above;

static OUTPUT_INCOMPLETE: AtomicBool = AtomicBool::new(false);
/// Detail of the notes.
static VERBOSITY: AtomicU8 = AtomicU8::new(Verbosity::Normal as u8);

/// Detail of the notes on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Errors and warnings alone.
    Quiet,
    Normal,
    /// In addition, a line for each case and collection of a run.
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
            print_error(
                &format!("cannot write to standard output: {error}"),
                "check the free space of its file system",
            );
        }
        _ => {}
    }
}

/// Returns true if data could not be printed.
pub(crate) fn is_output_incomplete() -> bool {
    OUTPUT_INCOMPLETE.load(Ordering::Relaxed)
}

/// Severity of a note on standard error. A quiet command prints only errors and warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Error,
    Warning,
    Hint,
    Plain,
}

impl Severity {
    /// Returns the text with its mark, painted for terminals with colours.
    fn marked(self, text: &str, is_painted: bool) -> String {
        let (mark, style) = match self {
            Self::Error => ("error:", TextStyle::Bad),
            Self::Warning => ("warning:", TextStyle::Doubtful),
            Self::Hint => ("hint:", TextStyle::Faint),
            Self::Plain => return text.to_owned(),
        };
        match is_painted {
            true => format!("{} {text}", painted(mark, style)),
            false => format!("{mark} {text}"),
        }
    }
}

fn print_marked(severity: Severity, text: &str) {
    print_above(|| {
        let _ = writeln!(io::stderr().lock(), "{}", severity.marked(text, notes_have_colors()));
    });
}

/// Prints a note to standard error, unless the command is quiet.
pub(crate) fn print_note(text: &str) {
    if !is_quiet() {
        print_marked(Severity::Plain, text);
    }
}

/// Prints what the user can do, unless the command is quiet.
pub(crate) fn print_hint(text: &str) {
    if !is_quiet() {
        print_marked(Severity::Hint, text);
    }
}

/// Prints a warning, also in a quiet command.
pub(crate) fn print_warning(text: &str) {
    print_marked(Severity::Warning, text);
}

/// Prints an error and what the user can do, also in a quiet command.
pub(crate) fn print_error(message: &str, hint: &str) {
    print_marked(Severity::Error, message);
    print_marked(Severity::Hint, hint);
}

/// Copies the output of another program to standard error.
pub(crate) fn print_output(output: &[u8]) {
    print_above(|| {
        let _ = io::stderr().lock().write_all(output);
    });
}

/// Warns that a file in the folder of a run cannot be written.
pub(crate) fn report_write_error(path: &Path, error: &io::Error) {
    print_warning(&format!("cannot write `{}`: {error}; the run continues without it", path.display()));
}

/// Warns if a file in the folder of a run could not be written; only once, which `has_failed` records.
pub(crate) fn report_first_error(written: io::Result<()>, path: &Path, has_failed: &mut bool) {
    if let Err(error) = written
        && !mem::replace(has_failed, true)
    {
        report_write_error(path, &error);
    }
}

/// Colour of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextStyle {
    Good,
    Doubtful,
    Bad,
    /// Colour of hints, and of what was not attempted.
    Faint,
}

impl TextStyle {
    const fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Doubtful => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
            Self::Faint => Style::new().dimmed(),
        }
    }
}

/// Returns a text in its colour.
pub(crate) fn painted(text: &str, style: TextStyle) -> String {
    let style = style.style();
    format!("{style}{text}{style:#}")
}

/// Sets the choice about colours for the rest of the process.
pub(crate) fn set_colors(choice: clap::ColorChoice) {
    let choice = match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::AlwaysAnsi,
        clap::ColorChoice::Never => ColorChoice::Never,
    };
    choice.write_global();
}

/// Returns true if standard output has colours.
pub(crate) fn output_has_colors() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Returns true if standard error has colours.
pub(crate) fn notes_have_colors() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_notes_have_colours() {
        assert_eq!(Severity::Error.marked("no `error:`", false), "error: no `error:`");
        assert_eq!(Severity::Hint.marked("fix it", true), "\u{1b}[2mhint:\u{1b}[0m fix it");
        assert_eq!(Severity::Plain.marked("error: quoted", true), "error: quoted");
    }
}
