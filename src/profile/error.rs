//! Error type of profiles.

use crate::base::command_error::Failure;
use std::{
    io,
    path::{Path, PathBuf},
};

use super::columns::UnsupportedTable;

/// Position of a record in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum RecordPosition {
    #[strum(to_string = ":{0}")]
    Line(u64),
    /// Row of a database's `COMPUTE_TASK_INFO`.
    #[strum(to_string = " (globalTaskId {0})")]
    Task(i64),
    /// Row of a database's `COMMUNICATION_OP`.
    #[strum(to_string = " (COMMUNICATION_OP, opId {0})")]
    Operation(i64),
    /// Row of another table of a database, by its number from 1.
    #[strum(to_string = " ({0}, row {1})")]
    Row(&'static str, u64),
}

/// Reason why a table of kernels has no column of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum ShapelessKind {
    /// Profile without types and shapes of kernels.
    #[strum(to_string = "it was taken at profiler level 0")]
    Level0,
    /// Table without compute kernels, for which msprof omits the columns.
    #[strum(to_string = "it holds collectives and no other kernel")]
    OnlyCollectives,
}

/// Unreadable profile, with file and position.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Path that does not exist or cannot be opened or listed.
    #[error("cannot read `{}`: {source}", .file.display())]
    Io {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "no kernel_details*.csv, op_summary*.csv, ascend_pytorch_profiler*.db or msprof_*.db below `{}`",
        .0.display()
    )]
    NoProfile(PathBuf),
    /// Export in slices of which some are missing.
    #[error("`{}`: {problem}", .file.display())]
    IncompleteExport {
        /// Newest slice.
        file: PathBuf,
        problem: String,
    },
    #[error("`{}` is empty", .0.display())]
    Empty(PathBuf),
    /// Git LFS pointer instead of the data.
    #[error("`{}` is a Git LFS pointer, not the data", .0.display())]
    LfsPointer(PathBuf),
    #[error("`{}` has no shape columns: {why}", .file.display())]
    NoShapes { file: PathBuf, why: ShapelessKind },
    #[error("{}:1: the header lacks {}{}", .file.display(), quote_names(.missing), describe_other_table(*.is))]
    MissingColumns {
        file: PathBuf,
        missing: Vec<&'static str>,
        /// Recognized kind of the table.
        is: Option<UnsupportedTable>,
    },
    /// JSON, such as a timeline, instead of a table.
    #[error("`{}` is JSON, not a table of kernels", .0.display())]
    Json(PathBuf),
    #[error("`{}` is compressed", .0.display())]
    Compressed(PathBuf),
    #[error("{}:{line}: the row that starts here does not end within {mebibytes} MiB", .file.display())]
    Endless {
        file: PathBuf,
        line: u64,
        /// Size of the part that was read.
        mebibytes: u64,
    },
    #[error("{}:{line}: {fields} fields, the header has {columns}; {place}", .file.display())]
    Ragged {
        file: PathBuf,
        line: u64,
        fields: usize,
        columns: usize,
        /// First missing column, or first field without a column.
        place: String,
    },
    #[error("{}{place}: `{cell}` in column `{column}` {problem}", .file.display())]
    Cell {
        file: PathBuf,
        place: RecordPosition,
        column: &'static str,
        /// The cell, truncated if it is long.
        cell: String,
        problem: String,
    },
    #[error("{}{place}: {problem}", .file.display())]
    DumpLine { file: PathBuf, place: RecordPosition, problem: String },
    #[error("`{}` has no calls", .0.display())]
    EmptyDump(PathBuf),
    /// Records of the rehearsal host for a folder of kind `npu`.
    #[error("{}{place}: a record of the rehearsal host, its durations are simulated", .file.display())]
    Rehearsed { file: PathBuf, place: RecordPosition },
    /// Header with a column twice: which one is right is unknown.
    #[error("`{}` has the column `{column}` twice", .file.display())]
    DuplicateColumn { file: PathBuf, column: &'static str },
    /// Profile of a replay script, whose durations are no production durations.
    #[error("`{}` is the profile of a replay by npubench, not of production", .0.display())]
    Replay(PathBuf),
    /// Folder of a database, or a path in its state folder.
    #[error("`{}` belongs to a database, not to a profile", .0.display())]
    DatabaseFolder(PathBuf),
    #[error("`{}` is not an SQLite database", .0.display())]
    NotDatabase(PathBuf),
    /// Database shorter than the length in its header.
    #[error("`{}` is truncated: {found} of {expected} bytes", .file.display())]
    Truncated {
        file: PathBuf,
        /// Length in its header.
        expected: u64,
        found: u64,
    },
    /// Database with changes that are only in its log or journal.
    #[error("`{}` was not closed: `{}` holds changes that belong to it", .file.display(), .beside.display())]
    NotClosed {
        file: PathBuf,
        /// Log or journal of the database.
        beside: PathBuf,
    },
    #[error("`{}` has no table `{table}`: {without}", .file.display())]
    MissingTable { file: PathBuf, table: &'static str, without: &'static str },
    #[error("`{}`: table `{table}` lacks {}", .file.display(), quote_names(.missing))]
    MissingTableColumns { file: PathBuf, table: &'static str, missing: Vec<&'static str> },
    #[error("cannot read the database `{}`: {source}", .file.display())]
    Database {
        file: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
}

fn describe_other_table(is: Option<UnsupportedTable>) -> String {
    is.map_or_else(String::new, |table| format!("; it holds {}", table.0))
}

fn quote_names(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl ProfileError {
    /// Creates an error for a cell, which is truncated if it is long.
    pub(crate) fn bad_cell(
        file: &Path,
        place: RecordPosition,
        column: &'static str,
        cell: &[u8],
        problem: String,
    ) -> Self {
        let mut cell = String::from_utf8_lossy(cell).into_owned();
        if cell.chars().count() > 60 {
            cell = cell.chars().take(57).chain("...".chars()).collect();
        }
        Self::Cell { file: file.to_owned(), place, column, cell, problem }
    }
}

impl Failure for ProfileError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Io { .. } => "check the path and its permissions",
            Self::NoProfile(_) => {
                "give a kernel_details.csv, an op_summary_*.csv, a profiler's database, or a folder that torch_npu.profiler or msprof wrote"
            }
            Self::IncompleteExport { .. } => {
                "export the profile again with `msprof --export=on --output=PROF_...`, or copy all slices"
            }
            Self::Empty(_) => "the profiler did not finish writing it; export the profile again",
            Self::LfsPointer(_) => "fetch the data with `git lfs pull`",
            Self::NoShapes { why: ShapelessKind::Level0, .. } => {
                "profile again with profiler_level=Level1 or higher and record_shapes=True"
            }
            Self::NoShapes { why: ShapelessKind::OnlyCollectives, .. } => {
                "leave it out; collectives are not read from profiles"
            }
            Self::MissingColumns { is: Some(UnsupportedTable::OF_DATABASE), .. } => {
                "copy it into the database folder, its file name is the kernel's; `npubench check` checks its rows"
            }
            Self::Json(_) | Self::MissingColumns { is: Some(_), .. } => {
                "give the kernel_details.csv, op_summary_*.csv or database of the same profile"
            }
            Self::Compressed(_) => "unpack it, and give the file or folder that it contains",
            Self::Endless { .. } => "a quote in it is not closed; fix the row, or export the profile again",
            Self::MissingTable { .. } => {
                "kernels are in the ascend_pytorch_profiler*.db or msprof_*.db of a profile at level 1 or higher"
            }
            Self::MissingTableColumns { .. } | Self::NotDatabase(_) => {
                "this is not a database of msprof or torch_npu.profiler; export the profile again"
            }
            Self::Truncated { .. } => "copy it again in full, or export the profile again",
            Self::NotClosed { .. } => {
                "close the program that has it open, or let `sqlite3 FILE 'PRAGMA journal_mode=DELETE'` write the changes back"
            }
            Self::Database { .. } => "the file is damaged: copy it again, or export the profile again",
            Self::MissingColumns { is: None, .. } => {
                "this is not a kernel table of msprof or torch_npu.profiler"
            }
            Self::Ragged { .. } | Self::Cell { place: RecordPosition::Line(_), .. } => {
                "fix or remove the line, or export the profile again"
            }
            Self::Cell { .. } => "export the profile again",
            Self::DumpLine { .. } => "fix or remove the line; docs/attention.md describes the fields",
            Self::EmptyDump(_) => "load the dump's patch before the first call, see docs/attention.md",
            Self::DuplicateColumn { .. } => "export the profile again, or remove the wrong column",
            Self::Replay(_) => {
                "give profiles of the model itself; `npubench run` writes the results of replays"
            }
            Self::DatabaseFolder(_) => "give the folder of the profile; `--db` names the database",
            Self::Rehearsed { .. } => "ingest it into a folder of kind `rehearsal`",
        };
        hint.to_owned()
    }
}
