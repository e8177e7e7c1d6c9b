//! Input and result of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicBool},
};

use super::CollectionSettings;
use crate::{
    base::{deadline::Deadline, exit::ExitStatus},
    cases::plan::{PlannedCase, RunPlan},
    database::{Database, ledger::Ledger},
    kernel::{CaseId, CaseOutcome, IdentifiedCase, KernelName},
    measure::device::npu_smi::NpuSmiInfo,
};

/// Input of a run.
#[derive(Debug)]
pub(crate) struct RunRequest<'a> {
    /// The database, locked by the caller.
    pub database: &'a Database,
    pub ledger: &'a mut Ledger,
    pub settings: CollectionSettings,
    pub plan: RunPlan,
    pub devices: Vec<u32>,
    /// Options of the run as JSON, for the ledger.
    pub options: String,
    /// Fingerprint of host and software as JSON, for the ledger.
    pub host: String,
    /// Output of `npu-smi` before the run.
    pub info: NpuSmiInfo,
    /// Deadline of the run; `None` without one.
    pub deadline: Option<Deadline>,
    /// Results of the interrupted run that is resumed; `None` for a new run.
    pub resumed: Option<ResumedRun>,
    /// Set by signals that came before the run had handlers of its own; `None` where these end the program.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Results of an interrupted run.
#[derive(Debug, Default)]
pub(crate) struct ResumedRun {
    /// Number of its last collection.
    pub collections: u32,
    /// Cases that have a verdict, or an attempt that settles it, and are not planned again.
    pub outcomes: Vec<(IdentifiedCase, CaseOutcome)>,
    /// Planned cases that the run has measured: the rounds of a demanded precision may repeat them.
    pub measured: BTreeMap<CaseId, CaseOutcome>,
    /// Attempted cases without a verdict, each with the number of a collection; one entry per attempt.
    pub attempted: Vec<(CaseId, u32)>,
}

impl ResumedRun {
    /// Returns the indices of the planned cases of which all rows are measured.
    pub(super) fn measured_indices(&self, planned: &[PlannedCase]) -> BTreeSet<usize> {
        let is_measured =
            |planned: &PlannedCase| planned.cases().all(|case| self.measured.contains_key(case.id()));
        (0..planned.len()).filter(|&index| is_measured(&planned[index])).collect()
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct RunOutcome {
    /// Verdict of every case: measured cases in the order of the plan, then cases that were not launched.
    pub outcomes: Vec<(IdentifiedCase, CaseOutcome)>,
    pub exit: ExitStatus,
    /// True if a stop was requested, also if all cases were measured nevertheless.
    pub(crate) is_stopped: bool,
    /// True if the run has written rows.
    pub(crate) has_written_rows: bool,
    /// Kernels with results that are in the ledger alone, because their tables could not be written.
    pub unwritten: Vec<KernelName>,
}
