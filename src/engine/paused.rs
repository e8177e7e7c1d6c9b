//! Which devices are lent to somebody else: the file that `npubench pause` leaves for the run.
//!
//! It says what is asked for; the run looks at it and the scheduler decides.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::pause_file;
use crate::{
    database::{Database, DatabaseError},
    files::{FileError, write_atomic},
};

/// Held while the file is read and written, so that two who pause at once both count.
const LOCK: &str = "paused.lock";

/// Which devices are lent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PausedDevices {
    /// All devices, also those that are not named.
    pub all: bool,
    /// These devices.
    pub devices: BTreeSet<u32>,
    /// Where all are: all but these.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub except: BTreeSet<u32>,
}

impl PausedDevices {
    /// Reads what is paused; nothing where there is no file.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub fn read(file: &Path) -> Result<Self, String> {
        match fs::read_to_string(file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Changes what is paused; returns what was, and what is.
    ///
    /// # Errors
    /// [`DatabaseError::File`] where the file cannot be read or written; it is then as it was.
    pub fn change(
        database: &Database,
        change: impl FnOnce(&mut Self),
    ) -> Result<(Self, Self), DatabaseError> {
        database.make_state_folder()?;
        let (file, lock) = (pause_file(database), database.state_folder().join(LOCK));
        let fail = |action, path: &Path, source| FileError::Io { action, path: path.to_owned(), source };
        let held = File::options().write(true).create(true).truncate(false).open(&lock);
        let held = held.and_then(|held| held.lock().map(|()| held));
        let _held = held.map_err(|source| fail("lock", &lock, source))?;
        let before = Self::read(&file).map_err(|why| fail("read", &file, io::Error::other(why)))?;
        let mut after = before.clone();
        change(&mut after);
        let text = serde_json::to_string(&after).unwrap_or_default();
        write_atomic(&file, format!("{text}\n").as_bytes())?;
        Ok((before, after))
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all && self.devices.is_empty()
    }

    /// Whether a device is.
    #[must_use]
    pub fn has(&self, device: u32) -> bool {
        (self.all && !self.except.contains(&device)) || self.devices.contains(&device)
    }

    /// Lends these devices too; all where none are named.
    pub fn lend(&mut self, devices: Option<&[u32]>) {
        match devices {
            None => *self = Self { all: true, ..Self::default() },
            Some(devices) if self.all => devices.iter().for_each(|device| {
                self.except.remove(device);
            }),
            Some(devices) => self.devices.extend(devices),
        }
    }

    /// Takes these devices back; all where none are named.
    pub fn take_back(&mut self, devices: Option<&[u32]>) {
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
        /// Whatever is lent and taken back, each device is as it was last asked for.
        #[test]
        fn the_last_word_on_a_device_counts(
            steps in proptest::collection::vec(
                (any::<bool>(), proptest::option::of(proptest::collection::vec(0_u32..4, 1..3))), 0..12),
        ) {
            let mut paused = PausedDevices::default();
            let mut expected = [false; 5];
            for (lends, devices) in steps {
                let devices = devices.as_deref();
                for (device, is_lent) in (0_u32..).zip(&mut expected) {
                    if devices.is_none_or(|devices| devices.contains(&device)) {
                        *is_lent = lends;
                    }
                }
                if lends { paused.lend(devices) } else { paused.take_back(devices) }
            }
            for (device, is_lent) in (0_u32..).zip(expected) {
                prop_assert_eq!(paused.has(device), is_lent);
            }
            let text = serde_json::to_string(&paused).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<PausedDevices>(&text).expect("read back"), paused);
        }
    }
}
