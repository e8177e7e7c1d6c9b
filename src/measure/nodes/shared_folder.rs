//! Nodes that meet in a folder, without a listener. A session is a folder for its user alone, with a file for each direction
//! between node 0 and a follower: its node appends, the other one reads what is new.
//!
//! A file that is opened again shows what was written before, also by NFS (nfs(5), close-to-open), while its new names may
//! be hidden for 60 s (acdirmax). Clocks of hosts are not compared: node 0 lives while its announcement becomes longer.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read, Seek as _, SeekFrom, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::fcntl::OFlag;
use tempfile::{NamedTempFile, TempDir};

use super::{
    NodeError,
    connection::{NodeCloser, NodeInput, NodeStreams},
};
use crate::base::{
    files::{entries, named_entries, open_regular},
    shell_argument::quoted_path,
};

/// Name of the session, and a byte for each heartbeat of node 0.
const ANNOUNCEMENT: &str = "npubench-sweep";
const SESSION: &str = "npubench-session-";
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// MIN of the time without a heartbeat after which a session is of a killed node 0.
const STALE_AFTER: Duration = Duration::from_secs(10);
/// Age of the newest file of a session after which it is removed. Live nodes write heartbeats every few seconds.
const REMOVED_AFTER: Duration = Duration::from_secs(3600);
/// MAX of the time in which followers read the end of a sweep.
const END_TIME: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// MAX of a write: each arrives before the next one begins, so that no reader finds a gap.
const MAX_WRITE: usize = 32 << 10;

/// What ends a direction stands beside it.
fn end_of(path: &Path) -> PathBuf {
    path.with_added_extension("end")
}

#[derive(Debug)]
struct FolderInput {
    path: PathBuf,
    position: u64,
    timeout: Duration,
    is_closed: Arc<AtomicBool>,
}

impl Read for FolderInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if self.is_closed.load(Ordering::SeqCst) {
                return Ok(0);
            }
            let has_ended = end_of(&self.path).exists();
            let mut file = match open_regular(&self.path) {
                // Node 0 has removed the session.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                opened => opened?,
            };
            file.seek(SeekFrom::Start(self.position))?;
            let length = file.read(bytes)?;
            self.position += length as u64;
            if length > 0 || has_ended {
                return Ok(length);
            }
            if Instant::now() >= deadline {
                // Nothing waits for the end of a lost node.
                let _ = File::create(end_of(&self.path));
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl NodeInput for FolderInput {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.timeout = timeout;
        Ok(())
    }
}

#[derive(Debug)]
struct FolderOutput {
    file: File,
    is_closed: Arc<AtomicBool>,
}

impl Write for FolderOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_closed.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => self.file.write(&bytes[..bytes.len().min(MAX_WRITE)]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct FolderCloser {
    output: PathBuf,
    is_closed: Arc<AtomicBool>,
}

impl NodeCloser for FolderCloser {
    fn close(&self) {
        if !self.is_closed.swap(true, Ordering::SeqCst) {
            let _ = File::create(end_of(&self.output));
        }
    }
}

fn append(path: &Path, is_new: bool) -> io::Result<File> {
    let sync = (OFlag::O_SYNC | OFlag::O_NOFOLLOW).bits();
    File::options().append(true).create_new(is_new).custom_flags(sync).open(path)
}

/// Opens the files of node 0 and a follower; the follower makes them, which fails if they are there.
fn streams(session: &Path, own: usize, other: usize) -> io::Result<NodeStreams> {
    let path = |from: usize, to: usize| session.join(format!("{from}-{to}"));
    let (output, input) = (path(own, other), path(other, own));
    if own > 0 {
        append(&input, true)?;
    }
    let (file, is_closed) = (append(&output, own > 0)?, Arc::new(AtomicBool::new(false)));
    let (of_output, of_input) = (Arc::clone(&is_closed), Arc::clone(&is_closed));
    let timeout = super::SHARED_TIMEOUT;
    Ok((
        Box::new(FolderInput { path: input, position: 0, timeout, is_closed: of_input }),
        Box::new(FolderOutput { file, is_closed: of_output }),
        Box::new(FolderCloser { output, is_closed }),
    ))
}

/// Name of the announced session and length of the announcement; `None` if the session is not one of this user, whose
/// files have this owner.
fn announced(folder: &Path, owner: u32) -> Option<(PathBuf, u64)> {
    let file = open_regular(&folder.join(ANNOUNCEMENT)).ok()?;
    let (length, mut text) = (file.metadata().ok()?.len(), String::new());
    file.take(128).read_to_string(&mut text).ok()?;
    let name = text.lines().next()?;
    let random = name.strip_prefix(SESSION)?;
    let session = folder.join(name);
    let found = fs::symlink_metadata(&session).ok()?;
    let is_own = found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0;
    let is_name = !random.is_empty() && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_own && is_name).then_some((session, length))
}

