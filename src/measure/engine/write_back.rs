//! Writes the rows of a kernel once all its cases have a verdict, and the rows of all kernels from time to time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::{EngineError, Result};
use crate::{
    cases::plan::{PlannedCase, RunPlan},
    database::{
        Database, DatabaseError, RowCase, TableRow, WriteBackReport, ledger::Ledger, row_cases,
        write_back_kernel,
    },
    kernel::{
        Attempt, CONFIRMING_COLLECTIONS, CacheState, CaseId, CaseOutcome, EqualCallAttempt, IdentifiedCase,
        KernelName, RowResult, Verdict,
    },
    measure::evidence::{LedgerComparison, RowComparison, case_row},
};

/// A case whose row is to be written, with a run and its verdict for a row without a measurement.
type FinishedCase = (CaseId, Option<(String, CaseOutcome)>);

#[derive(Debug, Default)]
pub(super) struct WriteBack {
    run: String,
    cache: CacheState,
    open: BTreeMap<KernelName, BTreeSet<CaseId>>,
    finished: BTreeMap<KernelName, Vec<FinishedCase>>,
    written: BTreeMap<KernelName, Vec<FinishedCase>>,
    /// All measurements of the ledger; `None` until the run ends, so that rows written before have intervals of their own samples.
    ledger: Option<LedgerComparison>,
    /// Cases as which calls of other kernels were measured; they get a row if they have none.
    insertable: BTreeMap<CaseId, IdentifiedCase>,
}

impl WriteBack {
    pub(super) fn for_plan(run: &str, cache: CacheState, plan: &RunPlan) -> Self {
        let mut rows = Self { run: run.to_owned(), cache, ..Self::default() };
        for case in plan.cases.iter().flat_map(PlannedCase::cases) {
            // Cases of sweeps have no row before they are measured.
            if case.kernel.is_collective() {
                rows.insertable.insert(case.id().clone(), case.clone());
            }
            rows.open.entry(case.kernel.clone()).or_default().insert(case.id().clone());
        }
        for (kernel, cases) in &plan.missing_in_csv {
            cases.iter().for_each(|case| rows.add_finished(kernel, case, None));
        }
        for (case, outcome) in &plan.ran_as_other_verdicts {
            rows.add_finished(&case.kernel, case.id(), Some((run, outcome)));
        }
        plan.rows_to_insert.iter().for_each(|case| rows.add_unplanned(case));
        rows
    }

    fn add_finished(&mut self, kernel: &KernelName, case: &CaseId, verdict: Option<(&str, &CaseOutcome)>) {
        let verdict = verdict.map(|(run, outcome)| (run.to_owned(), outcome.clone()));
        self.finished.entry(kernel.clone()).or_default().push((case.clone(), verdict));
    }

    pub(super) fn is_open(&self, case: &IdentifiedCase) -> bool {
        self.open.get(&case.kernel).is_some_and(|open| open.contains(case.id()))
    }

    pub(super) fn add_unplanned(&mut self, case: &IdentifiedCase) {
        self.add_finished(&case.kernel, case.id(), None);
        self.insertable.insert(case.id().clone(), case.clone());
    }

    /// Registers the verdict of a case. Returns true if it was the kernel's last open case.
    pub(super) fn finish_case(&mut self, kernel: &KernelName, case: &CaseId, outcome: &CaseOutcome) -> bool {
        // The result of a case that was not launched does not change its row.
        if !outcome.verdict.keeps_the_row() {
            let run = self.run.clone();
            self.add_finished(kernel, case, Some((&run, outcome)));
        }
        let Some(open) = self.open.get_mut(kernel) else { return false };
        open.remove(case) && open.is_empty()
    }

    pub(super) fn pending_kernels(&self) -> Vec<KernelName> {
        self.finished.keys().cloned().collect()
    }

    pub(super) fn write_kernel(
        &mut self,
        kernel: &KernelName,
        database: &Database,
        ledger: &Ledger,
    ) -> Result<WriteBackReport> {
        let mut results = HashMap::new();
        for (case, verdict) in self.finished.get(kernel).into_iter().flatten() {
            results.extend(self.row_result(case, verdict.as_ref(), ledger)?.map(|row| (case.clone(), row)));
        }
        let insertable = self.insertable.iter().filter(|(_, case)| case.kernel == *kernel);
        let insertable = insertable.map(|(id, case)| (id.clone(), case.clone())).collect();
        let report = write_back_kernel(database, kernel, &results, &insertable)?;
        let finished = self.finished.remove(kernel).unwrap_or_default();
        self.written.entry(kernel.clone()).or_default().extend(finished);
        Ok(report)
    }

