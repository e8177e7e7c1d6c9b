//! Errors that end a run early.

use std::{io, path::PathBuf};

use crate::{
    base::{command_error::Failure, exit::ExitStatus, files::disk_space, process::ProcessError},
    database::{DatabaseError, ledger::LedgerError},
    kernel::render::RenderError,
    measure::{device::DeviceError, nodes::NodeError},
};

/// A failure of the run itself; a case that fails gets a verdict instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("cannot write `{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the lane of device {device} panicked; this is a defect of npubench")]
    Panicked { device: u32 },
    #[error("the run was stopped before its last results could be stored: {source}")]
    StoppedWaiting { source: LedgerError },
    #[error("the system refused {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl EngineError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. }
            | Self::System { source, .. }
            | Self::Process(ProcessError::Io { source, .. }) => disk_space::is_disk_full(source),
            Self::Database(DatabaseError::File(error)) => error.is_disk_full(),
            _ => false,
        }
    }
}

impl Failure for EngineError {
    fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            Self::Render(error) => error.hint(),
            Self::Io { .. } => "check free space and permissions; committed results are kept".to_owned(),
            Self::Device(error) => error.hint(),
            Self::Node(error) => error.hint(),
            Self::Panicked { .. } => "report it with the lines above; committed results are kept".to_owned(),
            Self::Process(_) => "committed results are kept; `npubench resume` continues the run".to_owned(),
            Self::StoppedWaiting { .. } => {
                "free disk space, then `npubench resume` continues the run; committed results are kept".to_owned()
            }
            Self::System { .. } => {
                "raise the limits of open files (`ulimit -n`) and processes (`ulimit -u`); committed results are kept"
                    .to_owned()
            }
        }
    }

    /// Bad templates and a damaged ledger are bad input; after most other errors the run can be resumed.
    fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Render(_)
            | Self::Ledger(LedgerError::Damaged { .. })
            | Self::Database(DatabaseError::Ledger(LedgerError::Damaged { .. })) => ExitStatus::BadInput,
            Self::Device(_) | Self::System { .. } => ExitStatus::CannotMeasure,
            Self::Panicked { .. } => ExitStatus::Bug,
            _ => ExitStatus::Interrupted,
        }
    }
}
