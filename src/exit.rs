//! The exit codes of the program, which scripts depend on.

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Everything asked for was done.
    Done,
    /// Done, but some cases did not end `ok`.
    SomeNotOk,
    /// The command line was wrong.
    Usage,
    /// A file, a folder or the configuration was bad; nothing was changed.
    BadInput,
    /// This host cannot measure.
    CannotMeasure,
    /// Interrupted; what was measured is kept and the same command goes on from there.
    Interrupted,
    /// A defect of npubench.
    Bug,
}

impl ExitStatus {
    /// The number that the shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::SomeNotOk => 1,
            Self::Usage => 2,
            Self::BadInput => 3,
            Self::CannotMeasure => 4,
            Self::Interrupted => 5,
            Self::Bug => 70,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(exit.code())
    }
}
