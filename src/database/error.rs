//! Error type of database folders and their CSVs.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::base::command_error::Failure;
use crate::base::exit::ExitStatus;
use crate::{
    base::{
        files::{FileError, is_missing},
        shell_argument::quoted_path,
        yaml::YamlError,
    },
    database::ledger::LedgerError,
    kernel::{DataKind, KernelName},
};

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("`{}` is not a database folder", .path.display())]
    NotADatabase { path: PathBuf },
    #[error("`{}` is no identity of a shard: {problem}", .path.display())]
    ShardFile { path: PathBuf, problem: String },
    #[error("`{}` is a profile, not a database", .path.display())]
    Profile { path: PathBuf },
    #[error("`{}` is a file, not a folder", .path.display())]
    NotAFolder { path: PathBuf },
    #[error(
        "`{}` is a database of kind `{actual}`{}, this needs kind `{wanted}`",
        .path.display(), if *.is_stated { "" } else { ", because it has no `database.yaml`" },
    )]
    WrongKind {
        path: PathBuf,
        actual: DataKind,
        wanted: DataKind,
        is_stated: bool,
        /// Option of the command for databases of kind `rehearsal`.
        option: &'static str,
    },
    #[error("`{}` is of kind `{stated}`, but its ledger has runs of kind `{found}`", .path.display())]
    LedgerKind { path: PathBuf, stated: DataKind, found: DataKind },
    #[error("`{}` has rows of a rehearsed run, in a folder of kind `npu`", .path.display())]
    RehearsedRows { path: PathBuf },
    #[error("`{}` has no rows of `{kernel}`", .path.display())]
    NoRowsOfKernel { path: PathBuf, kernel: KernelName },
    #[error("{}:1: the header lacks `{column}`", .path.display())]
    MissingColumn { path: PathBuf, column: &'static str },
    #[error("{}:{line}: {problem}", .path.display())]
    Csv { path: PathBuf, line: u64, problem: String },
    #[error("{}:1: {problem}", .path.display())]
    NotCsv { path: PathBuf, problem: String },
    #[error("`{}` is a Git LFS pointer, not the data", .path.display())]
    LfsPointer { path: PathBuf },
    #[error("another npubench has just created `{}`", .path.display())]
    CreatedConcurrently { path: PathBuf },
    #[error("{source}; {} of {total} tables were written: {}", .written.len(), .written.join(", "))]
    PartlyWritten {
        written: Vec<String>,
        total: usize,
        #[source]
        source: Box<Self>,
    },
    #[error("`{}` exists already", .path.display())]
    Exists { path: PathBuf },
    #[error("the path `{}` contains {found}, which msprof does not accept", .path.display())]
    RefusedPath { path: PathBuf, found: String },
    #[error("`{}` is in the database `{}`", .path.display(), .outer.display())]
    Nested { path: PathBuf, outer: PathBuf },
}

impl DatabaseError {
    /// Returns true if nothing has the path; a link that leads nowhere, or a folder that cannot be entered, is an error.
    pub(crate) fn is_missing(path: &Path) -> Result<bool, Self> {
        is_missing(path).map_err(Self::io("read", path))
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file_error = FileError::io(action, path);
        move |source| file_error(source).into()
    }
}

impl Failure for DatabaseError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::File(error) => return error.hint(),
            Self::Ledger(error) => return error.hint(),
            Self::Yaml(error) => return error.hint.clone(),
            Self::PartlyWritten { source, .. } => {
                return format!("{}; then the same command writes the other tables", source.hint());
            }
            Self::NotADatabase { path } => {
                let path = quoted_path(path);
                return format!(
                    "create one with `npubench ingest PROFILE --db {path}`, `npubench grid --db {path}` or `npubench comm run --db {path}`"
                );
            }
            Self::ShardFile { .. } => {
                "write `{\"plan\":\"PLAN\",\"shard\":{\"number\":K,\"count\":N}}` into it; PLAN and K are the last two folders of the path of \
                 the shard"
            }
            Self::Profile { path } => {
                return format!(
                    "run `npubench ingest {} --db DB` first, and give the folder DB",
                    quoted_path(path)
                );
            }
            Self::WrongKind { path, wanted: DataKind::Rehearsal, .. } => {
                let path = quoted_path(path);
                return format!(
                    "`npubench db copy {path} NEW --kind rehearsal` creates a folder with the same shapes for rehearsals"
                );
            }
            Self::LedgerKind { found, .. } => {
                return format!("the kind never changes: set `kind: {found}` in `database.yaml`");
            }
            Self::WrongKind { option, .. } => {
                return format!(
                    "rehearse on it with `{option}`, or give a folder of kind `npu`; the two are never mixed"
                );
            }
            Self::RehearsedRows { .. } => {
                "set `kind: rehearsal` in its `database.yaml`; simulated and measured durations are never mixed"
            }
            Self::NoRowsOfKernel { .. } => "first ingest a profile with this kernel",
            Self::MissingColumn { .. } => "move it out of the folder if it is not a kernel's table",
            Self::Csv { .. } => {
                "fix the line, or restore the file from version control, or move it out of the folder: `npubench db rebuild` writes the \
                 rows that runs have measured, and then `npubench ingest PROFILE` those of a profile"
            }
            Self::NotCsv { .. } => "save it as CSV with commas in UTF-8, or restore it from version control",
            Self::LfsPointer { .. } => "fetch the data with `git lfs pull`",
            Self::CreatedConcurrently { .. } => {
                "this command wrote nothing into it; run it again to add its rows"
            }
            Self::NotAFolder { .. } => "give the name of a database folder, or of one to create",
            Self::RefusedPath { .. } => "give another name, or rename the folder",
            Self::Nested { .. } => "give a folder outside of databases",
            Self::Exists { .. } => {
                "give the name of a folder that does not exist; `ingest` and `grid` add to an existing one"
            }
        };
        hint.to_owned()
    }

    fn exit_status(&self) -> ExitStatus {
        match self {
            Self::PartlyWritten { .. } => ExitStatus::Interrupted,
            _ => ExitStatus::BadInput,
        }
    }
}
