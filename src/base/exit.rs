//! Exit codes of the program, on which scripts depend.

use std::process::ExitCode;

/// Exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The command is complete.
    Done,
    /// Complete, but some cases did not end `ok`, or a query has no complete answer.
    SomeNotOk,
    /// The command line was wrong.
    Usage,
    /// A file, a folder or the configuration is invalid; nothing was changed.
    BadInput,
    /// This host cannot measure.
    CannotMeasure,
    /// Interrupted, or some tables of several could not be written; results that were committed are kept. `npubench
    /// resume` continues a run, the same command any other.
    Interrupted,
    /// A defect of npubench.
    Bug,
}

impl ExitStatus {
    /// Returns the status of a complete command: [`Self::Done`] if everything is as it should be.
    pub(crate) const fn done_if(is_ok: bool) -> Self {
        if is_ok { Self::Done } else { Self::SomeNotOk }
    }

    /// Returns the status with an exit code; an unknown one is a defect.
    pub(crate) fn from_code(code: u8) -> Self {
        let all = [
            Self::Done,
            Self::SomeNotOk,
            Self::Usage,
            Self::BadInput,
            Self::CannotMeasure,
            Self::Interrupted,
        ];
        all.into_iter().find(|status| status.code() == code).unwrap_or(Self::Bug)
    }

    /// Returns the exit code of the process.
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
