//! Write-back of results into the rows of their cases, and new rows of cases that a table lacks.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

use super::{
    Database, DatabaseError, KernelCsv, RowCase, columns,
    result_cells::{emptied_columns, result_cells, task_cells},
    row_cases,
    row_cases::new_row_cells,
};
use crate::kernel::{CacheState, CaseId, IdentifiedCase, KernelName, RowResult};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteBackReport {
    pub changed: usize,
    /// Rows that keep a measurement with more samples than the result has.
    pub kept: usize,
    /// Results whose rows are no longer in the table.
    pub missing: usize,
}

/// Writes results into the rows of their cases. A row keeps its measurement if the result is worse, as decided by
/// [`RowResult`]; with `compares_production` the result is compared with the production profiles of the row. Cases of
/// `insertable` without a row get one, see [`insert_rows`].
pub(super) fn write_back(
    kernel: &KernelName,
    table: &mut KernelCsv,
    results: &HashMap<CaseId, RowResult>,
    insertable: &BTreeMap<CaseId, IdentifiedCase>,
    compares_production: bool,
) -> Result<WriteBackReport, DatabaseError> {
    let mut written = WriteBackReport::default();
    let mut found = HashSet::new();
    let rows = row_cases(kernel, table)?;
    // The columns are appended in this order, whichever row is written first.
    let is_written = |cache: &&CacheState| results.values().any(|result| result.cache == **cache);
    for cache in CacheState::ALL.iter().filter(is_written) {
        columns::appended_columns(*cache).into_iter().for_each(|column| _ = table.ensure_column(column));
    }
    for row in &rows {
        let Ok(case) = &row.case else { continue };
        let Some(result) = results.get(&case.id()) else { continue };
        let shown = row.cells(result.cache).shown.as_ref();
        found.insert(&result.case);
        let judged = row.production.filter(|_| compares_production);
        let judged = judged.map(|production| result.clone().judged_by_production(production));
        let result = judged.as_ref().unwrap_or(result);
        if shown.is_some_and(|shown| !result.replaces_shown(shown)) {
            written.kept += usize::from(result.measurement.is_some());
            continue;
        }
        let cells = result_cells(table, case, result, task_cells(table, row.row, result));
        let mut is_changed = table.update_row(row.row, &cells)?;
        // Cells are emptied only if the measurement was withdrawn.
        if shown.is_some() && result.measurement.is_none() {
            let emptied = emptied_columns(table, case, result.cache);
            is_changed |= table.empty_cells(row.row, emptied.into_iter())?;
        }
        written.changed += usize::from(is_changed);
    }
    let new = insertable.iter().filter(|(id, _)| !found.contains(id));
    let new = new.filter_map(|(id, case)| Some((case, results.get(id)?)));
    let new = new.filter(|(_, result)| result.measurement.is_some()).collect();
    for (row, case, result) in insert_rows(table, &rows, new) {
        let cells = result_cells(table, case, result, task_cells(table, row, result));
        table.update_row(row, &cells)?;
        written.changed += 1;
        found.insert(&result.case);
    }
    let is_missing = |result: &&RowResult| {
        let needs_row = result.measurement.is_some() || !insertable.contains_key(&result.case);
        needs_row && !found.contains(&result.case)
    };
    written.missing = results.values().filter(is_missing).count();
    Ok(written)
}

/// Inserts a row without measurements for each of the `new` cases among the rows of [`insertion_range`]: a new row
/// stands behind the last row whose case is not greater in the order of [`Case::sort_key`]. The places do not depend on
/// the order in which several calls insert rows. Returns the indices of the rows with the results of their cases.
fn insert_rows<'r>(
    table: &mut KernelCsv,
    rows: &[RowCase],
    new: Vec<(&'r IdentifiedCase, &'r RowResult)>,
) -> Vec<(usize, &'r IdentifiedCase, &'r RowResult)> {
    if new.is_empty() {
        return Vec::new();
    }
    let range = insertion_range(table);
    let sort_key = |row: &RowCase| Some((row.case.as_ref().ok()?.sort_key(), row.row));
    let present: Vec<_> = rows.iter().filter(|row| range.contains(&row.row)).filter_map(sort_key).collect();
    let mut new: Vec<_> = new.into_iter().map(|(case, result)| (case.sort_key(), case, result)).collect();
    new.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let mut behind = present.iter().rev().peekable();
    // The place of a case is searched from the end of the table; the greatest case is inserted first.
    let mut placed = Vec::with_capacity(new.len());
    for (key, case, _) in new.iter().rev() {
        while behind.next_if(|(present, _)| present > key).is_some() {}
        let place = behind.peek().map_or(range.start, |(_, row)| row + 1);
        // Rows are inserted only for kernels that run in place of the kernel of a case; they have no
        // `recorded_inputs:`.
        placed.push((place, new_row_cells(case, 0)));
    }
    placed.reverse();
    let indices = table.insert_rows(&placed);
    indices.into_iter().zip(new).map(|(row, (_, case, result))| (row, case, result)).collect()
}

