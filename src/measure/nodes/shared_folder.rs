//! Connections of nodes by a folder that all of them see, without a listener. Messages are numbered files in the folder of
//! the session, which its user alone can read and write.
//!
//! A client of NFS shows changes of a folder up to 60 s late (nfs(5): acdirmax), and hosts may have other clocks: a node
//! lives if its file of heartbeats changes, by the reader's monotonic clock.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{
    MAX_NODES, NodeError,
    connection::{Channel, Closer, MAX_MESSAGE, MessageReader, MessageWriter, closed, invalid, silent},
};
use crate::base::{
    files::{named_entries, open_regular},
    shell_argument::quoted_path,
};

const ANNOUNCEMENT: &str = "npubench-sweep";
const SESSION: &str = "npubench-session-";
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// MAX of the time in which followers read the end of a sweep, before its folder is left to a later start.
const END_TIME: Duration = Duration::from_secs(15);
/// MAX of a heartbeat and of the name of a session.
const MAX_SMALL: u64 = 128;

static NEXT_BEAT: AtomicU64 = AtomicU64::new(1);

fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(invalid("it sent a message that is too long")) } else { Ok(bytes) }
}

fn read_beat(session: &Path, node: usize) -> Option<Vec<u8>> {
    read_limited(&session.join(format!("alive.{node}")), MAX_SMALL).ok()
}

/// Writes the next heartbeat. It is renamed into the folder, after which the client of NFS looks at the folder again
/// (unproven).
fn beat(session: &Path, node: usize) -> io::Result<()> {
    let number = NEXT_BEAT.fetch_add(1, Ordering::Relaxed);
    let text = format!("{}-{number}", std::process::id());
    put(&session.join(format!("alive.{node}")), &mut text.as_bytes())
}

/// Writes a file as a whole: a reader finds all of it or none. A link in its place is replaced.
fn put(path: &Path, content: &mut dyn Read) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    io::copy(content, &mut draft)?;
    draft.flush()?;
    // A client of NFS would else write it when it is closed, after the rename.
    draft.as_file().sync_all()?;
    draft.persist(path).map(drop).map_err(|error| error.error)
}

/// Messages from one node to another: files with the number of the message, and one with the count of all at the end.
#[derive(Clone, Debug)]
struct Direction {
    session: PathBuf,
    from: usize,
    to: usize,
}

impl Direction {
    fn path(&self, rest: &str) -> PathBuf {
        self.session.join(format!("{}-{}.{rest}", self.from, self.to))
    }

    fn message(&self, number: u64) -> PathBuf {
        self.path(&format!("{number}.json"))
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path(&format!("{number}.tar.gz"))
    }

    fn end(&self) -> PathBuf {
        self.path("end")
    }
}

/// What closes the own side of a connection.
#[derive(Clone, Debug)]
pub(super) struct FolderEnd {
    direction: Direction,
    sent: Arc<AtomicU64>,
    is_closed: Arc<AtomicBool>,
}

impl FolderEnd {
    pub(super) fn close(&self) {
        if !self.is_closed.swap(true, Ordering::SeqCst) {
            let count = self.sent.load(Ordering::SeqCst).to_string();
            let _ = put(&self.direction.end(), &mut count.as_bytes());
        }
    }
}

#[derive(Debug)]
struct FolderWriter(FolderEnd);

impl MessageWriter for FolderWriter {
    fn write(&mut self, message: &[u8], file: Option<(File, u64)>) -> io::Result<()> {
        let FolderEnd { direction, sent, is_closed } = &self.0;
        if is_closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        let number = sent.load(Ordering::SeqCst);
        if let Some((file, size)) = file {
            put(&direction.file(number), &mut file.take(size))?;
        }
        put(&direction.message(number), &mut &*message)?;
        sent.store(number + 1, Ordering::SeqCst);
        Ok(())
    }

    fn beat(&mut self) -> io::Result<()> {
        if self.0.is_closed.load(Ordering::SeqCst) {
            Err(closed())
        } else {
            beat(&self.0.direction.session, self.0.direction.from)
        }
    }
}

#[derive(Debug)]
struct FolderReader {
    direction: Direction,
    next: u64,
    /// Set when the own side is closed.
    is_closed: Arc<AtomicBool>,
    last_beat: Option<Vec<u8>>,
    seen: Instant,
    timeout: Duration,
}

