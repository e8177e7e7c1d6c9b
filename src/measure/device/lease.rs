//! Device lease: a locked file that the processes of a collection inherit, so that a device has one collection; and the folder of
//! these files.
//!
//! The file is the standard input of all processes of a lane. Its lock lasts until the last of them has ended, so that
//! orphans of a killed npubench keep their device.
//!
//! Two runs exclude each other only if they use the same folder and the same name for a device. Containers have
//! temporary folders of their own, so that they need a folder that is mounted into all of them; the PCI address names a
//! device equally in all of them.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, Permissions, TryLockError},
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::socket::{ControlMessage, MsgFlags, sendmsg},
};

use super::{DeviceError, npu_smi::NpuChip};
use crate::base::files::scratch::temporary_folder;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns one file that holds leases, for the processes of a collection.
fn share_files(leases: &[&File]) -> io::Result<File> {
    if let [one] = leases {
        return one.try_clone();
    }
    // torchrun passes only the standard files to its processes. The descriptors are sent over a socket that is
    // never read: they stay open as long as the socket does.
    let (sender, holder) = UnixStream::pair()?;
    let files: Vec<_> = leases.iter().map(|lease| lease.as_raw_fd()).collect();
    let message = [ControlMessage::ScmRights(&files)];
    let text = [IoSlice::new(b"leases")];
    sendmsg::<()>(sender.as_raw_fd(), &text, &message, MsgFlags::empty(), None)?;
    Ok(File::from(OwnedFd::from(holder)))
}

/// Leases of the devices of a run. A device whose lease another process holds gets it later.
#[derive(Debug)]
pub(crate) struct DeviceLeases {
    folder: LeaseFolder,
    held: Mutex<BTreeMap<u32, File>>,
}

impl DeviceLeases {
    pub(crate) fn acquire(
        folder: &LeaseFolder,
        devices: &[u32],
        timeout: Duration,
    ) -> Result<Self, DeviceError> {
        folder.prepare()?;
        let deadline = Instant::now() + timeout;
        let mut held = BTreeMap::new();
        for &device in devices {
            match folder.acquire(device, deadline.saturating_duration_since(Instant::now())) {
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
            match self.folder.acquire(device, Duration::ZERO) {
                Ok(lease) => drop(held.insert(device, lease)),
                Err(error) => drop(reasons.insert(device, error.to_string())),
            }
        }
        reasons
    }

    pub(crate) fn share_files(&self, devices: &[u32]) -> io::Result<File> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        share_files(&devices.iter().filter_map(|device| held.get(device)).collect::<Vec<_>>())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseFolder {
    path: PathBuf,
    sharing: LeaseSharing,
    names: BTreeMap<u32, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseSharing {
    Database,
    /// One user: the folder is in a place where every user may create one.
    OneUser,
    Containers,
}

impl LeaseFolder {
    /// Folder inside the state folder of a database, created if missing.
    pub(crate) const fn of_database(path: PathBuf) -> Self {
        Self { path, sharing: LeaseSharing::Database, names: BTreeMap::new() }
    }

    /// Folder of the current user in the temporary folder, created if missing.
    pub(crate) fn of_user() -> Self {
        let path = temporary_folder().join(format!("npubench-leases-{}", nix::unistd::geteuid()));
        Self { sharing: LeaseSharing::OneUser, ..Self::of_database(path) }
    }

    /// Existing folder that several containers, and users, may share.
    pub(crate) const fn of_containers(path: PathBuf) -> Self {
        Self { path, sharing: LeaseSharing::Containers, names: BTreeMap::new() }
    }

    /// Names the files of chips by their PCI addresses, else by their numbers on the host, else by their physical
    /// numbers. Two listed chips with one address (both chips of a 310P card) are distinguished by their chip ids.
    pub(crate) fn with_names(mut self, chips: &[NpuChip], prefix: &str) -> Self {
        let has_twin = |chip: &NpuChip| chips.iter().filter(|other| other.bus_id == chip.bus_id).count() > 1;
        let name = |chip: &NpuChip| match (&chip.bus_id, chip.host_id) {
            (Some(bus_id), _) => {
                let address = bus_id.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
                let chip_id = if has_twin(chip) { format!("-chip-{}", chip.chip) } else { String::new() };
                format!("pci-{address}{chip_id}")
            }
            (None, Some(host_id)) => format!("chip-{host_id}"),
            (None, None) => format!("device-{}", chip.physical_id),
        };
        self.names = chips.iter().map(|chip| (chip.physical_id, format!("{prefix}{}", name(chip)))).collect();
        self
    }

    pub(crate) fn prepare(&self) -> Result<(), DeviceError> {
        let problem = |problem: String| DeviceError::LeaseFolder { folder: self.path.clone(), problem };
        let failed = |error: io::Error| problem(error.to_string());
        match self.sharing {
            LeaseSharing::Database => fs::create_dir_all(&self.path).map_err(failed),
            LeaseSharing::Containers if self.path.is_dir() => Ok(()),
            LeaseSharing::Containers => {
                Err(problem("there is no such folder; create it with `mkdir -m 1777` on the host".to_owned()))
            }
            LeaseSharing::OneUser => {
                match DirBuilder::new().mode(0o700).create(&self.path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                    _ => {}
                }
                self.check_owner().map_err(problem)
            }
        }
    }

    fn check_owner(&self) -> Result<(), String> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY;
        let folder = File::options().read(true).custom_flags(flags.bits()).open(&self.path);
        let folder = folder.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ELOOP | Errno::ENOTDIR) => "it is a link or a file".to_owned(),
            _ => error.to_string(),
        })?;
        let metadata = folder.metadata().map_err(|error| error.to_string())?;
        let user = nix::unistd::geteuid().as_raw();
        if metadata.uid() != user {
            return Err(format!("it belongs to user {}, not to user {user}", metadata.uid()));
        }
        if metadata.mode() & 0o777 != 0o700 {
            folder.set_permissions(Permissions::from_mode(0o700)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Acquires the lease of a device, which lasts until its file is closed; waits up to `timeout` for an earlier holder.
    pub(crate) fn acquire(&self, device: u32, timeout: Duration) -> Result<File, DeviceError> {
        let path = self.lease_path(device);
        let fail = |source| DeviceError::Lease { lease: path.clone(), source };
        let file = self.open_lease(&path).map_err(fail)?;
        let deadline = Instant::now() + timeout;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
                Err(TryLockError::WouldBlock) => return Err(DeviceError::InUse { device, lease: path }),
                Err(TryLockError::Error(source)) => return Err(fail(source)),
            }
        }
    }

