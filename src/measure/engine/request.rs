//! Settings, input, result and errors of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use super::gang::SweepNodes;
use crate::{
    base::{
        assets::AssetFiles, command_error::Failure, deadline::Deadline, exit::ExitStatus, files::disk_space,
        process::ProcessError,
    },
    cases::plan::{InitialCosts, PlannedCase, RunPlan},
    database::{
        Database, DatabaseError,
        ledger::{Ledger, LedgerError},
    },
    kernel::{
        CaseId, CaseOutcome, DataKind, IdentifiedCase, KernelName, SoftwareFingerprint, catalogue::Catalogue,
        render::RenderError,
    },
    measure::{
        device::{
            DeviceError, DeviceLeases, DeviceNumbering, HostSoftware, LeaseFolder, npu_smi::NpuSmiInfo,
        },
        nodes::NodeError,
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

/// A failure of the run itself; a case that fails gets a verdict instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("cannot write `{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the lane of device {device} panicked; this is a defect of npubench")]
    Panicked { device: u32 },
    #[error("the run was stopped before its last results could be stored: {source}")]
    StoppedWaiting { source: LedgerError },
    #[error("the system refused {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl EngineError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. }
            | Self::System { source, .. }
            | Self::Process(ProcessError::Io { source, .. }) => disk_space::is_disk_full(source),
            Self::Database(DatabaseError::File(error)) => error.is_disk_full(),
            _ => false,
        }
    }
}

impl Failure for EngineError {
    fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            Self::Render(error) => error.hint(),
            Self::Io { .. } => "check free space and permissions; committed results are kept".to_owned(),
            Self::Device(error) => error.hint(),
            Self::Node(error) => error.hint(),
            Self::Panicked { .. } => "report it with the lines above; committed results are kept".to_owned(),
            Self::Process(_) => "committed results are kept; `npubench resume` continues the run".to_owned(),
            Self::StoppedWaiting { .. } => {
                "free disk space, then `npubench resume` continues the run; committed results are kept".to_owned()
            }
            Self::System { .. } => {
                "raise the limits of open files (`ulimit -n`) and processes (`ulimit -u`); committed results are kept"
                    .to_owned()
            }
        }
    }

    /// Bad templates and a damaged ledger are bad input; after most other errors the run can be resumed.
    fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Render(_)
            | Self::Ledger(LedgerError::Damaged { .. })
            | Self::Database(DatabaseError::Ledger(LedgerError::Damaged { .. })) => ExitStatus::BadInput,
            Self::Device(_) | Self::System { .. } => ExitStatus::CannotMeasure,
            Self::Panicked { .. } => ExitStatus::Bug,
            _ => ExitStatus::Interrupted,
        }
    }
}
