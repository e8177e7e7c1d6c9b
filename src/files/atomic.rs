//! Files that are either the old ones or the new ones, whatever happens in between.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::mpsc::{self, SyncSender},
    thread,
};

use super::FileError;

/// Readable and writable as far as the user's umask allows.
const DEFAULT_MODE: u32 = 0o666;
const BUFFER: usize = 1 << 18;
/// Smaller files are synced once, at their end.
const AT_ONCE: usize = 32 << 20;

/// Writes a file by way of a temporary one in the same folder: write, sync, rename, sync of the folder.
/// A file that was there keeps its mode; a link stays a link, and what it leads to is replaced.
///
/// # Errors
/// [`FileError::Io`]; the file is then either as it was or complete, and the temporary one is gone.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), FileError> {
    write_atomic_by(path, |out| out.write_all(content))
}

/// As [`write_atomic`], for content that is made while it is written.
pub(crate) fn write_atomic_by(
    path: &Path,
    content: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = target.as_path();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = || {
        let mode = Permissions::from_mode(DEFAULT_MODE);
        tempfile::Builder::new().prefix(".npubench-").suffix(".tmp").permissions(mode).tempfile_in(folder)
    };
    let draft = attempt(draft).map_err(FileError::io("write into", folder))?;
    attempt(|| write_with_early_sync(draft.as_file(), content)).map_err(FileError::io("write", path))?;
    if let Ok(existing) = fs::metadata(path) {
        let set = || draft.as_file().set_permissions(existing.permissions());
        attempt(set).map_err(FileError::io("set the mode of", path))?;
    }
    attempt(|| draft.as_file().sync_all()).map_err(FileError::io("sync", path))?;
    let rename = || draft.persist(path).map_err(|error| error.error);
    attempt(rename).map_err(FileError::io("replace", path))?;
    sync_folder(folder)
}

/// Writes a file; of a large one the first bytes are on their way to the disk while the last are being made.
fn write_with_early_sync(
    file: &File,
    content: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    thread::scope(|scope| {
        let mut early = None;
        let mut start = || {
            let (sender, inbox) = mpsc::sync_channel(1);
            let sync = move || inbox.iter().try_for_each(|()| file.sync_data());
            early = Some(scope.spawn(sync));
            sender
        };
        let mut out = BufWriter::with_capacity(
            BUFFER,
            EarlySync { file, unsynced: 0, start: &mut start, sender: None },
        );
        let written = content(&mut out).and_then(|()| out.flush());
        drop(out);
        // The kernel tells an error of the disk once, so whoever hears it first must pass it on.
        let synced = early
            .map_or(Ok(()), |early| early.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        written.and(synced)
    })
}

/// Asks for a sync now and then, without waiting for it.
struct EarlySync<'a> {
    file: &'a File,
    unsynced: usize,
    start: &'a mut dyn FnMut() -> SyncSender<()>,
    sender: Option<SyncSender<()>>,
}

impl io::Write for EarlySync<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.unsynced += length;
        if self.unsynced >= AT_ONCE {
            self.unsynced = 0;
            // One that is still at it will be asked again.
            let _ = self.sender.get_or_insert_with(&mut self.start).try_send(());
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), FileError> {
    attempt(|| File::open(folder).and_then(|file| file.sync_all())).map_err(FileError::io("sync", folder))
}

/// One call to the system; tests can make it fail.
fn attempt<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(test)]
    faults::next()?;
    call()
}

#[cfg(test)]
pub(crate) mod faults {
    //! Makes the n-th call to the system fail, as a full disk does.

    use std::{cell::Cell, io};

    thread_local!(static LEFT: Cell<Option<u32>> = const { Cell::new(None) });

    /// Lets `calls` calls of this thread pass and fails the next.
    pub(crate) fn fail_after(calls: u32) {
        LEFT.set(Some(calls));
    }

    /// Ends the faults; says whether one happened.
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
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("is-a-folder");
        fs::create_dir(&path).expect("made");
        fs::write(path.join("inside"), "x").expect("written");
        let error = write_atomic(&path, b"new").expect_err("a folder cannot be replaced by a file");
        assert!(error.to_string().contains("is-a-folder"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }

    #[test]
    fn whichever_call_fails_the_file_is_the_old_or_the_new_one() {
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
            // Only the folder's sync comes behind the rename.
            let is_new = error.contains("cannot sync") && !error.contains("a.csv");
            assert_eq!(content, if is_new { &b"the new content"[..] } else { b"old" }, "{error}");
            assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "a draft is left: {error}");
        }
        assert_eq!(failures, 6, "draft, write, mode, sync, rename, sync of the folder");
    }

    #[test]
    fn large_files_are_written_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("large.csv");
        let piece: Vec<u8> = (0..=250).cycle().take(BUFFER + 7).collect();
        let pieces = 3 * AT_ONCE / piece.len();
        write_atomic_by(&path, |out| (0..pieces).try_for_each(|_| out.write_all(&piece))).expect("written");
        let written = fs::read(&path).expect("there");
        assert_eq!(written.len(), pieces * piece.len());
        assert!(written.chunks(piece.len()).all(|chunk| chunk == piece));
        let failed = write_atomic_by(&path, |out| {
            (0..pieces).try_for_each(|_| out.write_all(&piece))?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(failed.is_err());
        assert!(fs::read(&path).expect("there") == written, "the old one stays");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "a draft is left");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target.csv"), folder.path().join("link.csv"));
        fs::write(&target, "old").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        write_atomic(&link, b"new").expect("replaced");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read(&target).expect("read"), b"new");
    }
}
