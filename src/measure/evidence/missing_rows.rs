//! Cases with results in the ledger that have no row: their table was deleted, or the row.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    base::count_text::format_count,
    database::{
        Database, DatabaseError, KernelCsv, LintIssue, LintIssueKind, columns, for_each_row_case,
        ledger::Ledger,
    },
    kernel::{Case, CaseId, KernelName, signature_parts},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRows {
    pub(crate) kernel: KernelName,
    pub(crate) has_table: bool,
    /// Measured ones; of a missing table, also those that were attempted without a result.
    pub(crate) cases: BTreeSet<CaseId>,
    pub(crate) measured: usize,
}

/// Returns the cases of the ledger without a row, by kernel. A row with the shapes, types and formats of a case stands for it,
/// whatever its attributes: these are added to rows of attention. A row whose shapes were edited after a run stands for the
/// case of its result. Tables that cannot be read are left out. Until the newest run has ended, cases that it did not plan are
/// left out: they get their rows at its end.
pub(crate) fn missing_rows(database: &Database, ledger: &Ledger) -> Result<Vec<MissingRows>, DatabaseError> {
    // Attempted cases, and the measured cases among them.
    let mut by_kernel: BTreeMap<KernelName, (BTreeSet<CaseId>, HashSet<CaseId>)> = BTreeMap::new();
    let planned = if ledger.has_unfinished_run()? { Some(ledger.planned_cases()?) } else { None };
    let mut attempted: HashMap<CaseId, bool> = HashMap::new();
    for (case, is_measured) in ledger.attempt_cases()? {
        *attempted.entry(case).or_default() |= is_measured;
    }
    ledger.for_each_case(|case, kernel, _| {
        let Some(&is_measured) = attempted.get(&case) else { return };
        let Ok(kernel) = KernelName::new(kernel) else { return };
        if planned.as_ref().is_some_and(|planned| !planned.contains(&case)) {
            return;
        }
        let (cases, measured) = by_kernel.entry(kernel).or_default();
        if is_measured {
            measured.insert(case.clone());
        }
        cases.insert(case);
    })?;
    drop(attempted);
    let present: BTreeSet<KernelName> = database.kernels_and_collectives()?.into_iter().collect();
    let mut missing = Vec::new();
    for (kernel, (cases, measured)) in by_kernel {
        let has_table = present.contains(&kernel);
        if !has_table {
            missing.push(MissingRows { kernel, has_table, cases, measured: measured.len() });
            continue;
        }
        // A table that cannot be read is an issue of its own.
        let Ok(table) = database.kernel_csv(&kernel) else { continue };
        let unnamed = cases_that_no_row_names(&table, measured);
        if unnamed.is_empty() {
            continue;
        }
        let mut signatures: HashMap<CaseId, String> = HashMap::new();
        ledger.for_each_case(|case, _, signature| {
            if unnamed.contains(&case) {
                signatures.insert(case, signature.to_owned());
            }
        })?;
        let Ok(cases) = cases_without_row(&table, &kernel, &signatures) else { continue };
        missing.push(MissingRows { kernel, has_table, measured: cases.len(), cases });
    }
    missing.retain(|missing| missing.measured > 0);
    Ok(missing)
}

/// A row with the result of a case under other shapes was edited, which is an issue of the row.
fn cases_that_no_row_names(table: &KernelCsv, mut measured: HashSet<CaseId>) -> HashSet<CaseId> {
    if let Some(column) = table.column_index(columns::CASE) {
        table.for_each_cells(&[column], |_, cells| {
            let id = String::from_utf8_lossy(cells[0]);
            measured.remove(&CaseId::from_stored(id.trim_matches('"')));
        });
    }
    measured
}

fn slots_of<'a>(kernel: &KernelName, signature: &'a str) -> [&'a str; 2] {
    let [inputs, outputs, _] = signature_parts(kernel, signature);
    [inputs, outputs]
}

fn cases_without_row(
    table: &KernelCsv,
    kernel: &KernelName,
    signatures: &HashMap<CaseId, String>,
) -> Result<BTreeSet<CaseId>, DatabaseError> {
    let mut of_rows: Vec<String> = Vec::new();
    for_each_row_case(kernel, table, |row| of_rows.extend(row.case.as_ref().ok().map(Case::signature)))?;
    let slots: BTreeSet<[&str; 2]> = of_rows.iter().map(|one| slots_of(kernel, one)).collect();
    // Groups of collectives with the same shapes differ in attributes, which no one adds to rows.
    let is_missing = |one: &str| kernel.is_collective() || !slots.contains(&slots_of(kernel, one));
    let missing = signatures.iter().filter(|(_, signature)| is_missing(signature));
    Ok(missing.map(|(case, _)| case.clone()).collect())
}

pub(super) fn missing_row_issues(database: &Database, missing: &[MissingRows]) -> Vec<LintIssue> {
    let issues = missing.iter().map(|MissingRows { kernel, has_table, measured, .. }| {
        let path = database.kernel_path(kernel);
        let (file, cases) = (path.file_name().unwrap_or_default(), format_count(*measured, "case"));
        let rebuild = "`npubench db rebuild` rebuilds the rows from the ledger and the evidence of their runs, and `npubench ingest \
                       PROFILE` fills the `Profiling` columns";
        let (kind, text) = match has_table {
            true => (
                LintIssueKind::MissingRow,
                format!(
                    "the table has no row of {cases} with results in the ledger: restore the rows from a backup, or {rebuild}"
                ),
            ),
            false => (
                LintIssueKind::MissingTable,
                format!(
                    "the table is missing, and the ledger has results of {cases}: restore it from a backup, or {rebuild}"
                ),
            ),
        };
        LintIssue { file: file.to_string_lossy().into_owned(), line: 1, kind, text }
    });
    issues.collect()
}
