//! Writes the rows of a kernel once all its cases have a verdict, and those of all kernels from time to time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::EngineError;
use crate::{
    database::{Database, DatabaseError, ShownInterval, WriteBackReport, row_cases, write_back_kernel},
    domain::{CaseId, CaseOutcome, IdentifiedCase, KernelName, RowResult, SoftwareFingerprint, reason_cause},
    ledger::{Ledger, LedgerError},
    plan::{PlannedCase, RunPlan},
    verify::{JointEstimates, pool_attempts},
};

/// Open and finished cases of each kernel.
#[derive(Debug)]
pub(super) struct WriteBack {
    run: String,
    open: BTreeMap<KernelName, BTreeSet<CaseId>>,
    /// Cases whose rows are to be written; `None` for a result of an earlier run that the row does not show.
    finished: BTreeMap<KernelName, Vec<(CaseId, Option<CaseOutcome>)>>,
    /// Cases whose rows were written.
    written: BTreeMap<KernelName, Vec<(CaseId, Option<CaseOutcome>)>>,
    /// Estimates of all cases of the ledger; empty until the run ends, so that rows written before have the intervals of their
    /// own samples.
    estimates: JointEstimates,
    /// Cases as which calls of other kernels were measured; they get a row if they have none.
    insertable: BTreeMap<CaseId, IdentifiedCase>,
}

impl WriteBack {
    /// Registers the cases of a plan: cases to measure, and results of the ledger that the rows do not show.
    pub(super) fn for_plan(run: &str, plan: &RunPlan) -> Self {
        let mut rows = Self {
            run: run.to_owned(),
            open: BTreeMap::new(),
            finished: BTreeMap::new(),
            written: BTreeMap::new(),
            estimates: JointEstimates::default(),
            insertable: BTreeMap::new(),
        };
        for case in plan.cases.iter().flat_map(PlannedCase::cases) {
            rows.open.entry(case.kernel.clone()).or_default().insert(case.id().clone());
        }
        for (kernel, cases) in &plan.missing_in_csv {
            let stored = cases.iter().map(|case| (case.clone(), None));
            rows.finished.entry(kernel.clone()).or_default().extend(stored);
        }
        for (case, outcome) in &plan.ran_as_other_verdicts {
            let finished = rows.finished.entry(case.kernel.clone()).or_default();
            finished.push((case.id().clone(), Some(outcome.clone())));
        }
        plan.rows_to_insert.iter().for_each(|case| rows.add_unplanned(case));
        rows
    }

    /// Returns true if the case is planned and has no verdict yet.
    pub(super) fn is_open(&self, case: &IdentifiedCase) -> bool {
        self.open.get(&case.kernel).is_some_and(|open| open.contains(case.id()))
    }

    /// Registers a case that is measured in the ledger but not planned.
    pub(super) fn add_unplanned(&mut self, case: &IdentifiedCase) {
        self.finished.entry(case.kernel.clone()).or_default().push((case.id().clone(), None));
        self.insertable.insert(case.id().clone(), case.clone());
    }

    /// Registers the verdict of a case. Returns true if it was the kernel's last open case.
    pub(super) fn finish_case(&mut self, kernel: &KernelName, case: &CaseId, outcome: &CaseOutcome) -> bool {
        // The result of a case that was not launched does not change its row.
        if !outcome.verdict.keeps_the_row() {
            self.finished.entry(kernel.clone()).or_default().push((case.clone(), Some(outcome.clone())));
        }
        let Some(open) = self.open.get_mut(kernel) else { return false };
        open.remove(case) && open.is_empty()
    }

    /// Returns the kernels with results that are not written yet.
    pub(super) fn pending_kernels(&self) -> Vec<KernelName> {
        self.finished.keys().cloned().collect()
    }

    /// Writes the rows of a kernel from the ledger. After an error its results are still pending.
    pub(super) fn write_kernel(
        &mut self,
        kernel: &KernelName,
        database: &Database,
        ledger: &Ledger,
    ) -> Result<WriteBackReport, EngineError> {
        let mut results = HashMap::new();
        for (case, outcome) in self.finished.get(kernel).into_iter().flatten() {
            let has_withdrawn = ledger.has_withdrawn_attempt(case)?;
            let row = measured_row(ledger, case, &self.estimates)?.or_else(|| {
                let (case, run) = (case.clone(), self.run.clone());
                outcome.clone().map(|outcome| RowResult {
                    case,
                    run,
                    outcome,
                    measurement: None,
                    software: None,
                    has_withdrawn,
                })
            });
            results.extend(row.map(|row| (case.clone(), RowResult { has_withdrawn, ..row })));
        }
        let report = write_back_kernel(database, kernel, &results, &self.insertable_of(kernel))?;
        let finished = self.finished.remove(kernel).unwrap_or_default();
        self.written.entry(kernel.clone()).or_default().extend(finished);
        Ok(report)
    }

