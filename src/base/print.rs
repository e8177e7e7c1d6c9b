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
static VERBOSITY: AtomicU8 = AtomicU8::new(Verbosity::Normal as u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    Quiet,
    Normal,
    /// In addition, a line for each case and collection of a run.
    Verbose,
}

pub(crate) fn set_verbosity(verbosity: Verbosity) {
    VERBOSITY.store(verbosity as u8, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    VERBOSITY.load(Ordering::Relaxed) == Verbosity::Quiet as u8
}

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

pub(crate) fn is_output_incomplete() -> bool {
    OUTPUT_INCOMPLETE.load(Ordering::Relaxed)
}

/// Prints a text behind a mark in its colour, if it has one.
fn print_marked(mark: Option<(&str, TextStyle)>, text: &str) {
    let text = match mark {
        Some((mark, style)) if notes_have_colors() => format!("{} {text}", painted(mark, style)),
        Some((mark, _)) => format!("{mark} {text}"),
        None => text.to_owned(),
    };
    print_above(|| {
        let _ = writeln!(io::stderr().lock(), "{text}");
    });
}

const HINT: Option<(&str, TextStyle)> = Some(("hint:", TextStyle::Faint));

pub(crate) fn print_note(text: &str) {
    if !is_quiet() {
        print_marked(None, text);
    }
}

pub(crate) fn print_hint(text: &str) {
    if !is_quiet() {
        print_marked(HINT, text);
    }
}

pub(crate) fn print_warning(text: &str) {
    print_marked(Some(("warning:", TextStyle::Doubtful)), text);
}

/// Prints an error and what the user can do, also in a quiet command.
pub(crate) fn print_error(message: &str, hint: &str) {
    print_marked(Some(("error:", TextStyle::Bad)), message);
    print_marked(HINT, hint);
}

pub(crate) fn print_output(output: &[u8]) {
    print_above(|| {
        let _ = io::stderr().lock().write_all(output);
    });
}

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

pub(crate) fn painted(text: &str, style: TextStyle) -> String {
    let style = style.style();
    format!("{style}{text}{style:#}")
}

pub(crate) fn set_colors(choice: clap::ColorChoice) {
    let choice = match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::AlwaysAnsi,
        clap::ColorChoice::Never => ColorChoice::Never,
    };
    choice.write_global();
}

pub(crate) fn output_has_colors() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

pub(crate) fn notes_have_colors() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_notes_have_colours() {
        assert_eq!(painted("hint:", TextStyle::Faint), "\u{1b}[2mhint:\u{1b}[0m");
    }
}
