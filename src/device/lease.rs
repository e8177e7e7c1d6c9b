//! One collection per device: a locked file that a collection's processes inherit.
//!
//! The file is the standard input of everything a lane starts. Its lock lasts until the last of those
//! processes has ended, so that a killed npubench's orphans keep their device until they are gone.

use std::{
    fs::{self, File, TryLockError},
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::DeviceError;

/// Holds a device.
#[derive(Debug)]
pub struct DeviceLease {
    file: File,
}

/// How often a lease that is held is tried again.
const STEP: Duration = Duration::from_millis(100);

impl DeviceLease {
    /// Takes a device, waiting for an earlier holder as long as `patience`.
    ///
    /// # Errors
    /// [`DeviceError::InUse`], or [`DeviceError::Lease`] where the file cannot be made or locked.
    pub fn take(folder: &Path, device: u32, patience: Duration) -> Result<Self, DeviceError> {
        let path = folder.join(format!("device-{device}.lease"));
        let fail = |source| DeviceError::Lease { lease: path.clone(), source };
        fs::create_dir_all(folder).map_err(fail)?;
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
        let deadline = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(STEP),
                Err(TryLockError::WouldBlock) => return Err(DeviceError::InUse { device, lease: path }),
                Err(TryLockError::Error(source)) => return Err(fail(source)),
            }
        }
    }

    /// The file, for a process that is to share the lease.
    ///
    /// # Errors
    /// Where the system has no file descriptor left.
    pub fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// One file that holds several leases, for the processes of a gang.
    ///
    /// # Errors
    /// Where the system has no file descriptor left.
    pub fn share_all(leases: &[&Self]) -> io::Result<File> {
        if let [one] = leases {
            return one.share();
        }
        // torchrun hands nothing but the standard files on to what it starts. So the descriptors lie in a socket
        // that nobody reads: they are open for as long as the socket is.
        let (sender, holder) = UnixStream::pair()?;
        let files: Vec<_> = leases.iter().map(|lease| lease.file.as_raw_fd()).collect();
        let message = [ControlMessage::ScmRights(&files)];
        let text = [IoSlice::new(b"leases")];
        sendmsg::<()>(sender.as_raw_fd(), &text, &message, MsgFlags::empty(), None)?;
        Ok(File::from(OwnedFd::from(holder)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::process::{self, CommandSpec};

    #[test]
    fn a_lease_lasts_as_long_as_what_it_was_given_to() {
        outlives(&[3]);
    }

    #[test]
    fn so_do_those_of_a_gang() {
        outlives(&[3, 5, 11]);
    }

    /// Takes leases, gives them to a process, and lets go of them.
    fn outlives(devices: &[u32]) {
        let folder = tempfile::tempdir().expect("a folder");
        let take = |device: u32| DeviceLease::take(folder.path(), device, Duration::ZERO);
        let leases: Vec<DeviceLease> = devices.iter().map(|&device| take(device).expect("free")).collect();
        for &device in devices {
            let busy = take(device).expect_err("held");
            assert!(matches!(busy, DeviceError::InUse { device: other, .. } if other == device));
        }
        take(4).expect("another device");
        // The shell ends at once and leaves a process of a session of its own behind, as an orphan is.
        let fifo = folder.path().join("fifo");
        let script =
            "exec 3<&0; mkfifo fifo; setsid sh -c '>up; read x <fifo' & until [ -e up ]; do sleep 0.01; done";
        let job = CommandSpec {
            command: ["sh", "-c", script].map(Into::into).into(),
            folder: folder.path(),
            environment: &[],
            log: &folder.path().join("log"),
            limit: Duration::from_secs(60),
            cut_off: None,
            stdin: Some(DeviceLease::share_all(&leases.iter().collect::<Vec<_>>()).expect("a descriptor")),
            record: None,
        };
        process::run(&job, &AtomicBool::new(false)).expect("sh runs");
        drop(job);
        drop(leases);
        for &device in devices {
            let orphan = take(device).expect_err("the orphan holds it");
            assert!(matches!(orphan, DeviceError::InUse { .. }));
        }
        fs::write(&fifo, "end\n").expect("the orphan reads");
        for &device in devices {
            DeviceLease::take(folder.path(), device, Duration::from_secs(30)).expect("the orphan has ended");
        }
    }
}