    /// Returns the result for the row of a case: its measurement, else its verdict, else the verdict of its withdrawn attempts.
    fn row_result(
        &self,
        case: &CaseId,
        verdict: Option<&(String, CaseOutcome)>,
        ledger: &Ledger,
    ) -> Result<Option<RowResult>> {
        let (measured, withdrawn) = match &self.ledger {
            Some(all) => (all.rows.row(case), all.rows.withdrawn.get(case).cloned()),
            None => (
                case_row(ledger, case, self.cache)?,
                ledger.withdrawn_attempts(self.cache, Some(case))?.remove(case),
            ),
        };
        let withdrawn_runs = withdrawn.as_ref().map(|withdrawn| withdrawn.runs.clone()).unwrap_or_default();
        // The measurement of such a verdict was withdrawn by a later run, which did not plan the case.
        let verdict = verdict.filter(|(_, outcome)| !outcome.verdict.has_samples());
        Ok(match (measured, verdict) {
            (Some(row), _) => Some(RowResult { withdrawn_runs, ..row }),
            (None, Some((run, outcome))) => Some(RowResult {
                case: case.clone(),
                cache: self.cache,
                run: run.clone(),
                outcome: outcome.clone(),
                measurement: None,
                software: None,
                withdrawn_runs,
            }),
            (None, None) => {
                withdrawn.map(|withdrawn| RowResult::of_withdrawn(case.clone(), self.cache, withdrawn))
            }
        })
    }

    /// Registers rows of other runs that differ from the ledger, such as those of a killed run. Rows of other ledgers differ only if
    /// they lack the estimate from several collections. Returns the number of `ok` rows of earlier runs that become suspicious, because
    /// newer measurements of other cases contradict them, and how many of these the next run measures again.
    pub(super) fn add_outdated(&mut self, database: &Database) -> (usize, usize) {
        let (mut suspicious, mut open) = (0, 0);
        let Some(ledger) = self.ledger.take() else { return (0, 0) };
        for kernel in kernels_of(database) {
            let outdated = find_in_rows(database, &kernel, |row, case| {
                let cells = row.parsed.cells(ledger.cache);
                let shown = cells.shown.as_ref()?;
                let is_outdated = match ledger.compare_row(row, &case) {
                    RowComparison::Behind | RowComparison::Different { .. } => true,
                    RowComparison::OtherLedger | RowComparison::UnknownRun { .. } => {
                        lacks_estimate(&ledger, &row.parsed, &case)
                    }
                    _ => false,
                };
                if is_outdated
                    && shown.verdict == Verdict::Ok
                    && cells.run.as_ref() != Some(&self.run)
                    && let Some(judged) = ledger.judged_row(&case, row.parsed.production)
                    && let (Verdict::Suspicious, Some(measured)) =
                        (judged.outcome.verdict, judged.measurement)
                {
                    suspicious += 1;
                    open += usize::from(measured.collections < CONFIRMING_COLLECTIONS);
                }
                is_outdated.then_some(case)
            });
            outdated.iter().for_each(|case| self.add_finished(&kernel, case, None));
        }
        self.ledger = Some(ledger);
        (suspicious, open)
    }

    pub(super) fn reopen_written(&mut self, ledger: LedgerComparison) {
        self.ledger = Some(ledger);
        for (kernel, cases) in std::mem::take(&mut self.written) {
            self.finished.entry(kernel).or_default().extend(cases);
        }
    }
}

fn kernels_of(database: &Database) -> Vec<KernelName> {
    database.kernels_and_collectives().unwrap_or_else(|error| {
        tracing::error!(%error, "the tables cannot be listed");
        Vec::new()
    })
}

/// Returns what `find` returns for the rows of a table. A table that cannot be read keeps its rows: the log has the problem.
pub(super) fn find_in_rows<T>(
    database: &Database,
    kernel: &KernelName,
    mut find: impl FnMut(&TableRow<'_>, CaseId) -> Option<T>,
) -> Vec<T> {
    let mut read = || -> Result<Vec<T>, DatabaseError> {
        let table = database.kernel_csv(kernel)?;
        let rows = row_cases(kernel, &table)?.into_iter();
        let found = rows.filter_map(|row| {
            let case = row.case.as_ref().ok()?.id();
            find(&TableRow::read_cells(&table, row), case)
        });
        Ok(found.collect())
    };
    read().unwrap_or_else(|error| {
        tracing::error!(%kernel, %error, "the table is not compared with the ledger");
        Vec::new()
    })
}

/// Rows that were written from the ledger.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct WrittenRows {
    pub(crate) rows: usize,
    /// Attempts that the comparison of clocks withdrew afterwards.
    pub(crate) withdrawn: usize,
    pub(crate) unwritten: Vec<UnwrittenTable>,
}

