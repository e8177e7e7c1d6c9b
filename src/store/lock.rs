//! One writer per database: a lock file that names its owner.

use std::{
    fs::{self, File, TryLockError},
    io::{Read as _, Write as _},
    path::Path,
    process,
};

use super::StoreError;

/// Holds `.npubench/lock` until dropped. The system releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a database folder, making `.npubench` where it is missing.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the owner, or [`StoreError::Io`].
    pub(super) fn take(database: &Path, state: &Path) -> Result<Self, StoreError> {
        if !state.is_dir() {
            fs::create_dir(state).map_err(StoreError::io("create", state))?;
            let ignore = state.join(".gitignore");
            fs::write(&ignore, "*\n").map_err(StoreError::io("write", &ignore))?;
        }
        let path = state.join("lock");
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
            .map_err(StoreError::io("write", &path))?;
        Ok(Self { _file: file })
    }
}
