//! Output of the program: data on standard output, notes on standard error.

use std::{
    backtrace::Backtrace,
    borrow::Cow,
    io::{self, Write as _},
    mem,
    panic::PanicHookInfo,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use super::{
    live_text::print_above,
    printable::{MAX_QUOTED, is_harmful, printable, short_message},
};

static PANICKED: AtomicBool = AtomicBool::new(false);
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

/// Returns data as a terminal may show it. Of control sequences, those of [`painted`] stay, if the output has colours.
pub(crate) fn shown_data(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return text.into();
    }
    let own = if output_has_colors() { TextStyle::sequences() } else { Vec::new() };
    let mut parts = text.split('\u{1b}');
    let first = printable(parts.next().unwrap_or_default()).into_owned();
    let shown = parts.fold(first, |shown, part| {
        let is_own = own.iter().any(|sequence| part.starts_with(&sequence[1..]));
        shown + if is_own { "\u{1b}" } else { "\\x1b" } + &printable(part)
    });
    shown.into()
}

/// Prints data to standard output. A closed pipe is not an error; any other failure is reported once and remembered.
pub(crate) fn print_data(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(shown_data(text).as_bytes()).and_then(|()| out.flush()) {
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
fn print_marked(mark: Option<(&str, TextStyle)>, text: &str, max_quoted: usize) {
    let text = short_message(text, max_quoted);
    let text = printable(&text);
    let text = match mark {
        Some((mark, style)) if notes_have_colors() => format!("{} {text}", painted(mark, style)),
        Some((mark, _)) => format!("{mark} {text}"),
        None => text.into_owned(),
    };
    print_above(|| {
        let _ = writeln!(io::stderr().lock(), "{text}");
    });
}

/// Characters of a quotation in hints and notes, which have commands to repeat.
const MAX_COMMAND: usize = 2_000;

const ERROR: Option<(&str, TextStyle)> = Some(("error:", TextStyle::Bad));
const HINT: Option<(&str, TextStyle)> = Some(("hint:", TextStyle::Faint));

pub(crate) fn print_note(text: &str) {
    if !is_quiet() {
        print_marked(None, text, MAX_COMMAND);
    }
}

pub(crate) fn print_hint(text: &str) {
    if !is_quiet() {
        print_marked(HINT, text, MAX_COMMAND);
    }
}

pub(crate) fn print_warning(text: &str) {
    print_marked(Some(("warning:", TextStyle::Doubtful)), text, MAX_QUOTED);
}

/// Prints an error and what the user can do, also in a quiet command.
pub(crate) fn print_error(message: &str, hint: &str) {
    print_marked(ERROR, message, MAX_QUOTED);
    print_marked(HINT, hint, MAX_COMMAND);
}

/// Prints the usage error of clap, whose text begins with `error: `.
pub(crate) fn print_usage_error(text: &str) {
    print_marked(ERROR, text.strip_prefix("error: ").unwrap_or(text).trim_end(), MAX_QUOTED);
}

/// Prints the message of a panic, also of one that another thread turns into an error.
pub(crate) fn print_panic(panic: &PanicHookInfo<'_>) {
    PANICKED.store(true, Ordering::Relaxed);
    let text = format!("npubench has a defect: {panic}\n{}", Backtrace::capture());
    // Lines that are drawn are not removed: their text may be what panicked.
    let _ = writeln!(io::stderr().lock(), "{}", printable(&short_message(&text, MAX_COMMAND)));
}

pub(crate) fn has_panicked() -> bool {
    PANICKED.load(Ordering::Relaxed)
}

/// Prints whole lines that another program wrote, without its colours.
pub(crate) fn print_output(output: &[u8]) {
    let text = String::from_utf8_lossy(output).replace("\r\n", "\n").replace('\r', "\n");
    let text = anstream::adapter::strip_str(&text).to_string();
    print_above(|| {
        let _ = io::stderr().lock().write_all(printable(&text).as_bytes());
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

    fn sequences() -> Vec<String> {
        let styles = [Self::Good, Self::Doubtful, Self::Bad, Self::Faint].map(Self::style);
        styles.into_iter().flat_map(|style| [style.to_string(), format!("{style:#}")]).collect()
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
