//! Signals that stop a collection of profiles.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// Signals closer together than this count as one: `timeout` signals a process and its group.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Received signals. The first one ends the work and stops the profilers, the second one ends the wait for the answers
/// of the profilers.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSignals {
    first: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
}

impl StopSignals {
    pub(crate) fn register() -> io::Result<Self> {
        let stop = Self::default();
        let own = stop.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        thread::spawn(move || {
            let mut last: Option<Instant> = None;
            for _ in signals.forever() {
                if last.replace(Instant::now()).is_none_or(|last| last.elapsed() >= DEBOUNCE) {
                    own.count.fetch_add(1, Ordering::Relaxed);
                    own.first.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(stop)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.first
    }

    pub(crate) fn is_set(&self) -> bool {
        self.first.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
