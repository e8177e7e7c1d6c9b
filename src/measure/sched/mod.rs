//! The scheduler: a pure state machine from events to actions.
//!
//! A case is in exactly one state: waiting ([`queue`]), queued to run alone, waiting for a bisection ([`bisect`]),
//! running, or concluded.

use std::sync::Arc;

mod bisect;
mod costs;
mod device;
mod on_finished;
mod queue;
mod simulate;
mod start;
mod state;

use crate::{
    cases::plan::EXPORTED_RECORD,
    kernel::{CaseOutcome, CollectionPurpose},
};
use bisect::Bisection;
use costs::LearnedCosts;
use device::DeviceRecord;
pub(crate) use device::KernelCounts;
use queue::{CaseQueue, CollectionBudget};
pub use simulate::{SimulatedHost, simulate};
pub use state::{RunForecast, SchedulerState};

/// Seconds since the start of the run, or a duration in seconds.
pub type Seconds = f64;

/// A case as the scheduler sees it, identified by its index.
#[derive(Clone, Debug, Default)]
pub struct SchedCase {
    /// Number of its kernel. Costs are learned per kernel.
    pub kernel: usize,
    /// Initial prediction of the seconds for building its tensors and launching it.
    pub seconds: Seconds,
    /// Records of its launches in the profile, with warm-up and flushes of the cache.
    pub records: u32,
    /// Number of other cases with the same call: its launches measure them too.
    pub equal_cases: usize,
    /// Priority: the greatest comes first.
    pub value: f64,
    pub devices: usize,
    /// Groups of devices, the preferred one first, of which it needs one; any devices if empty.
    pub device_groups: Arc<[Vec<u32>]>,
    /// Predicted bytes of device memory.
    pub memory: u64,
}

/// Number of devices of a gang, and the groups among which it chooses. Cases with the same key share collections.
type GangKey = (usize, Arc<[Vec<u32>]>);

impl SchedCase {
    fn gang_key(&self) -> GangKey {
        (self.devices, Arc::clone(&self.device_groups))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SchedLimits {
    /// Time at which everything must have ended.
    pub deadline: Option<Seconds>,
    /// Planned maximum length of a collection; a single longer case has a collection of its own.
    pub longest_collection: Seconds,
    pub max_cases: usize,
    /// Maximum number of records of the launches of a collection's cases: the profiler's output grows with them.
    pub max_records: u32,
    /// Pause of a device after a collection without evidence: nothing was launched, or its profile is unreadable and no
    /// profile of the run has been read. Each further one in a row triples it.
    pub first_pause: Seconds,
    pub prior: PriorCosts,
}

/// Predicted costs of a collection before the first has completed.
#[derive(Clone, Copy, Debug)]
pub struct PriorCosts {
    /// Time until its script can use the device: start of Python, torch, CANN and msprof.
    pub startup: Seconds,
    /// Export and reading of the profile, without the part that grows with the records.
    pub export: Seconds,
    pub export_record: Seconds,
    /// Time beyond the prediction after which a collection counts as hung: a first start loads libraries from a cold
    /// disk, and a first launch may compile.
    pub hang_timeout: Seconds,
}

impl Default for PriorCosts {
    /// Values for an Atlas host with its libraries on a local disk; those of exports are of the same measurement as
    /// [`EXPORTED_RECORD`].
    fn default() -> Self {
        Self { startup: 10.0, export: 2.3, export_record: EXPORTED_RECORD, hang_timeout: 300.0 }
    }
}

impl Default for SchedLimits {
    /// msprof recommends collections under five minutes; a failed one costs all of its records.
    fn default() -> Self {
        Self {
            deadline: None,
            longest_collection: 240.0,
            max_cases: 256,
            max_records: 50_000,
            first_pause: 10.0,
            prior: PriorCosts::default(),
        }
    }
}

#[derive(Clone, Debug)]
pub enum SchedEvent {
    Started,
    Finished(CollectionFinished),
    StopRequested,
    /// No new collection may be started for now, such as on a full disk.
    NewWorkPaused,
    NewWorkResumed,
    /// Devices that others use, and devices that can be used again. All changes of one observation come in one event.
    ReservationsChanged {
        reserved: Vec<u32>,
        released: Vec<u32>,
    },
    /// A device that the host does not list any more, for so long that it is not expected to come back.
    DeviceLost {
        device: u32,
        reason: String,
    },
    /// Concluded cases that are measured in another collection: each on a device that it has not had, as far as there is one,
    /// and beside other cases than before. Handled like cases of the plan; each is concluded again.
    MeasureAgain(Vec<usize>),
    /// Concluded cases whose only measurements were withdrawn: measured again likewise, a limited number of times.
    MeasurementsWithdrawn(Vec<usize>),
    /// The device is slower or faster than others: no further collection is started on it, unless it is the last one
    /// that can be used.
    DeviceDeviates {
        device: u32,
        reason: String,
    },
    TimerFired,
}

#[derive(Clone, Debug, Default)]
pub struct CollectionFinished {
    pub collection: u32,
    pub results: Vec<CaseResult>,
    pub exit: CollectionExit,
    pub has_readable_profile: bool,
    pub failed_devices: Vec<u32>,
    /// `None` if the script could not use the device.
    pub startup: Option<Seconds>,
    pub total: Seconds,
    pub message: String,
}

#[derive(Clone, Debug)]
pub struct CaseResult {
    pub case: usize,
    pub outcome: CaseOutcome,
    /// With the construction of its tensors; `None` if it did not end.
    pub seconds: Option<Seconds>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectionExit {
    #[default]
    Completed,
    /// It crashed, hung, or was ended by another program.
    Broken,
    /// Its script ended early by itself: a case left the device unusable, as the result of the case tells.
    EndedByCase,
    NothingLaunched,
    /// It was ended by a stop request or the deadline, which is no evidence against its cases.
    Stopped,
    /// It failed while the disk was full, which is no evidence against its cases or devices.
    DiskFull,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SchedAction {
    Start(StartCollection),
    /// Conclude a case; emitted once for every case, and once more each time it is measured again.
    Conclude {
        case: usize,
        /// Its verdict; of a case that is measured again, that of the new collection.
        outcome: CaseOutcome,
    },
    Pause {
        device: u32,
        reason: String,
        until: Option<Seconds>,
    },
    Readmit {
        device: u32,
    },
    /// Send [`SchedEvent::TimerFired`] at this time; replaces an earlier timer.
    SetTimer(Seconds),
    Finish,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StartCollection {
    pub collection: u32,
    pub devices: Vec<u32>,
    pub cases: Vec<usize>,
    pub purpose: CollectionPurpose,
    pub predicted: Seconds,
    /// Seconds after which it is ended, without the time in which it waits for a core of a busy host.
    pub limit: Seconds,
    /// Seconds of wall time until the deadline of the run, at which it is ended in any case; no evidence against its cases.
    pub cut_off: Option<Seconds>,
    /// Seconds before either of them at which its script ends its last case, so that the records are exported in time.
    pub export_reserve: Seconds,
}

#[cfg(test)]
mod tests;
