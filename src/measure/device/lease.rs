//! Device lease: a locked file that the processes of a collection inherit, so that a device has one collection.
//!
//! The file is the standard input of all processes of a lane. Its lock lasts until the last of them has ended, so that
//! orphans of a killed npubench keep their device.

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::{DeviceError, LeaseFolder};

/// Lease of a device.
#[derive(Debug)]
pub struct DeviceLease {
    file: File,
}

const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl DeviceLease {
    /// Acquires the lease of a device; waits up to `timeout` for an earlier holder.
    pub(crate) fn acquire(folder: &LeaseFolder, device: u32, timeout: Duration) -> Result<Self, DeviceError> {
        let path = folder.lease_path(device);
        let fail = |source| DeviceError::Lease { lease: path.clone(), source };
        let file = folder.open_lease(&path).map_err(fail)?;
        let deadline = Instant::now() + timeout;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
                Err(TryLockError::WouldBlock) => return Err(DeviceError::InUse { device, lease: path }),
                Err(TryLockError::Error(source)) => return Err(fail(source)),
            }
        }
    }

    pub(crate) fn share_files(leases: &[&Self]) -> io::Result<File> {
        if let [one] = leases {
            return one.file.try_clone();
        }
        // torchrun passes only the standard files to its processes. The descriptors are sent over a socket that is
        // never read: they stay open as long as the socket does.
        let (sender, holder) = UnixStream::pair()?;
        let files: Vec<_> = leases.iter().map(|lease| lease.file.as_raw_fd()).collect();
        let message = [ControlMessage::ScmRights(&files)];
        let text = [IoSlice::new(b"leases")];
        sendmsg::<()>(sender.as_raw_fd(), &text, &message, MsgFlags::empty(), None)?;
        Ok(File::from(OwnedFd::from(holder)))
    }
}

/// Leases of the devices of a run. A device whose lease another process holds gets it later.
#[derive(Debug)]
pub(crate) struct DeviceLeases {
    folder: LeaseFolder,
    held: Mutex<BTreeMap<u32, DeviceLease>>,
}

impl DeviceLeases {
    /// Acquires the leases that are free or become so within `timeout`.
    pub(crate) fn acquire(
        folder: &LeaseFolder,
        devices: &[u32],
        timeout: Duration,
    ) -> Result<Self, DeviceError> {
        folder.prepare()?;
        let deadline = Instant::now() + timeout;
        let mut held = BTreeMap::new();
        for &device in devices {
            match DeviceLease::acquire(folder, device, deadline.saturating_duration_since(Instant::now())) {
                Ok(lease) => drop(held.insert(device, lease)),
                Err(DeviceError::InUse { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { folder: folder.clone(), held: Mutex::new(held) })
    }

    /// Acquires the leases that have become free; returns the reasons for the others.
    pub(crate) fn acquire_missing(&self, devices: &[u32]) -> BTreeMap<u32, String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reasons = BTreeMap::new();
        for &device in devices.iter().filter(|device| !held.contains_key(device)).collect::<Vec<_>>() {
            match DeviceLease::acquire(&self.folder, device, Duration::ZERO) {
                Ok(lease) => drop(held.insert(device, lease)),
                Err(error) => drop(reasons.insert(device, error.to_string())),
            }
        }
        reasons
    }

    /// Returns one file that holds the leases of these devices, for the processes of a collection.
    pub(crate) fn share_files(&self, devices: &[u32]) -> io::Result<File> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        DeviceLease::share_files(&devices.iter().filter_map(|device| held.get(device)).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::atomic::AtomicBool};

    use super::*;
    use crate::base::process::{self, CommandSpec};

    #[test]
    fn lease_lasts_until_an_orphan_of_its_process_has_ended() {
        assert_orphan_holds(&[3]);
    }

    #[test]
    fn leases_of_a_gang_last_until_an_orphan_of_its_process_has_ended() {
        assert_orphan_holds(&[3, 5, 11]);
    }

    /// Acquires leases, passes them to a process, and drops them.
    fn assert_orphan_holds(devices: &[u32]) {
        let folder = tempfile::tempdir().expect("a folder");
        let leases_folder = LeaseFolder::of_database(folder.path().join("leases"));
        leases_folder.prepare().expect("created");
        let take = |device: u32| DeviceLease::acquire(&leases_folder, device, Duration::ZERO);
        let leases: Vec<DeviceLease> = devices.iter().map(|&device| take(device).expect("free")).collect();
        for &device in devices {
            let busy = take(device).expect_err("held");
            assert!(matches!(busy, DeviceError::InUse { device: other, .. } if other == device));
        }
        take(4).expect("another device");
        // The shell ends at once and leaves a process in a session of its own.
        let fifo = folder.path().join("fifo");
        let script =
            "exec 3<&0; mkfifo fifo; setsid sh -c '>up; read x <fifo' & until [ -e up ]; do sleep 0.01; done";
        let log = folder.path().join("log");
        let job = CommandSpec {
            stdin: Some(DeviceLease::share_files(&leases.iter().collect::<Vec<_>>()).expect("a descriptor")),
            ..CommandSpec::new(
                ["sh", "-c", script].map(Into::into).into(),
                folder.path(),
                &log,
                Duration::from_secs(60),
            )
        };
        process::run_command(&job, &AtomicBool::new(false)).expect("sh runs");
        drop(job);
        drop(leases);
        for &device in devices {
            let orphan = take(device).expect_err("the orphan holds it");
            assert!(matches!(orphan, DeviceError::InUse { .. }));
        }
        fs::write(&fifo, "end\n").expect("the orphan reads");
        for &device in devices {
            DeviceLease::acquire(&leases_folder, device, Duration::from_secs(30))
                .expect("the orphan has ended");
        }
    }
}
