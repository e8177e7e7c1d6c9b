//! What others do to a run: they fill the disk, ask for a device for a while, or use one. And what devices do by
//! themselves: they fall ill, or are gone.
//!
//! It looks, and never acts: the scheduler decides what follows.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use nix::sys::statvfs::statvfs;

use super::{CollectionSettings, PausedDevices};
use crate::{
    database::Database,
    domain::DataKind,
    events::RunEvent,
    process,
    profile::npu_smi::{NpuChip, NpuSmiInfo},
    sched,
};

/// Free bytes below which nothing begins, on a device's host: profiles are parsed into twenty times their size.
const RESERVE: u64 = 4 << 30;
/// The same for each collection that runs: what msprof may write in a minute at 50 MB/s.
const PER_COLLECTION: u64 = 3 << 30;
/// On the rehearsal host, whose profiles are small.
const REHEARSAL_RESERVE: u64 = 32 << 20;
const REHEARSAL_PER_COLLECTION: u64 = 2 << 20;

/// Something that has changed.
pub(super) struct HostChange {
    /// For the scheduler.
    pub(super) event: sched::SchedEvent,
    /// For whoever listens.
    pub(super) said: RunEvent,
}

/// What was seen last.
pub(super) struct HostMonitor {
    pause_file: PathBuf,
    processes: PathBuf,
    folder: PathBuf,
    paused: PausedDevices,
    /// Why devices cannot be used at the moment, besides pauses.
    kept: BTreeMap<u32, String>,
    /// Devices that nothing begins on.
    lent: BTreeSet<u32>,
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
            pause_file: super::run::pause_file(database),
            processes: settings.processes.clone(),
            folder: database.state_folder(),
            paused: PausedDevices::default(),
            kept: BTreeMap::new(),
            lent: BTreeSet::new(),
            devices,
            is_full: false,
            reserve,
            per_collection,
        }
    }

    /// What has changed since the last look, while so many collections run.
    pub(super) fn poll(&mut self, running: usize) -> Vec<HostChange> {
        // A file that is being written reads the same at the next look.
        if let Ok(paused) = PausedDevices::read(&self.pause_file) {
            self.paused = paused;
        }
        let mut changes = self.lent_devices();
        changes.extend(self.disk(running));
        changes
    }

    /// Takes note of what `npu-smi` says, while these devices run collections of ours.
    pub(super) fn update(&mut self, info: &NpuSmiInfo, busy: &BTreeSet<u32>) {
        for device in &self.devices {
            let chip = info.chips.iter().find(|chip| chip.device == *device);
            let kept = match chip {
                None => Some("`npu-smi` does not list it any more".to_owned()),
                Some(chip) if chip.health != "OK" => Some(format!("it says `{}`", chip.health)),
                Some(chip) => self.stranger(info, chip, busy.contains(device)),
            };
            match kept {
                Some(reason) => self.kept.insert(*device, reason),
                None => self.kept.remove(device),
            };
        }
    }

    /// A process of somebody else on a device. While a collection of ours runs on it, only a process of this host
    /// that does not carry our mark is known to be another's: inside a container its number says nothing.
    fn stranger(&self, info: &NpuSmiInfo, chip: &NpuChip, is_busy: bool) -> Option<String> {
        let on_chip = |process: &&crate::profile::npu_smi::NpuProcess| {
            process.npu == chip.npu && process.chip.is_none_or(|number| number == chip.chip)
        };
        let is_stranger = |process: &&crate::profile::npu_smi::NpuProcess| {
            if is_busy {
                process::is_known_stranger(process.pid, &self.processes)
            } else {
                !process::is_marked(process.pid, &self.processes)
            }
        };
        let process = info.processes.iter().filter(on_chip).find(is_stranger)?;
        Some(format!("process {} ({}) uses it", process.pid, process.name))
    }

    fn lent_devices(&mut self) -> Vec<HostChange> {
        let mut changes = Vec::new();
        for &device in &self.devices {
            let reason = if self.paused.has(device) {
                Some("it is paused; `npubench unpause` returns it".to_owned())
            } else {
                self.kept.get(&device).cloned()
            };
            match reason {
                Some(reason) if self.lent.insert(device) => {
                    let event = sched::SchedEvent::DeviceReserved { device };
                    changes.push(HostChange { event, said: RunEvent::DeviceLent { device, reason } });
                }
                None if self.lent.remove(&device) => {
                    let event = sched::SchedEvent::DeviceReleased { device };
                    changes.push(HostChange { event, said: RunEvent::DeviceReturned { device } });
                }
                _ => {}
            }
        }
        changes
    }

    fn disk(&mut self, running: usize) -> Option<HostChange> {
        let found = statvfs(&self.folder).ok()?;
        let free = found.blocks_available().saturating_mul(found.fragment_size());
        let running = u64::try_from(running).unwrap_or_default();
        let needed = self.reserve + running.saturating_add(1).saturating_mul(self.per_collection);
        // What runs may take its part; a pause ends only when there is room for one more.
        let is_full = free < if self.is_full { needed } else { self.reserve + self.per_collection };
        let folder = self.folder.clone();
        if is_full == std::mem::replace(&mut self.is_full, is_full) {
            return None;
        }
        Some(if is_full {
            HostChange {
                event: sched::SchedEvent::NewWorkPaused,
                said: RunEvent::DiskFull { folder, free, needed },
            }
        } else {
            HostChange { event: sched::SchedEvent::Released, said: RunEvent::DiskFreed { folder } }
        })
    }
}
