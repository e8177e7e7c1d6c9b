//! What a run found out, into the rows of its cases.

use std::{cmp::Ordering, collections::HashMap};

use super::{
    Database, DatabaseError, KernelCsv, columns,
    numbers::{decimals, micros},
    row_cases,
};
use crate::{
    domain::{CaseId, CaseOutcome, KernelName, Verdict},
    profile::COUNTERS,
    stats::SampleSummary,
};

/// What the accepted samples of a case say; durations in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Statistics of the accepted samples.
    pub summary: SampleSummary,
    /// 95 % interval of the median.
    pub interval: Option<(f64, f64)>,
    /// Accepted samples.
    pub samples: usize,
    /// Collections that they come from.
    pub collections: usize,
    /// Means of [`COUNTERS`] over the same launches.
    pub counters: Vec<Option<f64>>,
}

/// What a row gets: a verdict with its reason, and a measurement where there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct RowResult {
    /// The case.
    pub case: CaseId,
    /// The run that the result is from.
    pub run: String,
    /// The verdict.
    pub finding: CaseOutcome,
    /// The numbers, for verdicts that have some.
    pub measurement: Option<Measurement>,
}

impl RowResult {
    /// Whether it may take the place of a measurement that a row shows: it has one too, and either a better
    /// verdict, or no fewer samples behind the same one, or more behind a worse one, so that the better one
    /// was only the earlier one. A row can have more samples than the ledger where the ledger is not the
    /// one that made it, as in a clone of the folder.
    fn replaces(&self, shown: Verdict, shown_samples: Option<usize>) -> bool {
        self.measurement.as_ref().is_some_and(|measured| {
            let more = measured.samples.cmp(&shown_samples.unwrap_or_default());
            match self.finding.verdict.cmp(&shown) {
                Ordering::Less => true,
                Ordering::Equal => more.is_ge(),
                Ordering::Greater => shown_samples.is_some() && more.is_gt(),
            }
        })
    }
}

/// What writing results did to one kernel's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBackReport {
    /// Rows that changed.
    pub changed: usize,
    /// Rows that keep a measurement with more samples than the result has.
    pub kept: usize,
}

/// Writes results into the rows of their cases. A row that shows a
/// measurement keeps it against any result that is worse, see [`RowResult`].
///
/// # Errors
/// As [`row_cases`].
pub fn write_back(
    kernel: &KernelName,
    table: &mut KernelCsv,
    results: &HashMap<CaseId, RowResult>,
) -> Result<WriteBackReport, DatabaseError> {
    let mut written = WriteBackReport::default();
    for row in row_cases(kernel, table)? {
        let Some(result) = row.case.ok().and_then(|case| results.get(&case.id())) else {
            continue;
        };
        if row.shown.is_some_and(|shown| !result.replaces(shown, row.samples)) {
            written.kept += usize::from(result.measurement.is_some());
            continue;
        }
        let cells = result_cells(result);
        let cells: Vec<(&str, String)> =
            cells.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        written.changed += usize::from(table.update(row.row, &cells)?);
    }
    Ok(written)
}

fn result_cells(result: &RowResult) -> Vec<(String, String)> {
    let mut cells: Vec<(String, String)> = Vec::new();
    if let Some(measured) = &result.measurement {
        let summary = &measured.summary;
        cells.push((columns::AVERAGE.to_owned(), micros(summary.mean)));
        for (counter, mean) in COUNTERS.into_iter().zip(&measured.counters) {
            cells.push((columns::microbench(counter), mean.map_or_else(String::new, decimals)));
        }
        let (low, high) = measured.interval.map_or((None, None), |(low, high)| (Some(low), Some(high)));
        let values = [Some(summary.median), summary.std, Some(summary.min), Some(summary.p95), low, high];
        for (name, value) in super::MICROBENCH_COLUMNS.into_iter().zip(values) {
            cells.push((name.to_owned(), value.map_or_else(String::new, micros)));
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
    // Columns are appended in the database's order, whatever a first result lacks.
    let order = |name: &String| super::MICROBENCH_COLUMNS.iter().position(|column| column == name);
    for column in super::MICROBENCH_COLUMNS {
        if !cells.iter().any(|(name, _)| name == column) {
            cells.push((column.to_owned(), String::new()));
        }
    }
    cells.sort_by_key(|(name, _)| order(name));
    cells
}

/// Loads a kernel's table, writes results into it and saves it where something changed.
///
/// # Errors
/// Any error of reading or writing the table.
pub fn write_back_kernel(
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
