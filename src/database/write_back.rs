//! Write-back of results into the rows of their cases.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Database, DatabaseError, KernelCsv, MICROBENCH_COLUMNS, columns,
    numbers::{format_decimals, format_micros},
    row_cases,
    row_cases::signature_cells,
};
use crate::{
    domain::{Case, CaseId, CaseOutcome, IdentifiedCase, KernelName, Measurement, RowResult},
    profile::COUNTERS,
};

/// Counts of a kernel's rows changed by results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteBackReport {
    /// Changed rows.
    pub changed: usize,
    /// Rows that keep a measurement with more samples than the result has.
    pub kept: usize,
    /// Results whose rows are no longer in the table.
    pub missing: usize,
}

/// Writes results into the rows of their cases. A row keeps its measurement if the result is worse, see
/// [`RowResult`]. Cases of `insertable` without a row get one.
pub(super) fn write_back(
    kernel: &KernelName,
    table: &mut KernelCsv,
    results: &HashMap<CaseId, RowResult>,
    insertable: &BTreeMap<CaseId, IdentifiedCase>,
) -> Result<WriteBackReport, DatabaseError> {
    let mut written = WriteBackReport::default();
    let mut found = HashSet::new();
    for row in row_cases(kernel, table)? {
        let Some(result) = row.case.ok().and_then(|case| results.get(&case.id())) else {
            continue;
        };
        found.insert(&result.case);
        if row.shown.is_some_and(|shown| !result.replaces_shown(&shown)) {
            written.kept += usize::from(result.measurement.is_some());
            continue;
        }
        written.changed += usize::from(table.update_row(row.row, &result_cells(result))?);
    }
    for (id, case) in insertable {
        let Some(result) = results.get(id).filter(|result| !found.contains(&result.case)) else { continue };
        insert_row(table, case);
        table.update_row(table.len() - 1, &result_cells(result))?;
        written.changed += 1;
        found.insert(&result.case);
    }
    written.missing = results.values().filter(|result| !found.contains(&result.case)).count();
    Ok(written)
}

/// Appends a row for a case, without measurements.
fn insert_row(table: &mut KernelCsv, case: &Case) {
    let signature = columns::SIGNATURE.into_iter().zip(signature_cells(case));
    let attributes = case.attributes.iter().map(|(column, cell)| (column, cell.to_owned()));
    let cells: Vec<(&str, String)> = signature.chain(attributes).collect();
    for (column, _) in &cells {
        table.ensure_column(column);
    }
    table.append_row(&cells);
}

/// Returns the cells of a result; those of [`MICROBENCH_COLUMNS`] are empty without a value.
fn result_cells(result: &RowResult) -> Vec<(String, String)> {
    let CaseOutcome { verdict, reason } = &result.outcome;
    let mut cells = vec![
        (columns::VERDICT, verdict.to_string()),
        (columns::REASON, reason.clone()),
        (columns::CASE, result.case.to_string()),
        (columns::RUN, result.run.clone()),
    ];
    let software = result.software.as_ref().map(|software| format!("{software} ({})", software.digest()));
    cells.extend(software.map(|software| (columns::SOFTWARE, software)));
    if let Some(Measurement { summary, interval, samples, collections, counters: _ }) = &result.measurement {
        let (low, high) = interval.unzip();
        let micros = |value: Option<_>| value.map_or_else(String::new, format_micros);
        cells.extend([
            (columns::AVERAGE, format_micros(summary.mean)),
            (columns::MEDIAN, format_micros(summary.median)),
            (columns::STD, micros(summary.std)),
            (columns::MIN, format_micros(summary.min)),
            (columns::P95, format_micros(summary.p95)),
            (columns::CI95_LOW, micros(low)),
            (columns::CI95_HIGH, micros(high)),
            (columns::SAMPLES, samples.to_string()),
            (columns::COLLECTIONS, collections.to_string()),
        ]);
    }
    let missing =
        MICROBENCH_COLUMNS.into_iter().filter(|column| !cells.iter().any(|(name, _)| name == column));
    let missing: Vec<_> = missing.map(|column| (column, String::new())).collect();
    cells.extend(missing);
    let counters =
        result.measurement.iter().flat_map(|measurement| COUNTERS.into_iter().zip(&measurement.counters));
    let counters = counters.map(|(counter, mean)| {
        (columns::microbench_column(counter), mean.map_or_else(String::new, format_decimals))
    });
    cells.into_iter().map(|(column, text)| (column.to_owned(), text)).chain(counters).collect()
}

/// Loads a kernel's table, writes results into it and saves it if it changed.
pub(crate) fn write_back_kernel(
    database: &Database,
    kernel: &KernelName,
    results: &HashMap<CaseId, RowResult>,
    insertable: &BTreeMap<CaseId, IdentifiedCase>,
) -> Result<WriteBackReport, DatabaseError> {
    let mut table = database.kernel_csv(kernel)?;
    let written = write_back(kernel, &mut table, results, insertable)?;
    if written.changed > 0 {
        table.save()?;
    }
    Ok(written)
}
