//! Write-back of results into the rows of their cases.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Database, DatabaseError, KernelCsv, MICROBENCH_COLUMNS, columns,
    numbers::{format_decimals, format_micros},
    row_cases,
    row_cases::signature_cells,
};
use crate::{
    domain::{Case, CaseAttributes, CaseId, CaseOutcome, IdentifiedCase, KernelName, Measurement, RowResult},
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
        let cells = result_cells(table, row.row, result);
        written.changed += usize::from(table.update_row(row.row, &cells)?);
    }
    for (id, case) in insertable {
        let Some(result) = results.get(id).filter(|result| !found.contains(&result.case)) else { continue };
        insert_row(table, case);
        let row = table.len() - 1;
        let cells = result_cells(table, row, result);
        table.update_row(row, &cells)?;
        written.changed += 1;
        found.insert(&result.case);
    }
    written.missing = results.values().filter(|result| !found.contains(&result.case)).count();
    Ok(written)
}

/// Appends a row for a case, without measurements.
fn insert_row(table: &mut KernelCsv, case: &Case) {
    let signature = columns::SIGNATURE.into_iter().zip(signature_cells(case, 0));
    let attributes = case.attributes.iter().map(|(column, cell)| (column, cell.to_owned()));
    let cells: Vec<(&str, String)> = signature.chain(attributes).collect();
    for (column, _) in &cells {
        table.ensure_column(column);
    }
    table.append_row(&cells);
}

/// Returns the cells of a result in a row; those of [`MICROBENCH_COLUMNS`] are empty without a value. `OP State` and
/// `Accelerator Core` are those of the replay only where the row has none, as rows of grids.
fn result_cells(table: &KernelCsv, row: usize, result: &RowResult) -> Vec<(String, String)> {
    let CaseOutcome { verdict, reason } = &result.outcome;
    let mut cells = vec![
        (columns::VERDICT, verdict.to_string()),
        (columns::REASON, reason.clone()),
        (columns::CASE, result.case.to_string()),
        (columns::RUN, result.run.clone()),
    ];
    let software = result.software.as_ref().map(|software| format!("{software} ({})", software.digest()));
    cells.extend(software.map(|software| (columns::SOFTWARE, software)));
    if let Some(Measurement { summary, interval, samples, collections, task, counters: _ }) =
        &result.measurement
    {
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
        let is_open =
            |column: &str| !table.cell_text(row, column).is_some_and(|cell| CaseAttributes::has_value(&cell));
        let task = [(columns::STATE, &task.state), (columns::CORE, &task.core)];
        let task = task.into_iter().filter(|(column, text)| !text.is_empty() && is_open(column));
        cells.extend(task.map(|(column, text)| (column, text.clone())));
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        database::COMPUTE_COLUMNS,
        domain::{RecordedTask, Verdict},
        stats::SampleSummary,
    };

    /// Rows of a profile keep what the profile shows of them.
    #[test]
    fn state_and_core_of_the_replay_fill_empty_cells_only() {
        let kernel = KernelName::new("Add").expect("a name");
        let mut table = KernelCsv::new(Path::new("Add.csv"), &COMPUTE_COLUMNS);
        let add_row = |table: &mut KernelCsv, length: &str, state: &str, core: &str| {
            let cells = [
                (columns::STATE, state),
                (columns::CORE, core),
                ("Input Shapes", length),
                ("Input Data Types", "FLOAT"),
                ("Input Formats", "ND"),
                ("Output Shapes", length),
                ("Output Data Types", "FLOAT"),
                ("Output Formats", "ND"),
            ];
            table.append_row(&cells.map(|(column, text)| (column, text.to_owned())));
        };
        add_row(&mut table, "16", "", "");
        add_row(&mut table, "32", "static", "N/A");
        add_row(&mut table, "64", "static", "MIX_AIV");
        add_row(&mut table, "128", "", "");
        let cases = row_cases(&kernel, &table).expect("rows").into_iter();
        let ids: Vec<CaseId> = cases.map(|row| row.case.expect("a case").id()).collect();
        let result = |case: &CaseId, core: &str, samples: &[i64]| RowResult {
            case: case.clone(),
            run: "r".to_owned(),
            outcome: CaseOutcome::new(Verdict::Ok, "every launch recorded, steady"),
            measurement: SampleSummary::from_samples(&mut samples.to_vec()).map(|summary| Measurement {
                summary,
                interval: None,
                samples: samples.len(),
                collections: 1,
                counters: Vec::new(),
                task: RecordedTask { state: "dynamic".to_owned(), core: core.to_owned() },
            }),
            software: None,
        };
        let mut results: HashMap<CaseId, RowResult> =
            ids.iter().map(|id| (id.clone(), result(id, "AI_VECTOR_CORE", &[1000, 1010]))).collect();
        results.insert(ids[3].clone(), result(&ids[3], "AI_VECTOR_CORE", &[]));
        let written = write_back(&kernel, &mut table, &results, &BTreeMap::new()).expect("written");
        assert_eq!(written.changed, 4);
        let shown = |row: usize| {
            [columns::STATE, columns::CORE].map(|column| table.cell_text(row, column).unwrap_or_default())
        };
        assert_eq!(
            [0, 1, 2, 3].map(shown),
            [["dynamic", "AI_VECTOR_CORE"], ["static", "AI_VECTOR_CORE"], ["static", "MIX_AIV"], ["", ""]]
        );
    }
}
