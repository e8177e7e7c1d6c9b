//! Rows of known cases that a table does not have.

use std::collections::BTreeMap;

use super::{Database, DatabaseError, row_cases, row_cases::new_row_cells};
use crate::kernel::{CaseId, IdentifiedCase, KernelName};

/// Cases of a kernel that get rows without results.
#[derive(Debug)]
pub(crate) struct AbsentRows<'a> {
    pub(crate) kernel: &'a KernelName,
    pub(crate) cases: Vec<&'a IdentifiedCase>,
    /// Least number of input slots of a row of the kernel.
    pub(crate) recorded_inputs: usize,
    /// Places of cases in the order in which runs have planned the rows of tables.
    pub(crate) order: &'a BTreeMap<CaseId, usize>,
}

/// Returns the columns that all tables of a database have, in the order of the first one: profiles add some. Tables that
/// cannot be read are left out.
fn common_columns(database: &Database) -> Vec<String> {
    let kernels = database.kernels().unwrap_or_default();
    let tables = kernels.iter().filter_map(|kernel| database.kernel_csv(kernel).ok());
    let columns = tables.map(|table| table.column_names().to_vec());
    columns
        .reduce(|mut common, columns| {
            common.retain(|column| columns.contains(column));
            common
        })
        .unwrap_or_default()
}

impl AbsentRows<'_> {
    /// Adds a row without results for each case, behind the rows that runs have planned before it, and saves the table. A
    /// missing table is created, with the columns that all others have.
    pub(crate) fn add_to(&self, database: &Database) -> Result<(), DatabaseError> {
        let mut table = database.kernel_csv(self.kernel)?;
        if !database.kernel_path(self.kernel).exists() {
            common_columns(database).iter().for_each(|column| {
                table.ensure_column(column);
            });
        }
        let place_of = |case: &CaseId| self.order.get(case).copied().unwrap_or(usize::MAX);
        let rows = if table.is_empty() { Vec::new() } else { row_cases(self.kernel, &table)? };
        let present = rows.iter().filter_map(|row| {
            let place = self.order.get(&row.case.as_ref().ok()?.id())?;
            Some((*place, row.row))
        });
        let present: Vec<(usize, usize)> = present.collect();
        let mut absent: Vec<(usize, &IdentifiedCase)> =
            self.cases.iter().map(|case| (place_of(case.id()), *case)).collect();
        absent.sort_by(|one, other| (one.0, one.1.id()).cmp(&(other.0, other.1.id())));
        let mut placed = Vec::with_capacity(absent.len());
        let mut last = 0;
        for (place, case) in absent {
            let before = present.iter().filter(|(present, _)| *present < place).map(|(_, row)| row + 1);
            // Without a place of its own, a row is the last one.
            let row = if place == usize::MAX { table.len() } else { before.max().unwrap_or_default() };
            last = row.max(last);
            placed.push((last, new_row_cells(case, self.recorded_inputs)));
        }
        table.insert_rows(&placed);
        table.save().map(|_| ())
    }
}
