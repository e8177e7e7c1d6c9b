//! A device's lane: one long-lived thread that does one collection after the other.
//!
//! One thread per device, and not a pool: a child may be tied to the life of the thread that started it.

use std::{
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
use crate::{device::Lease, plan::Planned};

/// What a lane is told to do.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) collection: u32,
    pub(super) cases: Vec<usize>,
}

/// What a lane reports.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) device: u32,
    pub(super) collection: u32,
    pub(super) cases: Vec<usize>,
    pub(super) seconds: f64,
    pub(super) result: Result<Collected, EngineError>,
}

/// What all lanes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) cases: Vec<Planned>,
    /// Set to end running collections at once.
    pub(super) stop: AtomicBool,
}

/// A running lane.
#[derive(Debug)]
pub(super) struct Lane {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    pub(super) fn start(
        device: u32,
        lease: Lease,
        shared: &Arc<Shared>,
        reports: &UnboundedSender<Report>,
    ) -> Result<Self, EngineError> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let (shared, reports) = (Arc::clone(shared), reports.clone());
        let work = move || {
            for order in inbox {
                let begun = Instant::now();
                let cases: Vec<&Planned> = order.cases.iter().map(|&index| &shared.cases[index]).collect();
                // A panic here is a defect of npubench; it must not leave the run waiting for this lane.
                let result = catch_unwind(AssertUnwindSafe(|| {
                    collect(&shared.settings, order.collection, device, &cases, &lease, &shared.stop)
                }))
                .unwrap_or(Err(EngineError::Panicked { device }));
                let seconds = begun.elapsed().as_secs_f64();
                let report =
                    Report { device, collection: order.collection, cases: order.cases, seconds, result };
                if reports.send(report).is_err() {
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

    /// Hands over an order; the lane is idle when this is called.
    pub(super) fn send(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread ends only when this sender is dropped.
            let _ = orders.send(order);
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