/// Returns the owner of the files of this process, which a server of NFS may set. Fails if every user, or not this one, can
/// write into the folder.
fn check_folder(folder: &Path) -> Result<u32, NodeError> {
    let refused = |problem: &str| {
        let new = quoted_path(&folder.join("nodes"));
        NodeError::refused(
            format!("`--shared {}`: {problem}", folder.display()),
            format!("give a folder that all nodes see, made with `mkdir -m 700`, such as {new}"),
        )
    };
    let read = |error: io::Error| refused(&format!("this user cannot write into it: {error}"));
    let probe = NamedTempFile::new_in(folder).map_err(read)?;
    match fs::metadata(folder).map_err(read)?.mode() & 0o002 {
        0 => Ok(probe.as_file().metadata().map_err(read)?.uid()),
        _ => Err(refused("every user can write into it, so that a stranger could disturb the sweep")),
    }
}

/// Removes sessions of this user in which nothing was written for long, by the clock of the file server.
fn remove_stale(folder: &Path, owner: u32) {
    let time = |path: &Path| fs::symlink_metadata(path).and_then(|found| found.modified());
    let Ok(now) = NamedTempFile::new_in(folder).and_then(|probe| time(probe.path())) else { return };
    for session in named_entries(folder, SESSION, "").unwrap_or_default() {
        let is_own = fs::symlink_metadata(&session).is_ok_and(|found| found.is_dir() && found.uid() == owner);
        let files = entries(&session).unwrap_or_default();
        let newest = files.iter().chain([&session]).filter_map(|path| time(path).ok()).max();
        let age = newest.and_then(|newest| now.duration_since(newest).ok());
        if is_own && age.is_some_and(|age| age > REMOVED_AFTER) {
            let _ = fs::remove_dir_all(session);
        }
    }
}

/// The session of node 0.
#[derive(Debug)]
pub(crate) struct SharedSession {
    folder: Option<TempDir>,
    announcement: PathBuf,
    is_over: Arc<AtomicBool>,
    joined: Vec<PathBuf>,
}

impl SharedSession {
    pub(super) fn open(folder: &Path) -> Result<Self, NodeError> {
        let owner = check_folder(folder)?;
        if let Some(known) = announced(folder, owner) {
            thread::sleep(STALE_AFTER);
            if announced(folder, owner).is_some_and(|seen| seen != known) {
                return Err(NodeError::refused(
                    format!("another sweep uses `{}`", folder.display()),
                    "wait for its end, or give another folder with `--shared`",
                ));
            }
        }
        remove_stale(folder, owner);
        Self::announce(folder).map_err(|error| {
            let problem = format!("no session can be made in `{}`: {error}", folder.display());
            NodeError::of_host(problem, "check the free space of its file system")
        })
    }

    fn announce(folder: &Path) -> io::Result<Self> {
        let mode = fs::Permissions::from_mode(0o700);
        let session =
            tempfile::Builder::new().prefix(SESSION).rand_bytes(16).permissions(mode).tempdir_in(folder)?;
        let announcement = folder.join(ANNOUNCEMENT);
        // A link in its place is replaced.
        let mut draft = NamedTempFile::new_in(folder)?;
        writeln!(draft, "{}", session.path().file_name().and_then(OsStr::to_str).unwrap_or_default())?;
        draft.as_file().sync_all()?;
        draft.persist(&announcement)?;
        let (mut beats, is_over) = (append(&announcement, false)?, Arc::new(AtomicBool::new(false)));
        let shared = Arc::clone(&is_over);
        let beat = move || {
            while !shared.load(Ordering::SeqCst) {
                // A disk that is full for a while does not end the session.
                let _ = beats.write_all(b".");
                thread::sleep(BEAT_INTERVAL);
            }
        };
        thread::Builder::new().name("session".to_owned()).spawn(beat)?;
        Ok(Self { folder: Some(session), announcement, is_over, joined: Vec::new() })
    }

