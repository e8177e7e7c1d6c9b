//! Processes that use devices of a rehearsal host, as `npu-smi` shows them: a file for each process and device, written
//! by the simulated NPU while the process calls it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::now;
use crate::kernel::Nanos;

const FOLDER: &str = "busy";
/// Interval at which a file is renewed.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time after its last call for which a process counts as busy.
const BUSY_TIME: Nanos = Nanos(2_000_000_000);
/// Use of the cores of a busy device, in percent.
const BUSY_PERCENT: u32 = 97;

/// Writer of the files of one process.
#[derive(Clone, Debug)]
pub(super) struct DeviceActivity {
    folder: PathBuf,
    pid: u32,
    renewed: Option<Instant>,
}

impl DeviceActivity {
    /// Creates a writer for the host in a folder.
    pub(super) fn of_host(host: &Path, pid: u32) -> Self {
        Self { folder: host.join(FOLDER), pid, renewed: None }
    }

    /// Records that the process uses these devices now. Failures are ignored: the devices are shown as idle.
    pub(super) fn record(&mut self, devices: &[u32]) {
        if devices.is_empty() || self.renewed.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        self.renewed = Some(Instant::now());
        for device in devices {
            let _ = self.write(*device);
        }
    }

    fn write(&self, device: u32) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let file = self.folder.join(format!("{device}.{}", self.pid));
        let draft = self.folder.join(format!("draft.{device}.{}", self.pid));
        fs::write(&draft, now().0.to_string())?;
        fs::rename(draft, file)
    }
}

/// A process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceProcess {
    pub(super) pid: u32,
    /// Use of the cores, in percent.
    pub(super) aicore_percent: u32,
}

/// Returns the running processes that use a device of the host in a folder.
pub(super) fn processes_of_device(host: &Path, device: u32) -> Vec<DeviceProcess> {
    let entries = fs::read_dir(host.join(FOLDER)).into_iter().flatten().flatten();
    let mut found: Vec<DeviceProcess> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let (number, pid) = name.split_once('.')?;
            let pid: u32 = pid.parse().ok()?;
            let is_running = Path::new(&format!("/proc/{pid}")).exists();
            (number.parse() == Ok(device) && is_running).then_some(())?;
            let at: i64 = fs::read_to_string(entry.path()).ok()?.parse().ok()?;
            let is_busy = now().0.saturating_sub(at) < BUSY_TIME.0;
            Some(DeviceProcess { pid, aicore_percent: if is_busy { BUSY_PERCENT } else { 0 } })
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_shown_while_they_run() {
        let host = tempfile::tempdir().expect("a folder");
        let own = std::process::id();
        DeviceActivity::of_host(host.path(), own).record(&[3]);
        let processes = processes_of_device(host.path(), 3);
        assert_eq!(processes, [DeviceProcess { pid: own, aicore_percent: 97 }]);
        assert_eq!(processes_of_device(host.path(), 4), []);
        fs::write(host.path().join(format!("{FOLDER}/4.{own}")), "5").expect("written");
        assert_eq!(processes_of_device(host.path(), 4), [DeviceProcess { pid: own, aicore_percent: 0 }]);
        // A process id beyond the limit of the system never runs.
        fs::write(host.path().join(format!("{FOLDER}/4.4294967295")), "5").expect("written");
        assert_eq!(processes_of_device(host.path(), 4).len(), 1);
    }
}
