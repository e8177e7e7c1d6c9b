//! Conditions of the host that keep collections from starting: a full disk, paused devices, devices that other
//! processes use, and devices that are unhealthy or no longer listed.
//!
//! The monitor observes and reports changes; the scheduler decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use nix::sys::statvfs::statvfs;

use super::{CollectionSettings, PausedDevices, pause_file};
use crate::{
    database::Database,
    domain::DataKind,
    events::RunEvent,
    process::{is_foreign_process, is_own_process},
    profile::npu_smi::{NpuChip, NpuProcess, NpuSmiInfo},
    sched::SchedEvent,
};

/// Free bytes below which no collection is started: the parsed form of a profile is twenty times its size.
const RESERVE: u64 = 4 << 30;
/// Free bytes needed for each running collection: msprof may write 50 MB/s for a minute.
const PER_COLLECTION: u64 = 3 << 30;
/// The same on the rehearsal host, whose profiles are small.
const REHEARSAL_RESERVE: u64 = 32 << 20;
const REHEARSAL_PER_COLLECTION: u64 = 2 << 20;

/// A change of the host, for the scheduler and for the user.
pub(super) struct HostChange {
    pub(super) sched_event: SchedEvent,
    pub(super) run_event: RunEvent,
}

pub(super) struct HostMonitor {
    pause_file: PathBuf,
    processes: PathBuf,
    folder: PathBuf,
    paused: PausedDevices,
    /// Reasons why devices cannot be used, other than pauses.
    unusable: BTreeMap<u32, String>,
    reserved: BTreeSet<u32>,
    devices: Vec<u32>,
    is_full: bool,
    reserve: u64,
    per_collection: u64,
}

impl HostMonitor {
    pub(super) fn new(database: &Database, settings: &CollectionSettings, devices: Vec<u32>) -> Self {
        let (reserve, per_collection) = match settings.kind {
            DataKind::Npu => (RESERVE, PER_COLLECTION),
            DataKind::Rehearsal => (REHEARSAL_RESERVE, REHEARSAL_PER_COLLECTION),
        };
        Self {
            pause_file: pause_file(database),
            processes: settings.processes.clone(),
            folder: database.state_folder(),
            paused: PausedDevices::default(),
            unusable: BTreeMap::new(),
            reserved: BTreeSet::new(),
            devices,
            is_full: false,
            reserve,
            per_collection,
        }
    }

    /// Returns the changes since the last call; `running` is the number of running collections.
    pub(super) fn poll_changes(&mut self, running: usize) -> Vec<HostChange> {
        // A file that is being written is read at the next call.
        if let Ok(paused) = PausedDevices::load(&self.pause_file) {
            self.paused = paused;
        }
        let mut changes = self.reservation_changes();
        changes.extend(self.disk_change(running));
        changes
    }

    /// Updates the usable devices from the output of `npu-smi`; collections of this run are on the `busy` devices.
    pub(super) fn update_devices(&mut self, info: &NpuSmiInfo, busy: &BTreeSet<u32>) {
        for device in &self.devices {
            let chip = info.chips.iter().find(|chip| chip.device == *device);
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

    /// Returns the reason if another program uses the device. While a collection of this run is on it, a process
    /// counts as foreign only if its environment can be read and lacks our mark: in a container, `npu-smi` may list
    /// our own processes by the ids of the host.
    fn foreign_process(&self, info: &NpuSmiInfo, chip: &NpuChip, is_busy: bool) -> Option<String> {
        let on_chip = |process: &&NpuProcess| {
            process.npu == chip.npu && process.chip.is_none_or(|number| number == chip.chip)
        };
        let is_foreign = |process: &&NpuProcess| {
            if is_busy {
                is_foreign_process(process.pid, &self.processes)
            } else {
                !is_own_process(process.pid, &self.processes)
            }
        };
        let process = info.processes.iter().filter(on_chip).find(is_foreign)?;
        Some(format!("process {} ({}) uses it", process.pid, process.name))
    }

    fn reservation_changes(&mut self) -> Vec<HostChange> {
        let mut changes = Vec::new();
        for &device in &self.devices {
            let reason = if self.paused.contains(device) {
                Some("it is paused; `npubench unpause` ends the pause".to_owned())
            } else {
                self.unusable.get(&device).cloned()
            };
            let (sched_event, run_event) = match reason {
                Some(reason) if self.reserved.insert(device) => {
                    (SchedEvent::DeviceReserved { device }, RunEvent::DeviceReserved { device, reason })
                }
                None if self.reserved.remove(&device) => {
                    (SchedEvent::DeviceReleased { device }, RunEvent::DeviceReleased { device })
                }
                _ => continue,
            };
            changes.push(HostChange { sched_event, run_event });
        }
        changes
    }

    fn disk_change(&mut self, running: usize) -> Option<HostChange> {
        let found = statvfs(&self.folder).ok()?;
        let free = found.blocks_available().saturating_mul(found.fragment_size());
        let running = u64::try_from(running).unwrap_or_default();
        let needed = self.reserve + running.saturating_add(1).saturating_mul(self.per_collection);
        // Running collections have their share already; a pause ends only if there is space for another one.
        let is_full = free < if self.is_full { needed } else { self.reserve + self.per_collection };
        let folder = self.folder.clone();
        if is_full == std::mem::replace(&mut self.is_full, is_full) {
            return None;
        }
        Some(if is_full {
            HostChange {
                sched_event: SchedEvent::NewWorkPaused,
                run_event: RunEvent::DiskFull { folder, free, needed },
            }
        } else {
            HostChange { sched_event: SchedEvent::NewWorkResumed, run_event: RunEvent::DiskFreed { folder } }
        })
    }
}
