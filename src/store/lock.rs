//! One writer per database: a lock file that names its owner.

use std::{
    fs::{self, File, TryLockError},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process,
};

use super::StoreError;

const LOCK: &str = "lock";
const IGNORE: &str = ".gitignore";

/// Holds `.npubench/lock` until dropped. The system releases it when the process ends, however it ends.
///
/// A lock that had to make `.npubench` takes it away again, unless [`Lock::keep`] was called: a command
/// that fails leaves nothing behind.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    made: Option<PathBuf>,
}

impl Lock {
    /// Takes the lock of a database folder, making its state folder where it is missing.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the owner, or [`StoreError::Io`] where the folder is not writable.
    pub(super) fn take(database: &Path, state: &Path) -> Result<Self, StoreError> {
        // Rows are written at the end; whether they can be is found out now.
        tempfile::tempfile_in(database).map_err(StoreError::io("write into", database))?;
        let made = match fs::create_dir(state) {
            Ok(()) => Some(state.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(StoreError::io("create", state)(error)),
        };
        let path = state.join(LOCK);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                let owner = owner.trim();
                let owner = if owner.is_empty() { "another npubench" } else { owner };
                return Err(StoreError::Locked { path: database.to_owned(), owner: owner.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(StoreError::io("lock", &path)(source)),
        }
        let host = nix::unistd::gethostname().unwrap_or_default();
        let owner = format!("npubench, process {} on {}\n", process::id(), host.to_string_lossy());
        file.set_len(0)
            .and_then(|()| file.write_all(owner.as_bytes()))
            .and_then(
                |()| if state.join(IGNORE).exists() { Ok(()) } else { fs::write(state.join(IGNORE), "*\n") },
            )
            .map_err(StoreError::io("write", &path))?;
        Ok(Self { _file: file, made })
    }

    /// From now on there is something to keep.
    pub fn keep(&mut self) {
        self.made = None;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(state) = &self.made {
            let _ = fs::remove_file(state.join(IGNORE));
            let _ = fs::remove_file(state.join(LOCK));
            // Whatever else may be in it stays, and the folder with it.
            let _ = fs::remove_dir(state);
        }
    }
}