/// Table that could not be written.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UnwrittenTable {
    pub(crate) kernel: String,
    pub(crate) problem: String,
}

/// Writes the rows of all cases of the ledger that differ from it, and new rows for the measured cases among
/// `insertable` that have none. No row is replaced by something worse, except by withdrawn measurements; rows that may be of
/// another ledger are kept.
pub(crate) fn rewrite_rows(
    database: &Database,
    ledger: &Ledger,
    insertable: &[IdentifiedCase],
) -> Result<WrittenRows> {
    let mut written_rows = 0;
    let mut problems: BTreeMap<KernelName, String> = BTreeMap::new();
    for &cache in CacheState::ALL {
        let mut rows = WriteBack::for_plan("", cache, &RunPlan::default());
        let compared = LedgerComparison::read(ledger, database, cache)?;
        let is_foreign = |row: &TableRow<'_>, case: CaseId| {
            let compared = compared.compare_row(row, &case);
            matches!(compared, RowComparison::OtherLedger | RowComparison::UnknownRun { .. }).then_some(case)
        };
        let kernels = kernels_of(database).into_iter();
        // Rows of another ledger, such as the ledger of another host.
        let foreign: BTreeSet<CaseId> =
            kernels.flat_map(|kernel| find_in_rows(database, &kernel, is_foreign)).collect();
        rows.ledger = Some(compared);
        rows.add_outdated(database);
        let verdicts = ledger.newest_row_verdicts(cache)?;
        let attempted = ledger.attempted_cases(cache)?.into_iter();
        for (case, kernel) in attempted.filter(|(case, _)| !foreign.contains(case)) {
            let Ok(kernel) = KernelName::new(&kernel) else { continue };
            let verdict = verdicts.get(&case).map(|(run, outcome)| (run.as_str(), outcome));
            rows.add_finished(&kernel, &case, verdict);
        }
        insertable.iter().for_each(|case| rows.add_unplanned(case));
        for kernel in rows.pending_kernels() {
            match rows.write_kernel(&kernel, database, ledger) {
                Ok(written) => written_rows += written.changed,
                Err(EngineError::Database(error)) => {
                    problems.insert(kernel, error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
    }
    let table =
        |(kernel, problem): (KernelName, String)| UnwrittenTable { kernel: kernel.to_string(), problem };
    let unwritten = problems.into_iter().map(table).collect();
    Ok(WrittenRows { rows: written_rows, withdrawn: 0, unwritten })
}

fn lacks_estimate(ledger: &LedgerComparison, row: &RowCase, case: &CaseId) -> bool {
    ledger.rows.estimates.of_case(case).is_some_and(|estimated| {
        let current = (Some(estimated.method), Some(estimated.estimate.collections));
        let shown = row.cells(ledger.cache);
        (shown.method, shown.collections) != current
    })
}

#[derive(Debug, Default)]
pub(super) struct EqualCallOutcomes {
    pub(super) outcomes: BTreeMap<CaseId, CaseOutcome>,
    pub(super) reopened: BTreeSet<CaseId>,
}

impl EqualCallOutcomes {
    pub(super) fn add_attempts(&mut self, attempts: &[Attempt], rows: &mut WriteBack) {
        for EqualCallAttempt { case, attempt } in attempts.iter().flat_map(|attempt| &attempt.of_equal_calls)
        {
            self.outcomes.insert(case.id().clone(), attempt.outcome.clone());
            if !rows.is_open(case) {
                rows.add_unplanned(case);
            }
        }
    }

    pub(super) fn outcomes_of(
        &self,
        planned: &PlannedCase,
        outcome: &CaseOutcome,
    ) -> Vec<(IdentifiedCase, CaseOutcome)> {
        let of_case = |case: &CaseId| self.outcomes.get(case).unwrap_or(outcome).clone();
        planned.equal_cases.iter().map(|case| (case.clone(), of_case(case.id()))).collect()
    }
}
