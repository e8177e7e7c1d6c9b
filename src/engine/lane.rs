//! A device's lane: one long-lived thread that does one collection after the other.
//!
//! A gang's collection is done by the lane of its first device; the scheduler gives the others nothing meanwhile.
//! One thread per device, and not a pool: a child may be tied to the life of the thread that started it.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use tokio::sync::mpsc::UnboundedSender;

use super::{
    EngineError, Settings,
    collect::{Collected, collect},
};
use crate::{device::Lease, plan::Planned, sched::Start};

/// What a lane reports.
#[derive(Debug)]
pub(super) struct Report {
    /// The collection that it was told to do.
    pub(super) start: Start,
    pub(super) seconds: f64,
    pub(super) result: Result<Collected, EngineError>,
}

/// What all lanes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) cases: Vec<Planned>,
    /// Of all devices of the run: a gang's processes hold several.
    pub(super) leases: BTreeMap<u32, Lease>,
    /// Set to end running collections at once.
    pub(super) stop: AtomicBool,
}

/// A running lane.
#[derive(Debug)]
pub(super) struct Lane {
    orders: Option<Sender<Start>>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    pub(super) fn start(
        device: u32,
        shared: &Arc<Shared>,
        reports: &UnboundedSender<Report>,
    ) -> Result<Self, EngineError> {
        let (orders, inbox) = mpsc::channel::<Start>();
        let (shared, reports) = (Arc::clone(shared), reports.clone());
        let work = move || {
            for start in inbox {
                let begun = Instant::now();
                // A panic here is a defect of npubench; it must not leave the run waiting for this lane.
                let result = catch_unwind(AssertUnwindSafe(|| collect(&shared, &start)))
                    .unwrap_or(Err(EngineError::Panicked { device }));
                let seconds = begun.elapsed().as_secs_f64();
                if reports.send(Report { start, seconds, result }).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new()
            .name(format!("device {device}"))
            .spawn(work)
            .map_err(|source| EngineError::System { what: "a thread", source })?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Hands over a collection; the lane is idle when this is called.
    pub(super) fn send(&self, start: Start) {
        if let Some(orders) = &self.orders {
            // The thread ends only when this sender is dropped.
            let _ = orders.send(start);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
