//! Error type of the ledger.

use std::path::PathBuf;

/// Ledger that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("the ledger `{}`: {source}", .path.display())]
    Sqlite {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("the ledger `{}` has layout {found}, this npubench supports layouts up to {supported}", .path.display())]
    NewerLayout { path: PathBuf, found: i64, supported: i64 },
    /// Run whose id npubench did not create: ids are parts of paths and of shell scripts.
    #[error("the ledger `{}` has a run with the id {run:?}, expected letters, digits and `-`", .path.display())]
    InvalidRunId { path: PathBuf, run: String },
}

impl LedgerError {
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::Sqlite { .. } => {
                "check free space and permissions; the ledger holds the evidence, do not delete it"
            }
            Self::InvalidRunId { .. } => {
                "no npubench wrote this id: use this ledger only if you trust its origin, and remove the run from it"
            }
            Self::NewerLayout { .. } => "use the npubench that wrote it, or a newer one",
        };
        hint.to_owned()
    }
}
