//! Folder of the lease files: its safety, and the name of the file of each device.
//!
//! Two runs exclude each other only if they use the same folder and the same name for a device. Containers have
//! temporary folders of their own, so that they need a folder that is mounted into all of them; the PCI address names a
//! device equally in all of them.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::{errno::Errno, fcntl::OFlag};

use super::DeviceError;
use crate::{base::files::scratch::temporary_folder, measure::device::npu_smi::NpuChip};

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
    pub(crate) fn of_database(path: PathBuf) -> Self {
        Self { path, sharing: LeaseSharing::Database, names: BTreeMap::new() }
    }

    /// Folder of the current user in the temporary folder, created if missing.
    pub(crate) fn of_user() -> Self {
        let path = temporary_folder().join(format!("npubench-leases-{}", nix::unistd::geteuid()));
        Self { path, sharing: LeaseSharing::OneUser, names: BTreeMap::new() }
    }

    /// Existing folder that several containers, and users, may share.
    pub(crate) fn of_containers(path: PathBuf) -> Self {
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

    /// Creates the folder if it belongs to a database or to the user, and checks it.
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

    /// Checks that the folder is no link and belongs to this user, and withdraws the permissions of other users.
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
    use std::{os::unix::fs::symlink, time::Duration};

    use super::*;
    use crate::measure::device::{DeviceLease, npu_smi::parse_info};

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
        let error = DeviceLease::acquire(&folder, 3, Duration::ZERO).expect_err("a link").to_string();
        assert!(error.contains("it is a link, not a lease file") && !target.exists(), "{error}");
    }

    #[test]
    fn a_shared_folder_must_exist_and_its_files_are_for_all_users() {
        let root = tempfile::tempdir().expect("a folder");
        let missing = LeaseFolder::of_containers(root.path().join("missing"));
        assert!(missing.prepare().expect_err("missing").to_string().contains("mkdir -m 1777"));
        let folder = LeaseFolder::of_containers(root.path().to_owned());
        folder.prepare().expect("it exists");
        let _lease = DeviceLease::acquire(&folder, 3, Duration::ZERO).expect("free");
        let mode = fs::metadata(folder.lease_path(3)).expect("there").mode();
        assert_eq!(mode & 0o777, 0o666);
        assert!(DeviceLease::acquire(&folder, 3, Duration::ZERO).is_err(), "held");
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
