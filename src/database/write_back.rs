//! Write-back of results into the rows of their cases.

use std::collections::HashMap;

use super::{
    Database, DatabaseError, KernelCsv, columns,
    numbers::{format_decimals, format_micros},
    row_cases,
};
use crate::{
    domain::{CaseId, KernelName, Measurement, RowResult},
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
        let cells = result_cells(result);
        let cells: Vec<(&str, String)> =
            cells.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        written.changed += usize::from(table.update_row(row.row, &cells)?);
    }
    Ok(written)
}

fn result_cells(result: &RowResult) -> Vec<(String, String)> {
    let mut cells: Vec<(String, String)> = Vec::new();
    if let Some(measured) = &result.measurement {
        let summary = &measured.summary;
        cells.push((columns::AVERAGE.to_owned(), format_micros(summary.mean)));
        for (counter, mean) in COUNTERS.into_iter().zip(&measured.counters) {
            cells.push((columns::microbench_column(counter), mean.map_or_else(String::new, format_decimals)));
        }
        let (low, high) = measured.interval.map_or((None, None), |(low, high)| (Some(low), Some(high)));
        let values = [Some(summary.median), summary.std, Some(summary.min), Some(summary.p95), low, high];
        for (name, value) in super::MICROBENCH_COLUMNS.into_iter().zip(values) {
            cells.push((name.to_owned(), value.map_or_else(String::new, format_micros)));
        }
    }
    let [.., samples, collections, verdict, reason, case, run] = super::MICROBENCH_COLUMNS;
    let count = |value: fn(&Measurement) -> usize| {
        result.measurement.as_ref().map_or_else(String::new, |measured| value(measured).to_string())
    };
    cells.push((samples.to_owned(), count(|measured| measured.samples)));
    cells.push((collections.to_owned(), count(|measured| measured.collections)));
    cells.push((verdict.to_owned(), result.finding.verdict.to_string()));
    cells.push((reason.to_owned(), result.finding.reason.clone()));
    cells.push((case.to_owned(), result.case.to_string()));
    cells.push((run.to_owned(), result.run.clone()));
    // Columns are appended in the order of the contract, also those that the first result lacks.
    let order = |name: &String| super::MICROBENCH_COLUMNS.iter().position(|column| column == name);
    for column in super::MICROBENCH_COLUMNS {
        if !cells.iter().any(|(name, _)| name == column) {
            cells.push((column.to_owned(), String::new()));
        }
    }
    cells.sort_by_key(|(name, _)| order(name));
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
