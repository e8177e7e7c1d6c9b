//! Error type of the ledger.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::base::command_error::Failure;
use crate::base::{files::disk_space, shell_argument::quoted_path, sqlite::broken_limit};

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("the ledger `{}`: {source}", .path.display())]
    Sqlite {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("the ledger `{}` is damaged: {problem}", .path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("the ledger `{}` cannot be read: {problem}", .path.display())]
    Unreadable { path: PathBuf, problem: String },
    #[error("the ledger `{}` has layout {found}, this npubench reads layout {expected}", .path.display())]
    OtherLayout { path: PathBuf, found: i64, expected: i64 },
    /// Run whose id npubench did not create: ids are parts of paths and of shell scripts.
    #[error("the ledger `{}` has a run with the id {run:?}, expected letters, digits and `-`", .path.display())]
    InvalidRunId { path: PathBuf, run: String },
    #[error("the ledger `{}` cannot be copied: {problem}", .path.display())]
    Copy { path: PathBuf, problem: String },
    #[error("the ledgers `{}` and `{}` contradict each other: {difference}", .path.display(), .other.display())]
    Contradiction { path: PathBuf, other: PathBuf, difference: String },
}

impl LedgerError {
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        if let Some(problem) = broken_limit(&source) {
            return Self::Damaged { path, problem: problem.to_owned() };
        }
        match source.sqlite_error_code() {
            // A missing table, or a cell of another type, is damage as well: the layout is checked before.
            None | Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
                Self::Damaged { path, problem: source.to_string() }
            }
            Some(_) => Self::Sqlite { path, source },
        }
    }

    /// Returns the error with the path of the file that the user has named: a copy of it was read.
    pub(super) fn with_path(mut self, named: &Path) -> Self {
        match &mut self {
            Self::Sqlite { path, .. }
            | Self::Damaged { path, .. }
            | Self::Unreadable { path, .. }
            | Self::OtherLayout { path, .. }
            | Self::InvalidRunId { path, .. }
            | Self::Copy { path, .. }
            | Self::Contradiction { path, .. } => named.clone_into(path),
        }
        self
    }

    /// Returns true if the same transaction can succeed later: the disk is full, or another program uses the ledger.
    pub(crate) fn is_temporary(&self) -> bool {
        let Self::Sqlite { source, .. } = self else { return false };
        let code = source.sqlite_error_code();
        matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) || self.is_disk_full()
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        let Self::Sqlite { path, source } = self else { return false };
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => true,
            // SQLite reports some writes on a full disk as these, without the error of the system.
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                path.parent().is_some_and(|folder| !disk_space::has_space(folder))
            }
            _ => false,
        }
    }
}

impl Failure for LedgerError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Sqlite { .. } => {
                "check free space and permissions; the ledger holds the evidence, do not delete it"
            }
            Self::Damaged { path, .. } => {
                // The ledger is in the state folder of the database.
                let folder = path.ancestors().nth(2).unwrap_or(path);
                let folder = quoted_path(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
                return format!(
                    "`npubench db rebuild {folder}` restores it from its copy and the evidence, and keeps the damaged one; the CSVs \
                     keep their results"
                );
            }
            Self::Unreadable { .. } => {
                "check its permissions, and where it leads; or move it away, and `npubench db rebuild` restores it"
            }
            Self::InvalidRunId { .. } => {
                "no npubench wrote this id: use this ledger only if you trust its origin, and remove the run from it"
            }
            Self::Copy { .. } => "check its permissions, and the free space of its folder and of TMPDIR",
            Self::Contradiction { .. } => {
                "a run has one ledger: if a folder was copied and continued in both places, merge the one whose results are to be kept"
            }
            Self::OtherLayout { path, .. } => {
                let folder = path.parent().unwrap_or(path);
                return format!("use the npubench that wrote it, or {}", set_aside_hint(folder));
            }
        };
        hint.to_owned()
    }
}

/// Returns a hint on how a database gets a new ledger. Its folder also has shards, selftests and pauses, which stay.
pub(crate) fn set_aside_hint(state_folder: &Path) -> String {
    format!(
        "set the ledger, its copy and its runs aside: `(cd {} && mkdir lost && mv ledger* runs lost)`; the CSVs keep their results, and \
         `npubench run` measures what is missing",
        quoted_path(state_folder)
    )
}
