//! Conditions of the host that keep collections from starting: a full disk, devices that `npubench pause` reserves, devices that other
//! processes use, and devices that are unhealthy or no longer listed. The monitor observes and reports changes; the scheduler decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::RecvTimeoutError,
    },
    time::{self, Duration},
};

use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::{CollectionSettings, EngineError, Result, run::LaneContext};
use crate::{
    base::{
        command_error::CommandError,
        files::{
            FileError, MAX_DOCUMENT,
            disk_space::{free_bytes, has_space, total_bytes},
            read_regular_text, stale, write_atomic,
        },
        process::{ProcessOrigin, process_origin},
        worker_thread::WorkerThread,
    },
    database::{Database, DatabaseError, ledger::DeviceReading},
    kernel::{DataKind, timestamp::Timestamp},
    measure::{
        device::{
            self, DeviceError, DeviceLeases,
            npu_smi::{NpuChip, NpuProcess, NpuSmiError, NpuSmiInfo},
        },
        events::RunEvent,
        sched::SchedEvent,
    },
};

/// Time after which a device that is not listed is not expected to come back: a reset by an administrator takes minutes.
const LOST_AFTER: Duration = Duration::from_secs(30 * 60);

/// Returns the free bytes below which no collection is started, because the parsed form of a profile is twenty times its size; and
/// those that each running one needs, because msprof may write 50 MB/s for a minute. Profiles of the rehearsal host are small.
const fn disk_limits(kind: DataKind) -> (u64, u64) {
    match kind {
        DataKind::Npu => (4 << 30, 3 << 30),
        DataKind::Rehearsal => (32 << 20, 2 << 20),
    }
}

pub(super) fn missing_space(kind: DataKind, folder: &Path) -> Option<String> {
    let (reserve, per_collection) = disk_limits(kind);
    let needed = reserve + per_collection;
    let free = free_bytes(folder)?;
    let mib = |bytes: u64| bytes >> 20;
    (free < needed || !has_space(folder)).then(|| {
        format!("{} MiB are free in {}, a collection needs {} MiB", mib(free), folder.display(), mib(needed))
    })
}

/// Fails if the file system of a folder is too small for a collection: a run would wait for space that it cannot have.
pub(crate) fn require_large_disk(kind: DataKind, folder: &Path) -> Result<(), CommandError> {
    let (reserve, per_collection) = disk_limits(kind);
    let needed = reserve + per_collection;
    match total_bytes(folder) {
        Some(total) if total < needed => Err(CommandError::cannot_measure(
            format!(
                "the file system of {} has {} MiB in all, a collection needs {} MiB",
                folder.display(),
                total >> 20,
                needed >> 20
            ),
            "use a database on a larger file system: `npubench db copy` makes a copy there",
        )),
        _ => Ok(()),
    }
}

#[derive(Default)]
pub(super) struct HostChanges {
    pub(super) sched_events: Vec<SchedEvent>,
    pub(super) run_events: Vec<RunEvent>,
}

struct UnlistedDevice {
    since: Instant,
    /// True if an output after [`LOST_AFTER`] lacks it, too.
    is_lost: bool,
    is_reported: bool,
}

#[derive(Default)]
pub(super) struct HostMonitor {
    pause_file: PathBuf,
    processes: PathBuf,
    /// True if `npu-smi` lists processes under the same ids under which this program sees them.
    sees_host_processes: bool,
    folder: PathBuf,
    paused: PausedDevices,
    unusable: BTreeMap<u32, String>,
    unleased: BTreeMap<u32, String>,
    reserved: BTreeSet<u32>,
    devices: Vec<u32>,
    unlisted: BTreeMap<u32, UnlistedDevice>,
    is_full: bool,
    full_at: Option<Instant>,
    has_failed_write: bool,
    reserve: u64,
    per_collection: u64,
}

impl HostMonitor {
    pub(super) fn new(database: &Database, settings: &CollectionSettings, devices: Vec<u32>) -> Self {
        let (reserve, per_collection) = disk_limits(settings.kind);
        Self {
            pause_file: pause_file(database),
            processes: settings.processes.clone(),
            sees_host_processes: settings.sees_host_processes,
            folder: database.state_folder(),
            devices,
            reserve,
            per_collection,
            ..Self::default()
        }
    }

    pub(super) fn report_full_disk(&mut self) {
        self.has_failed_write = true;
    }

    pub(super) fn was_full_within(&self, time: Duration) -> bool {
        // Space that was missing when a process wrote is found missing at the next observation.
        self.full_at.is_some_and(|at| at.elapsed() <= time)
    }

