//! Error type of database folders and their CSVs.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    config::YamlError,
    domain::{DataKind, KernelName},
    files::FileError,
    ledger::LedgerError,
};

/// Database folder or kernel CSV that cannot be used; names the file and the failed operation.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Failed file access, or a locked folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// Unusable ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Invalid `database.yaml`.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// Path that is no folder with kernel CSVs.
    #[error("`{}` is not a database folder", .path.display())]
    NotADatabase {
        /// The given path.
        path: PathBuf,
    },
    /// Path of a file where a folder is expected.
    #[error("`{}` is a file, not a folder", .path.display())]
    NotAFolder {
        /// The given path.
        path: PathBuf,
    },
    /// Folder of the other kind.
    #[error("`{}` is a database of kind `{actual}`, this needs kind `{wanted}`", .path.display())]
    WrongKind {
        /// The folder.
        path: PathBuf,
        /// Kind of the folder.
        actual: DataKind,
        /// Kind that the command needs.
        wanted: DataKind,
    },
    /// Ledger whose runs are of another kind than `database.yaml` states.
    #[error("`{}` is of kind `{stated}`, but its ledger has runs of kind `{found}`", .path.display())]
    LedgerKind {
        /// The folder.
        path: PathBuf,
        /// Kind in `database.yaml`, `npu` without that file.
        stated: DataKind,
        /// Kind of the runs.
        found: DataKind,
    },
    /// Rows of a rehearsed run in a folder of kind `npu`.
    #[error("`{}` has rows of a rehearsed run, in a folder of kind `npu`", .path.display())]
    RehearsedRows {
        /// The CSV.
        path: PathBuf,
    },
    /// Database without rows of a required kernel.
    #[error("`{}` has no rows of `{kernel}`", .path.display())]
    NoRowsOfKernel {
        /// The folder.
        path: PathBuf,
        /// The kernel.
        kernel: KernelName,
    },
    /// CSV without a required column.
    #[error("`{}`:1: the header lacks `{column}`", .path.display())]
    MissingColumn {
        /// The CSV.
        path: PathBuf,
        /// The first missing column.
        column: &'static str,
    },
    /// CSV that cannot be parsed.
    #[error("`{}`:{line}: {problem}", .path.display())]
    Csv {
        /// The CSV.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Found and expected content.
        problem: String,
    },
    /// CSV that is a Git LFS pointer.
    #[error("`{}` is a Git LFS pointer, not the data", .path.display())]
    LfsPointer {
        /// The file.
        path: PathBuf,
    },
    /// New database whose folder another process created in the meantime.
    #[error("another npubench has just created `{}`", .path.display())]
    CreatedConcurrently {
        /// The folder.
        path: PathBuf,
    },
    /// Existing target of a copy.
    #[error("`{}` exists already", .path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
}

impl DatabaseError {
    /// Returns a function that adds action and path to an error of the system.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file_error = FileError::io(action, path);
        move |source| file_error(source).into()
    }

    /// Returns the advice that is printed as `hint:`.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::File(error) => return error.hint(),
            Self::Ledger(error) => return error.hint(),
            Self::Yaml(error) => return error.hint.clone(),
            Self::NotADatabase { path } => {
                let path = path.display();
                return format!(
                    "create one with `npubench ingest PROFILE --db {path}` or `npubench grid --db {path}`"
                );
            }
            Self::WrongKind { path, wanted: DataKind::Rehearsal, .. } => {
                let path = path.display();
                return format!(
                    "`npubench db copy {path} NEW --kind rehearsal` creates a folder with the same shapes for rehearsals"
                );
            }
            Self::LedgerKind { found, .. } => {
                return format!("the kind never changes: set `kind: {found}` in `database.yaml`");
            }
            Self::WrongKind { .. } => {
                "rehearse on it with `--host rehearsal`, or give a folder of kind `npu`; the two are never mixed"
            }
            Self::RehearsedRows { .. } => {
                "set `kind: rehearsal` in its `database.yaml`; simulated and measured durations are never mixed"
            }
            Self::NoRowsOfKernel { .. } => "first ingest a profile with this kernel",
            Self::MissingColumn { .. } => "move it out of the folder if it is not a kernel's table",
            Self::Csv { .. } => "fix the line, or restore the file from version control",
            Self::LfsPointer { .. } => "fetch the data with `git lfs pull`",
            Self::CreatedConcurrently { .. } => {
                "this command wrote nothing into it; run it again to add its rows"
            }
            Self::NotAFolder { .. } => "give the name of a database folder, or of one to create",
            Self::Exists { .. } => {
                "give the name of a folder that does not exist; `ingest` and `grid` add to an existing one"
            }
        };
        hint.to_owned()
    }
}