/// Returns the rows among which new rows are inserted: behind the rows of profiles, and before the rows of grids and
/// mutations, because readers of a table take the first of several rows that fit a query. The range contains rows that
/// earlier runs have inserted.
fn insertion_range(table: &KernelCsv) -> Range<usize> {
    let [grid, source, profiled] =
        [columns::GRID, columns::SOURCE, columns::PROFILING[0]].map(|column| table.column_index(column));
    let (mut start, mut end) = (0, None);
    table.for_each_row(|row, cells| {
        let cell = |column: Option<usize>| cells.get(column?);
        let is_grown = [grid, source].into_iter().filter_map(cell).any(|provenance| {
            [columns::FROM_GRID, columns::FROM_MUTATION]
                .iter()
                .any(|prefix| provenance.starts_with(prefix.as_bytes()))
        });
        if is_grown {
            end = end.or(Some(row));
        } else if end.is_none() && cell(profiled).is_some_and(|duration| !duration.trim_ascii().is_empty()) {
            start = row + 1;
        }
    });
    start..end.unwrap_or(table.len())
}

pub(crate) fn write_back_kernel(
    database: &Database,
    kernel: &KernelName,
    results: &HashMap<CaseId, RowResult>,
    insertable: &BTreeMap<CaseId, IdentifiedCase>,
) -> Result<WriteBackReport, DatabaseError> {
    let mut table = database.kernel_csv(kernel)?;
    let compares_production = database.has_comparable_production();
    let written = write_back(kernel, &mut table, results, insertable, compares_production)?;
    if written.changed > 0 {
        table.save()?;
    }
    Ok(written)
}

