//! Atomic replacement of files: a reader finds the old or the new content, whatever fails.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io::{self, BufWriter, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use tempfile::NamedTempFile;

use super::FileError;

const DEFAULT_MODE: u32 = 0o666;
const BUFFER: usize = 1 << 18;

/// Writes a file by way of a temporary one in the same folder: write, sync, rename, sync of the folder. An existing
/// file keeps its mode; the target of a symbolic link is replaced. Fails with [`FileError::Io`]; the file is either
/// unchanged or complete then, and the temporary one is removed.
pub(crate) fn write_atomic(path: &Path, content: &[u8]) -> Result<(), FileError> {
    write_atomic_by(path, |out| out.write_all(content))
}

/// Writes content that is generated while it is written, as [`write_atomic`].
pub(crate) fn write_atomic_by(
    path: &Path,
    content: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = target.as_path();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = call_system(|| create_draft(folder)).map_err(FileError::io("write into", folder))?;
    let write = || {
        let mut out = BufWriter::with_capacity(BUFFER, draft.as_file());
        content(&mut out)?;
        out.flush()
    };
    call_system(write).map_err(FileError::io("write", path))?;
    if let Ok(existing) = fs::metadata(path) {
        let set = || draft.as_file().set_permissions(existing.permissions());
        call_system(set).map_err(FileError::io("set the mode of", path))?;
    }
    call_system(|| draft.as_file().sync_all()).map_err(FileError::io("sync", path))?;
    let rename = || draft.persist(path).map_err(|error| error.error);
    call_system(rename).map_err(FileError::io("replace", path))?;
    sync_folder(folder)
}

/// Creates a temporary file, which is locked until it has its name: an unlocked temporary file was left by a killed
/// writer.
fn create_draft(folder: &Path) -> io::Result<NamedTempFile> {
    loop {
        let mode = Permissions::from_mode(DEFAULT_MODE);
        let draft = tempfile::Builder::new()
            .prefix(".npubench-")
            .suffix(".tmp")
            .permissions(mode)
            .tempfile_in(folder)?;
        // Before it is locked, another process may remove it.
        let is_locked = !matches!(draft.as_file().try_lock(), Err(TryLockError::WouldBlock));
        if is_locked && draft.as_file().metadata()?.nlink() > 0 {
            return Ok(draft);
        }
    }
}

pub(crate) fn sync_folder(folder: &Path) -> Result<(), FileError> {
    call_system(|| File::open(folder).and_then(|file| file.sync_all())).map_err(FileError::io("sync", folder))
}

fn call_system<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(test)]
    faults::next()?;
    call()
}

#[cfg(test)]
pub(crate) mod faults {
    //! Makes the n-th system call fail, as a full disk does.

    use std::{cell::Cell, io};

    thread_local!(static LEFT: Cell<Option<u32>> = const { Cell::new(None) });

    /// Makes the system call after the next `calls` of this thread fail.
    pub(crate) fn fail_after(calls: u32) {
        LEFT.set(Some(calls));
    }

    /// Disables the fault; returns true if it occurred.
    pub(crate) fn happened() -> bool {
        LEFT.replace(None).is_none()
    }

    pub(crate) fn next() -> io::Result<()> {
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            left => {
                LEFT.set(left.map(|calls| calls - 1));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_content_and_keeps_the_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        write_atomic(&path, b"new").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "no temporary file is left");
    }

    #[test]
    fn failed_write_removes_temporary_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("is-a-folder");
        fs::create_dir(&path).expect("created");
        fs::write(path.join("inside"), "x").expect("written");
        let error = write_atomic(&path, b"new").expect_err("a folder cannot be replaced by a file");
        assert!(error.to_string().contains("is-a-folder"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }

    #[test]
    fn failed_system_call_leaves_old_or_new_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        let mut failures = 0;
        loop {
            fs::write(&path, "old").expect("written");
            faults::fail_after(failures);
            let result = write_atomic(&path, b"the new content");
            if !faults::happened() {
                assert!(result.is_ok());
                break;
            }
            failures += 1;
            let error = result.expect_err("a call failed").to_string();
            assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
            let content = fs::read(&path).expect("it is there");
            // Only the folder's sync follows the rename.
            let is_new = error.contains("cannot sync") && !error.contains("a.csv");
            assert_eq!(content, if is_new { &b"the new content"[..] } else { b"old" }, "{error}");
            assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "a draft is left: {error}");
        }
        assert_eq!(failures, 6, "draft, write, mode, sync, rename, sync of the folder");
    }

    #[test]
    fn write_through_symbolic_link_replaces_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target.csv"), folder.path().join("link.csv"));
        fs::write(&target, "old").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        write_atomic(&link, b"new").expect("replaced");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read(&target).expect("read"), b"new");
    }
}
