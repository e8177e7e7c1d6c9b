//! Polls `npu-smi` during a run, on a thread of its own: the driver may be slow, and collections must not wait for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::UnboundedSender;

use super::{
    EngineError,
    lane_context::{LaneContext, unix_time},
};
use crate::{
    base::files::disk_space::has_space,
    database::ledger::DeviceReading,
    kernel::DataKind,
    measure::device::{
        self, DeviceError,
        npu_smi::{NpuChip, NpuSmiError, NpuSmiInfo},
    },
};

/// Interval on a host with devices. One query takes a second of one core on a host of sixteen devices.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Interval on the rehearsal host, whose runs are short.
const REHEARSAL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the health and the sensor values of a device for the ledger.
pub(super) fn device_reading(chip: &NpuChip) -> DeviceReading {
    DeviceReading {
        device: chip.physical_id,
        at: unix_time(),
        health: chip.health.clone(),
        temperature: chip.temperature_c,
        power: chip.power_w,
        memory_used_mb: chip.memory_used_mb,
    }
}

/// Output of `npu-smi`.
#[derive(Debug)]
pub(super) struct DeviceSnapshot {
    pub(super) info: NpuSmiInfo,
    /// Start of the query.
    pub(super) queried_at: Instant,
}

/// Polling thread; dropping the monitor ends it.
#[derive(Debug)]
pub(super) struct DeviceMonitor {
    end: Option<mpsc::Sender<()>>,
    /// Set to end a running query.
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceMonitor {
    pub(super) fn spawn(
        context: &Arc<LaneContext>,
        snapshots: UnboundedSender<DeviceSnapshot>,
    ) -> Result<Self, EngineError> {
        let (end, ended) = mpsc::channel();
        let settings = &context.settings;
        let interval = if settings.kind == DataKind::Npu { POLL_INTERVAL } else { REHEARSAL_POLL_INTERVAL };
        let (environment, scratch) = (settings.environment.clone(), settings.folder.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let work = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                // A failed query is repeated at the next interval; meanwhile the collections show device faults. On a
                // full disk the output may be cut off.
                let queried_at = Instant::now();
                let info = match device::query_npu_smi_until(&environment, &scratch, &is_stopped) {
                    // All devices of the host were lost since the run started.
                    Err(DeviceError::Unreadable(NpuSmiError::NoChips)) => Ok(NpuSmiInfo::without_chips()),
                    queried => queried,
                };
                if let Ok(info) = info
                    && has_space(&scratch)
                    && snapshots.send(DeviceSnapshot { info, queried_at }).is_err()
                {
                    break;
                }
            }
        };
        let thread = thread::Builder::new()
            .name("npu-smi".to_owned())
            .spawn(work)
            .map_err(|source| EngineError::System { what: "a thread", source })?;
        Ok(Self { end: Some(end), stop, thread: Some(thread) })
    }
}

impl Drop for DeviceMonitor {
    fn drop(&mut self) {
        self.end = None;
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