    pub(super) fn lease_path(&self, device: u32) -> PathBuf {
        let name = self.names.get(&device).cloned().unwrap_or_else(|| format!("device-{device}"));
        self.path.join(format!("{name}.lease"))
    }

    /// Opens a lease file, which is created if missing; a link is not followed. An existing file is opened without
    /// `O_CREAT`, which Linux refuses for files of others in a folder with the sticky bit (`fs.protected_regular`).
    pub(super) fn open_lease(&self, path: &Path) -> io::Result<File> {
        let is_shared = self.sharing == LeaseSharing::Containers;
        let mut options = File::options();
        options.read(true).write(true).custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_NONBLOCK.bits());
        loop {
            let file = match options.open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let mode = if is_shared { 0o666 } else { 0o600 };
                    match options.clone().create_new(true).mode(mode).open(path) {
                        // Another run has created the file meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                        Ok(file) if is_shared => {
                            // The mode is independent of the umask.
                            file.set_permissions(Permissions::from_mode(mode))?;
                            file
                        }
                        created => created?,
                    }
                }
                opened => opened.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::ELOOP) => io::Error::other("it is a link, not a lease file"),
                    _ => error,
                })?,
            };
            return if file.metadata()?.is_file() {
                Ok(file)
            } else {
                Err(io::Error::other("it is not a regular file"))
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

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
        let take = |device: u32| leases_folder.acquire(device, Duration::ZERO);
        let leases: Vec<File> = devices.iter().map(|&device| take(device).expect("free")).collect();
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
            stdin: Some(share_files(&leases.iter().collect::<Vec<_>>()).expect("a descriptor")),
            ends_descendants: false,
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
            leases_folder.acquire(device, Duration::from_secs(30)).expect("the orphan has ended");
        }
    }
}

