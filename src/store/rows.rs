//! Rows of a kernel's CSV as cases, and what is written into them.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
};

use csv::ByteRecord;

use super::{Database, KernelCsv, StoreError, columns};
use crate::{
    model::{Case, CaseId, Cells, Finding, KernelName, Verdict},
    profile::{COUNTERS, Group, GroupStatistics},
    stats::Summary,
};

/// One row, read as a case.
#[derive(Clone, Debug)]
pub struct RowCase {
    /// Index of the row in its table.
    pub row: usize,
    /// Line in the file, from 1.
    pub line: u64,
    /// The case, or why the row cannot be read as one.
    pub case: Result<Case, String>,
    /// The verdict of the replay measurement that the row shows; `None` where it shows none. Rows of
    /// older tools show a number without a verdict, which counts as `ok`.
    pub shown: Option<Verdict>,
    /// Samples behind it, where the row says so.
    pub samples: Option<usize>,
}

/// What the accepted samples of a case say; durations in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Statistics of the accepted samples.
    pub summary: Summary,
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
    pub finding: Finding,
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

/// Why a row without input shapes is no case.
pub(super) const NO_SHAPES: &str = "the row has no input shapes";

/// Where the columns of a row's case and result are.
#[derive(Debug)]
pub(super) struct RowColumns {
    signature: [usize; 6],
    average: Option<usize>,
    verdict: Option<usize>,
    samples: Option<usize>,
}

impl RowColumns {
    fn of(table: &KernelCsv) -> Result<Self, StoreError> {
        Self::find(|name| table.column(name))
            .map_err(|column| StoreError::NotRows { path: table.path().to_owned(), column })
    }

    /// Finds them by name; an error is the first column of the signature that is missing.
    pub(super) fn find(column: impl Fn(&str) -> Option<usize>) -> Result<Self, &'static str> {
        let mut signature = [0; 6];
        for (index, name) in signature.iter_mut().zip(columns::SIGNATURE) {
            *index = column(name).ok_or(name)?;
        }
        let [average, verdict, samples] = [columns::AVERAGE, columns::VERDICT, columns::SAMPLES].map(column);
        Ok(Self { signature, average, verdict, samples })
    }

    /// The case of a row, or why it is none. The one place that decides which rows are the same.
    pub(super) fn case(&self, kernel: &KernelName, cells: &ByteRecord) -> Result<Case, String> {
        let text = |index: usize| {
            std::str::from_utf8(cells.get(index).unwrap_or_default()).map_err(|_| "is not UTF-8".to_owned())
        };
        let side = |at: usize| {
            let [shapes, dtypes, formats] = [0, 1, 2].map(|offset| text(self.signature[at + offset]));
            Cells { shapes: shapes?, dtypes: dtypes?, formats: formats? }
                .parse()
                .map_err(|error| error.to_string())
        };
        let inputs = side(0)?;
        if inputs.is_empty() {
            return Err(NO_SHAPES.to_owned());
        }
        Ok(Case { kernel: kernel.clone(), inputs, outputs: side(3)? })
    }
}

/// Reads every row of a table as a case.
///
/// # Errors
/// [`StoreError::NotRows`] where a signature column is missing. Cells that cannot be read are no error
/// here: they are the row's own state.
pub fn row_cases(kernel: &KernelName, table: &KernelCsv) -> Result<Vec<RowCase>, StoreError> {
    let columns = RowColumns::of(table)?;
    let mut cases = Vec::with_capacity(table.len());
    table.for_each_row(|row, cells| {
        let text = |index: Option<usize>| std::str::from_utf8(cells.get(index?)?).ok().map(str::trim);
        let measured = text(columns.average).and_then(|cell| cell.parse::<f64>().ok());
        let measured = measured.filter(|value| value.is_finite() && *value > 0.0);
        let verdict = || text(columns.verdict).and_then(|cell| cell.parse().ok()).unwrap_or(Verdict::Ok);
        cases.push(RowCase {
            row,
            line: table.line(row).unwrap_or_default(),
            case: columns.case(kernel, cells),
            shown: measured.map(|_| verdict()),
            samples: text(columns.samples).and_then(|cell| cell.parse().ok()),
        });
        Ok(())
    })?;
    Ok(cases)
}

