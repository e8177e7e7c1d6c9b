//! Event types of a run, and the screen that shows them. The folder `show` implements it.

use std::{
    any::Any,
    fmt::Debug,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use crate::{
    cases::plan::RecordedTime,
    database::{Database, ledger::Ledger},
    kernel::{
        CacheState, CaseId, CaseOutcome, CollectionPurpose, DataKind, DeviceDeviation, KernelName, Verdict,
    },
    measure::{
        engine::{RunOutcome, SweepNodes},
        run_options::RunOptions,
    },
};

pub(crate) trait EventSink {
    fn on_event(&mut self, event: &RunEvent);
}

/// Event of a run. Its JSON form has the name of the variant as `event`.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum RunEvent {
    /// The plan is stored in the ledger; no case has been launched.
    RunStarted {
        run: String,
        kind: DataKind,
        cases: usize,
        /// Number of cases that get a verdict without a launch.
        not_launched: usize,
        /// Number of cases that have an accepted result already.
        already_measured: usize,
        devices: Vec<u32>,
        resumed: bool,
        /// Seconds until the deadline; `None` without one.
        budget_s: Option<f64>,
    },
    /// A row of the database cannot be read as a case.
    RowUnreadable {
        /// File, line and problem.
        place: String,
    },
    /// The table of a kernel does not exist although the ledger has results for it.
    TableMissing {
        kernel: String,
        /// Number of cases with results.
        cases: u32,
        problem: String,
    },
    CollectionStarted {
        /// Number of the collection in the run, from 1.
        collection: u32,
        /// Its devices: one, or those of a gang.
        devices: Vec<u32>,
        cases: usize,
        /// Its case, if it has only one.
        case: Option<CaseId>,
        /// Kernels of its cases, sorted by name.
        kernels: Vec<KernelName>,
        purpose: CollectionPurpose,
        predicted_s: f64,
    },
    /// The results of a collection are stored in the ledger.
    CollectionFinished {
        collection: u32,
        devices: Vec<u32>,
        purpose: CollectionPurpose,
        outcome: String,
        seconds: f64,
    },
    /// The result of one attempt at a case is stored in the ledger. Further attempts may follow.
    CaseAttempted {
        case: CaseId,
        collection: u32,
        #[serde(flatten)]
        outcome: CaseOutcome,
    },
    /// A case has its final verdict.
    CaseFinished {
        case: CaseId,
        kernel: KernelName,
        shapes: String,
        #[serde(flatten)]
        outcome: CaseOutcome,
    },
    /// Cases are measured in another collection, because their intervals are wider than demanded.
    MeasurementRepeated {
        cases: usize,
        /// Number of the round; each case has been measured once before round 2.
        round: u32,
    },
    /// Durations of all cases differ between devices, and nothing shows which are right.
    DevicesDiffer {
        devices: Vec<DeviceDeviation>,
    },
    /// The run ends with so many cases of the demanded precision.
    PrecisionReached {
        /// Demanded half width of the 95 % interval, in percent.
        percent: f64,
        max_collections: usize,
        /// Number of measured cases.
        measured: usize,
        /// Number of those with an interval as narrow as demanded.
        precise: usize,
        /// Number of those that further collections can bring to it.
        open: usize,
    },
    /// Results are withdrawn, because later collections show that the clock deviated; their cases are measured again.
    MeasurementsWithdrawn {
        cases: usize,
        case_ids: Vec<CaseId>,
        /// Number of the cases by the verdict that does not hold any more.
        verdicts: Vec<(Verdict, usize)>,
        /// Reason of the first of them.
        reason: String,
    },
    /// Measured cases whose durations contradict other known durations, in all their collections.
    ResultsSuspicious {
        cases: usize,
        /// The first of them.
        kernel: KernelName,
        shapes: String,
        #[serde(flatten)]
        outcome: CaseOutcome,
    },
    /// Results of earlier runs that the measurements of this run contradict; their rows are no longer `ok`.
    EarlierResultsSuspicious {
        cases: usize,
        /// Number of those of one collection, which the next run in this state of the cache measures again.
        open: usize,
        cache: CacheState,
    },
    /// Most cases of a device ran as other kernels, while another device ran most of its cases as it should; at the end of a run.
    DeviceRunsOtherKernels {
        device: u32,
        /// Number of its attempts with verdict `wrong_kernel`.
        wrong: u32,
        /// Number of its attempts that ran as their kernels.
        right: u32,
    },
    /// A device is paused after faults.
    DevicePaused {
        device: u32,
        reason: String,
        /// Seconds until it is tried again; `None` if it is excluded for the rest of the run.
        retry_in_s: Option<f64>,
    },
    /// A device that was paused after faults works again.
    DeviceReadmitted {
        device: u32,
    },
    /// Readings of a device by `npu-smi`.
    DeviceRead {
        device: u32,
        /// Health as npu-smi prints it; `OK` for a healthy device.
        health: String,
        temperature_c: Option<i64>,
        power_w: Option<f64>,
        /// Device memory in use, MiB.
        memory_used_mb: Option<u64>,
    },
    /// No new collection is started on a device: it is reserved by `npubench pause`, in use by others, unhealthy or not listed.
    DeviceReserved {
        device: u32,
        reason: String,
    },
    /// A reserved device can be used again.
    DeviceReleased {
        device: u32,
    },
    /// No new collection is started until the disk has free space.
    DiskFull {
        folder: PathBuf,
        free: u64,
        needed: u64,
    },
    DiskFreed {
        folder: PathBuf,
    },
    /// A result cannot be stored in the ledger for now; the run waits and tries again.
    LedgerWaiting {
        ledger: PathBuf,
        problem: String,
    },
    /// The ledger has stored the result for which the run waited.
    LedgerWritable {
        ledger: PathBuf,
        /// Seconds of the wait.
        seconds: f64,
    },
    /// Forecast of the rest of the run.
    Progress {
        /// Cases without a verdict.
        open: usize,
        /// Of these, the cases predicted to have one before the deadline.
        in_time: usize,
        /// Predicted seconds until the last of those.
        seconds: f64,
    },
    StopRequested {
        /// Number of running collections.
        running: usize,
        /// True if they are ended at once.
        at_once: bool,
    },
    /// Rows of a kernel were written to its CSV.
    RowsWritten {
        kernel: KernelName,
        rows: usize,
        /// Number of rows that keep a measurement with more samples than the ledger has.
        kept: usize,
        path: PathBuf,
    },
    /// Rows of a kernel could not be written to its CSV; the ledger has the results.
    RowsNotWritten {
        kernel: KernelName,
        path: PathBuf,
        /// Problem of the table.
        problem: String,
    },
    /// The run has ended; all results are stored.
    RunFinished {
        run: String,
        /// Number of cases by verdict, without zeros.
        verdicts: Vec<(Verdict, usize)>,
        seconds: f64,
        /// Folder of scripts, logs and raw output.
        folder: PathBuf,
    },
}

pub(crate) trait RunScreen: Debug + Sync {
    /// Shows that the command waits for a program, until the result is dropped.
    fn wait_for(&self, awaited: &str) -> Box<dyn Any>;

    fn events(&self) -> Box<dyn EventSink>;

    fn end(&self, end: &RunEnd<'_>);
}

#[derive(Debug)]
pub(crate) struct RunEnd<'a> {
    pub(crate) recorded: &'a RecordedTime,
    pub(crate) database: &'a Database,
    pub(crate) ledger: &'a Ledger,
    pub(crate) run: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) options: &'a RunOptions,
    pub(crate) outcome: &'a RunOutcome,
    pub(crate) nodes: Option<&'a SweepNodes>,
    pub(crate) elapsed: Duration,
}
