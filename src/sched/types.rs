//! What the scheduler is told, and what it answers.

use crate::domain::{CaseOutcome, CollectionPurpose};

/// Seconds since the run began, or a length of time.
pub type Seconds = f64;

/// A case as the scheduler knows it; cases are named by their index.
#[derive(Clone, Debug)]
pub struct SchedCase {
    /// Number of its kernel. What is learned of one case of a kernel is expected of the others.
    pub kernel: usize,
    /// What building its tensors and launching it is thought to take before anything is known.
    pub seconds: Seconds,
    /// Launches, warm-up included.
    pub launches: u32,
    /// What its result is worth; the greatest come first.
    pub value: f64,
    /// Devices that it needs at once.
    pub devices: usize,
    /// Bytes of device memory that it is thought to need.
    pub memory: u64,
}

/// What bounds collections and the run.
#[derive(Clone, Copy, Debug)]
pub struct SchedLimits {
    /// When everything must have ended.
    pub deadline: Option<Seconds>,
    /// A collection is planned to be no longer than this, unless a single case is.
    pub longest: Seconds,
    /// Cases of a collection.
    pub most_cases: usize,
    /// Launches of a collection: what the profiler writes grows with them.
    pub most_launches: u32,
    /// What is thought before anything is known.
    pub prior: PriorCosts,
}

/// What a collection is thought to take before one has come to its end.
#[derive(Clone, Copy, Debug)]
pub struct PriorCosts {
    /// Until its script can use the device: starting Python, torch, CANN and msprof.
    pub start: Seconds,
    /// Exporting and reading, besides what grows with the launches.
    pub export: Seconds,
    /// Exporting and reading one launch.
    pub export_launch: Seconds,
    /// Besides its prediction, until it counts as hung: a first start loads libraries from a cold disk, and a first
    /// launch may compile.
    pub patience: Seconds,
}

impl Default for PriorCosts {
    /// Of an Atlas host whose libraries are on a local disk.
    fn default() -> Self {
        Self { start: 10.0, export: 5.0, export_launch: 1e-3, patience: 300.0 }
    }
}

impl Default for SchedLimits {
    /// msprof wants collections under five minutes; one that fails should cost less than that.
    fn default() -> Self {
        Self {
            deadline: None,
            longest: 240.0,
            most_cases: 256,
            most_launches: 50_000,
            prior: PriorCosts::default(),
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum SchedEvent {
    /// The run begins.
    Started,
    /// A collection has ended.
    Finished(CollectionFinished),
    /// Nothing new is to begin.
    StopRequested,
    /// Nothing is to begin for a while, such as on a full disk.
    NewWorkPaused,
    /// What held the run has passed.
    Released,
    /// A device is lent to somebody else from its running collection's end on.
    DeviceReserved {
        /// The device.
        device: u32,
    },
    /// A lent device is ours again.
    DeviceReleased {
        /// The device.
        device: u32,
    },
    /// A moment that [`SchedAction::WakeAt`] asked for has come.
    Woke,
}

/// How a collection ended.
#[derive(Clone, Debug)]
pub struct CollectionFinished {
    /// Its number.
    pub collection: u32,
    /// Its cases, each with what was found.
    pub results: Vec<CaseResult>,
    /// How its process ended.
    pub end: CollectionExit,
    /// Seconds from its start to the moment at which its script could use the device; `None` where it could not.
    pub start: Option<Seconds>,
    /// Seconds from its start to its results.
    pub total: Seconds,
    /// In words, for reasons.
    pub outcome: String,
}

/// What was found of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case.
    pub case: usize,
    /// What was found.
    pub finding: CaseOutcome,
    /// Seconds that it took, its tensors included; `None` where it did not end.
    pub seconds: Option<Seconds>,
}

/// How a collection's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionExit {
    /// Its script came to its end.
    Clean,
    /// It crashed, hung, or was ended by something else.
    Broken,
    /// Not a single case was launched.
    NothingLaunched,
    /// It was ended for want of time, which says nothing against its cases.
    Stopped,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedAction {
    /// Begin a collection.
    Start(StartCollection),
    /// Give a case its verdict; it comes once for every case.
    Conclude {
        /// The case.
        case: usize,
        /// Its verdict.
        finding: CaseOutcome,
    },
    /// Say that a device is not used for now.
    Quarantine {
        /// The device.
        device: u32,
        /// Why.
        reason: String,
        /// When it is tried again; `None` where it is not.
        until: Option<Seconds>,
    },
    /// Say that a device that was set aside is used again.
    Readmit {
        /// The device.
        device: u32,
    },
    /// Tell [`SchedEvent::Woke`] at this moment, in place of an earlier wish.
    WakeAt(Seconds),
    /// Everything has ended.
    End,
}

/// A collection to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct StartCollection {
    /// Its number, from 1.
    pub collection: u32,
    /// On these devices, which are free; on the first where it needs one.
    pub devices: Vec<u32>,
    /// Its cases.
    pub cases: Vec<usize>,
    /// Why it is begun.
    pub purpose: CollectionPurpose,
    /// What it is predicted to take.
    pub predicted: Seconds,
    /// After this it is ended. On a busy host, time in which it waits for a core does not count.
    pub limit: Seconds,
    /// Wall time until the run's deadline, at which it is ended in any case. That says nothing against its cases.
    pub cut_off: Option<Seconds>,
}
