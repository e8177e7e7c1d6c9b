//! Transactions of a run in the ledger. While the disk is full, or another program holds the ledger, a transaction
//! waits and is tried again.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{self, Instant},
};

use super::{EngineError, lane::LaneReport, stop_requests::StopRequests};
use crate::{
    database::ledger::{Ledger, LedgerError},
    measure::events::RunEvent,
};

/// Interval at which a failed write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Parts of a run that matter while a write waits.
pub(super) struct WriteWait<'w> {
    /// Set to end running collections at once.
    pub(super) stop: &'w AtomicBool,
    pub(super) stops: &'w mut StopRequests,
    /// Reports of ended collections, which are not received meanwhile.
    pub(super) reports: &'w UnboundedReceiver<LaneReport>,
    /// Number of collections that run or whose report was not received.
    pub(super) running: usize,
    pub(super) emit: &'w mut dyn FnMut(&RunEvent),
}

impl WriteWait<'_> {
    /// Waits until the write is to be tried again. Returns false if the run is to end: after the second stop request,
    /// and after the first one as soon as no collection runs.
    pub(super) async fn wait_for_retry(&mut self) -> bool {
        let retry_at = Instant::now() + RETRY_INTERVAL;
        loop {
            let running = self.running.saturating_sub(self.reports.len());
            if self.stops.has_any() && running == 0 {
                return false;
            }
            tokio::select! {
                at_once = self.stops.next() => {
                    (self.emit)(&RunEvent::StopRequested { running, at_once });
                    if at_once {
                        self.stop.store(true, Ordering::Relaxed);
                        return false;
                    }
                }
                () = time::sleep_until(retry_at) => return true,
            }
        }
    }
}

/// Result of a transaction that may have waited.
#[derive(Debug)]
pub(super) struct Committed<T> {
    pub(super) value: T,
    /// True if the transaction failed at first because no disk space was left.
    pub(super) has_lacked_space: bool,
}

/// Executes a transaction. Fails with [`EngineError::StoppedWaiting`] if the run is stopped before it can be stored, and
/// with [`EngineError::Ledger`] for errors that waiting does not remove.
pub(super) async fn commit<T>(
    ledger: &mut Ledger,
    mut wait: WriteWait<'_>,
    mut write: impl FnMut(&mut Ledger) -> Result<T, LedgerError>,
) -> Result<Committed<T>, EngineError> {
    let mut waiting_since: Option<Instant> = None;
    let mut has_lacked_space = false;
    loop {
        match write(ledger) {
            Ok(value) => {
                if let Some(since) = waiting_since {
                    let seconds = since.elapsed().as_secs_f64();
                    (wait.emit)(&RunEvent::LedgerWritable { ledger: ledger.path().to_owned(), seconds });
                }
                return Ok(Committed { value, has_lacked_space });
            }
            Err(error) if error.is_temporary() => {
                has_lacked_space |= error.is_disk_full();
                if waiting_since.is_none() {
                    waiting_since = Some(Instant::now());
                    let (ledger, problem) = (ledger.path().to_owned(), error.to_string());
                    (wait.emit)(&RunEvent::LedgerWaiting { ledger, problem });
                }
                if !wait.wait_for_retry().await {
                    return Err(EngineError::StoppedWaiting { source: error });
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
