//! Error type of the ledger.

use std::path::PathBuf;

/// Ledger that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Failed SQLite call.
    #[error("the ledger `{}`: {source}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
    /// Ledger written by a newer npubench.
    #[error("the ledger `{}` has layout {found}, this npubench supports layouts up to {supported}", .path.display())]
    NewerLayout {
        /// The file.
        path: PathBuf,
        /// Layout of the file.
        found: i64,
        /// Newest layout of this program.
        supported: i64,
    },
    /// Run whose id npubench did not create: ids are parts of paths and of shell scripts.
    #[error("the ledger `{}` has a run with the id {run:?}, expected letters, digits and `-`", .path.display())]
    InvalidRunId {
        /// The file.
        path: PathBuf,
        /// The id.
        run: String,
    },
}

impl LedgerError {
    /// Returns the advice that is printed as `hint:`.
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
