//! What can be wrong with a profile.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use super::columns::OtherTable;

/// Where in a file a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPosition {
    /// A line, from 1.
    Line(u64),
    /// A row of a database's `COMPUTE_TASK_INFO`.
    Task(i64),
    /// A row of a database's `COMMUNICATION_OP`.
    Operation(i64),
}

impl fmt::Display for RecordPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, ":{line}"),
            Self::Task(task) => write!(f, " (globalTaskId {task})"),
            Self::Operation(operation) => write!(f, " (COMMUNICATION_OP, opId {operation})"),
        }
    }
}

/// Why a table of kernels has no column of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapelessKind {
    /// Kernels have neither types nor shapes.
    Level0,
    /// No compute kernel is in it, so that msprof leaves the columns out.
    OnlyCollectives,
}

impl fmt::Display for ShapelessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Level0 => "it was taken at profiler level 0",
            Self::OnlyCollectives => "it holds collectives and no other kernel",
        })
    }
}

/// A profile that cannot be read; names the file and the place in it.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The path does not exist or cannot be opened or listed.
    #[error("cannot read `{}`: {source}", .file.display())]
    Io {
        /// File or folder.
        file: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A folder without any kernel table.
    #[error(
        "no kernel_details*.csv, op_summary*.csv, ascend_pytorch_profiler*.db or msprof_*.db below `{}`",
        .folder.display()
    )]
    NoProfile {
        /// The folder.
        folder: PathBuf,
    },
    /// Nothing is in the file.
    #[error("`{}` is empty", .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A Git LFS pointer where the data should be.
    #[error("`{}` is a Git LFS pointer, not the data", .file.display())]
    LfsPointer {
        /// The file.
        file: PathBuf,
    },
    /// A table of kernels without their shapes.
    #[error("`{}` has no shape columns: {why}", .file.display())]
    NoShapes {
        /// The file.
        file: PathBuf,
        /// Why it has none.
        why: ShapelessKind,
    },
    /// The header lacks columns.
    #[error("`{}`:1: the header lacks {}{}", .file.display(), quoted(.missing), describe_other_table(*.is))]
    MissingColumns {
        /// The file.
        file: PathBuf,
        /// Names of the columns.
        missing: Vec<&'static str>,
        /// What the file is instead, where its header tells.
        is: Option<OtherTable>,
    },
    /// JSON, such as a timeline, where a table should be.
    #[error("`{}` is JSON, not a table of kernels", .file.display())]
    Json {
        /// The file.
        file: PathBuf,
    },
    /// A record that does not end.
    #[error("`{}`:{line}: the row that begins here has not ended after {mebibytes} MiB", .file.display())]
    Endless {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: u64,
        /// So much of it was read.
        mebibytes: u64,
    },
    /// A row with too few or too many fields.
    #[error("`{}`:{line}: {fields} fields, the header has {columns}; {place}", .file.display())]
    Ragged {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: u64,
        /// Fields of the row.
        fields: usize,
        /// Fields of the header.
        columns: usize,
        /// Which column the row ends in front of, or where it runs over.
        place: String,
    },
    /// A cell that does not hold what its column says.
    #[error("`{}`{place}: `{cell}` in column `{column}` {problem}", .file.display())]
    Cell {
        /// The file.
        file: PathBuf,
        /// Where the record stands.
        place: RecordPosition,
        /// Name of the column.
        column: &'static str,
        /// The cell, cut where it is long.
        cell: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A line of a dump of attention calls that cannot be used.
    #[error("`{}`{place}: {problem}", .file.display())]
    DumpLine {
        /// The file.
        file: PathBuf,
        /// The line.
        place: RecordPosition,
        /// What is wrong with it.
        problem: String,
    },
    /// A dump of attention calls without any.
    #[error("`{}` has no calls", .file.display())]
    EmptyDump {
        /// The file.
        file: PathBuf,
    },
    /// Records of the rehearsal host where measured ones are wanted.
    #[error("`{}`{place}: a record of the rehearsal host, its durations are simulated", .file.display())]
    Rehearsed {
        /// The file.
        file: PathBuf,
        /// Where the record stands.
        place: RecordPosition,
    },
    /// A file named like a database that is none.
    #[error("`{}` is not an SQLite database", .file.display())]
    NotDatabase {
        /// The file.
        file: PathBuf,
    },
    /// A database that is shorter than its header says.
    #[error("`{}` is cut off: {found} of {expected} bytes are there", .file.display())]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Its length by its header.
        expected: u64,
        /// Its length.
        found: u64,
    },
    /// A database with changes that are only in its log or journal.
    #[error("`{}` was not closed: `{}` holds changes that belong to it", .file.display(), .beside.display())]
    NotClosed {
        /// The file.
        file: PathBuf,
        /// Its log or journal.
        beside: PathBuf,
    },
    /// A database without a table that holds kernels.
    #[error("`{}` has no table `{table}`: {without}", .file.display())]
    MissingTable {
        /// The file.
        file: PathBuf,
        /// Name of the table.
        table: &'static str,
        /// What that means.
        without: &'static str,
    },
    /// A table of a database lacks columns.
    #[error("`{}`: table `{table}` lacks {}", .file.display(), quoted(.missing))]
    MissingTableColumns {
        /// The file.
        file: PathBuf,
        /// Name of the table.
        table: &'static str,
        /// Names of the columns.
        missing: Vec<&'static str>,
    },
    /// SQLite cannot read it.
    #[error("cannot read the database `{}`: {source}", .file.display())]
    Database {
        /// The file.
        file: PathBuf,
        /// SQLite's reason.
        #[source]
        source: rusqlite::Error,
    },
}

fn describe_other_table(is: Option<OtherTable>) -> String {
    is.map_or_else(String::new, |table| format!("; it holds {table}"))
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl ProfileError {
    /// An error that points at a cell, which is cut where it is long.
    pub(super) fn cell(
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

    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check the path and its permissions",
            Self::NoProfile { .. } => {
                "give a kernel_details.csv, an op_summary_*.csv, a profiler's database, or a folder that torch_npu.profiler or msprof wrote"
            }
            Self::Empty { .. } => "the profiler did not finish writing it; export the profile again",
            Self::LfsPointer { .. } => "fetch the data with `git lfs pull`",
            Self::NoShapes { why: ShapelessKind::Level0, .. } => {
                "profile again with profiler_level=Level1 or higher and record_shapes=True"
            }
            Self::NoShapes { why: ShapelessKind::OnlyCollectives, .. } => {
                "leave it out; collectives are not read from profiles"
            }
            Self::MissingColumns { is: Some(OtherTable::OfDatabase), .. } => {
                "copy it into the database folder; its file name is the kernel's"
            }
            Self::Json { .. } | Self::MissingColumns { is: Some(_), .. } => {
                "give the kernel_details.csv, op_summary_*.csv or database of the same profile"
            }
            Self::Endless { .. } => "a quote in it is not closed; mend the row, or export the profile again",
            Self::MissingTable { .. } => {
                "kernels are in the ascend_pytorch_profiler*.db or msprof_*.db of a profile at level 1 or higher"
            }
            Self::MissingTableColumns { .. } | Self::NotDatabase { .. } => {
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
                "mend or remove the line, or export the profile again"
            }
            Self::Cell { .. } => "export the profile again",
            Self::DumpLine { .. } => "mend or remove the line; docs/attention.md names the fields",
            Self::EmptyDump { .. } => {
                "was the dump's patch loaded before the first call? docs/attention.md says how"
            }
            Self::Rehearsed { .. } => "ingest it into a folder of kind `rehearsal`",
        }
    }
}
