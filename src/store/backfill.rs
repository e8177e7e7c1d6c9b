//! Runtime values of fused attention, from a dump into the rows of its kernel.
//!
//! A row gets only what every call that fits its shapes says. Where calls differ, as decoding steps do in
//! their lengths, the row keeps these values open, for its duration is a mean over lengths that nobody
//! knows; rows of their own can be added for them, to be measured. Cells that say something are not changed.

use std::collections::HashSet;

use super::{Database, KernelCsv, StoreError, columns, rows::row_cases};
use crate::{
    model::{
        Attention, Attributes, Case, KernelName, RUNTIME, agreed, attention_attribute::AVG_SEQ_LEN, best_fits,
    },
    profile::DumpedCall,
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
    /// `complete`, or what is still not known and why.
    pub completeness: String,
}

/// What a dump did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backfilled {
    /// Every row that can be read, in the order of the file.
    pub rows: Vec<FilledRow>,
    /// Rows that were added for calls.
    pub added: usize,
    /// Calls that fit no row.
    pub unused: usize,
}

impl Backfilled {
    /// Rows that are complete now.
    #[must_use]
    pub fn complete(&self) -> usize {
        self.rows.iter().filter(|row| row.completeness == COMPLETE).count()
    }
}

const COMPLETE: &str = "complete";
const COMPLETENESS: &str = "Runtime metadata_completeness";
const SOURCE: &str = "Runtime source_profile";

/// Merges a dump into the table of the kernel; with `add_variants`, calls whose values no row has get a row.
/// Nothing is saved.
///
/// # Errors
/// [`StoreError::NotRows`] where a signature column is missing.
pub fn backfill(
    table: &mut KernelCsv,
    calls: &[DumpedCall],
    add_variants: bool,
) -> Result<Backfilled, StoreError> {
    let kernel = kernel();
    let mut rows = Vec::new();
    for row in row_cases(&kernel, table)? {
        if let Ok(case) = row.case {
            rows.push((row.row, row.line, case, row.shown.is_some()));
        }
    }
    let mut known: HashSet<String> = rows.iter().map(|(_, _, case, _)| case.signature()).collect();
    let mut used: HashSet<*const DumpedCall> = HashSet::new();
    let mut done = Backfilled::default();
    for (row, line, case, is_measured) in rows {
        let fits = best_fits(&case, calls, |call| &call.call);
        used.extend(fits.iter().map(|call| std::ptr::from_ref(*call)));
        let fits: Vec<&DumpedCall> =
            fits.into_iter().filter(|call| !contradicts(&case.attributes, &call.attributes)).collect();
        let common = agreed(fits.iter().map(|call| &call.attributes));
        let filled = Case { attributes: joined_with(&case.attributes, &common), ..case.clone() };
        let is_taken = filled.signature() != case.signature() && known.contains(&filled.signature());
        let why = match fits.len() {
            // What it shows was measured without these values, so that they are not known to be its own.
            _ if is_measured && filled.attributes != case.attributes => {
                Some("measured before they were known")
            }
            _ if is_taken => Some("another row has the values of the dump"),
            _ => None,
        };
        let completeness = describe(if why.is_some() { &case } else { &filled }, fits.len(), why);
        let mut count = 0;
        if why.is_none() {
            known.insert(filled.signature());
            count = fill(table, row, &common, &completeness, !fits.is_empty())?;
        }
        if add_variants && (fits.len() > 1 || why.is_some()) {
            for call in &fits {
                let attributes = joined_with(&case.attributes, &call.attributes);
                let variant = Case { attributes, ..case.clone() };
                if known.insert(variant.signature()) {
                    append(table, row, &variant)?;
                    done.added += 1;
                }
            }
        }
        done.rows.push(FilledRow { line, filled: count, calls: fits.len(), completeness });
    }
    done.unused = calls.iter().filter(|call| !used.contains(&std::ptr::from_ref(*call))).count();
    Ok(done)
}

/// The kernel's name.
fn kernel() -> KernelName {
    KernelName::new(Attention::KERNEL).unwrap_or_else(|_| unreachable!("a name"))
}

/// Whether two sets say different things of one attribute.
fn contradicts(row: &Attributes, call: &Attributes) -> bool {
    row.iter().any(|(name, value)| call.get(name).is_some_and(|other| other != value))
}

fn joined_with(row: &Attributes, call: &Attributes) -> Attributes {
    let mut joined = call.clone();
    for (name, value) in row.iter() {
        joined.set(name, value);
    }
    joined
}

fn describe(case: &Case, calls: usize, why: Option<&str>) -> String {
    let completeness = Attention::new(case).completeness();
    match (calls, why) {
        _ if completeness == COMPLETE => completeness,
        (_, Some(why)) => format!("{completeness} ({why})"),
        (0 | 1, None) => completeness,
        (calls, None) => format!("{completeness} ({calls} calls of the dump differ)"),
    }
}

/// Sets the cells of a row that are empty, and its completeness; returns how many attributes it got.
fn fill(
    table: &mut KernelCsv,
    row: usize,
    attributes: &Attributes,
    completeness: &str,
    is_of_dump: bool,
) -> Result<usize, StoreError> {
    let is_empty = |column: &str| table.cell(row, column).is_none_or(|cell| cell.trim().is_empty());
    // A table of an older tool has its mean under an older name.
    let is_open = |name: &str| is_empty(name) && (name != AVG_SEQ_LEN || is_empty("avg_seq_len"));
    let mut cells: Vec<(&str, String)> = attributes
        .iter()
        .filter(|(name, _)| is_open(name))
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    let count = cells.len();
    if is_of_dump && count > 0 {
        cells.push((SOURCE, "dump of a serving process".to_owned()));
    }
    cells.push((COMPLETENESS, completeness.to_owned()));
    table.update(row, &cells)?;
    Ok(count)
}

/// Adds a row of the same tensors with other values and no measurements.
fn append(table: &mut KernelCsv, like: usize, case: &Case) -> Result<(), StoreError> {
    let header = table.columns().to_vec();
    let kept = |name: &String| {
        columns::SIGNATURE.contains(&name.as_str())
            || [columns::STATE, columns::CORE].contains(&name.as_str())
            || (name.starts_with(RUNTIME) && Attributes::name_of(name).is_none())
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
    cells.push((SOURCE, "dump of a serving process".to_owned()));
    cells.push((COMPLETENESS, Attention::new(case).completeness()));
    for (name, _) in &cells {
        table.ensure_column(name);
    }
    table.append(&cells);
    Ok(())
}

/// Merges a dump into a database, under its lock, and saves the table where something changed.
///
/// # Errors
/// [`StoreError::NoKernel`] where the database has no such rows, and any error of reading or writing.
pub fn backfill_database(
    database: &Database,
    calls: &[DumpedCall],
    add_variants: bool,
) -> Result<Backfilled, StoreError> {
    let kernel = kernel();
    if !database.kernel_path(&kernel).exists() {
        return Err(StoreError::NoKernel { path: database.folder().to_owned(), kernel });
    }
    let mut lock = database.lock()?;
    let mut table = database.kernel_csv(&kernel)?;
    let done = backfill(&mut table, calls, add_variants)?;
    if table.is_changed() {
        database.adopt(&mut lock)?;
        table.save()?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
