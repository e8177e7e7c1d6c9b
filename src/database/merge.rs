//! What profiles say, into the rows of its signatures.

use std::collections::{HashMap, HashSet};

use super::{
    DatabaseError, KernelCsv,
    columns::{self, COMPLETENESS},
    numbers::{decimals, micros},
    row_cases::RowColumns,
};
use crate::{
    domain::{AttentionCase, Case, CaseAttributes, KernelName, keeps_input_shapes},
    profile::{COUNTERS, GroupStatistics, RecordGroup},
};

/// What a merge did to one kernel's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Rows that were not there before.
    pub added: usize,
    /// Rows in which something changed.
    pub updated: usize,
    /// Rows that already said the same.
    pub same: usize,
    /// Rows that said more than the profile, and keep it.
    pub kept: usize,
}

/// Merges the groups of a profile into a kernel's table: profiling columns of rows with the same
/// signature are set, other signatures become new rows. Attributes and what explains them fill cells that say
/// nothing. Nothing else is touched.
///
/// A profile that says less than the row does not replace what it says: one record where there were several,
/// or none of the counters. A group whose attributes are not known, and whose numbers stand in a row of the
/// same shapes, is that row: somebody has found out the attributes since.
///
/// # Errors
/// [`DatabaseError::MissingColumn`] where a signature column is missing.
pub fn merge_groups(
    kernel: &KernelName,
    table: &mut KernelCsv,
    groups: Vec<RecordGroup>,
) -> Result<MergeReport, DatabaseError> {
    let rows = RowsOfGroups::find(kernel, table, &groups)?;
    let mut merged = MergeReport::default();
    for group in groups {
        let (case, signature) = (group.case.clone(), group.cells.clone());
        let (state, core, extra) = (group.state.clone(), group.core.clone(), group.extra.clone());
        let profiling = profiling_cells(group.into_statistics());
        if let Some(known) = rows.same(&case) {
            for row in known {
                merged.count(update(table, row, &case, &profiling, &extra)?);
            }
            continue;
        }
        if let Some(row) = rows.open(&case).iter().find(|row| shows(table, row.index, &profiling)) {
            merged.count(update(table, row, &case, &profiling, &extra)?);
            continue;
        }
        if case.attributes.is_empty()
            && rows.completed(&case).iter().any(|&row| shows(table, row, &profiling))
        {
            merged.same += 1;
            continue;
        }
        let mut cells: Vec<(&str, String)> = columns::SIGNATURE.into_iter().zip(signature).collect();
        cells.extend([(columns::STATE, state), (columns::CORE, core)]);
        cells.extend(borrowed(&profiling).chain(borrowed(&extra)));
        for (name, _) in &cells {
            table.ensure_column(name);
        }
        table.append(&cells);
        merged.added += 1;
    }
    Ok(merged)
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowChange {
    Updated,
    Same,
    Kept,
}

impl MergeReport {
    fn count(&mut self, fate: RowChange) {
        *match fate {
            RowChange::Updated => &mut self.updated,
            RowChange::Same => &mut self.same,
            RowChange::Kept => &mut self.kept,
        } += 1;
    }
}

/// Sets the profiling columns of a row, and fills in what it does not say of its attributes.
fn update(
    table: &mut KernelCsv,
    row: &SignatureRow,
    case: &Case,
    profiling: &[(String, String)],
    extra: &[(String, String)],
) -> Result<RowChange, DatabaseError> {
    let is_said =
        |column: &str| table.cell(row.index, column).is_some_and(|cell| CaseAttributes::has_value(&cell));
    let mut news: Vec<(&str, String)> = borrowed(extra).filter(|(column, _)| !is_said(column)).collect();
    if let Some((_, completeness)) = news.iter_mut().find(|(column, _)| *column == COMPLETENESS) {
        // Together with what the row says already.
        let attributes = row.attributes.merged_over(&case.attributes);
        *completeness = AttentionCase::new(&Case { attributes, ..case.clone() }).completeness();
    }
    let says_less = says_less(table, row.index, profiling);
    if !says_less {
        news.extend(borrowed(profiling));
    }
    Ok(match (table.update(row.index, &news)?, says_less) {
        (true, _) => RowChange::Updated,
        (false, true) => RowChange::Kept,
        (false, false) => RowChange::Same,
    })
}

/// Whether the numbers of a profile are less than what a row shows: of one record where it has a deviation, so
/// that there were several, or without any counter where it has some.
fn says_less(table: &KernelCsv, row: usize, profiling: &[(String, String)]) -> bool {
    let has = |column: &str| table.cell(row, column).is_some_and(|cell| CaseAttributes::has_value(&cell));
    let (durations, counters) = profiling.split_at(columns::PROFILING.len());
    let is_one = durations.last().is_some_and(|(column, value)| value.is_empty() && has(column));
    let is_bare =
        counters.iter().all(|(_, value)| value.is_empty()) && counters.iter().any(|(column, _)| has(column));
    is_one || is_bare
}

fn borrowed(cells: &[(String, String)]) -> impl Iterator<Item = (&str, String)> {
    cells.iter().map(|(name, value)| (name.as_str(), value.clone()))
}

/// Whether a row has just these cells.
fn shows(table: &KernelCsv, row: usize, cells: &[(String, String)]) -> bool {
    cells.iter().all(|(column, value)| {
        let shown = table.cell(row, column).unwrap_or_default();
        shown.trim() == value
    })
}

fn profiling_cells(statistics: GroupStatistics) -> Vec<(String, String)> {
    let durations = statistics.durations.map_or([None; 3], |s| [Some(s.mean), Some(s.median), s.std]);
    let mut cells: Vec<(String, String)> = columns::PROFILING
        .into_iter()
        .zip(durations)
        .map(|(name, value)| (name.to_owned(), value.map_or_else(String::new, micros)))
        .collect();
    for (counter, mean) in COUNTERS.into_iter().zip(statistics.counters) {
        cells.push((columns::profiling_average(counter), mean.map_or_else(String::new, decimals)));
    }
    cells
}

/// A row of a group's signature.
struct SignatureRow {
    index: usize,
    attributes: CaseAttributes,
}

/// The rows that groups belong to.
struct RowsOfGroups {
    by_signature: HashMap<String, Vec<SignatureRow>>,
    /// Rows with attributes, by their signature without.
    completed: HashMap<String, Vec<usize>>,
}

impl RowsOfGroups {
    /// Only rows whose shapes are written as those of a group are looked at closely: a profile touches few of
    /// a large table's rows. No rule of a signature changes the outputs; those that change the inputs are told.
    fn find(kernel: &KernelName, table: &KernelCsv, groups: &[RecordGroup]) -> Result<Self, DatabaseError> {
        const OUTPUTS: usize = 3;
        let columns = RowColumns::from_table(table)?;
        let cell = if keeps_input_shapes(kernel) { 0 } else { OUTPUTS };
        let wanted: HashSet<u64> =
            groups.iter().map(|group| shape_key(group.cells[cell].as_bytes())).collect();
        let mut candidates = Vec::new();
        table.for_each_cell(columns.signature_column(cell), |row, shapes| {
            if wanted.contains(&shape_key(shapes)) {
                candidates.push(row);
            }
        });
        let mut found = Self { by_signature: HashMap::new(), completed: HashMap::new() };
        for index in candidates {
            let Ok(case) = columns.case(kernel, &table.byte_cells(index)) else { continue };
            if !case.attributes.is_empty() {
                found.completed.entry(bare_signature(&case)).or_default().push(index);
            }
            let row = SignatureRow { index, attributes: case.attributes.clone() };
            found.by_signature.entry(case.signature()).or_default().push(row);
        }
        Ok(found)
    }

    fn same(&self, case: &Case) -> Option<&[SignatureRow]> {
        self.by_signature.get(&case.signature()).map(Vec::as_slice)
    }

    /// Rows that leave open what the case says.
    fn open(&self, case: &Case) -> &[SignatureRow] {
        if case.attributes.is_empty() {
            return &[];
        }
        self.by_signature.get(&bare_signature(case)).map_or(&[], Vec::as_slice)
    }

    fn completed(&self, case: &Case) -> &[usize] {
        self.completed.get(&bare_signature(case)).map_or(&[], Vec::as_slice)
    }
}

fn bare_signature(case: &Case) -> String {
    Case { attributes: CaseAttributes::default(), ..case.clone() }.signature()
}

/// A number that two shape cells share if they are parsed alike: it sees digits and separators, without
/// leading zeros and trailing separators.
fn shape_key(cell: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut before = b';';
    let mut pending = 0_u64;
    let mix = |hash: u64, byte: u64| (hash ^ byte).wrapping_mul(0x0000_0100_0000_01b3);
    for &byte in cell {
        match byte {
            b'0' if !before.is_ascii_digit() => continue,
            b';' => pending += 1,
            b'0'..=b'9' | b',' => {
                for _ in 0..std::mem::take(&mut pending) {
                    hash = mix(hash, u64::from(b';'));
                }
                hash = mix(hash, u64::from(byte));
            }
            _ => continue,
        }
        before = byte;
    }
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::SignatureCells;

    fn slots(cell: &str, dtype: &str, format: &str) -> Option<Vec<Vec<u64>>> {
        let count = cell.matches(';').count() + 1;
        let (dtypes, formats) = (vec![dtype; count].join(";"), vec![format; count].join(";"));
        let parsed = SignatureCells { shapes: cell, dtypes: &dtypes, formats: &formats }.parse().ok()?;
        let mut dims: Vec<Vec<u64>> =
            parsed.into_iter().map(|slot| slot.map_or_else(Vec::new, |t| t.dims)).collect();
        while dims.last().is_some_and(Vec::is_empty) {
            dims.pop();
        }
        Some(dims)
    }

    #[test]
    fn spelling_does_not_decide_the_key() {
        let key = |text: &str| shape_key(text.as_bytes());
        assert_eq!(key("\"4096,1024;1024\""), key("(4096, 1024);01024;;"));
        assert_ne!(key("4096,1024;1024"), key("4096;1024,1024"));
        assert_ne!(key("10"), key("1"));
        assert_eq!(key("N/A"), key(""));
    }

    proptest! {
        /// Cells that are parsed alike have one key, or rows would be missed.
        #[test]
        fn cells_parsed_alike_have_one_key(
            left in "[0-2,;() ]{0,8}", right in "[0-2,;() ]{0,8}",
            dtype in "FLOAT|DT_UNDEFINED", format in "ND|NULL",
        ) {
            if let (Some(l), Some(r)) = (slots(&left, "FLOAT", "ND"), slots(&right, &dtype, &format)) && l == r {
                prop_assert_eq!(shape_key(left.as_bytes()), shape_key(right.as_bytes()));
            }
        }
    }
}
