//! Write-back of results into the rows of their cases.

use std::collections::HashMap;

use super::{
    Database, DatabaseError, KernelCsv, MICROBENCH_COLUMNS, columns,
    numbers::{format_decimals, format_micros},
    row_cases,
};
use crate::{
    domain::{CaseId, CaseOutcome, KernelName, Measurement, RowResult},
    profile::COUNTERS,
};

/// Counts of a kernel's rows changed by results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteBackReport {
    /// Changed rows.
    pub changed: usize,
    /// Rows that keep a measurement with more samples than the result has.
    pub kept: usize,
}

/// Writes results into the rows of their cases. A row keeps its measurement if the result is worse, see
/// [`RowResult`].
pub(super) fn write_back(
    kernel: &KernelName,
    table: &mut KernelCsv,
    results: &HashMap<CaseId, RowResult>,
) -> Result<WriteBackReport, DatabaseError> {
    let mut written = WriteBackReport::default();
    for row in row_cases(kernel, table)? {
        let Some(result) = row.case.ok().and_then(|case| results.get(&case.id())) else {
            continue;
        };
        if row.shown.is_some_and(|shown| !result.replaces_shown(shown, row.samples)) {
            written.kept += usize::from(result.measurement.is_some());
            continue;
        }
        written.changed += usize::from(table.update_row(row.row, &result_cells(result))?);
    }
    Ok(written)
}

/// Returns the cells of a result; those of [`MICROBENCH_COLUMNS`] in the order of the contract, empty without a value.
fn result_cells(result: &RowResult) -> Vec<(String, String)> {
    let mut cells: Vec<(String, String)> = Vec::new();
    let mut values = vec![String::new(); 8];
    if let Some(Measurement { summary, interval, samples, collections, counters }) = &result.measurement {
        cells.push((columns::AVERAGE.to_owned(), format_micros(summary.mean)));
        for (counter, mean) in COUNTERS.into_iter().zip(counters) {
            cells.push((columns::microbench_column(counter), mean.map_or_else(String::new, format_decimals)));
        }
        let (low, high) = interval.unzip();
        let numbers = [Some(summary.median), summary.std, Some(summary.min), Some(summary.p95), low, high];
        values = numbers.map(|value| value.map_or_else(String::new, format_micros)).to_vec();
        values.extend([samples.to_string(), collections.to_string()]);
    }
    let CaseOutcome { verdict, reason } = &result.finding;
    values.extend([verdict.to_string(), reason.clone(), result.case.to_string(), result.run.clone()]);
    cells.extend(MICROBENCH_COLUMNS.map(str::to_owned).into_iter().zip(values));
    cells
}

/// Loads a kernel's table, writes results into it and saves it if it changed.
pub(crate) fn write_back_kernel(
    database: &Database,
    kernel: &KernelName,
    results: &HashMap<CaseId, RowResult>,
) -> Result<WriteBackReport, DatabaseError> {
    let mut table = database.kernel_csv(kernel)?;
    let written = write_back(kernel, &mut table, results)?;
    if written.changed > 0 {
        table.save()?;
    }
    Ok(written)
}
