//! What can be wrong with a profile.

use std::{io, path::PathBuf};

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
    #[error("no kernel_details*.csv and no op_summary*.csv below `{}`", .folder.display())]
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
    /// A profile taken at level 0.
    #[error("`{}` has no shape columns: it was taken at profiler level 0", .file.display())]
    NoShapes {
        /// The file.
        file: PathBuf,
    },
    /// The header lacks columns.
    #[error("`{}`:1: the header lacks {}", .file.display(), quoted(.missing))]
    MissingColumns {
        /// The file.
        file: PathBuf,
        /// Names of the columns.
        missing: Vec<&'static str>,
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
    #[error("`{}`:{line}: `{cell}` in column `{column}` {problem}", .file.display())]
    Cell {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: u64,
        /// Name of the column.
        column: &'static str,
        /// The cell, cut where it is long.
        cell: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Records of the rehearsal host where measured ones are wanted.
    #[error("`{}`:{line}: a record of the rehearsal host, its durations are simulated", .file.display())]
    Rehearsed {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: u64,
    },
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl ProfileError {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check the path and its permissions",
            Self::NoProfile { .. } => {
                "give a kernel_details.csv, an op_summary_*.csv, or a folder that torch_npu.profiler or msprof wrote"
            }
            Self::Empty { .. } => "the profiler did not finish writing it; export the profile again",
            Self::LfsPointer { .. } => "fetch the data with `git lfs pull`",
            Self::NoShapes { .. } => {
                "profile again with profiler_level=Level1 or higher and record_shapes=True"
            }
            Self::MissingColumns { .. } => "this is not a kernel table of msprof or torch_npu.profiler",
            Self::Ragged { .. } | Self::Cell { .. } => "mend or remove the line, or export the profile again",
            Self::Rehearsed { .. } => "ingest it into a folder of kind `rehearsal`",
        }
    }
}