/// Returns the columns that all tables of a database have, in the order of the first one: profiles add some. A table that cannot
/// be read is no reason to leave another one unrestored; `db check` lists it.
fn common_columns(database: &Database) -> Result<Vec<String>, DatabaseError> {
    let mut common: Option<Vec<String>> = None;
    for kernel in database.kernels()? {
        let Ok(table) = database.kernel_csv(&kernel) else { continue };
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
    if !database.has_table(kernel)? {
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use crate::{
        base::stats::SampleSummary,
        database::COMPUTE_COLUMNS,
        kernel::{CaseOutcome, Measurement, RecordedTask, Verdict},
    };

    fn add_row(table: &mut KernelCsv, length: &str, state: &str, core: &str) {
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
    }

    fn result(case: &CaseId, core: &str, samples: &[i64]) -> RowResult {
        RowResult {
            case: case.clone(),
            run: "r".to_owned(),
            outcome: CaseOutcome::new(Verdict::Ok, "every launch recorded, steady"),
            measurement: SampleSummary::from_samples(&mut samples.to_vec()).map(|summary| Measurement {
                summary,
                interval: None,
                samples: samples.len(),
                collections: 1,
                counters: Vec::new(),
                task: RecordedTask {
                    state: "dynamic".to_owned(),
                    core: core.to_owned(),
                    ..RecordedTask::default()
                },
            }),
            cache: CacheState::Hot,
            software: None,
            withdrawn_runs: BTreeSet::new(),
        }
    }

    /// A row takes any result if it was written by a run whose samples were withdrawn. A row of another run, for
    /// example on another host, does not.
    #[test]
    fn only_rows_of_withdrawn_runs_take_a_worse_result() {
        let kernel = KernelName::new("Add").expect("a name");
        let withdrawn_runs = BTreeSet::from(["slow".to_owned()]);
        for (run, is_replaced) in [("slow", true), ("r", false), ("of another ledger", false)] {
            let mut table = KernelCsv::new(Path::new("Add.csv"), &COMPUTE_COLUMNS);
            add_row(&mut table, "64", "", "");
            let case = row_cases(&kernel, &table).expect("rows").remove(0).case.expect("a case").id();
            let mut write = |result: RowResult| {
                let results = HashMap::from([(case.clone(), result)]);
                write_back(&kernel, &mut table, &results, &BTreeMap::new(), true).expect("written");
                [columns::AVERAGE, columns::VERDICT]
                    .map(|column| table.cell_text(0, column).unwrap_or_default())
            };
            let shown = write(RowResult { run: run.to_owned(), ..result(&case, "AI_CORE", &[1000; 9]) });
            assert_eq!(shown, ["1.000000", "ok"]);
            let fewer = RowResult {
                withdrawn_runs: withdrawn_runs.clone(),
                run: "next".to_owned(),
                ..result(&case, "AI_CORE", &[2000; 3])
            };
            let without = RowResult {
                outcome: CaseOutcome::new(Verdict::Throttled, "slow"),
                measurement: None,
                ..fewer.clone()
            };
            assert_eq!(write(without) == ["", "throttled"], is_replaced, "{run}");
            assert_eq!(write(fewer) == ["2.000000", "ok"], is_replaced, "{run}");
        }
    }

    /// New rows have the same places in whatever order results arrive, and the others keep their order.
    #[test]
    fn places_of_new_rows_do_not_depend_on_the_order_of_results() {
        let kernel = KernelName::new("Add").expect("a name");
        let mut all = KernelCsv::new(Path::new("Add.csv"), &COMPUTE_COLUMNS);
        let lengths = ["8", "16", "48", "100", "256"];
        lengths.iter().for_each(|length| add_row(&mut all, length, "", ""));
        let cases = row_cases(&kernel, &all).expect("rows").into_iter();
        let cases: Vec<IdentifiedCase> =
            cases.map(|row| IdentifiedCase::new(row.case.expect("a case"))).collect();
        let written = |batches: &[&[usize]]| {
            let mut table = KernelCsv::new(Path::new("Add.csv"), &COMPUTE_COLUMNS);
            ["64", "32", "128"].iter().for_each(|length| add_row(&mut table, length, "", ""));
            for batch in batches {
                let new = batch.iter().map(|index| &cases[*index]);
                let results =
                    new.clone().map(|case| (case.id().clone(), result(case.id(), "AI_CORE", &[1000])));
                let insertable = new.clone().map(|case| (case.id().clone(), case.clone())).collect();
                let report = write_back(&kernel, &mut table, &results.collect(), &insertable, true);
                assert_eq!(report.expect("written").changed, batch.len());
            }
            let length = |row| Some(table.cell_text(row, "Output Shapes")?.trim_matches('"').to_owned());
            ((0..table.len()).filter_map(length).collect(), table.to_bytes())
        };
        let (order, bytes): (Vec<String>, Vec<u8>) = written(&[&[0, 1, 2, 3, 4]]);
        assert_eq!(order, ["8", "16", "64", "32", "48", "100", "128", "256"]);
        for batches in [[&[4, 2][..], &[3, 0, 1]], [&[1, 3], &[4, 0, 2]], [&[0], &[1, 2, 3, 4]]] {
            assert_eq!(written(&batches).1, bytes, "{batches:?}");
        }
    }

    /// Readers take the first of several rows that fit a query.
    #[test]
    fn new_rows_are_behind_those_of_profiles_and_before_those_of_grids_and_mutations() {
        let kernel = KernelName::new("Add").expect("a name");
        let mut table = KernelCsv::new(Path::new("Add.csv"), &COMPUTE_COLUMNS);
        for (length, column, cell) in [
            ("64", columns::PROFILING[0], "3.1"),
            ("32", columns::PROFILING[0], "2.5"),
            ("16", columns::GRID, "grid elementwise.yaml: same, seed 0"),
            ("128", columns::GRID, "mutation scale: B 64 to 128 of case x, seed 0"),
            ("256", columns::PROFILING[0], "8.9"),
        ] {
            add_row(&mut table, length, "", "");
            let row = table.len() - 1;
            table.update_row(row, &[(column, cell.to_owned())]).expect("written");
        }
        let mut other = KernelCsv::new(Path::new("Add.csv"), &COMPUTE_COLUMNS);
        ["512", "8", "48"].iter().for_each(|length| add_row(&mut other, length, "", ""));
        for row in row_cases(&kernel, &other).expect("rows") {
            let case = IdentifiedCase::new(row.case.expect("a case"));
            let results = HashMap::from([(case.id().clone(), result(case.id(), "AI_CORE", &[1000]))]);
            let insertable = BTreeMap::from([(case.id().clone(), case)]);
            write_back(&kernel, &mut table, &results, &insertable, true).expect("written");
        }
        let length = |row| Some(table.cell_text(row, "Output Shapes")?.trim_matches('"').to_owned());
        let order: Vec<String> = (0..table.len()).filter_map(length).collect();
        assert_eq!(order, ["64", "32", "8", "48", "512", "16", "128", "256"]);
    }

    /// Rows of a profile keep the cells that were read from the profile.
    #[test]
    fn state_and_core_of_the_replay_fill_empty_cells_only() {
        let kernel = KernelName::new("Add").expect("a name");
        let mut table = KernelCsv::new(Path::new("Add.csv"), &COMPUTE_COLUMNS);
        add_row(&mut table, "16", "", "");
        add_row(&mut table, "32", "static", "N/A");
        add_row(&mut table, "64", "static", "MIX_AIV");
        add_row(&mut table, "128", "", "");
        let cases = row_cases(&kernel, &table).expect("rows").into_iter();
        let ids: Vec<CaseId> = cases.map(|row| row.case.expect("a case").id()).collect();
        let mut results: HashMap<CaseId, RowResult> =
            ids.iter().map(|id| (id.clone(), result(id, "AI_VECTOR_CORE", &[1000, 1010]))).collect();
        results.insert(ids[3].clone(), result(&ids[3], "AI_VECTOR_CORE", &[]));
        let written = write_back(&kernel, &mut table, &results, &BTreeMap::new(), true).expect("written");
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
