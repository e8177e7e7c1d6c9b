//! What others do to a run: they fill the disk, or ask for a device for a while.
//!
//! It looks, and never acts: the scheduler decides what follows.

use std::{collections::BTreeSet, path::PathBuf};

use nix::sys::statvfs::statvfs;

use super::{Paused, Settings};
use crate::{events::Event, model::Kind, sched, store::Database};

/// Free bytes below which nothing begins, on a device's host: profiles are parsed into twenty times their size.
const RESERVE: u64 = 4 << 30;
/// The same for each collection that runs: what msprof may write in a minute at 50 MB/s.
const PER_COLLECTION: u64 = 3 << 30;
/// On the rehearsal host, whose profiles are small.
const REHEARSAL_RESERVE: u64 = 32 << 20;
const REHEARSAL_PER_COLLECTION: u64 = 2 << 20;

/// Something that has changed.
pub(super) struct Change {
    /// For the scheduler.
    pub(super) event: sched::Event,
    /// For whoever listens.
    pub(super) said: Event,
}

/// What was seen last.
pub(super) struct Watch {
    pause_file: PathBuf,
    folder: PathBuf,
    devices: Vec<u32>,
    lent: BTreeSet<u32>,
    is_full: bool,
    reserve: u64,
    per_collection: u64,
}

impl Watch {
    pub(super) fn new(database: &Database, settings: &Settings, devices: Vec<u32>) -> Self {
        let (reserve, per_collection) = match settings.kind {
            Kind::Npu => (RESERVE, PER_COLLECTION),
            Kind::Rehearsal => (REHEARSAL_RESERVE, REHEARSAL_PER_COLLECTION),
        };
        Self {
            pause_file: super::run::pause_file(database),
            folder: database.state_folder(),
            devices,
            lent: BTreeSet::new(),
            is_full: false,
            reserve,
            per_collection,
        }
    }

    /// What has changed since the last look, while so many collections run.
    pub(super) fn look(&mut self, running: usize) -> Vec<Change> {
        let mut changes = self.lent_devices();
        changes.extend(self.disk(running));
        changes
    }

    fn lent_devices(&mut self) -> Vec<Change> {
        // A file that is being written reads the same at the next look.
        let Ok(paused) = Paused::read(&self.pause_file) else { return Vec::new() };
        let mut changes = Vec::new();
        for &device in &self.devices {
            if paused.has(device) && self.lent.insert(device) {
                let event = sched::Event::Lent { device };
                changes.push(Change { event, said: Event::DeviceLent { device } });
            } else if !paused.has(device) && self.lent.remove(&device) {
                let event = sched::Event::Returned { device };
                changes.push(Change { event, said: Event::DeviceReturned { device } });
            }
        }
        changes
    }

    fn disk(&mut self, running: usize) -> Option<Change> {
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
            Change { event: sched::Event::Held, said: Event::DiskFull { folder, free, needed } }
        } else {
            Change { event: sched::Event::Released, said: Event::DiskFreed { folder } }
        })
    }
}