    fn insertable_of(&self, kernel: &KernelName) -> BTreeMap<CaseId, IdentifiedCase> {
        let cases = self.insertable.iter().filter(|(_, case)| case.kernel == *kernel);
        cases.map(|(id, case)| (id.clone(), case.clone())).collect()
    }

    /// Registers rows of other runs that were written without the present estimates, such as those of a killed run. Tables that
    /// cannot be read are left out.
    pub(super) fn add_outdated(&mut self, database: &Database) {
        for kernel in database.kernels().unwrap_or_default() {
            let outdated = outdated_cases(database, &kernel, &self.estimates).unwrap_or_default();
            if !outdated.is_empty() {
                let finished = self.finished.entry(kernel).or_default();
                finished.extend(outdated.into_iter().map(|case| (case, None)));
            }
        }
    }

    /// Makes the written cases pending again, with these estimates. A table may have been replaced, or lost rows, after they
    /// were written.
    pub(super) fn reopen_written(&mut self, estimates: JointEstimates) {
        self.estimates = estimates;
        for (kernel, cases) in std::mem::take(&mut self.written) {
            self.finished.entry(kernel).or_default().extend(cases);
        }
    }
}

/// Returns the measured cases of a table whose rows show another method or number of collections than the estimates.
fn outdated_cases(
    database: &Database,
    kernel: &KernelName,
    estimates: &JointEstimates,
) -> Result<Vec<CaseId>, DatabaseError> {
    let rows = row_cases(kernel, &database.kernel_csv(kernel)?)?;
    let measured = rows.into_iter().filter(|row| row.shown.is_some());
    let outdated = measured.filter_map(|row| {
        let case = row.case.ok()?.id();
        let estimated = estimates.of_case(&case)?;
        let current = ShownInterval {
            method: Some(estimated.method.to_string()),
            collections: Some(estimated.estimate.collections),
        };
        (row.interval != current).then_some(case)
    });
    Ok(outdated.collect())
}

/// Returns the row of a case with samples in the ledger, with a remark if its newest attempt ran as another kernel: the
/// numbers are those of its own kernel, which the software of the attempt does not choose any more.
fn measured_row(
    ledger: &Ledger,
    case: &CaseId,
    estimates: &JointEstimates,
) -> Result<Option<RowResult>, LedgerError> {
    let estimated = estimates.of_case(case);
    let Some(mut row) = pool_attempts(case, &ledger.attempt_samples(case)?, estimated) else {
        return Ok(None);
    };
    if let Some(newest) = ledger.newest_attempt_as_other(case)? {
        let software = compare_software(newest.software.as_ref(), row.software.as_ref());
        let remark = format!("a later attempt with {software} {}", reason_cause(&newest.reason));
        row.outcome = CaseOutcome::with_remarks(row.outcome.verdict, &row.outcome.reason, [remark.as_str()]);
    }
    Ok(Some(row))
}

/// Returns how the software of an attempt relates to that of the measurement. Software that was not recorded may differ.
fn compare_software(
    attempt: Option<&SoftwareFingerprint>,
    measurement: Option<&SoftwareFingerprint>,
) -> &'static str {
    match (attempt, measurement) {
        (Some(attempt), Some(measurement)) if attempt == measurement => "the same software",
        (Some(_), Some(_)) => "other software",
        _ => "software that is not known to be the same",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrecorded_software_is_not_the_same() {
        let [old, new] = ["8.3", "8.5"].map(|version| SoftwareFingerprint {
            cann: Some(version.to_owned()),
            ..SoftwareFingerprint::default()
        });
        assert_eq!(compare_software(Some(&old), Some(&old)), "the same software");
        assert_eq!(compare_software(Some(&new), Some(&old)), "other software");
        for (attempt, measurement) in [(None, None), (None, Some(&old)), (Some(&old), None)] {
            let found = compare_software(attempt, measurement);
            assert_eq!(found, "software that is not known to be the same");
        }
    }
}
