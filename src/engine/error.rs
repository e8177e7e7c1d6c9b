//! What can end a run before its plan does.

use std::{io, path::PathBuf};

use crate::{
    database::DatabaseError, device::DeviceError, exit::ExitStatus, files::FileError, ledger::LedgerError,
    process::ProcessError, profile::ProfileError, render::RenderError,
};

/// A failure of the run itself; a case that fails is a verdict instead.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Unusable database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Failed file access.
    #[error(transparent)]
    File(#[from] FileError),
    /// Unusable ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A template.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A folder of a collection cannot be written.
    #[error("cannot write `{}`: {source}", .path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The script of a collection cannot be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// What msprof left cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Another run holds a device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A lane panicked, which is a defect of npubench.
    #[error("the lane of device {device} panicked; this is a defect of npubench")]
    Panicked {
        /// The device.
        device: u32,
    },
    /// Signals or threads of the system.
    #[error("the system refused {what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its reason.
        #[source]
        source: io::Error,
    },
}

impl EngineError {
    /// How the program ends: bad templates are bad input, anything else leaves a run to go on with.
    #[must_use]
    pub const fn exit(&self) -> ExitStatus {
        match self {
            Self::Render(_) => ExitStatus::BadInput,
            Self::Device(_) => ExitStatus::CannotMeasure,
            Self::Panicked { .. } => ExitStatus::Bug,
            _ => ExitStatus::Interrupted,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            Self::Render(error) => error.hint().to_owned(),
            Self::Profile(error) => error.hint().to_owned(),
            Self::Io { .. } => "check free space and permissions; what was measured is kept".to_owned(),
            Self::Device(error) => error.hint().to_owned(),
            Self::Panicked { .. } => "report it with the lines above; what was measured is kept".to_owned(),
            Self::Process(_) | Self::System { .. } => {
                "what was measured is kept; run again to go on".to_owned()
            }
        }
    }
}
