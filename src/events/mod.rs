//! The vocabulary of what happens in a run.
//!
//! Layer 1: imports `model` only. The engine tells, after the ledger has it; whoever listens prints or
//! keeps it. Nothing here prints.

use std::path::PathBuf;

use serde::Serialize;

use crate::domain::{CaseId, CaseOutcome, CollectionPurpose, DataKind, KernelName, Verdict};

/// Something that happened in a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The plan is in the ledger; nothing has been launched.
    RunStarted {
        /// The run.
        run: String,
        /// Measured or rehearsed.
        kind: DataKind,
        /// Cases that will be measured.
        cases: usize,
        /// Cases that end without a launch.
        refused: usize,
        /// Cases whose rows have an accepted result already.
        already: usize,
        /// The devices used.
        devices: Vec<u32>,
        /// Whether it goes on with a run that was interrupted.
        is_resumed: bool,
        /// Seconds after which everything must have ended; `None` where nothing was said.
        budget: Option<f64>,
    },
    /// Programs that an earlier run had started, and that outlived it, were ended.
    OrphansEnded {
        /// How many.
        programs: usize,
    },
    /// A row of the database is no case.
    RowUnreadable {
        /// File, line, and what is wrong.
        place: String,
    },
    /// A collection begins on a device.
    CollectionStarted {
        /// Its number in the run, from 1.
        collection: u32,
        /// The devices: one, or those of a gang.
        devices: Vec<u32>,
        /// Its cases.
        cases: usize,
        /// The case that runs, where it is but one.
        case: Option<CaseId>,
        /// The kernels of its cases, in the order of names.
        kernels: Vec<KernelName>,
        /// Why it is begun.
        purpose: CollectionPurpose,
        /// Seconds that it is predicted to take.
        predicted: f64,
    },
    /// A collection's results are in the ledger.
    CollectionFinished {
        /// Its number in the run.
        collection: u32,
        /// The devices.
        devices: Vec<u32>,
        /// Why it was begun.
        purpose: CollectionPurpose,
        /// How it ended, in words.
        outcome: String,
        /// Seconds from start to results.
        seconds: f64,
    },
    /// What a collection found of a case is in the ledger. Another attempt may follow.
    CaseAttempted {
        /// The case.
        case: CaseId,
        /// Number of the collection.
        collection: u32,
        /// Verdict and reason of this attempt.
        #[serde(flatten)]
        finding: CaseOutcome,
    },
    /// A case has its one verdict.
    CaseFinished {
        /// The case.
        case: CaseId,
        /// Its kernel.
        kernel: KernelName,
        /// Its shapes.
        shapes: String,
        /// Verdict and reason.
        #[serde(flatten)]
        finding: CaseOutcome,
    },
    /// A device is not used for now.
    DeviceSetAside {
        /// The device.
        device: u32,
        /// Why.
        reason: String,
        /// Seconds until it is tried again; `None` where it is not.
        again_in: Option<f64>,
    },
    /// A device that was set aside works again.
    DeviceTakenBack {
        /// The device.
        device: u32,
    },
    /// What a device says of itself.
    DeviceRead {
        /// The device.
        device: u32,
        /// In words: `OK` where all is well.
        health: String,
        /// Degrees Celsius.
        temperature_c: Option<i64>,
        /// Watt.
        power_w: Option<f64>,
        /// Device memory in use, MiB.
        memory_used_mb: Option<u64>,
    },
    /// Nothing new begins on a device: it is lent to somebody else, in use, ill or gone.
    DeviceLent {
        /// The device.
        device: u32,
        /// Why.
        reason: String,
    },
    /// Such a device can be used again.
    DeviceReturned {
        /// The device.
        device: u32,
    },
    /// Nothing new begins until there is room on the disk.
    DiskFull {
        /// The folder on the disk.
        folder: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// There is room on the disk again.
    DiskFreed {
        /// The folder on the disk.
        folder: PathBuf,
    },
    /// What is expected of the rest of the run.
    Progress {
        /// Cases without a verdict.
        open: usize,
        /// Of these, the cases that will have one in time.
        in_time: usize,
        /// Seconds until they have.
        seconds: f64,
    },
    /// The run was told to stop.
    StopRequested {
        /// Collections that are still running.
        running: usize,
        /// Whether they are ended at once.
        at_once: bool,
    },
    /// Rows of a kernel were written.
    RowsWritten {
        /// The kernel.
        kernel: KernelName,
        /// Rows that changed.
        rows: usize,
        /// Rows that keep a measurement with more samples than the ledger has.
        kept: usize,
        /// The file.
        path: PathBuf,
    },
    /// Everything is done and kept.
    RunFinished {
        /// The run.
        run: String,
        /// Number of cases by verdict, those with none left out.
        verdicts: Vec<(Verdict, usize)>,
        /// Seconds from start to end.
        seconds: f64,
        /// Where scripts, logs and raw output are.
        folder: PathBuf,
    },
}