    pub(super) fn poll_changes(&mut self, running: usize, leases: &DeviceLeases) -> HostChanges {
        // A file that is being written is read at the next call.
        if let Ok(paused) = PausedDevices::load(&self.pause_file) {
            self.paused = paused;
        }
        self.unleased = leases.acquire_missing(&self.devices);
        let mut changes = HostChanges::default();
        self.add_reservations(&mut changes);
        self.add_lost_devices(&mut changes);
        self.add_disk_change(running, &mut changes);
        changes
    }

    /// Collections of this run are, or were during the query, on the `busy` devices.
    pub(super) fn update_devices(&mut self, info: &NpuSmiInfo, busy: &BTreeSet<u32>) {
        for device in &self.devices {
            let chip = info.chips.iter().find(|chip| chip.physical_id == *device);
            // A device that a user has paused may be in repair.
            if chip.is_some() || self.paused.contains(*device) {
                self.unlisted.remove(device);
            } else {
                let new = || UnlistedDevice { since: Instant::now(), is_lost: false, is_reported: false };
                let unlisted = self.unlisted.entry(*device).or_insert_with(new);
                unlisted.is_lost = unlisted.since.elapsed() >= LOST_AFTER;
            }
            let reason = match chip {
                None => Some("`npu-smi` no longer lists it".to_owned()),
                Some(chip) if chip.health != "OK" => Some(format!("its health is `{}`", chip.health)),
                Some(chip) => self.foreign_process(info, chip, busy.contains(device)),
            };
            match reason {
                Some(reason) => self.unusable.insert(*device, reason),
                None => self.unusable.remove(device),
            };
        }
    }

    /// Returns the reason if another program uses the device. Beside a collection of this run, an unknown process may be its own.
    fn foreign_process(&self, info: &NpuSmiInfo, chip: &NpuChip, is_busy: bool) -> Option<String> {
        let is_foreign = |process: &&NpuProcess| match self.origin(process) {
            ProcessOrigin::Own | ProcessOrigin::Ended => false,
            ProcessOrigin::Foreign => true,
            ProcessOrigin::Unknown => !is_busy,
        };
        let process = info.processes_on(chip).find(is_foreign)?;
        let (pid, place) = match process.container_pid {
            Some(pid) => (pid, ""),
            None => (process.pid, if self.sees_host_processes { "" } else { " of the host" }),
        };
        Some(format!("process {pid}{place} ({}) uses it", process.name))
    }

    /// Returns the origin of a listed process. An id of the host means another process inside a container, so that only
    /// the id inside the container, which newer drivers list, identifies one there.
    fn origin(&self, process: &NpuProcess) -> ProcessOrigin {
        match process.container_pid {
            Some(pid) => process_origin(pid, &self.processes),
            None if self.sees_host_processes => process_origin(process.pid, &self.processes),
            None => ProcessOrigin::Unknown,
        }
    }

    /// All reservations of one call are one event: no collection is started on a device that is reserved after it.
    fn add_reservations(&mut self, changes: &mut HostChanges) {
        let (mut reserved, mut released) = (Vec::new(), Vec::new());
        for &device in &self.devices {
            let reason = if self.paused.contains(device) {
                Some("it is reserved by `npubench pause` until `npubench unpause`".to_owned())
            } else {
                self.unleased.get(&device).or_else(|| self.unusable.get(&device)).cloned()
            };
            match reason {
                Some(reason) if self.reserved.insert(device) => {
                    reserved.push(device);
                    changes.run_events.push(RunEvent::DeviceReserved { device, reason });
                }
                None if self.reserved.remove(&device) => {
                    released.push(device);
                    changes.run_events.push(RunEvent::DeviceReleased { device });
                }
                _ => {}
            }
        }
        if !reserved.is_empty() || !released.is_empty() {
            changes.sched_events.push(SchedEvent::ReservationsChanged { reserved, released });
        }
    }

    fn add_lost_devices(&mut self, changes: &mut HostChanges) {
        for (&device, unlisted) in &mut self.unlisted {
            if unlisted.is_lost && !std::mem::replace(&mut unlisted.is_reported, true) {
                let minutes = LOST_AFTER.as_secs() / 60;
                let reason = format!("`npu-smi` has not listed it for {minutes} minutes");
                changes.sched_events.push(SchedEvent::DeviceLost { device, reason });
            }
        }
    }