impl MessageReader for FolderReader {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        (self.timeout, self.seen) = (timeout, Instant::now());
        Ok(())
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut beats = 0;
        loop {
            let path = self.direction.message(self.next);
            match read_limited(&path, MAX_MESSAGE) {
                Ok(message) => {
                    let _ = fs::remove_file(path);
                    (self.next, self.seen) = (self.next + 1, Instant::now());
                    return Ok(message);
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                // Also a stale handle, which a later attempt does not find any more.
                Err(_) => {}
            }
            let end = read_limited(&self.direction.end(), MAX_SMALL).ok();
            let count = end.and_then(|text| String::from_utf8(text).ok()?.parse::<u64>().ok());
            if self.is_closed.load(Ordering::SeqCst) || count.is_some_and(|count| count <= self.next) {
                return Err(closed());
            }
            beats += 1;
            if beats % 10 == 0
                && let Some(beat) = read_beat(&self.direction.session, self.direction.from)
                && self.last_beat.as_ref() != Some(&beat)
            {
                (self.last_beat, self.seen) = (Some(beat), Instant::now());
            }
            if self.seen.elapsed() >= self.timeout {
                // Nothing waits for the end of a lost node.
                let _ = put(&self.direction.end(), &mut &b"0"[..]);
                return Err(silent());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn read_file(&mut self, size: u64, target: &mut File) -> io::Result<()> {
        let path = self.direction.file(self.next.saturating_sub(1));
        let copied = io::copy(&mut open_regular(&path)?.take(size), target)?;
        let _ = fs::remove_file(path);
        if copied < size { Err(closed()) } else { Ok(()) }
    }
}

fn channel(session: &Path, own: usize, other: usize) -> Channel {
    let direction = |from, to| Direction { session: session.to_owned(), from, to };
    let is_closed = Arc::new(AtomicBool::new(false));
    let end = FolderEnd {
        direction: direction(own, other),
        sent: Arc::default(),
        is_closed: Arc::clone(&is_closed),
    };
    let reader = FolderReader {
        direction: direction(other, own),
        next: 0,
        is_closed,
        last_beat: None,
        seen: Instant::now(),
        timeout: super::SHARED_TIMEOUT,
    };
    Channel {
        writer: Box::new(FolderWriter(end.clone())),
        reader: Box::new(reader),
        closer: Closer::Folder(end),
    }
}

/// Returns the owner of files of this process in a folder: a server of NFS may have another one than the system. Fails if all
/// users can write into the folder, or this one cannot.
fn check_folder(folder: &Path) -> Result<u32, NodeError> {
    let refused = |problem: &str| {
        NodeError::refused(
            format!("`--shared {}`: {problem}", folder.display()),
            format!(
                "make one on a disk that all nodes see, with `mkdir -m 700 {}`, and give it on all nodes",
                quoted_path(&folder.join("npubench-nodes"))
            ),
        )
    };
    let found =
        fs::metadata(folder).map_err(|error| refused(&format!("the folder cannot be read: {error}")))?;
    if !found.is_dir() {
        return Err(refused("it is no folder"));
    }
    if found.permissions().mode() & 0o002 != 0 {
        return Err(refused(
            "every user can write into this folder, so that a stranger could take part in the sweep",
        ));
    }
    let probe = tempfile::NamedTempFile::new_in(folder).and_then(|probe| probe.as_file().metadata());
    Ok(probe.map_err(|error| refused(&format!("this user cannot write into the folder: {error}")))?.uid())
}

/// The session of node 0. Dropping it waits until the followers have read its end, and removes its folder.
#[derive(Debug)]
pub(crate) struct SharedSession {
    folder: Option<TempDir>,
    announcement: PathBuf,
    is_over: Arc<AtomicBool>,
    joined: BTreeMap<usize, Direction>,
}

fn sessions(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    named_entries(folder, SESSION, "").into_iter().map(|path| (path.clone(), read_beat(&path, 0))).collect()
}

fn is_session(path: &Path, owner: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == owner && found.permissions().mode() & 0o022 == 0)
}

impl SharedSession {
    pub(super) fn open(folder: &Path) -> Result<Self, NodeError> {
        let owner = check_folder(folder)?;
        let earlier = sessions(folder);
        let make = || -> io::Result<Self> {
            let mode = fs::Permissions::from_mode(0o700);
            let session = tempfile::Builder::new()
                .prefix(SESSION)
                .rand_bytes(16)
                .permissions(mode)
                .tempdir_in(folder)?;
            let name = session.path().file_name().unwrap_or_default().to_owned();
            beat(session.path(), 0)?;
            let announcement = folder.join(ANNOUNCEMENT);
            put(&announcement, &mut name.as_encoded_bytes())?;
            let (is_over, path) = (Arc::new(AtomicBool::new(false)), session.path().to_owned());
            let shared = Arc::clone(&is_over);
            let start = Instant::now();
            let live = move || {
                let mut earlier = earlier;
                while !shared.load(Ordering::SeqCst) && beat(&path, 0).is_ok() {
                    // Sessions of killed processes; the heartbeats of live ones have changed meanwhile.
                    if start.elapsed() >= super::SHARED_TIMEOUT {
                        for (path, seen) in std::mem::take(&mut earlier) {
                            if read_beat(&path, 0) == seen && is_session(&path, owner) {
                                let _ = fs::remove_dir_all(path);
                            }
                        }
                    }
                    thread::sleep(BEAT_INTERVAL);
                }
            };
            thread::Builder::new().name("session".to_owned()).spawn(live)?;
            Ok(Self { folder: Some(session), announcement, is_over, joined: BTreeMap::new() })
        };
        make().map_err(|error| {
            let problem = format!("no session can be made in `{}`: {error}", folder.display());
            NodeError::of_host(problem, "check the free space of its file system")
        })
    }

    /// Returns the connection of a follower that has joined since, if there is one.
    pub(super) fn accept(&mut self, nodes: usize) -> Option<Channel> {
        let session = self.folder.as_ref()?.path();
        let first = |node: usize| Direction { session: session.to_owned(), from: node, to: 0 };
        let node =
            (1..nodes).find(|node| !self.joined.contains_key(node) && first(*node).message(0).exists())?;
        let joined = channel(session, 0, node);
        self.joined.insert(node, first(node));
        Some(joined)
    }
}

impl Drop for SharedSession {
    fn drop(&mut self) {
        let Some(session) = self.folder.take() else { return };
        let name = session.path().file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        if read_limited(&self.announcement, MAX_SMALL).is_ok_and(|announced| announced == name) {
            let _ = fs::remove_file(&self.announcement);
        }
        let deadline = Instant::now() + END_TIME;
        let is_read = || self.joined.values().all(|direction| direction.end().exists());
        while !is_read() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        self.is_over.store(true, Ordering::SeqCst);
        if !is_read() {
            let _ = session.keep();
        }
    }
}

/// Joins the session that node 0 has announced, once its heartbeat has changed: the session of a killed one never does.
pub(super) fn join(folder: &Path, node: usize, timeout: Duration) -> Result<Channel, NodeError> {
    let owner = check_folder(folder)?;
    let deadline = Instant::now() + timeout;
    let mut seen: Option<(PathBuf, Option<Vec<u8>>)> = None;
    loop {
        let name = read_limited(&folder.join(ANNOUNCEMENT), MAX_SMALL).ok();
        let name = name.and_then(|name| String::from_utf8(name).ok()).filter(|name| {
            let rest = name.strip_prefix(SESSION);
            rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        });
        let session = name.map(|name| folder.join(name)).filter(|session| is_session(session, owner));
        if let Some(session) = session {
            let beat = read_beat(&session, 0);
            match &seen {
                Some((known, first)) if *known == session && *first != beat => {
                    break take_place(&session, node);
                }
                Some((known, _)) if *known == session => {}
                _ => seen = Some((session, beat)),
            }
        }
        if Instant::now() >= deadline {
            let found = match seen {
                Some(_) => "the session there is of a node 0 that has ended",
                None => "no session of this user is there",
            };
            return Err(NodeError::of_host(
                format!(
                    "node 0 did not begin a sweep in `{}` within {} s: {found}",
                    folder.display(),
                    timeout.as_secs()
                ),
                "start the same command with `--node-rank 0` and the same folder, which all nodes must see; `--node-timeout` gives \
                 the time to wait",
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn take_place(session: &Path, node: usize) -> Result<Channel, NodeError> {
    let claim = File::options()
        .write(true)
        .create_new(true)
        .open(session.join(format!("claim.{}", node.min(MAX_NODES))));
    match claim {
        Ok(_) => Ok(channel(session, node, 0)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(NodeError::refused(
            format!("another process is node {node} of this sweep already"),
            "give each node its own `--node-rank`; under `srun`, start one task on each node",
        )),
        Err(error) => Err(NodeError::of_host(
            format!("this user cannot write into `{}`: {error}", session.display()),
            "start all nodes as the same user",
        )),
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
        let live = SharedSession::open(folder.path()).expect("a session");
        let joined = join(folder.path(), 1, Duration::from_secs(20)).expect("joined");
        let twice = join(folder.path(), 1, Duration::from_secs(20)).expect_err("taken").to_string();
        assert!(twice.contains("another process is node 1"), "{twice}");
        drop((joined, live, stale));
    }

    #[test]
    fn folders_of_all_users_and_links_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |path: &Path| SharedSession::open(path).map(drop).expect_err("refused").to_string();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
        assert!(open(folder.path()).contains("every user can write"));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("set");
        assert!(open(&folder.path().join("missing")).contains("cannot be read"));
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
