//! Results of the entries of the catalogue in experiment 4, and their table: a line for each kind of record of an entry.

use std::path::Path;

use super::{
    entry_cases::CaseOrigin, evidence::write_table, finding::EvidenceError, recorded_rows::RecordedRow,
};
use crate::kernel::catalogue::CatalogueEntry;

/// Name of the file.
const FILE: &str = "entries.csv";
const HEADER: [&str; 15] = [
    "Entry",
    "Status",
    "Case From",
    "Case Shapes",
    "Launches",
    "Records",
    "OP Type",
    "Library Function",
    "Core",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Reason",
];

/// Comparison of the records of an entry's case with the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub(super) enum EntryStatus {
    #[strum(serialize = "as expected")]
    AsExpected,
    /// CANN chose a kernel whose entry has the same definition, as MatMulV2 and MatMulV3.
    #[strum(serialize = "ran as an equal entry")]
    RanAsEqualEntry,
    /// The operator's package is not installed.
    #[strum(serialize = "not installed")]
    NotInstalled,
    #[strum(serialize = "not tested")]
    NotTested,
    #[strum(serialize = "mismatch")]
    Mismatch,
}

/// Result of an entry.
#[derive(Debug)]
pub(super) struct EntryResult<'a> {
    pub(super) entry: &'a CatalogueEntry,
    pub(super) origin: CaseOrigin,
    /// Shapes of the case; empty without one.
    pub(super) shapes: String,
    pub(super) status: EntryStatus,
    /// Reason of the status.
    pub(super) reason: String,
    pub(super) launched: u32,
    pub(super) rows: Vec<RecordedRow>,
}

impl EntryResult<'_> {
    /// Returns the difference from the entry; `None` if there is none, or the entry was not tested.
    pub(super) fn problem(&self) -> Option<String> {
        (self.status == EntryStatus::Mismatch).then(|| format!("{}: {}", self.entry.kernel, self.reason))
    }
}

/// Writes the table into the folder of the experiment.
pub(super) fn write_entry_table(folder: &Path, results: &[EntryResult<'_>]) -> Result<(), EvidenceError> {
    let rows = results.iter().flat_map(result_lines).map(Vec::from);
    write_table(&folder.join(FILE), &HEADER, rows)
}

/// Returns a line for each kind of record; one without a record for an entry that has none.
fn result_lines(result: &EntryResult<'_>) -> Vec<[String; 15]> {
    let line = |records: usize, row: Option<&RecordedRow>| {
        let cell = |text: fn(&RecordedRow) -> &str| row.map(text).unwrap_or_default().to_owned();
        [
            result.entry.kernel.to_string(),
            result.status.to_string(),
            result.origin.to_string(),
            result.shapes.clone(),
            result.launched.to_string(),
            records.to_string(),
            cell(|row| &row.kernel),
            cell(RecordedRow::library_function),
            cell(|row| &row.core),
            cell(|row| &row.cells[0]),
            cell(|row| &row.cells[1]),
            cell(|row| &row.cells[2]),
            cell(|row| &row.cells[3]),
            cell(|row| &row.cells[4]),
            result.reason.clone(),
        ]
    };
    let mut kinds: Vec<(usize, &RecordedRow)> = Vec::new();
    for row in &result.rows {
        let same = |known: &RecordedRow| {
            (&known.kernel, &known.core, &known.cells) == (&row.kernel, &row.core, &row.cells)
        };
        match kinds.iter_mut().find(|(_, known)| same(known)) {
            Some((count, _)) => *count += 1,
            None => kinds.push((1, row)),
        }
    }
    if kinds.is_empty() {
        return vec![line(0, None)];
    }
    kinds.into_iter().map(|(count, row)| line(count, Some(row))).collect()
}
