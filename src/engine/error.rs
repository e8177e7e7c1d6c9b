//! What can end a run before its plan does.

use std::{io, path::PathBuf};

use crate::{process::ProcessError, profile::ProfileError, render::RenderError, store::StoreError};

/// A failure of the run itself; a case that fails is a verdict instead.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The database or the ledger.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Store(error) => error.hint(),
            Self::Render(error) => error.hint().to_owned(),
            Self::Profile(error) => error.hint().to_owned(),
            Self::Io { .. } => "check free space and permissions; what was measured is kept".to_owned(),
            Self::Process(_) | Self::System { .. } => {
                "what was measured is kept; run again to go on".to_owned()
            }
        }
    }
}
