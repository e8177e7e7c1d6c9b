//! Rows of known cases that a table does not have.

use std::collections::BTreeMap;

use super::{Database, DatabaseError, row_cases, row_cases::new_row_cells};
use crate::kernel::{CaseId, IdentifiedCase, KernelName};

/// Returns the columns that all tables of a database have, in the order of the first one: profiles add some.
fn common_columns(database: &Database) -> Result<Vec<String>, DatabaseError> {
    let mut common: Option<Vec<String>> = None;
    for kernel in database.kernels()? {
        let table = database.kernel_csv(&kernel)?;
        let columns = common.get_or_insert_with(|| table.column_names().to_vec());
        columns.retain(|column| table.column_index(column).is_some());
    }
    Ok(common.unwrap_or_default())
}

/// Adds a row without results for each case of a kernel, with at least `recorded_inputs` input slots, and saves the table. A row
/// stands behind the rows of the cases that precede its case in `order`, the places in which runs have planned cases. A missing
/// table is created, with the columns that all others have.
pub(crate) fn add_absent_rows(
    database: &Database,
    kernel: &KernelName,
    cases: &[&IdentifiedCase],
    recorded_inputs: usize,
    order: &BTreeMap<CaseId, usize>,
) -> Result<(), DatabaseError> {
    let mut table = database.kernel_csv(kernel)?;
    if !database.kernel_path(kernel).exists() {
        common_columns(database)?.iter().for_each(|column| {
            table.ensure_column(column);
        });
    }
    let place_of = |case: &CaseId| order.get(case).copied().unwrap_or(usize::MAX);
    let rows = if table.is_empty() { Vec::new() } else { row_cases(kernel, &table)? };
    let present = rows.iter().filter_map(|row| {
        let place = order.get(&row.case.as_ref().ok()?.id())?;
        Some((*place, row.row))
    });
    let present: Vec<(usize, usize)> = present.collect();
    let mut absent: Vec<(usize, &IdentifiedCase)> =
        cases.iter().map(|case| (place_of(case.id()), *case)).collect();
    absent.sort_by(|one, other| (one.0, one.1.id()).cmp(&(other.0, other.1.id())));
    let mut placed = Vec::with_capacity(absent.len());
    let mut last = 0;
    for (place, case) in absent {
        let before = present.iter().filter(|(present, _)| *present < place).map(|(_, row)| row + 1);
        // A row that has no place of its own becomes the last one.
        let row = if place == usize::MAX { table.len() } else { before.max().unwrap_or_default() };
        last = row.max(last);
        placed.push((last, new_row_cells(case, recorded_inputs)));
    }
    table.insert_rows(&placed);
    table.save().map(|_| ())
}
