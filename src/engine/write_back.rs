//! Writes rows as soon as all cases of a kernel have their verdict.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::EngineError;
use crate::{
    database::{Database, WriteBackReport, write_back_kernel},
    domain::{CaseId, CaseOutcome, KernelName, RowResult, Verdict},
    ledger::Ledger,
    verify::pool_attempts,
};

/// Cases by kernel, and what is still open of them.
#[derive(Debug)]
pub(super) struct WriteBack {
    run: String,
    open: BTreeMap<KernelName, BTreeSet<CaseId>>,
    concluded: BTreeMap<KernelName, Vec<(CaseId, Option<CaseOutcome>)>>,
}

impl WriteBack {
    pub(super) fn new(run: &str) -> Self {
        Self { run: run.to_owned(), open: BTreeMap::new(), concluded: BTreeMap::new() }
    }

    /// A case whose verdict is still to come.
    pub(super) fn expect(&mut self, kernel: &KernelName, case: CaseId) {
        self.open.entry(kernel.clone()).or_default().insert(case);
    }

    /// A case whose row is to show what the ledger has.
    pub(super) fn show(&mut self, kernel: &KernelName, case: CaseId) {
        self.concluded.entry(kernel.clone()).or_default().push((case, None));
    }

    /// A case has its verdict; says whether it was the kernel's last.
    pub(super) fn conclude(&mut self, kernel: &KernelName, case: &CaseId, finding: &CaseOutcome) -> bool {
        // A case that had no launch says nothing new about its row.
        if !matches!(finding.verdict, Verdict::Unsupported | Verdict::NotRun) {
            self.concluded.entry(kernel.clone()).or_default().push((case.clone(), Some(finding.clone())));
        }
        let Some(open) = self.open.get_mut(kernel) else { return false };
        open.remove(case) && open.is_empty()
    }

    /// Kernels with results that are not in their rows yet.
    pub(super) fn pending(&self) -> Vec<KernelName> {
        self.concluded.keys().cloned().collect()
    }

    /// Writes a kernel's rows from the ledger.
    pub(super) fn write(
        &mut self,
        kernel: &KernelName,
        database: &Database,
        ledger: &Ledger,
    ) -> Result<WriteBackReport, EngineError> {
        let mut results = HashMap::new();
        for (case, finding) in self.concluded.remove(kernel).unwrap_or_default() {
            let evidence = ledger.attempt_samples(&case)?;
            let row = pool_attempts(&case, &evidence).or_else(|| {
                let run = self.run.clone();
                finding.map(|finding| RowResult { case: case.clone(), run, finding, measurement: None })
            });
            results.extend(row.map(|row| (case, row)));
        }
        Ok(write_back_kernel(database, kernel, &results)?)
    }
}
