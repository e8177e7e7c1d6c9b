//! Errors that end a run early.

use std::{io, path::PathBuf};

use crate::{
    database::DatabaseError, device::DeviceError, exit::ExitStatus, files::FileError, ledger::LedgerError,
    process::ProcessError, profile::ProfileError, render::RenderError,
};

/// A failure of the run itself; a case that fails gets a verdict instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The database cannot be read or written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A template cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A file of a collection cannot be written.
    #[error("cannot write `{}`: {source}", .path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The script of a collection cannot be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The output of msprof cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A device is leased by another run.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A lane panicked, which is a defect of npubench.
    #[error("the lane of device {device} panicked; this is a defect of npubench")]
    Panicked {
        /// The device.
        device: u32,
    },
    /// The operating system refused a resource, such as a thread.
    #[error("the system refused {what}: {source}")]
    System {
        /// The resource.
        what: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl EngineError {
    /// Returns the exit code: bad templates are bad input; after most other errors the run can be resumed.
    pub(crate) const fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Render(_) => ExitStatus::BadInput,
            Self::Device(_) => ExitStatus::CannotMeasure,
            Self::Panicked { .. } => ExitStatus::Bug,
            _ => ExitStatus::Interrupted,
        }
    }

    /// Returns the advice printed with the error.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            Self::Render(error) => error.hint().to_owned(),
            Self::Profile(error) => error.hint().to_owned(),
            Self::Io { .. } => "check free space and permissions; committed results are kept".to_owned(),
            Self::Device(error) => error.hint().to_owned(),
            Self::Panicked { .. } => "report it with the lines above; committed results are kept".to_owned(),
            Self::Process(_) | Self::System { .. } => {
                "committed results are kept; `npubench resume` continues the run".to_owned()
            }
        }
    }
}
