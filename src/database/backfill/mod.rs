//! Runtime values of fused attention, from a dump into the rows of its kernel.
//!
//! A row gets only what every call that fits its shapes says. Where calls differ, as decoding steps do in
//! their lengths, the row keeps these values open, for its duration is a mean over lengths that nobody
//! knows; rows of their own can be added for them, to be measured. Cells that say something are not changed.

use std::collections::{BTreeMap, HashSet};

use super::{
    Database, DatabaseError, KernelCsv, RowCase,
    columns::{self, COMPLETENESS, SOURCE},
    row_cases::row_cases,
};
use crate::{
    domain::{
        AttentionCall, AttentionCase, Case, CaseAttributes, KernelName, RUNTIME, attention_attribute,
        best_shape_matches, common_attributes,
    },
    profile::AttentionDump,
};

/// What happened to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledRow {
    /// Line of the row in the file as it was.
    pub line: u64,
    /// Cells that were filled.
    pub filled: usize,
    /// Calls of the dump that fit the row and what it says.
    pub calls: usize,
    /// `complete`, or what is still not known.
    pub completeness: String,
    /// Why the dump did not say more.
    pub remark: Option<String>,
}

/// What a dump did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackfillReport {
    /// Every row, in the order of the file.
    pub rows: Vec<FilledRow>,
    /// Rows that were added for calls.
    pub added: usize,
    /// Calls that are of no row.
    pub unused: usize,
}

impl BackfillReport {
    /// Rows that are complete now.
    #[must_use]
    pub fn complete(&self) -> usize {
        self.rows.iter().filter(|row| row.completeness == COMPLETE).count()
    }
}

const COMPLETE: &str = "complete";
const PARTIAL: &str = "partial:";
const DUMPED: &str = "dump of a serving process";

/// Merges a dump into the table of the kernel; with `add_variants`, calls whose values no row has get a row.
/// Nothing is saved.
///
/// # Errors
/// [`DatabaseError::MissingColumn`] where a signature column is missing.
pub fn backfill_table(
    table: &mut KernelCsv,
    dump: &AttentionDump,
    add_variants: bool,
) -> Result<BackfillReport, DatabaseError> {
    let rows = row_cases(&kernel(), table)?;
    let mut merge = DumpMerge {
        known: rows.iter().filter_map(|row| Some(row.case.as_ref().ok()?.signature())).collect(),
        used: HashSet::new(),
        firsts: BTreeMap::new(),
        dump,
        done: BackfillReport::default(),
    };
    for row in rows {
        match &row.case {
            Ok(case) => merge.row(table, &row, case)?,
            Err(problem) => {
                let completeness = format!("unreadable: {problem}");
                merge.done.rows.push(FilledRow {
                    line: row.line,
                    filled: 0,
                    calls: 0,
                    completeness,
                    remark: None,
                });
            }
        }
    }
    if add_variants {
        merge.add_variants(table)?;
    }
    merge.done.unused = dump.len() - merge.used.len();
    Ok(merge.done)
}

/// A dump on its way into a table.
struct DumpMerge<'a> {
    /// Signatures that a row has.
    known: HashSet<String>,
    used: HashSet<DumpedCall<'a>>,
    /// The first row of each shapes, for calls that may need a row of their own.
    firsts: BTreeMap<String, (usize, Case)>,
    dump: &'a AttentionDump,
    done: BackfillReport,
}

type DumpedCall<'a> = (&'a AttentionCall, &'a CaseAttributes);

impl<'a> DumpMerge<'a> {
    fn row(&mut self, table: &mut KernelCsv, row: &RowCase, case: &Case) -> Result<(), DatabaseError> {
        let bare = Case { attributes: CaseAttributes::default(), ..case.clone() };
        self.firsts.entry(bare.signature()).or_insert_with(|| (row.row, case.clone()));
        let (fits, contradicted) = self.fits(case);
        let common = common_attributes(fits.iter().copied());
        let filled = Case { attributes: case.attributes.merged_over(&common), ..case.clone() };
        let is_news = filled.attributes != case.attributes;
        let is_taken = filled.signature() != case.signature() && self.known.contains(&filled.signature());
        // What keeps the values of the dump out of the row.
        let refusal = if is_news && is_measured(table, row) {
            Some("measured before they were known")
        } else if is_taken {
            Some("another row has the values of the dump; remove the older one")
        } else if is_news && says(table, row.row, COMPLETENESS).is_some_and(|said| said.contains(DIFFER)) {
            Some("calls of an earlier dump differ")
        } else {
            None
        };
        let told = if refusal.is_some() { case } else { &filled };
        let kernel = AttentionCase::new(told);
        let is_disputed = kernel.missing().iter().any(|name| fits.iter().any(|fit| fit.get(name).is_some()));
        let remark = match (refusal, contradicted) {
            (Some(refusal), _) => Some(refusal.to_owned()),
            (None, _) if is_disputed => Some(format!("{} {DIFFER}", fits.len())),
            (None, contradicted) => contradicted.map(|name| format!("other calls contradict its `{name}`")),
        };
        let completeness = kernel.completeness();
        let mut count = 0;
        if refusal.is_none() && !fits.is_empty() {
            self.known.insert(filled.signature());
            let remark = remark.as_deref().filter(|_| completeness != COMPLETE);
            let cell =
                remark.map_or_else(|| completeness.clone(), |remark| format!("{completeness} ({remark})"));
            count = fill(table, row.row, &common, &cell)?;
        }
        let calls = fits.len();
        self.done.rows.push(FilledRow { line: row.line, filled: count, calls, completeness, remark });
        Ok(())
    }