    fn add_disk_change(&mut self, running: usize, changes: &mut HostChanges) {
        let has_failed_write = std::mem::take(&mut self.has_failed_write);
        let Some(free) = free_bytes(&self.folder) else { return };
        let running = u64::try_from(running).unwrap_or_default();
        let needed = self.reserve + running.saturating_add(1).saturating_mul(self.per_collection);
        // A pause ends only if there is space for another collection, which a quota may limit further.
        let is_full = has_failed_write
            || free < if self.is_full { needed } else { self.reserve + self.per_collection }
            || (self.is_full && !has_space(&self.folder));
        if is_full {
            self.full_at = Some(Instant::now());
        }
        if is_full == std::mem::replace(&mut self.is_full, is_full) {
            return;
        }
        let folder = self.folder.clone();
        let (sched_event, run_event) = if is_full {
            (SchedEvent::NewWorkPaused, RunEvent::DiskFull { folder, free, needed })
        } else {
            (SchedEvent::NewWorkResumed, RunEvent::DiskFreed { folder })
        };
        changes.sched_events.push(sched_event);
        changes.run_events.push(run_event);
    }
}

/// Interval on a host with devices. One query takes a second of one core on a host of sixteen devices.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
const REHEARSAL_POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn device_reading(chip: &NpuChip) -> DeviceReading {
    DeviceReading {
        device: chip.physical_id,
        at: Timestamp::now().0,
        health: chip.health.clone(),
        temperature: chip.temperature_c,
        power: chip.power_w,
        memory_used_mb: chip.memory_used_mb,
    }
}

pub(super) struct DeviceSnapshot {
    pub(super) info: NpuSmiInfo,
    pub(super) queried_at: time::Instant,
}

pub(super) struct DeviceMonitor {
    stop: Arc<AtomicBool>,
    _thread: WorkerThread<()>,
}

impl DeviceMonitor {
    pub(super) fn spawn(context: &Arc<LaneContext>, sender: UnboundedSender<DeviceSnapshot>) -> Result<Self> {
        let settings = &context.settings;
        let interval = if settings.kind == DataKind::Npu { POLL_INTERVAL } else { REHEARSAL_POLL_INTERVAL };
        let (environment, scratch) = (settings.environment.clone(), settings.folder.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = WorkerThread::spawn("npu-smi".to_owned(), move |ended| {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                // A failed query is repeated at the next interval. On a full disk the output may be cut off.
                let queried_at = time::Instant::now();
                let info = match device::query_npu_smi(&environment, &scratch, &is_stopped) {
                    // All devices of the host were lost since the run started.
                    Err(DeviceError::Unreadable(NpuSmiError::NoChips)) => Ok(NpuSmiInfo::default()),
                    queried => queried,
                };
                if let Ok(info) = info
                    && has_space(&scratch)
                    && sender.send(DeviceSnapshot { info, queried_at }).is_err()
                {
                    break;
                }
            }
        });
        Ok(Self { stop, _thread: thread.map_err(EngineError::system("a thread"))? })
    }
}

impl Drop for DeviceMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Lock held while the file is modified, so that of two concurrent changes neither is lost.
const LOCK: &str = "paused.lock";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PausedDevices {
    /// True if all devices are paused, except `except`.
    pub all: bool,
    pub devices: BTreeSet<u32>,
    /// Devices that are not paused although `all` is set.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub except: BTreeSet<u32>,
}

pub(crate) fn pause_file(database: &Database) -> PathBuf {
    database.state_folder().join("paused.json")
}

impl PausedDevices {
    pub(crate) fn load(file: &Path) -> Result<Self, String> {
        match read_regular_text(file, MAX_DOCUMENT) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) fn modify(
        database: &Database,
        change: impl FnOnce(&mut Self),
    ) -> Result<(Self, Self), DatabaseError> {
        database.make_state_folder()?;
        let (file, lock) = (pause_file(database), database.state_folder().join(LOCK));
        let fail = |action, path: &Path, source| FileError::Io { action, path: path.to_owned(), source };
        let held = File::options().write(true).create(true).truncate(false).open(&lock);
        let held = held.and_then(|held| held.lock().map(|()| held));
        let _held = held.map_err(|source| fail("lock", &lock, source))?;
        if let Some(folder) = file.parent() {
            // A killed `pause` leaves unfinished files.
            stale::remove_unfinished_files(folder);
        }
        let before = Self::load(&file).map_err(|why| fail("read", &file, io::Error::other(why)))?;
        let mut after = before.clone();
        change(&mut after);
        let text = serde_json::to_string(&after).expect("devices are JSON");
        write_atomic(&file, format!("{text}\n").as_bytes())?;
        Ok((before, after))
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.devices.is_empty()
    }

