//! Cells that a result writes into a row, and their comparison with the cells of a table.

use std::{borrow::Cow, iter};

use csv::ByteRecord;

use super::{
    KernelCsv, RowCase,
    collective_rows::{NUMBER_COLUMNS, measured_cells},
    columns::{self, format_decimals, format_micros},
};
use crate::kernel::{CacheState, Case, CaseOutcome, CollectiveCase, RowResult};

/// Returns the cells of a result in a row, with those of its task; appended columns are empty without a value.
pub(super) fn result_cells<'r>(
    table: &KernelCsv,
    case: &Case,
    result: &'r RowResult,
    task: impl IntoIterator<Item = (&'static str, &'r str)>,
) -> Vec<(&'static str, String)> {
    let CaseOutcome { verdict, reason } = &result.outcome;
    let measured = result.measurement.as_ref();
    let summary = measured.map(|measured| &measured.summary);
    let interval = measured.and_then(|measured| measured.interval);
    let method = interval.map(|interval| interval.method);
    let correction = interval.and_then(|interval| interval.correction);
    let count = |count: Option<usize>| count.map_or_else(String::new, |count| count.to_string());
    let micros = |nanos: Option<f64>| nanos.map_or_else(String::new, format_micros);
    let decimals = |value: Option<f64>| value.map_or_else(String::new, format_decimals);
    let hot_cells = [
        (columns::VERDICT, verdict.to_string()),
        (columns::REASON, reason.to_string()),
        (columns::CASE, result.case.as_str().to_owned()),
        (columns::RUN, result.run.clone()),
        (
            columns::SOFTWARE,
            result.software.as_ref().map_or_else(String::new, |software| software.cell_text.clone()),
        ),
        (columns::AVERAGE, micros(summary.map(|summary| summary.mean))),
        (columns::MEDIAN, micros(summary.map(|summary| summary.median))),
        (columns::STD, micros(summary.and_then(|summary| summary.std))),
        (columns::MIN, micros(summary.map(|summary| summary.min))),
        (columns::P95, micros(summary.map(|summary| summary.p95))),
        (columns::CI95_LOW, micros(interval.map(|interval| interval.low))),
        (columns::CI95_HIGH, micros(interval.map(|interval| interval.high))),
        (columns::ESTIMATE, micros(interval.map(|interval| interval.estimate))),
        (columns::CI95_METHOD, method.map_or("", <&'static str>::from).to_owned()),
        (columns::CORRECTION, decimals(correction.map(|factor| 100.0 * factor))),
        (columns::SAMPLES, count(measured.map(|measured| measured.samples))),
        (columns::COLLECTIONS, count(measured.map(|measured| measured.collections))),
    ];
    let collective = CollectiveCase::of_case(case);
    // Tables of collectives have another column for it. Without a measurement, rows keep what it shows.
    let keeps_average = result.cache.is_hot() && (collective.is_some() || measured.is_none());
    let hot_cells =
        hot_cells.into_iter().filter(|(column, _)| !(keeps_average && *column == columns::AVERAGE));
    let mut cells = Vec::with_capacity(64);
    cells.extend(
        hot_cells.filter_map(|(column, text)| Some((columns::result_column(result.cache, column)?, text))),
    );
    if let Some(collective) = collective {
        let measured = measured.map(|measured| measured_cells(&collective, table, measured));
        cells.extend(measured.into_iter().flatten());
        return cells;
    }
    cells.extend(task.into_iter().map(|(column, text)| (column, text.to_owned())));
    // Rows have the counters of a hot cache.
    let counted = measured.filter(|_| result.cache.is_hot());
    let counters =
        counted.into_iter().flat_map(|counted| columns::microbench_counters().zip(&counted.counters));
    cells.extend(counters.map(|(column, mean)| (column, decimals(*mean))));
    cells
}

/// Returns `OP State` and `Accelerator Core` of a result where its row has none, as rows of grids.
pub(super) fn task_cells<'r>(
    table: &KernelCsv,
    row: usize,
    result: &'r RowResult,
) -> impl Iterator<Item = (&'static str, &'r str)> {
    let tasks = result.measurement.iter().map(|measured| &measured.task);
    let cells =
        tasks.flat_map(|task| [(columns::STATE, task.state.as_str()), (columns::CORE, task.core.as_str())]);
    cells.filter(move |(column, text)| !text.is_empty() && !table.has_value(row, column))
}

/// Returns the columns of a table with measured numbers that are not among [`columns::appended_columns`].
pub(super) fn emptied_columns(table: &KernelCsv, case: &Case, cache: CacheState) -> Vec<&'static str> {
    let measured: Vec<&str> = match cache {
        CacheState::Cold => Vec::new(),
        CacheState::Hot if case.kernel.is_collective() => NUMBER_COLUMNS.to_vec(),
        CacheState::Hot => iter::once(columns::AVERAGE).chain(columns::microbench_counters()).collect(),
    };
    measured.into_iter().filter(|column| table.column_index(column).is_some()).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellDifference {
    pub(crate) column: &'static str,
    pub(crate) found: String,
    pub(crate) expected: String,
}

impl CellDifference {
    /// Returns true for cells that depend on the other cases of the ledger, because the joint fit is one of all cases.
    pub(crate) fn depends_on_other_cases(&self) -> bool {
        ESTIMATED.contains(&columns::hot_column(self.column))
    }
}

const ESTIMATED: [&str; 7] = [
    columns::CI95_LOW,
    columns::CI95_HIGH,
    columns::ESTIMATE,
    columns::CI95_METHOD,
    columns::CORRECTION,
    columns::VERDICT,
    columns::REASON,
];

/// Difference of estimated numbers that another machine's logarithm can cause in the last decimal.
const LAST_DECIMAL: f64 = 1.5e-6;

#[derive(Debug)]
pub(crate) struct TableRow<'t> {
    table: &'t KernelCsv,
    pub(crate) parsed: RowCase,
    cells: ByteRecord,
}

impl<'t> TableRow<'t> {
    pub(crate) fn read_cells(table: &'t KernelCsv, parsed: RowCase) -> Self {
        Self { cells: table.row_byte_cells(parsed.row), table, parsed }
    }

    pub(crate) fn cell(&self, column: &str) -> Cow<'_, str> {
        let cell = self.table.column_index(column).and_then(|index| self.cells.get(index));
        match String::from_utf8_lossy(cell.unwrap_or_default()) {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
            Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
        }
    }

    /// Compares the measured cells with those that a result would write, except state and unit, which profiles fill.
    pub(crate) fn differences(&self, result: &RowResult) -> Vec<CellDifference> {
        let mut different = Vec::new();
        let Ok(case) = &self.parsed.case else { return different };
        for (column, expected) in result_cells(self.table, case, result, iter::empty()) {
            let found = self.cell(column);
            if !is_equal_cell(column, &found, &expected) {
                different.push(CellDifference { column, found: found.into_owned(), expected });
            }
        }
        different
    }
}

/// Returns true if a cell has the expected text or number; spreadsheets write `1.500000` as `1.5`.
fn is_equal_cell(column: &str, found: &str, expected: &str) -> bool {
    if found == expected.trim() {
        return true;
    }
    let (Ok(found), Ok(expected)) = (found.parse::<f64>(), expected.parse::<f64>()) else { return false };
    let tolerance = if ESTIMATED.contains(&columns::hot_column(column)) { LAST_DECIMAL } else { 0.0 };
    (found - expected).abs() <= tolerance
}
