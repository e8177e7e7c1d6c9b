//! Output of the program: data on standard output, notes on standard error.

use std::{
    io::{self, Write as _},
    mem,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

static OUTPUT_INCOMPLETE: AtomicBool = AtomicBool::new(false);

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

/// Prints a line to standard error.
pub(crate) fn print_note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
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