    pub(crate) fn contains(&self, device: u32) -> bool {
        (self.all && !self.except.contains(&device)) || self.devices.contains(&device)
    }

    pub(crate) fn pause(&mut self, devices: Option<&[u32]>) {
        match devices {
            None => *self = Self { all: true, ..Self::default() },
            Some(devices) if self.all => devices.iter().for_each(|device| {
                self.except.remove(device);
            }),
            Some(devices) => self.devices.extend(devices),
        }
    }

    pub(crate) fn unpause(&mut self, devices: Option<&[u32]>) {
        match devices {
            None => *self = Self::default(),
            Some(devices) => {
                self.devices.retain(|device| !devices.contains(device));
                if self.all {
                    self.except.extend(devices);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::{runtime, time};

    use super::*;

    fn monitor(folder: &Path) -> HostMonitor {
        HostMonitor {
            pause_file: folder.join("paused"),
            processes: folder.join("processes"),
            sees_host_processes: true,
            folder: folder.to_owned(),
            devices: vec![0, 1],
            ..HostMonitor::default()
        }
    }

    fn listed(devices: &[u32]) -> NpuSmiInfo {
        let chip = |device: &u32| NpuChip {
            npu: *device,
            chip: 0,
            physical_id: *device,
            logical_id: crate::kernel::LogicalDeviceId(*device),
            name: "910B3".to_owned(),
            health: "OK".to_owned(),
            power_w: None,
            temperature_c: None,
            aicore_percent: None,
            memory_used_mb: None,
            memory_total_mb: None,
            bus_id: None,
            host_id: None,
        };
        NpuSmiInfo { chips: devices.iter().map(chip).collect(), ..NpuSmiInfo::default() }
    }

    #[test]
    fn device_that_is_not_listed_for_long_is_lost_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut monitor = monitor(folder.path());
        let lost_after = |monitor: &mut HostMonitor, devices: Option<&[u32]>| -> Vec<u32> {
            if let Some(devices) = devices {
                monitor.update_devices(&listed(devices), &BTreeSet::new());
            }
            let mut changes = HostChanges::default();
            monitor.add_lost_devices(&mut changes);
            let lost = changes.sched_events.into_iter().filter_map(|event| match event {
                SchedEvent::DeviceLost { device, .. } => Some(device),
                _ => None,
            });
            lost.collect()
        };
        let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut found = Vec::new();
            // Device 1 is reset within the time, then device 0 is lost, then all are without an output for a while, in which the
            // user pauses device 1.
            let outputs: [Option<&[u32]>; 13] = [
                Some(&[0, 1]),
                Some(&[0]),
                Some(&[0, 1]),
                Some(&[1]),
                Some(&[1]),
                Some(&[1]),
                Some(&[0, 1]),
                Some(&[]),
                None,
                None,
                None,
                Some(&[]),
                Some(&[]),
            ];
            for (step, devices) in outputs.into_iter().enumerate() {
                if step == 8 {
                    monitor.paused =
                        PausedDevices { devices: BTreeSet::from([1]), ..PausedDevices::default() };
                }
                found.push(lost_after(&mut monitor, devices));
                time::advance(LOST_AFTER / 2).await;
            }
            let expected: [&[u32]; 13] = [&[], &[], &[], &[], &[], &[0], &[], &[], &[], &[], &[], &[0], &[]];
            assert_eq!(found, expected);
        });
    }

    proptest! {
        /// After any sequence of changes, the last change of a device decides.
        #[test]
        fn last_change_of_a_device_decides(
            steps in proptest::collection::vec(
                (any::<bool>(), proptest::option::of(proptest::collection::vec(0_u32..4, 1..3))), 0..12),
        ) {
            let mut paused = PausedDevices::default();
            let mut expected = [false; 5];
            for (pauses, devices) in steps {
                let devices = devices.as_deref();
                for (device, is_paused) in (0_u32..).zip(&mut expected) {
                    if devices.is_none_or(|devices| devices.contains(&device)) {
                        *is_paused = pauses;
                    }
                }
                if pauses { paused.pause(devices) } else { paused.unpause(devices) }
            }
            for (device, is_paused) in (0_u32..).zip(expected) {
                prop_assert_eq!(paused.contains(device), is_paused);
            }
            let text = serde_json::to_string(&paused).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<PausedDevices>(&text).expect("read back"), paused);
        }
    }
}