/// The rows of the groups' signatures. Only rows whose input shapes are written alike are looked at closely:
/// a profile touches few of a large table's rows.
fn rows_of_groups(
    kernel: &KernelName,
    table: &KernelCsv,
    groups: &[Group],
) -> Result<HashMap<String, Vec<usize>>, StoreError> {
    let columns = RowColumns::of(table)?;
    let wanted: HashSet<u64> = groups.iter().map(|group| shape_key(group.cells[0].as_bytes())).collect();
    let mut rows: HashMap<String, Vec<usize>> = HashMap::new();
    table.for_each_row(|row, cells| {
        let shapes = cells.get(columns.signature[0]).unwrap_or_default();
        if wanted.contains(&shape_key(shapes))
            && let Ok(case) = columns.case(kernel, cells)
        {
            rows.entry(case.signature()).or_default().push(row);
        }
        Ok(())
    })?;
    Ok(rows)
}

/// A number that two shape cells share if they are parsed alike: it does not see quotes, blanks,
/// parentheses, leading zeros and trailing separators.
fn shape_key(cell: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut before = b';';
    let mut pending = 0_u64;
    let mix = |hash: u64, byte: u64| (hash ^ byte).wrapping_mul(0x0000_0100_0000_01b3);
    for &byte in cell {
        match byte {
            b'"' | b' ' | b'\t' | b'(' | b')' => continue,
            b'0' if !before.is_ascii_digit() => continue,
            b';' => pending += 1,
            _ => {
                for _ in 0..std::mem::take(&mut pending) {
                    hash = mix(hash, u64::from(b';'));
                }
                hash = mix(hash, u64::from(byte));
            }
        }
        before = byte;
    }
    hash
}

/// What a merge did to one kernel's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Rows that were not there before.
    pub added: usize,
    /// Rows whose profiling columns changed.
    pub updated: usize,
    /// Rows that already said the same.
    pub same: usize,
}

/// Merges the groups of a profile into a kernel's table: profiling columns of rows with the same
/// signature are set, other signatures become new rows. Nothing else is touched.
///
/// # Errors
/// As [`row_cases`].
pub fn merge_groups(
    kernel: &KernelName,
    table: &mut KernelCsv,
    groups: Vec<Group>,
) -> Result<Merged, StoreError> {
    let rows = rows_of_groups(kernel, table, &groups)?;
    let mut merged = Merged::default();
    for group in groups {
        let (case, cells, state, core) =
            (group.case.clone(), group.cells.clone(), group.state.clone(), group.core.clone());
        let profiling = profiling_cells(group.into_statistics());
        let profiling: Vec<(&str, String)> =
            profiling.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let Some(known) = rows.get(&case.signature()) else {
            let mut cells: Vec<(&str, String)> = columns::SIGNATURE.into_iter().zip(cells).collect();
            cells.extend([(columns::STATE, state), (columns::CORE, core)]);
            cells.extend(profiling);
            for (name, _) in &cells {
                table.ensure_column(name);
            }
            table.append(&cells);
            merged.added += 1;
            continue;
        };
        for &row in known {
            if table.update(row, &profiling)? {
                merged.updated += 1;
            } else {
                merged.same += 1;
            }
        }
    }
    Ok(merged)
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

/// Nanoseconds as microseconds with six decimals.
fn micros(nanos: f64) -> String {
    decimals(nanos / 1e3)
}

fn decimals(value: f64) -> String {
    format!("{value:.6}")
}

/// What writing results did to one kernel's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
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
) -> Result<Written, StoreError> {
    let mut written = Written::default();
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
) -> Result<Written, StoreError> {
    let mut table = database.kernel_csv(kernel)?;
    let written = write_back(kernel, &mut table, results)?;
    if written.changed > 0 {
        table.save()?;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slots(cell: &str) -> Option<Vec<Vec<u64>>> {
        let count = cell.matches(';').count() + 1;
        let dtypes = vec!["FLOAT"; count].join(";");
        let parsed = Cells { shapes: cell, dtypes: &dtypes, formats: "" }.parse().ok()?;
        let mut dims: Vec<Vec<u64>> = parsed.into_iter().flatten().map(|tensor| tensor.dims).collect();
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
    }

    proptest! {
        /// Cells that are parsed alike have one key, or rows would be missed.
        #[test]
        fn cells_parsed_alike_have_one_key(left in "[0-2,;() ]{0,8}", right in "[0-2,;() ]{0,8}") {
            if let (Some(l), Some(r)) = (slots(&left), slots(&right)) && l == r {
                prop_assert_eq!(shape_key(left.as_bytes()), shape_key(right.as_bytes()));
            }
        }
    }
}
