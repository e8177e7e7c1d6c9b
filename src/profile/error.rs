//! Error type of profiles.

use crate::base::command_error::Failure;
use std::io;

use super::{columns::OF_DATABASE, prelude::*, trace_events::TraceError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum RecordPosition {
    #[strum(to_string = ":{0}")]
    Line(u64),
    #[strum(to_string = " (globalTaskId {0})")]
    Task(i64),
    #[strum(to_string = " (COMMUNICATION_OP, opId {0})")]
    Operation(i64),
    /// Row of another table of a database, by its number from 1.
    #[strum(to_string = " ({0}, row {1})")]
    Row(&'static str, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum ShapelessKind {
    #[strum(to_string = "it was taken at profiler level 0")]
    Level0,
    #[strum(to_string = "it holds collectives and no other kernel")]
    OnlyCollectives,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
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
    #[error(
        "no ascend_pytorch_profiler*.db, msprof_*.db, trace_view.json, kernel_details.csv or op_summary*.csv below `{}`",
        .0.display()
    )]
    NoRun(PathBuf),
    #[error("`{}` is neither a database of a profiler, a trace, nor a table of kernels", .0.display())]
    UnknownFile(PathBuf),
    #[error("`{}`: {source}", .file.display())]
    Trace {
        file: PathBuf,
        #[source]
        source: TraceError,
    },
    #[error("`{}`: {problem}", .file.display())]
    IncompleteExport { file: PathBuf, problem: String },
    #[error("`{}` is empty", .0.display())]
    Empty(PathBuf),
    #[error("`{}` is a Git LFS pointer, not the data", .0.display())]
    LfsPointer(PathBuf),
    #[error("`{}` has no shape columns: {why}", .file.display())]
    NoShapes { file: PathBuf, why: ShapelessKind },
    #[error("{}:1: the header lacks {}{}", .file.display(), quote_names(.missing), .is.map_or_else(String::new, |is| format!("; it holds {is}")))]
    MissingColumns { file: PathBuf, missing: Vec<&'static str>, is: Option<&'static str> },
    /// Table with another separator or in another encoding.
    #[error("{}:1: {problem}", .file.display())]
    NotCsv { file: PathBuf, problem: String },
    /// JSON, such as a timeline, instead of a table.
    #[error("`{}` is JSON, not a table of kernels", .0.display())]
    Json(PathBuf),
    #[error("`{}` is compressed", .0.display())]
    Compressed(PathBuf),
    #[error("{}:{line}: the row that starts here does not end within {mebibytes} MiB", .file.display())]
    Endless { file: PathBuf, line: u64, mebibytes: u64 },
    #[error("{}:{line}: {fields} fields, the header has {columns}; {place}", .file.display())]
    Ragged { file: PathBuf, line: u64, fields: usize, columns: usize, place: String },
    #[error("{}:{line}: {fields} fields, the header has {columns}: a comma in the name hides the type of the kernel", .file.display())]
    CommaInName { file: PathBuf, line: u64, fields: usize, columns: usize },
    #[error("{}{place}: `{cell}` in column `{column}` {problem}", .file.display())]
    Cell { file: PathBuf, place: RecordPosition, column: &'static str, cell: String, problem: String },
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
    #[error("`{}` is not read: {problem}", .file.display())]
    ForeignDatabase { file: PathBuf, problem: String },
    #[error("`{}` is truncated: {found} of {expected} bytes", .file.display())]
    Truncated { file: PathBuf, expected: u64, found: u64 },
    #[error("`{}` was not closed: `{}` holds changes that belong to it", .file.display(), .beside.display())]
    NotClosed { file: PathBuf, beside: PathBuf },
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

fn quote_names(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl ProfileError {
    pub(crate) fn io(file: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Io { file: file.to_owned(), source }
    }

    pub(super) fn csv(file: &Path) -> impl Fn(csv::Error) -> Self {
        |error| Self::io(file)(error.into())
    }

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
            Self::Io { .. } | Self::Trace { source: TraceError::Io(_), .. } => {
                "check the path and its permissions"
            }
            Self::Trace { source: TraceError::NoEvents, .. } => {
                "the file is no trace; give the trace_view.json, kernel_details.csv or database of a profile"
            }
            Self::Trace { source: TraceError::Text { .. }, .. } => {
                "the file may be cut off or still being written; export the profile again, or give its \
                 ascend_pytorch_profiler_*.db"
            }
            Self::NoRun(_) | Self::UnknownFile(_) => {
                "give the folder of a profile (`*_ascend_pt`), or one of these files"
            }
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
            Self::MissingColumns { is: Some(OF_DATABASE), .. } => {
                "copy it into the database folder, its file name is the kernel's; `npubench check` checks its rows"
            }
            Self::Json(_) | Self::MissingColumns { is: Some(_), .. } => {
                "give the kernel_details.csv, op_summary_*.csv or database of the same profile"
            }
            Self::NotCsv { .. } => "save it as CSV with commas in UTF-8, or export the profile again",
            Self::Compressed(_) => "unpack it, and give the file or folder that it contains",
            Self::Endless { .. } => "a quote in it is not closed; fix the row, or export the profile again",
            Self::MissingTable { .. } => {
                "kernels are in the ascend_pytorch_profiler*.db or msprof_*.db of a profile at level 1 or higher"
            }
            Self::MissingTableColumns { .. } | Self::NotDatabase(_) => {
                "this is not a database of msprof or torch_npu.profiler; export the profile again"
            }
            Self::ForeignDatabase { .. } => "no profiler wrote it so: export the profile again",
            Self::Truncated { .. } => "copy it again in full, or export the profile again",
            Self::NotClosed { .. } => {
                "close the program that has it open, or let `sqlite3 FILE 'PRAGMA journal_mode=DELETE'` write the changes back"
            }
            Self::Database { .. } => "the file is damaged: copy it again, or export the profile again",
            Self::MissingColumns { is: None, .. } => {
                "this is not a kernel table of msprof or torch_npu.profiler"
            }
            Self::Ragged { .. }
            | Self::CommaInName { .. }
            | Self::Cell { place: RecordPosition::Line(_), .. } => {
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
