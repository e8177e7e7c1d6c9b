//! The vocabulary of what happens in a run.
//!
//! Layer 1: imports `model` only. The engine tells, after the ledger has it; whoever listens prints or
//! keeps it. Nothing here prints.

use std::path::PathBuf;

use serde::Serialize;

use crate::model::{CaseId, Finding, KernelName, Kind, Verdict};

/// Something that happened in a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The plan is in the ledger; nothing has been launched.
    RunStarted {
        /// The run.
        run: String,
        /// Measured or rehearsed.
        kind: Kind,
        /// Cases that will be measured.
        cases: usize,
        /// Cases that end without a launch.
        refused: usize,
        /// Cases whose rows have an accepted result already.
        already: usize,
        /// The devices used.
        devices: Vec<u32>,
        /// Collections planned; retries come on top.
        collections: usize,
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
        /// The device.
        device: u32,
        /// Its cases.
        cases: usize,
        /// Whether its cases were tried before.
        is_retry: bool,
    },
    /// A collection's results are in the ledger.
    CollectionFinished {
        /// Its number in the run.
        collection: u32,
        /// The device.
        device: u32,
        /// How it ended, in words.
        outcome: String,
        /// Seconds from start to results.
        seconds: f64,
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
        finding: Finding,
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