    /// The calls that fit a case and what it says of itself; and an attribute in which other calls of its
    /// shapes contradict it.
    fn fits(&mut self, case: &Case) -> (Vec<&'a CaseAttributes>, Option<String>) {
        let mut contradicted = None;
        let mut fits = Vec::new();
        for (call, variants) in best_shape_matches(case, self.dump.iter(), |(call, _)| call) {
            for variant in variants {
                if let Some(name) = case.attributes.contradicts(variant) {
                    contradicted.get_or_insert_with(|| name.to_owned());
                } else {
                    self.used.insert((call, variant));
                    fits.push(variant);
                }
            }
        }
        (fits, contradicted)
    }

    /// Adds a row for every call whose values none has, once all rows have got theirs.
    fn add_variants(&mut self, table: &mut KernelCsv) -> Result<(), DatabaseError> {
        for (like, case) in std::mem::take(&mut self.firsts).into_values() {
            for (call, variants) in best_shape_matches(&case, self.dump.iter(), |(call, _)| call) {
                for variant in variants {
                    self.used.insert((call, variant));
                    let attributes = variant.merged_over(&case.attributes);
                    let variant = Case { attributes, ..case.clone() };
                    if self.known.insert(variant.signature()) {
                        append(table, like, &variant)?;
                        self.done.added += 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// How a remark on calls that differ ends.
const DIFFER: &str = "calls of the dump differ";

/// What a cell says, where it says anything.
fn says(table: &KernelCsv, row: usize, column: &str) -> Option<String> {
    table.cell(row, column).filter(|cell| CaseAttributes::has_value(cell))
}

/// Whether a replay has said something of the row, be it a number or only a verdict.
fn is_measured(table: &KernelCsv, row: &RowCase) -> bool {
    row.shown.is_some()
        || ["MicroBench Verdict", "MicroBench Case"]
            .iter()
            .any(|column| table.cell(row.row, column).is_some_and(|cell| !cell.trim().is_empty()))
}

/// The kernel's name.
fn kernel() -> KernelName {
    KernelName::new(AttentionCase::KERNEL).unwrap_or_else(|_| unreachable!("a name"))
}

/// Sets the cells of a row that say nothing, and its completeness; returns how many attributes it got.
fn fill(
    table: &mut KernelCsv,
    row: usize,
    attributes: &CaseAttributes,
    completeness: &str,
) -> Result<usize, DatabaseError> {
    let cell = |column: &str| says(table, row, column);
    // A table of an older tool has its mean under an older name.
    let is_open = |name: &str| {
        cell(name).is_none() && (name != attention_attribute::AVG_SEQ_LEN || cell("avg_seq_len").is_none())
    };
    let mut cells: Vec<(&str, String)> = attributes
        .iter()
        .filter(|(name, _)| is_open(name))
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    let count = cells.len();
    match cell(SOURCE) {
        Some(source) if count > 0 && !source.contains(DUMPED) => {
            cells.push((SOURCE, format!("{source}; {DUMPED}")));
        }
        None if count > 0 => cells.push((SOURCE, DUMPED.to_owned())),
        _ => {}
    }
    // What somebody else's tool says of it stays.
    if cell(COMPLETENESS).is_none_or(|said| said == COMPLETE || said.starts_with(PARTIAL)) {
        cells.push((COMPLETENESS, completeness.to_owned()));
    }
    table.update(row, &cells)?;
    Ok(count)
}

/// Adds a row of the same tensors with other values and no measurements.
fn append(table: &mut KernelCsv, like: usize, case: &Case) -> Result<(), DatabaseError> {
    let header = table.columns().to_vec();
    let kept = |name: &String| {
        columns::SIGNATURE.contains(&name.as_str())
            || [columns::STATE, columns::CORE].contains(&name.as_str())
            || (name.starts_with(RUNTIME) && CaseAttributes::name_of(name).is_none())
    };
    let of_row = table.cells(like)?;
    let mut cells: Vec<(&str, String)> = header
        .iter()
        .zip(of_row.iter())
        .filter(|(name, _)| kept(name))
        .map(|(name, cell)| (name.as_str(), cell.to_owned()))
        .filter(|(name, _)| ![SOURCE, COMPLETENESS].contains(name))
        .collect();
    cells.extend(case.attributes.iter().map(|(name, value)| (name, value.to_owned())));
    cells.push((SOURCE, DUMPED.to_owned()));
    cells.push((COMPLETENESS, AttentionCase::new(case).completeness()));
    for (name, _) in &cells {
        table.ensure_column(name);
    }
    table.append(&cells);
    Ok(())
}

/// Merges a dump into a database, under its lock, and saves the table where something changed.
///
/// # Errors
/// [`DatabaseError::NoRowsOfKernel`] where the database has no such rows, and any error of reading or writing.
pub fn backfill_database(
    database: &Database,
    dump: &AttentionDump,
    add_variants: bool,
) -> Result<BackfillReport, DatabaseError> {
    let kernel = kernel();
    if !database.kernel_path(&kernel).exists() {
        return Err(DatabaseError::NoRowsOfKernel { path: database.folder().to_owned(), kernel });
    }
    let mut lock = database.lock()?;
    let mut table = database.kernel_csv(&kernel)?;
    let done = backfill_table(&mut table, dump, add_variants)?;
    if table.is_changed() {
        database.initialise(&mut lock)?;
        table.save()?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
