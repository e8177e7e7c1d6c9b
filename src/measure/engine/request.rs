//! Settings, input and result of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use super::gang::SweepNodes;
use crate::{
    base::{assets::AssetFiles, deadline::Deadline, exit::ExitStatus},
    cases::plan::{InitialCosts, PlannedCase, RunPlan},
    database::{Database, ledger::Ledger},
    kernel::{
        CaseId, CaseOutcome, DataKind, IdentifiedCase, KernelName, SoftwareFingerprint, catalogue::Catalogue,
    },
    measure::{
        device::{DeviceLeases, DeviceNumbering, HostSoftware, LeaseFolder, npu_smi::NpuSmiInfo},
        run_options::RunOptions,
    },
};

#[derive(Debug)]
pub(crate) struct RunRequest<'a> {
    pub database: &'a Database,
    pub ledger: &'a mut Ledger,
    pub settings: CollectionSettings,
    pub plan: RunPlan,
    /// Fingerprint of host and software as JSON, for the ledger.
    pub host: String,
    pub info: NpuSmiInfo,
    pub deadline: Option<Deadline>,
    /// Results of the interrupted run that is resumed; `None` for a new run.
    pub resumed: Option<ResumedRun>,
    /// Set by signals that came before the run had handlers of its own; `None` where these end the program.
    pub stop: Option<Arc<AtomicBool>>,
}

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
    pub(super) fn measured_indices(&self, planned: &[PlannedCase]) -> BTreeSet<usize> {
        let is_measured =
            |planned: &PlannedCase| planned.cases().all(|case| self.measured.contains_key(case.id()));
        (0..planned.len()).filter(|&index| is_measured(&planned[index])).collect()
    }
}

#[derive(Debug)]
pub(crate) struct RunOutcome {
    /// Verdict of every case: measured cases in the order of the plan, then cases that were not launched.
    pub outcomes: Vec<(IdentifiedCase, CaseOutcome)>,
    pub exit: ExitStatus,
    /// True if a stop was requested, also if all cases were measured nevertheless.
    pub(crate) is_stopped: bool,
    pub(crate) has_written_rows: bool,
    /// Kernels with results that are in the ledger alone, because their tables could not be written.
    pub unwritten: Vec<KernelName>,
}

#[derive(Clone, Debug)]
pub(crate) struct CollectionSettings {
    pub run: String,
    pub kind: DataKind,
    /// Folder of the run's scripts, logs and raw output.
    pub folder: PathBuf,
    pub(crate) options: RunOptions,
    /// Variables that the host's programs need.
    pub environment: Vec<(String, String)>,
    /// Software of the host when the run began.
    pub software: SoftwareFingerprint,
    /// Software of the host, which is read again for each collection.
    pub host_software: HostSoftware,
    pub leases: LeaseFolder,
    /// True if `npu-smi` lists processes by the ids that this program sees; false inside a container with ids of its
    /// own and on the rehearsal host, which invents processes.
    pub sees_host_processes: bool,
    pub numbering: DeviceNumbering,
    /// Folder of the records of running programs.
    pub processes: PathBuf,
    /// Predicted costs, and the numbers of launches that follow from them.
    pub costs: InitialCosts,
    /// Nodes of a sweep over several hosts; `None` for one host.
    pub(crate) nodes: Option<SweepNodes>,
    pub catalogue: Catalogue,
    pub assets: AssetFiles,
}

/// Read-only data of a run, and the flag that stops it.
#[derive(Debug)]
pub(super) struct LaneContext {
    pub(super) settings: CollectionSettings,
    pub(super) cases: Vec<PlannedCase>,
    /// Leases of the devices of the run, as far as no other process holds them.
    pub(super) leases: DeviceLeases,
    /// Set to end running collections at once.
    pub(super) stop: AtomicBool,
}
