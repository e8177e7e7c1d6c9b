//! Exit codes of the program, on which scripts depend.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum ExitStatus {
    Done = 0,
    /// Complete, but some cases did not end `ok`, or a query has no complete answer.
    SomeNotOk = 1,
    Usage = 2,
    /// A file, a folder or the configuration is invalid; nothing was changed.
    BadInput = 3,
    CannotMeasure = 4,
    /// Interrupted, or some tables of several could not be written; results that were committed are kept. `npubench
    /// resume` continues a run, the same command any other.
    Interrupted = 5,
    Bug = 70,
}

impl ExitStatus {
    /// Returns the status of a complete command: [`Self::Done`] if everything is as it should be.
    pub(crate) const fn done_if(is_ok: bool) -> Self {
        if is_ok { Self::Done } else { Self::SomeNotOk }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(exit.code())
    }
}
