//! Data shared by the dispatcher, the lanes and the device monitor of a run.

use std::{
    path::PathBuf,
    sync::atomic::AtomicBool,
    time::{SystemTime, UNIX_EPOCH},
};

use super::gang_parts::SweepNodes;
use crate::{
    base::{assets::AssetFiles, stats::PrecisionAim},
    cases::plan::{InitialCosts, PlannedCase},
    kernel::{
        CacheState, DataKind, FailingVerdicts, Nanos, ProfilerSettings, SoftwareFingerprint,
        catalogue::Catalogue,
        render::{PinnedEnvironment, ScriptCommunication},
    },
    measure::device::{DeviceLeases, DeviceNumbering, HostSoftware, LeaseFolder},
};

/// Settings shared by all collections of a run.
#[derive(Clone, Debug)]
pub(crate) struct CollectionSettings {
    pub run: String,
    pub kind: DataKind,
    /// Folder of the run's scripts, logs and raw output.
    pub folder: PathBuf,
    pub seed: u64,
    /// Python interpreter, as a name or a path.
    pub python: String,
    pub environment: Vec<(String, String)>,
    pub profiler: ProfilerSettings,
    /// Variables and switches with fixed values.
    pub(crate) pinned: PinnedEnvironment,
    /// Backend of collectives.
    pub(crate) communication: ScriptCommunication,
    /// Software of the host when the run began.
    pub software: SoftwareFingerprint,
    /// Software of the host, which is read again for each collection.
    pub host_software: HostSoftware,
    /// Verdicts that make the exit code 1.
    pub failing: FailingVerdicts,
    /// Skew of the distribution of tokens over experts; 0 is even.
    pub expert_skew: f64,
    /// Precision for which cases are measured in further collections; `None` for one collection of each.
    pub aim: Option<PrecisionAim>,
    pub leases: LeaseFolder,
    /// True if `npu-smi` lists processes by the ids that this program sees; false inside a container with ids of its
    /// own and on the rehearsal host, which invents processes.
    pub sees_host_processes: bool,
    /// Logical numbers of the devices.
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

impl CollectionSettings {
    /// Returns the state of the cache that the run measures.
    pub(crate) const fn cache(&self) -> CacheState {
        match self.costs.flush {
            Some(_) => CacheState::Cold,
            None => CacheState::Hot,
        }
    }
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

/// Returns the wall-clock time in nanoseconds since the epoch.
pub(super) fn unix_time() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
