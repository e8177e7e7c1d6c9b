//! Stop requests of a run, which signals send.

use std::time::Duration;

use tokio::{sync::mpsc::UnboundedReceiver, time::Instant};

/// Stop requests closer together than this count as one; no user presses Ctrl-C twice so fast.
const STOP_DEBOUNCE: Duration = Duration::from_millis(50);

/// Origin of a stop request.
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
                // Without a sender there are no further requests.
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

    /// Returns true if a stop was requested.
    pub(super) const fn has_any(&self) -> bool {
        self.count > 0
    }

    /// Returns true once for each request.
    pub(super) const fn take_unhandled(&mut self) -> bool {
        std::mem::replace(&mut self.is_unhandled, false)
    }
}
