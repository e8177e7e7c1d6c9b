//! Stop requests of a run, and its transactions in the ledger. While the disk is full, or another program holds the ledger, a
//! transaction waits and is tried again, until the run is stopped.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{self, Instant},
};

use super::{EngineError, collect::LaneReport, host_monitor::DeviceSnapshot};
use crate::{
    database::ledger::{Ledger, LedgerError},
    measure::events::RunEvent,
};

const RETRY_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct DispatcherInbox {
    pub(super) reports: UnboundedReceiver<LaneReport>,
    pub(super) snapshots: UnboundedReceiver<DeviceSnapshot>,
    pub(super) stops: StopRequests,
}

/// Parts of a run that matter while a write waits.
pub(super) struct WriteWait<'w> {
    /// Set to end running collections at once.
    pub(super) stop: &'w AtomicBool,
    /// Reports of ended collections are not received meanwhile.
    pub(super) inbox: &'w mut DispatcherInbox,
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
            let running = self.running.saturating_sub(self.inbox.reports.len());
            if self.inbox.stops.has_any() && running == 0 {
                return false;
            }
            tokio::select! {
                at_once = self.inbox.stops.next() => {
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

/// Executes a transaction; returns true with its result if it failed at first because no disk space was left. Fails with [`EngineError::StoppedWaiting`] if the run is stopped before it can be stored, and
/// with [`EngineError::Ledger`] for errors that waiting does not remove.
pub(super) async fn commit<T>(
    ledger: &mut Ledger,
    mut wait: WriteWait<'_>,
    mut write: impl FnMut(&mut Ledger) -> Result<T, LedgerError>,
) -> Result<(T, bool), EngineError> {
    let mut waiting_since: Option<Instant> = None;
    let mut has_lacked_space = false;
    loop {
        match write(ledger) {
            Ok(value) => {
                if let Some(since) = waiting_since {
                    let seconds = since.elapsed().as_secs_f64();
                    (wait.emit)(&RunEvent::LedgerWritable { ledger: ledger.path().to_owned(), seconds });
                }
                return Ok((value, has_lacked_space));
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

/// Stop requests closer together than this count as one; no user presses Ctrl-C twice so fast.
pub(super) const STOP_DEBOUNCE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSource {
    /// A signal of a user or of the system.
    Signal,
    /// Another node of a sweep, which never ends running collections at once.
    Node,
}

/// Received stop requests. The first lets running collections end, the second ends them at once.
#[derive(Debug)]
pub(super) struct StopRequests {
    signals: UnboundedReceiver<StopSource>,
    count: u32,
    last: Option<Instant>,
    /// True if the scheduler has not received the last request.
    is_unhandled: bool,
}

impl StopRequests {
    pub(super) const fn new(signals: UnboundedReceiver<StopSource>) -> Self {
        Self { signals, count: 0, last: None, is_unhandled: false }
    }

    /// Waits for the next request. Returns true if running collections are to be ended at once.
    pub(super) async fn next(&mut self) -> bool {
        loop {
            let Some(source) = self.signals.recv().await else {
                // If there is no sender, there are no further requests.
                std::future::pending::<()>().await;
                continue;
            };
            if source == StopSource::Node && self.count > 0 {
                continue;
            }
            // `timeout` and some terminals signal both the process and its group: that is one request.
            let previous = self.last.replace(Instant::now());
            if previous.is_none_or(|previous| previous.elapsed() >= STOP_DEBOUNCE) {
                self.count += 1;
                self.is_unhandled = true;
                return self.count > 1;
            }
        }
    }

    pub(super) const fn has_any(&self) -> bool {
        self.count > 0
    }

    /// Returns true once for each request.
    pub(super) const fn take_unhandled(&mut self) -> bool {
        std::mem::replace(&mut self.is_unhandled, false)
    }
}
