//! Lanes: one long-lived thread for each device, which runs its collections one after the other.
//!
//! A gang's collection runs on the lane of its first device; the scheduler starts no collection on the other devices
//! meanwhile. A thread per device instead of a pool: the kernel may end a child process with the thread that
//! started it (`PR_SET_PDEATHSIG`).

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use tokio::sync::mpsc::UnboundedSender;

use super::{
    EngineError,
    collect::{CollectionResult, run_collection},
    request::LaneContext,
};
use crate::{base::worker_thread::WorkerThread, measure::sched::StartCollection};

/// Result of a collection, sent to the dispatcher.
#[derive(Debug)]
pub(super) struct LaneReport {
    pub(super) start: StartCollection,
    pub(super) seconds: f64,
    pub(super) result: Result<CollectionResult, EngineError>,
}

/// Starts collections; their results arrive as [`LaneReport`] on the dispatcher's channel. Tests of the dispatcher
/// replace the threads by prepared results.
pub(super) trait CollectionStarter {
    fn start_collection(&self, start: StartCollection);
}

/// The lanes of a run, by device.
#[derive(Debug)]
pub(super) struct DeviceLanes(BTreeMap<u32, WorkerThread<StartCollection>>);

impl DeviceLanes {
    pub(super) fn spawn(
        devices: &[u32],
        context: &Arc<LaneContext>,
        reports: &UnboundedSender<LaneReport>,
    ) -> Result<Self, EngineError> {
        let spawn = |&device: &u32| {
            let (context, reports) = (Arc::clone(context), reports.clone());
            let lane = WorkerThread::spawn(format!("device {device}"), move |inbox| {
                for start in inbox {
                    let started = Instant::now();
                    // A panic here is a defect of npubench; it must not leave the run waiting for this lane.
                    let result = catch_unwind(AssertUnwindSafe(|| run_collection(&context, &start)))
                        .unwrap_or(Err(EngineError::Panicked { device }));
                    let seconds = started.elapsed().as_secs_f64();
                    if reports.send(LaneReport { start, seconds, result }).is_err() {
                        break;
                    }
                }
            });
            Ok((device, lane.map_err(EngineError::system("a thread"))?))
        };
        devices.iter().map(spawn).collect::<Result<_, _>>().map(Self)
    }
}

impl CollectionStarter for DeviceLanes {
    fn start_collection(&self, start: StartCollection) {
        if let Some(lane) = start.devices.first().and_then(|device| self.0.get(device)) {
            lane.send(start);
        }
    }
}
