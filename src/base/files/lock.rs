//! Lock of a database folder: one writer, whose process is named in the lock file.

use std::{
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process,
    str::FromStr,
    thread,
    time::Duration,
};

use nix::{errno::Errno, fcntl::OFlag};

use super::{FileError, error::is_refused_write, open_regular};

const LOCK: &str = "lock";
const IGNORE: &str = ".gitignore";
const TRIES: u32 = 3;
const STEP: Duration = Duration::from_millis(20);

/// Lock of `.npubench/lock` until dropped. The system releases it at the end of the process, also of a killed one.
///
/// A lock that created `.npubench` removes it again, unless [`FolderLock::keep_state`] was called: a failed command
/// leaves no file.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
    created: Option<PathBuf>,
}

impl FolderLock {
    /// Locks a database folder and creates a missing state folder. Fails with [`FileError::Locked`] with the owner, or
    /// [`FileError::Io`] if the folder is not writable.
    pub(crate) fn take(database: &Path, state: &Path) -> Result<Self, FileError> {
        // Rows are written at the end of a command; an unwritable folder is found before its work.
        tempfile::tempfile_in(database).map_err(FileError::io("write into", database))?;
        let created = match fs::create_dir(state) {
            Ok(()) => Some(state.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(FileError::io("create", state)(error)),
        };
        let path = state.join(LOCK);
        let mut file =
            open_options(true).create(true).truncate(false).open(&path).map_err(open_error(&path))?;
        lock_file(&mut file, database, &path, File::try_lock)?;
        write_owner(&mut file).and_then(|()| ignore_state(state)).map_err(FileError::io("write", &path))?;
        Ok(Self { _file: file, created })
    }

    /// Locks a database folder for a command that changes no result, also one that is not writable; `None` if no command has ever
    /// locked it. Fails with [`FileError::Locked`] with the owner.
    pub(crate) fn take_for_reading(database: &Path, state: &Path) -> Result<Option<Self>, FileError> {
        let path = state.join(LOCK);
        let mut opened = open_options(true).open(&path);
        let is_writable = !opened.as_ref().is_err_and(is_refused_write);
        if !is_writable {
            opened = open_options(false).open(&path);
        }
        let mut file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(open_error(&path))?,
        };
        // Network file systems have no exclusive lock of a file that is open for reading.
        let try_lock = if is_writable { File::try_lock } else { File::try_lock_shared };
        lock_file(&mut file, database, &path, try_lock)?;
        if is_writable {
            write_owner(&mut file).map_err(FileError::io("write", &path))?;
        }
        Ok(Some(Self { _file: file, created: None }))
    }

    pub fn keep_state(&mut self) {
        self.created = None;
    }
}

fn open_options(is_written: bool) -> OpenOptions {
    let mut options = File::options();
    // A link in a folder from somebody else would lead the write of the owner to any file of the user.
    options.read(true).write(is_written).custom_flags(OFlag::O_NOFOLLOW.bits());
    options
}

fn open_error(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP) => FileError::Link { path: path.to_owned() },
        _ => FileError::io("open", path)(source),
    }
}

/// Locks an open lock file with `try_lock`. A reader of the lock's state holds it for an instant, too.
fn lock_file(
    file: &mut File,
    database: &Path,
    path: &Path,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> Result<(), FileError> {
    let mut locked = try_lock(file);
    for _ in 1..TRIES {
        if matches!(locked, Err(TryLockError::WouldBlock)) {
            thread::sleep(STEP);
            locked = try_lock(file);
        }
    }
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            let owner = match owner.trim() {
                // The file has the owner of the last writer: a reader without the permission to write leaves it.
                _ if file.try_lock_shared().is_ok() => "a command of another user that only reads",
                "" => "another npubench",
                owner => owner,
            };
            Err(FileError::Locked { path: database.to_owned(), owner: owner.to_owned() })
        }
        Err(TryLockError::Error(source)) => Err(FileError::io("lock", path)(source)),
    }
}

fn write_owner(file: &mut File) -> io::Result<()> {
    let owner = format!("{}\n", LockOwner::this_process());
    file.set_len(0)?;
    file.write_all(owner.as_bytes())
}

