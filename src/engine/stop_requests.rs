//! Stop requests of a run, which signals send.

use std::time::Duration;

use tokio::{sync::mpsc::UnboundedReceiver, time::Instant};

/// Stop requests closer together than this count as one; no user presses Ctrl-C twice so fast.
const STOP_DEBOUNCE: Duration = Duration::from_millis(50);

/// Received stop requests. The first lets running collections end, the second ends them at once.
#[derive(Debug)]
pub(super) struct StopRequests {
    signals: UnboundedReceiver<()>,
    count: u32,
    last: Option<Instant>,
    /// True if the scheduler has not received the last request.
    is_unhandled: bool,
}

impl StopRequests {
    pub(super) const fn new(signals: UnboundedReceiver<()>) -> Self {
        Self { signals, count: 0, last: None, is_unhandled: false }
    }

    /// Waits for the next request. Returns true if running collections are to be ended at once.
    pub(super) async fn next(&mut self) -> bool {
        loop {
            if self.signals.recv().await.is_none() {
                // Without a sender there are no further requests.
                std::future::pending::<()>().await;
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
