//! Writes the rows of a kernel once all its cases have a verdict, and those of all kernels from time to time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::EngineError;
use crate::{
    database::{Database, WriteBackReport, write_back_kernel},
    domain::{CaseId, CaseOutcome, KernelName, RowResult},
    ledger::Ledger,
    plan::RunPlan,
    verify::pool_attempts,
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
}

impl WriteBack {
    /// Registers the cases of a plan: cases to measure, and results of the ledger that the rows do not show.
    pub(super) fn for_plan(run: &str, plan: &RunPlan) -> Self {
        let mut rows = Self {
            run: run.to_owned(),
            open: BTreeMap::new(),
            finished: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        for planned in &plan.cases {
            rows.open.entry(planned.case.kernel.clone()).or_default().insert(planned.case.id().clone());
        }
        for (kernel, cases) in &plan.missing_in_csv {
            let stored = cases.iter().map(|case| (case.clone(), None));
            rows.finished.entry(kernel.clone()).or_default().extend(stored);
        }
        rows
    }

    /// Registers the verdict of a case. Returns true if it was the kernel's last open case.
    pub(super) fn finish_case(&mut self, kernel: &KernelName, case: &CaseId, outcome: &CaseOutcome) -> bool {
        // A case without a launch does not change its row.
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
            let evidence = ledger.attempt_samples(case)?;
            let row = pool_attempts(case, &evidence).or_else(|| {
                let (case, run) = (case.clone(), self.run.clone());
                outcome.clone().map(|outcome| RowResult {
                    case,
                    run,
                    outcome,
                    measurement: None,
                    software: None,
                })
            });
            results.extend(row.map(|row| (case.clone(), row)));
        }
        let report = write_back_kernel(database, kernel, &results)?;
        let finished = self.finished.remove(kernel).unwrap_or_default();
        self.written.entry(kernel.clone()).or_default().extend(finished);
        Ok(report)
    }

    /// Makes the written cases pending again: a table may have been replaced, or lost rows, after they were written.
    pub(super) fn reopen_written(&mut self) {
        for (kernel, cases) in std::mem::take(&mut self.written) {
            self.finished.entry(kernel).or_default().extend(cases);
        }
    }
}