/// Excludes a state folder from version control.
pub(crate) fn ignore_state(state: &Path) -> io::Result<()> {
    match File::create_new(state.join(IGNORE)) {
        Ok(mut file) => file.write_all(b"*\n"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Process that has, or had, a database's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOwner {
    pub process: u32,
    pub host: String,
}

impl LockOwner {
    pub fn this_process() -> Self {
        let host = nix::unistd::gethostname().unwrap_or_default();
        Self { process: process::id(), host: host.to_string_lossy().into_owned() }
    }
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "npubench, process {} on {}", self.process, self.host)
    }
}

impl FromStr for LockOwner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.trim().strip_prefix("npubench, process ").and_then(|rest| rest.split_once(" on "));
        let owner = parts
            .and_then(|(process, host)| Some(Self { process: process.parse().ok()?, host: host.to_owned() }));
        owner.ok_or_else(|| format!("`{}` names no process", text.trim()))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    /// True if a process holds the lock, as far as this host can detect. Some network file systems report only
    /// processes of the same host.
    pub is_held: bool,
    /// Process that locked it last.
    pub owner: Option<LockOwner>,
}

impl LockState {
    pub(crate) fn read_state(state: &Path) -> Self {
        let Ok(mut file) = open_regular(&state.join(LOCK)) else { return Self::default() };
        let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let _ = file.unlock();
        let mut text = String::new();
        let _ = file.read_to_string(&mut text);
        Self { is_held, owner: text.parse().ok() }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        if let Some(state) = &self.created {
            let _ = fs::remove_file(state.join(IGNORE));
            let _ = fs::remove_file(state.join(LOCK));
            // A folder with other files is kept.
            let _ = fs::remove_dir(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_state_shows_owner_without_locking() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        assert_eq!(LockState::read_state(&state), LockState::default());
        let mut lock = FolderLock::take(folder.path(), &state).expect("free");
        lock.keep_state();
        let us = LockOwner::this_process();
        assert_eq!(LockState::read_state(&state), LockState { is_held: true, owner: Some(us.clone()) });
        assert!(matches!(FolderLock::take(folder.path(), &state), Err(FileError::Locked { .. })));
        drop(lock);
        assert_eq!(LockState::read_state(&state), LockState { is_held: false, owner: Some(us) });
        FolderLock::take(folder.path(), &state).expect("looking holds nothing");
    }

    #[test]
    fn commands_that_write_nothing_exclude_writers_and_create_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let take_for_reading = || FolderLock::take_for_reading(folder.path(), &state);
        assert!(take_for_reading().expect("no lock").is_none() && !state.exists());
        let mut writer = FolderLock::take(folder.path(), &state).expect("free");
        writer.keep_state();
        assert!(matches!(take_for_reading(), Err(FileError::Locked { .. })));
        drop(writer);
        let reader = take_for_reading().expect("free").expect("a lock");
        assert!(matches!(FolderLock::take(folder.path(), &state), Err(FileError::Locked { .. })));
        drop(reader);
        FolderLock::take(folder.path(), &state).expect("free");
    }

    #[test]
    fn lock_waits_for_reader_of_its_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        fs::create_dir(&state).expect("created");
        let looked_at = File::create(state.join(LOCK)).expect("created");
        looked_at.lock_shared().expect("free");
        let look = thread::spawn(move || {
            thread::sleep(STEP / 2);
            drop(looked_at);
        });
        FolderLock::take(folder.path(), &state).expect("the look is over soon");
        look.join().expect("no panic");
    }

    #[test]
    fn lock_file_that_is_a_link_is_refused_and_its_target_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        fs::create_dir(&state).expect("created");
        let target = folder.path().join("mine.txt");
        fs::write(&target, "precious").expect("written");
        for name in [LOCK, IGNORE] {
            std::os::unix::fs::symlink(&target, state.join(name)).expect("linked");
        }
        let error = FolderLock::take(folder.path(), &state).expect_err("a link");
        assert!(matches!(error, FileError::Link { .. }), "{error}");
        fs::remove_file(state.join(LOCK)).expect("removed");
        FolderLock::take(folder.path(), &state).expect("free");
        assert_eq!(fs::read_to_string(target).expect("read"), "precious");
    }
}
