//! What a check says about one place.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueSeverity {
    /// Good to know.
    Note,
    /// Rows can be used, but not as they were meant.
    Warning,
    /// A file or a row cannot be used.
    Error,
}

impl IssueSeverity {
    /// The word on screen.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for IssueSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident, $blocks:literal;)+) => {
        /// What kind of thing a remark is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LintIssueKind { $($(#[$doc])* $name,)+ }

        impl LintIssueKind {
            /// The word on screen.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// How bad it is.
            #[must_use]
            pub const fn severity(self) -> IssueSeverity {
                match self { $(Self::$name => IssueSeverity::$severity,)+ }
            }

            /// Whether nothing in the file can be mended before this is.
            #[must_use]
            pub const fn blocks_mending(self) -> bool {
                match self { $(Self::$name => $blocks,)+ }
            }
        }
    };
}

kinds! {
    /// The system does not let it be read, or `database.yaml` is wrong.
    Unreadable = "unreadable", Error, true;
    /// A Git LFS pointer stands in the place of the data.
    LfsPointer = "lfs-pointer", Error, true;
    /// Nothing is in it.
    Empty = "empty", Error, true;
    /// No table: binary, UTF-16, or separated by something else.
    NotCsv = "not-csv", Error, true;
    /// A name or a cell is not UTF-8.
    NotUtf8 = "not-utf8", Error, true;
    /// A quoted cell goes on to the end of the file.
    OpenQuote = "open-quote", Error, true;
    /// A row has more or fewer cells than the header.
    Ragged = "ragged", Error, true;
    /// A column's name stands twice.
    DoubleColumn = "double-column", Error, true;
    /// A column that rows cannot be read without is not there.
    NoColumn = "no-column", Error, true;
    /// Rows of the rehearsal host among measured ones.
    Rehearsed = "rehearsed", Error, true;
    /// The file's name stands for no kernel, or for one that has another file.
    FileName = "file-name", Error, true;
    /// Two files are one where names do not tell case apart.
    NameCase = "name-case", Error, false;
    /// The signature of a row cannot be read.
    Signature = "signature", Error, false;
    /// A number is none.
    Number = "number", Error, false;
    /// A row without input shapes.
    NoShapes = "no-shapes", Warning, false;
    /// A signature, or a collective's key, that another row has.
    Duplicate = "duplicate", Warning, false;
    /// A byte-order mark.
    ByteOrderMark = "byte-order-mark", Warning, false;
    /// Lines end differently.
    LineEndings = "line-endings", Warning, false;
    /// A column under the name that an older tool gave it.
    OldColumn = "old-column", Warning, false;
    /// Zeros that stand for "not measured".
    Zeros = "zeros", Warning, false;
    /// A column that no contract has.
    OwnColumn = "own-column", Note, false;
    /// Columns of the contract that are not there.
    Missing = "missing-columns", Note, false;
    /// Something that an interrupted write left behind.
    LeftBehind = "left-behind", Note, false;
}

/// One thing found, at its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintIssue {
    /// Name of the file in the folder.
    pub file: String,
    /// From 1; 1 for what is about the whole file.
    pub line: u64,
    /// What it is about, and how bad.
    pub kind: LintIssueKind,
    /// In words.
    pub text: String,
}

/// Remarks on one file.
#[derive(Debug)]
pub(crate) struct FileIssues {
    pub(crate) file: String,
    pub(crate) list: Vec<LintIssue>,
}

impl FileIssues {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), list: Vec::new() }
    }

    pub(crate) fn add(&mut self, line: u64, kind: LintIssueKind, text: impl Into<String>) {
        self.list.push(LintIssue { file: self.file.clone(), line, kind, text: text.into() });
    }
}

/// Longest piece of a cell that is repeated in a text.
const LONGEST: usize = 60;

/// A file's text as it may be shown: one line, no control characters, not too long.
pub(crate) fn quote_cell(text: &str) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == LONGEST {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// `a`, `b`, `c` and 4 more.
pub(crate) fn join_list<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MOST: usize = 8;
    let more = names.len().saturating_sub(MOST);
    let names: Vec<String> = names.take(MOST).map(|name| format!("`{}`", quote_cell(name))).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.join(", "))
}
