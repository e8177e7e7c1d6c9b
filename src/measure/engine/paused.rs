//! `paused.json`: the devices that `npubench pause` reserves for other users.
//!
//! The file holds the request; the run polls it, and the scheduler stops starting collections there.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    base::files::{FileError, read_regular_text, stale, write_atomic},
    database::{Database, DatabaseError},
};

/// Lock held while the file is modified, so that of two concurrent changes neither is lost.
const LOCK: &str = "paused.lock";

/// Paused devices of a database.
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
    /// Reads the file; a missing file means that no device is paused.
    pub(crate) fn load(file: &Path) -> Result<Self, String> {
        match read_regular_text(file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Modifies the file under a lock; returns the devices paused before and after. Fails with [`DatabaseError::File`]
    /// if the file cannot be read or written; it is then unchanged.
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
            // Those of a killed `pause`.
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

    /// Pauses these devices; all if `None`.
    pub(crate) fn pause(&mut self, devices: Option<&[u32]>) {
        match devices {
            None => *self = Self { all: true, ..Self::default() },
            Some(devices) if self.all => devices.iter().for_each(|device| {
                self.except.remove(device);
            }),
            Some(devices) => self.devices.extend(devices),
        }
    }

    /// Ends the pause of these devices; of all if `None`.
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

    use super::*;

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