#[cfg(test)]
mod folder_tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::measure::device::npu_smi::parse_info;

    fn folder_of_user(path: PathBuf) -> LeaseFolder {
        LeaseFolder { path, sharing: LeaseSharing::OneUser, names: BTreeMap::new() }
    }

    /// A table of chips with these card ids, chip ids and PCI addresses.
    fn chips(rows: &[(u32, u32, &str)]) -> Vec<NpuChip> {
        let mut text =
            "| NPU Name | Health | Power(W) Temp(C) |\n| Chip Device | Bus-Id | AICore(%) |\n".to_owned();
        for (index, (card, chip, bus_id)) in rows.iter().enumerate() {
            text += &format!("| {card} 310P3 | OK | NA 40 |\n| {chip} {index} | {bus_id} | 0 |\n");
        }
        parse_info(&text).expect("the table").chips
    }

    /// An existing folder of another user must be refused.
    #[test]
    fn a_link_or_a_file_in_place_of_the_temporary_folder_is_refused() {
        let root = tempfile::tempdir().expect("a folder");
        let elsewhere = root.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("created");
        symlink(&elsewhere, root.path().join("link")).expect("linked");
        fs::write(root.path().join("file"), "").expect("written");
        for name in ["link", "file"] {
            let error = folder_of_user(root.path().join(name)).prepare().expect_err(name).to_string();
            assert!(error.ends_with("cannot be used: it is a link or a file"), "{error}");
        }
        let own = root.path().join("own");
        fs::create_dir(&own).expect("created");
        fs::set_permissions(&own, Permissions::from_mode(0o777)).expect("set");
        for name in ["own", "new"] {
            folder_of_user(root.path().join(name)).prepare().expect("usable");
            let mode = fs::metadata(root.path().join(name)).expect("there").mode();
            assert_eq!(mode & 0o777, 0o700, "{name}");
        }
    }

    /// Needs the right to give a folder away, which root has.
    #[test]
    fn a_temporary_folder_of_another_user_is_refused() {
        let root = tempfile::tempdir().expect("a folder");
        let foreign = root.path().join("foreign");
        fs::create_dir(&foreign).expect("created");
        if std::os::unix::fs::chown(&foreign, Some(4711), None).is_err() {
            return;
        }
        let error = folder_of_user(foreign).prepare().expect_err("of another user").to_string();
        assert!(error.contains("it belongs to user 4711, not to user"), "{error}");
    }

    #[test]
    fn a_lease_file_that_is_a_link_is_refused_and_its_target_not_created() {
        let root = tempfile::tempdir().expect("a folder");
        let target = root.path().join("target");
        symlink(&target, root.path().join("device-3.lease")).expect("linked");
        let folder = LeaseFolder::of_containers(root.path().to_owned());
        let error = folder.acquire(3, Duration::ZERO).expect_err("a link").to_string();
        assert!(error.contains("it is a link, not a lease file") && !target.exists(), "{error}");
    }

    #[test]
    fn a_shared_folder_must_exist_and_its_files_are_for_all_users() {
        let root = tempfile::tempdir().expect("a folder");
        let missing = LeaseFolder::of_containers(root.path().join("missing"));
        assert!(missing.prepare().expect_err("missing").to_string().contains("mkdir -m 1777"));
        let folder = LeaseFolder::of_containers(root.path().to_owned());
        folder.prepare().expect("it exists");
        let _lease = folder.acquire(3, Duration::ZERO).expect("free");
        let mode = fs::metadata(folder.lease_path(3)).expect("there").mode();
        assert_eq!(mode & 0o777, 0o666);
        assert!(folder.acquire(3, Duration::ZERO).is_err(), "held");
    }

    #[test]
    fn lease_names_are_equal_in_containers_that_number_a_device_differently() {
        let name = |chips: &[NpuChip], device: u32| {
            let folder = LeaseFolder::of_containers(PathBuf::new()).with_names(chips, "");
            folder.lease_path(device).to_string_lossy().into_owned()
        };
        let host = chips(&[(0, 0, "0000:C1:00.0"), (1, 0, "0000:C2:00.0")]);
        let container = chips(&[(1, 0, "0000:C2:00.0")]);
        assert_eq!(name(&host, 1), "pci-0000-c2-00-0.lease");
        assert_eq!(name(&host, 1), name(&container, 0));
        let duo = chips(&[(1, 0, "0000:01:00.0"), (1, 1, "0000:01:00.0")]);
        assert_eq!(name(&duo, 1), "pci-0000-01-00-0-chip-1.lease");
        let mut without = chips(&[(0, 0, "NA"), (1, 0, "NA")]);
        without[1].host_id = Some(6);
        assert_eq!(
            (name(&without, 0), name(&without, 1)),
            ("device-0.lease".to_owned(), "chip-6.lease".to_owned())
        );
    }
}