    /// Returns the streams of a follower that has joined since, if there is one.
    pub(super) fn accept(&mut self, nodes: usize) -> io::Result<Option<NodeStreams>> {
        let Some(session) = &self.folder else { return Ok(None) };
        let file = |node: usize| session.path().join(format!("{node}-0"));
        let mut new = (1..nodes).filter(|node| !self.joined.contains(&file(*node)) && file(*node).exists());
        let Some(node) = new.next() else { return Ok(None) };
        let streams = streams(session.path(), 0, node)?;
        self.joined.push(file(node));
        Ok(Some(streams))
    }
}

impl Drop for SharedSession {
    /// Waits until the followers have read the end of the sweep, and removes the session; a later start removes the others.
    fn drop(&mut self) {
        let deadline = Instant::now() + END_TIME;
        let is_read = || self.joined.iter().all(|path| end_of(path).exists());
        while !is_read() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        self.is_over.store(true, Ordering::SeqCst);
        if is_read() {
            let _ = fs::remove_file(&self.announcement);
        } else if let Some(session) = self.folder.take() {
            let _ = session.keep();
        }
    }
}

/// Joins the session that node 0 has announced, once its announcement has become longer.
pub(super) fn join(folder: &Path, node: usize, timeout: Duration) -> Result<NodeStreams, NodeError> {
    let owner = check_folder(folder)?;
    let deadline = Instant::now() + timeout;
    let (mut first, mut found) = (None, "no session of this user is there");
    loop {
        let now = announced(folder, owner);
        match (&first, now) {
            (Some((known, length)), Some((session, now))) if *known == session && *length != now => {
                return streams(&session, node, 0).map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => NodeError::refused(
                        format!("another process is node {node} of this sweep"),
                        "give each node its own `--node-rank`; under `srun`, start one task on each node",
                    ),
                    _ => NodeError::of_host(
                        format!("this user cannot write into `{}`: {error}", session.display()),
                        "start all nodes as the same user",
                    ),
                });
            }
            (Some(known), Some(now)) if known.0 == now.0 => {}
            (_, now) => {
                if now.is_some() {
                    found = "the session there is of a node 0 that has ended";
                }
                first = now;
            }
        }
        if Instant::now() >= deadline {
            let (folder, seconds) = (folder.display(), timeout.as_secs());
            return Err(NodeError::of_host(
                format!("node 0 did not begin a sweep in `{folder}` within {seconds} s: {found}"),
                "start the same command with `--node-rank 0` and the same folder; `--node-timeout` gives the time to wait",
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_live_session_of_this_user_is_joined() {
        let folder = tempfile::tempdir().expect("a folder");
        let short = Duration::from_millis(300);
        let problem = || join(folder.path(), 1, short).expect_err("no session").to_string();
        assert!(problem().contains("no session of this user is there"));
        // Of a node 0 that was killed.
        let stale = SharedSession::open(folder.path()).expect("a session");
        stale.is_over.store(true, Ordering::SeqCst);
        thread::sleep(2 * BEAT_INTERVAL);
        assert!(problem().contains("of a node 0 that has ended"));
        let target = folder.path().join("target");
        fs::create_dir(&target).expect("created");
        std::os::unix::fs::symlink(&target, folder.path().join(format!("{SESSION}link"))).expect("linked");
        for name in
            ["../x", "npubench-session-../x", "npubench-session-link", "", "\u{1b}", "npubench-session-"]
        {
            fs::write(folder.path().join(ANNOUNCEMENT), name).expect("written");
            assert!(problem().contains("no session of this user"), "{name}");
        }
        let live = SharedSession::announce(folder.path()).expect("a session");
        let joined = join(folder.path(), 1, Duration::from_secs(20)).expect("joined");
        let twice = join(folder.path(), 1, Duration::from_secs(20)).expect_err("taken").to_string();
        assert!(twice.contains("another process is node 1 of this sweep"), "{twice}");
        drop((joined, live, stale));
    }

    #[test]
    fn folders_of_all_users_and_links_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |path: &Path| SharedSession::open(path).map(drop).expect_err("refused").to_string();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
        assert!(open(folder.path()).contains("every user can write"));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("set");
        assert!(open(&folder.path().join("missing")).contains("cannot write into it"));
        let own = folder.path().join("own");
        fs::write(&own, "text").expect("written");
        std::os::unix::fs::symlink(&own, folder.path().join(ANNOUNCEMENT)).expect("linked");
        drop(SharedSession::open(folder.path()).expect("a session"));
        assert_eq!(
            fs::read_to_string(&own).expect("read"),
            "text",
            "the target of a planted link is unchanged"
        );
    }
}
