//! Temporary folders. Each is locked by its process while the process lives, so that folders of killed processes can be
//! recognised.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf, absolute},
    time::{SystemTime, UNIX_EPOCH},
};

use nix::{fcntl::OFlag, unistd::geteuid};
use tempfile::TempDir;

const SCRATCH: &str = "npubench-tmp-";
/// Prefix of the temporary folder that becomes a database when it is complete.
pub(crate) const DRAFT: &str = ".npubench-new-";
/// Number of folders that a concurrent removal may take before creation fails.
const TRIES: u32 = 100;

/// Returns the folder for temporary files; absolute, because programs are started in other folders.
pub(crate) fn temporary_folder() -> PathBuf {
    // The path of an empty variable cannot be made absolute.
    absolute(std::env::temp_dir()).unwrap_or_else(|_| PathBuf::from("/tmp"))
}

#[derive(Debug)]
pub(crate) struct ScratchFolder {
    folder: TempDir,
    /// Held while the folder is in use; `None` on a file system without locks, where nothing is removed.
    _lock: Option<File>,
}

impl ScratchFolder {
    pub(crate) fn create() -> io::Result<Self> {
        let place = temporary_folder();
        remove_abandoned(&place, SCRATCH);
        Self::create_in(&place, SCRATCH)
    }

    pub(crate) fn create_in(place: &Path, prefix: &str) -> io::Result<Self> {
        for _ in 0..TRIES {
            let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(place)?;
            // Until it is locked, another process may take it for abandoned, lock it, and remove it.
            let file = match open_folder(folder.path()) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => continue,
                Err(fs::TryLockError::Error(_)) => return Ok(Self { folder, _lock: None }),
            }
            let opened = file.metadata()?;
            let is_same = |there: &fs::Metadata| (there.dev(), there.ino()) == (opened.dev(), opened.ino());
            if fs::metadata(folder.path()).is_ok_and(|there| is_same(&there)) {
                return Ok(Self { folder, _lock: Some(file) });
            }
        }
        Err(io::Error::other("other processes remove every new folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn keep(self) {
        let _ = self.folder.keep();
    }
}

/// Moves a folder out of a temporary one, so that it stays; returns its new path.
pub(crate) fn keep_folder(folder: &Path, prefix: &str) -> io::Result<PathBuf> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let kept = temporary_folder().join(format!("{prefix}{}-{}", std::process::id(), time.as_millis()));
    fs::rename(folder, &kept)?;
    Ok(kept)
}

fn open_folder(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY).bits()).open(path)
}

/// Removes the own folders with this prefix that no process has locked. Errors are ignored.
pub(crate) fn remove_abandoned(place: &Path, prefix: &str) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(prefix);
        if is_named
            && let Ok(folder) = open_folder(&entry.path())
            && folder.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw())
            && folder.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, sync::atomic::Ordering, thread};

    use super::*;

    #[test]
    fn only_own_folders_without_a_process_are_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let live = ScratchFolder::create_in(place.path(), SCRATCH).expect("created");
        let path = |name: &str| place.path().join(format!("{SCRATCH}{name}"));
        fs::create_dir(path("dead")).expect("created");
        fs::write(path("dead").join("log"), "text").expect("written");
        fs::write(path("file"), "other").expect("written");
        let target = place.path().join("target");
        fs::create_dir(&target).expect("created");
        std::os::unix::fs::symlink(&target, path("link")).expect("linked");
        remove_abandoned(place.path(), SCRATCH);
        let exists = |path: &Path| fs::symlink_metadata(path).is_ok();
        assert!(exists(live.path()) && exists(&path("file")) && exists(&path("link")) && exists(&target));
        assert!(!exists(&path("dead")));
        let kept = live.path().to_owned();
        drop(live);
        assert!(!exists(&kept));
    }

    /// Fails if a new folder can be taken for an abandoned one before it is locked.
    #[test]
    fn a_folder_that_is_created_during_a_removal_exists() {
        let place = tempfile::tempdir().expect("a folder");
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    remove_abandoned(place.path(), DRAFT);
                }
            });
            for _ in 0..200 {
                let draft = ScratchFolder::create_in(place.path(), DRAFT).expect("created");
                assert!(fs::write(draft.path().join("Add.csv"), "text").is_ok());
            }
            has_ended.store(true, Ordering::Relaxed);
        });
    }
}
