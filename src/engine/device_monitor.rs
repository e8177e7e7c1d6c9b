//! Asks `npu-smi` again and again while a run goes on, on a thread of its own: the driver may be slow to answer, and
//! collections are not to wait for it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::mpsc::UnboundedSender;

use super::{EngineError, lane::LaneContext};
use crate::{device, domain::DataKind, profile::npu_smi::NpuSmiInfo};

/// How often a host is asked. The answer takes a second of one core on hosts of sixteen devices.
const EVERY: Duration = Duration::from_secs(30);
/// How often the stand-in is asked, whose runs are short.
const EVERY_REHEARSED: Duration = Duration::from_secs(1);

/// The thread; it ends with this.
#[derive(Debug)]
pub(super) struct DeviceMonitor {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceMonitor {
    pub(super) fn start(
        shared: &Arc<LaneContext>,
        sights: UnboundedSender<NpuSmiInfo>,
    ) -> Result<Self, EngineError> {
        let (end, ended) = mpsc::channel();
        let settings = &shared.settings;
        let every = if settings.kind == DataKind::Npu { EVERY } else { EVERY_REHEARSED };
        let environment = settings.environment.clone();
        let scratch: PathBuf = settings.folder.clone();
        let work = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                // A host that does not answer now may do so later; its devices show what they can by themselves.
                if let Ok(info) = device::discover(&environment, &scratch)
                    && sights.send(info).is_err()
                {
                    break;
                }
            }
        };
        let thread = thread::Builder::new()
            .name("npu-smi".to_owned())
            .spawn(work)
            .map_err(|source| EngineError::System { what: "a thread", source })?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for DeviceMonitor {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
