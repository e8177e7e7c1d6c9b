//! Errors of commands, with hint and exit status.

use std::{error::Error, fmt, io, path::Path};

use crate::base::exit::ExitStatus;

/// An error that can end a command; `Display` is its message.
pub trait Failure: Error {
    fn hint(&self) -> String;

    fn exit_status(&self) -> ExitStatus {
        ExitStatus::BadInput
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    pub(crate) message: String,
    pub(crate) hint: String,
    pub(crate) exit: ExitStatus,
}

impl CommandError {
    pub(crate) fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), exit: ExitStatus::BadInput }
    }

    pub(crate) fn cannot_measure(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), exit: ExitStatus::CannotMeasure }
    }

    /// Creates the error of a command line that clap accepts but that contradicts itself or the data.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), exit: ExitStatus::Usage }
    }

    /// Returns the function that makes the error of a failed access to a file.
    pub(crate) fn io(
        action: &str,
        path: &Path,
        hint: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let action = format!("cannot {action} `{}`", path.display());
        move |error| Self::bad_input(format!("{action}: {error}"), hint)
    }

    /// Creates the error of the content of a file, at a line from 1 where it is known.
    pub(crate) fn in_file(
        file: &Path,
        line: Option<u64>,
        problem: impl fmt::Display,
        hint: impl Into<String>,
    ) -> Self {
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        Self::bad_input(format!("{}{line}: {problem}", file.display()), hint)
    }

    #[expect(clippy::needless_pass_by_value, reason = "the function is passed to `map_err`")]
    pub(crate) fn no_temporary_folder(error: io::Error) -> Self {
        Self::bad_input(
            format!("cannot create a temporary folder: {error}"),
            "check TMPDIR and its free space",
        )
    }
}

impl<E: Failure> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), hint: error.hint(), exit: error.exit_status() }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhint: {}", self.message, self.hint)
    }
}
