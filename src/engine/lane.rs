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
    CollectionSettings, EngineError,
    collect::{CollectionResult, collect},
};
use crate::{device::DeviceLease, plan::PlannedCase, sched::StartCollection};

/// What a lane reports.
#[derive(Debug)]
pub(super) struct LaneReport {
    /// The collection that it was told to do.
    pub(super) start: StartCollection,
    pub(super) seconds: f64,
    pub(super) result: Result<CollectionResult, EngineError>,
}

/// What all lanes share.
#[derive(Debug)]
pub(super) struct LaneContext {
    pub(super) settings: CollectionSettings,
    pub(super) cases: Vec<PlannedCase>,
    /// Of all devices of the run: a gang's processes hold several.
    pub(super) leases: BTreeMap<u32, DeviceLease>,
    /// Set to end running collections at once.
    pub(super) stop: AtomicBool,
}

/// A running lane.
#[derive(Debug)]
pub(super) struct DeviceLane {
    orders: Option<Sender<StartCollection>>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceLane {
    pub(super) fn start(
        device: u32,
        shared: &Arc<LaneContext>,
        reports: &UnboundedSender<LaneReport>,
    ) -> Result<Self, EngineError> {
        let (orders, inbox) = mpsc::channel::<StartCollection>();
        let (shared, reports) = (Arc::clone(shared), reports.clone());
        let work = move || {
            for start in inbox {
                let begun = Instant::now();
                // A panic here is a defect of npubench; it must not leave the run waiting for this lane.
                let result = catch_unwind(AssertUnwindSafe(|| collect(&shared, &start)))
                    .unwrap_or(Err(EngineError::Panicked { device }));
                let seconds = begun.elapsed().as_secs_f64();
                if reports.send(LaneReport { start, seconds, result }).is_err() {
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
    pub(super) fn send(&self, start: StartCollection) {
        if let Some(orders) = &self.orders {
            // The thread ends only when this sender is dropped.
            let _ = orders.send(start);
        }
    }
}

impl Drop for DeviceLane {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
