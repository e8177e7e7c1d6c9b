//! Issues found by `db check`.

use strum::{Display, IntoStaticStr};

use crate::base::{count_text::format_count, table::format::quote_cell};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum IssueSeverity {
    Note,
    /// Rows can be used, but not as intended.
    Warning,
    /// A file or a row cannot be used.
    Error,
}

impl IssueSeverity {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum LintIssueKind {
    /// The file cannot be read, or `database.yaml` is invalid.
    Unreadable,
    DamagedLedger,
    /// A ledger that does not exist, although the folder has collections of runs.
    MissingLedger,
    /// Measured cells that differ from the ledger.
    LedgerMismatch,
    /// Rows of a run that is not in the ledger, although it has a measurement of their cases.
    UnknownRun,
    /// A table that does not exist, although the ledger has results of its kernel.
    MissingTable,
    /// Cases with results in the ledger of which the table has no row.
    MissingRow,
    /// Compressed evidence that is not what its collection wrote.
    ChangedEvidence,
    /// Results of the ledger that do not follow from their evidence.
    EvidenceMismatch,
    /// Results of the ledger that the row does not show yet.
    BehindLedger,
    NotCompared,
    LfsPointer,
    Empty,
    CutHeader,
    /// No CSV: binary, UTF-16, or with another separator.
    NotCsv,
    NotUtf8,
    OpenQuote,
    Ragged,
    DoubleColumn,
    NoColumn,
    Rehearsed,
    /// A file name that stands for no kernel, or for a kernel that has another file.
    FileName,
    /// Two file names that differ only by case, which some file systems do not distinguish.
    NameCase,
    Signature,
    Number,
    UnknownName,
    NoShapes,
    /// A signature, or a collective's key, that another row has.
    Duplicate,
    ByteOrderMark,
    LineEndings,
    /// A column under the name that an older tool used.
    OldColumn,
    Zeros,
    OwnColumn,
    MissingColumns,
    /// Temporary file of an interrupted write, or of a spreadsheet program.
    LeftBehind,
    /// A folder with files of npubench, but without `database.yaml`.
    NoDatabaseFile,
}

impl LintIssueKind {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub const fn severity(self) -> IssueSeverity {
        match self {
            Self::UnknownName
            | Self::NoShapes
            | Self::Duplicate
            | Self::UnknownRun
            | Self::MissingLedger
            | Self::MissingRow
            | Self::NoDatabaseFile
            | Self::ByteOrderMark
            | Self::LineEndings
            | Self::OldColumn
            | Self::Zeros => IssueSeverity::Warning,
            Self::OwnColumn
            | Self::MissingColumns
            | Self::LeftBehind
            | Self::BehindLedger
            | Self::NotCompared => IssueSeverity::Note,
            _ => IssueSeverity::Error,
        }
    }

    /// Returns true if `db normalize` leaves a file with this issue unchanged.
    pub const fn blocks_normalize(self) -> bool {
        matches!(self.severity(), IssueSeverity::Error)
            && !matches!(self, Self::NameCase | Self::Signature | Self::Number | Self::LedgerMismatch)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintIssue {
    pub file: String,
    /// Line from 1; 1 for issues of the whole file.
    pub line: u64,
    pub kind: LintIssueKind,
    pub text: String,
}

#[derive(Debug)]
pub(crate) struct FileIssues {
    pub(crate) file: String,
    pub(crate) list: Vec<LintIssue>,
}

impl FileIssues {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), list: Vec::new() }
    }

    pub(crate) fn add_issue(&mut self, line: u64, kind: LintIssueKind, text: impl Into<String>) {
        self.list.push(LintIssue { file: self.file.clone(), line, kind, text: text.into() });
    }
}

/// Formats names as `a`, `b`, `c` and 4 more.
pub(crate) fn join_list<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 8;
    let more = names.len().saturating_sub(MAX_NAMES);
    let names: Vec<String> = names.take(MAX_NAMES).map(|name| format!("`{}`", quote_cell(name))).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.join(", "))
}

/// Formats a number of rows: `1 row`, `2 rows`.
pub(crate) fn row_count_text(count: usize) -> String {
    format_count(count, "row")
}
