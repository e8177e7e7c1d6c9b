//! Issues found by `db check`.

use strum::{Display, IntoStaticStr};

use crate::base::table::format::quote_cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum IssueSeverity {
    Note,
    /// Rows can be used, but not as intended.
    Warning,
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum LintIssueKind {
    /// The file cannot be read, or `database.yaml` is invalid.
    Unreadable,
    DamagedLedger,
    /// A ledger that does not exist, although the folder has collections of runs.
    MissingLedger,
    LedgerMismatch,
    /// Rows of a run that is not in the ledger, although it has a measurement of their cases.
    UnknownRun,
    MissingTable,
    MissingRow,
    ChangedEvidence,
    /// Results of the ledger that do not follow from their evidence.
    EvidenceMismatch,
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
    NameCase,
    Signature,
    Number,
    UnknownName,
    NoShapes,
    /// A signature, or a collective's key, that another row has.
    Duplicate,
    ByteOrderMark,
    LineEndings,
    OldColumn,
    Zeros,
    OwnColumn,
    MissingColumns,
    /// Temporary file of an interrupted write, or of a spreadsheet program.
    LeftBehind,
    NoDatabaseFile,
}

impl LintIssueKind {
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
