//! What can go wrong when something is kept or fetched.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    config::YamlError,
    domain::{DataKind, KernelName},
};

/// A failure of the store; names the file and what was being done.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// There is no such folder.
    #[error("`{}` is not a database folder", .path.display())]
    NoDatabase {
        /// The path given.
        path: PathBuf,
    },
    /// The folder is of the other kind.
    #[error("`{}` is a database of kind `{actual}`, this needs kind `{wanted}`", .path.display())]
    WrongKind {
        /// The folder.
        path: PathBuf,
        /// What it is.
        actual: DataKind,
        /// What the command needs.
        wanted: DataKind,
    },
    /// `database.yaml` and the ledger do not agree.
    #[error("`{}` says kind `{stated}`, its ledger has runs of kind `{found}`", .path.display())]
    LedgerKind {
        /// The folder.
        path: PathBuf,
        /// What `database.yaml` says, or its absence means.
        stated: DataKind,
        /// What was run.
        found: DataKind,
    },
    /// Rows of a folder of kind `npu` that the rehearsal host wrote.
    #[error("`{}` has rows of a rehearsed run, in a folder of kind `npu`", .path.display())]
    RehearsedRows {
        /// The file.
        path: PathBuf,
    },
    /// A database without rows of a kernel that is needed.
    #[error("`{}` has no rows of `{kernel}`", .path.display())]
    NoKernel {
        /// The folder.
        path: PathBuf,
        /// The kernel.
        kernel: KernelName,
    },
    /// A file that ends in `.csv` and holds no kernel's rows.
    #[error("`{}`:1: the header lacks `{column}`", .path.display())]
    NotRows {
        /// The file.
        path: PathBuf,
        /// The first column that is missing.
        column: &'static str,
    },
    /// Another npubench works on the folder.
    #[error("`{}` is in use by {owner}", .path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Who holds it, with the process id.
        owner: String,
    },
    /// A kernel's CSV cannot be used.
    #[error("`{}`:{line}: {problem}", .path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// A kernel's CSV is a Git LFS pointer.
    #[error("`{}` is a Git LFS pointer, not the data", .path.display())]
    LfsPointer {
        /// The file.
        path: PathBuf,
    },
    /// `database.yaml` is wrong.
    #[error(transparent)]
    Spec(#[from] YamlError),
    /// The ledger failed.
    #[error("the ledger `{}`: {source}", .path.display())]
    Ledger {
        /// The file.
        path: PathBuf,
        /// SQLite's reason.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer npubench wrote the ledger.
    #[error("the ledger `{}` has layout {found}, this npubench knows up to {known}", .path.display())]
    NewerLedger {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// A path that no image is written to.
    #[error("`{}` {problem}", .path.display())]
    NoImage {
        /// The path given.
        path: PathBuf,
        /// What is in the way.
        problem: String,
    },
    /// Another npubench made the folder in the meantime.
    #[error("another npubench has just made `{}`", .path.display())]
    JustMade {
        /// The folder.
        path: PathBuf,
    },
    /// The path of a folder is a file's.
    #[error("`{}` is a file, not a folder", .path.display())]
    NoFolder {
        /// The path given.
        path: PathBuf,
    },
    /// The target of a copy is there already.
    #[error("`{}` exists already", .path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Io { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                "the folder must be writable; check its owner, mode and mount".to_owned()
            }
            Self::Io { .. } => "check the path, its permissions and the free space".to_owned(),
            Self::NoDatabase { path } => {
                let path = path.display();
                format!("make one with `npubench ingest PROFILE --db {path}` or `npubench grid --db {path}`")
            }
            Self::WrongKind { path, wanted: DataKind::Rehearsal, .. } => format!(
                "`npubench db copy {} NEW --kind rehearsal` makes a folder with the same shapes to rehearse on",
                path.display()
            ),
            Self::WrongKind { .. } => {
                "rehearse on it with `--host rehearsal`, or give a folder of kind `npu`; the two are never mixed".to_owned()
            }
            Self::LedgerKind { found, .. } => {
                format!("the kind never changes: `database.yaml` must say `kind: {found}`")
            }
            Self::RehearsedRows { .. } => {
                "its `database.yaml` must say `kind: rehearsal`; simulated and measured durations are never mixed".to_owned()
            }
            Self::NoKernel { .. } => "ingest a profile that has some first".to_owned(),
            Self::NotRows { .. } => "move it out of the folder if it is not a kernel's table".to_owned(),
            Self::Locked { .. } => "wait until it ends, or stop it".to_owned(),
            Self::Csv { .. } => "mend the line, or restore the file from version control".to_owned(),
            Self::LfsPointer { .. } => "fetch the data with `git lfs pull`".to_owned(),
            Self::Spec(error) => error.hint.clone(),
            Self::Ledger { .. } => {
                "check free space and permissions; the ledger holds the evidence, do not delete it".to_owned()
            }
            Self::NewerLedger { .. } => "use the npubench that wrote it, or a newer one".to_owned(),
            Self::JustMade { .. } => "nothing of this command is in it; give it again to add to it".to_owned(),
            Self::NoFolder { .. } => "give the name of a database folder, or of one to be made".to_owned(),
            Self::NoImage { .. } => {
                "give a name that ends in `.svg`, in a folder that is there and no database's".to_owned()
            }
            Self::Exists { .. } => {
                "give the name of a folder that does not exist; `ingest` and `grid` add to one that does".to_owned()
            }
        }
    }
}
