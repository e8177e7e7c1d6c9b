//! A connection to another node, by a shared folder or by a stream that is sealed with a secret.

use std::{
    fmt::Debug,
    fs::File,
    io,
    net::{Shutdown, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    NodeError, UNEXPECTED,
    message::{NodeMessage, PartResult},
};
use crate::base::files::disk_space::free_bytes;

pub(super) const MAX_MESSAGE: u64 = 4 << 20;
/// MAX of an archive of evidence: a third of the space that a run keeps free for a collection (`disk_limits`), most of which
/// are the profiler's binary data, which are not sent.
const MAX_FILE: u64 = 1 << 30;
/// MIN of the free space beside a received file.
const FREE_SPACE: u64 = 16 << 20;
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// A message with the size of the file that follows it.
#[derive(Serialize, Deserialize)]
struct Envelope<M> {
    message: M,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<u64>,
}

pub(super) trait MessageWriter: Debug + Send {
    /// Writes a message and the file of the stated size that follows it.
    fn write(&mut self, message: &[u8], file: Option<(File, u64)>) -> io::Result<()>;
    fn beat(&mut self) -> io::Result<()>;
}

pub(super) trait MessageReader: Debug + Send {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()>;
    /// Returns the next message, of at most [`MAX_MESSAGE`] bytes. Fails if the connection is closed, or without a sign of
    /// life within the timeout.
    fn read(&mut self) -> io::Result<Vec<u8>>;
    /// Writes the file that follows the last message.
    fn read_file(&mut self, size: u64, target: &mut File) -> io::Result<()>;
}

/// Closes a connection while another thread may use it.
#[derive(Debug)]
pub(super) enum Closer {
    Stream(TcpStream),
    Folder(super::shared_folder::FolderEnd),
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) writer: Box<dyn MessageWriter>,
    pub(super) reader: Box<dyn MessageReader>,
    pub(super) closer: Closer,
}

#[derive(Debug)]
pub(crate) struct NodeSender {
    writer: Mutex<Box<dyn MessageWriter>>,
    closer: Closer,
}

#[derive(Debug)]
pub(super) struct NodeReceiver {
    reader: Box<dyn MessageReader>,
    /// Folder for the evidence of parts; `None` in a follower, which gets no files.
    folder: Option<PathBuf>,
}

static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

impl Channel {
    pub(super) fn split(self, folder: Option<&Path>) -> (Arc<NodeSender>, NodeReceiver) {
        let Self { writer, reader, closer } = self;
        let sender = NodeSender { writer: Mutex::new(writer), closer };
        (Arc::new(sender), NodeReceiver { reader, folder: folder.map(Path::to_owned) })
    }
}

impl NodeSender {
    pub(super) fn send(&self, message: &NodeMessage) -> io::Result<()> {
        self.send_with(message, None)
    }

    fn send_with(&self, message: &NodeMessage, file: Option<&Path>) -> io::Result<()> {
        let file = file.map(|path| -> io::Result<(File, u64)> {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        });
        let file = file.transpose()?;
        let text = serde_json::to_vec(&Envelope { message, file: file.as_ref().map(|(_, size)| *size) })?;
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write(&text, file)
    }

    /// Sends a result with its archive. A failure is noticed by the thread that receives.
    pub(crate) fn send_result(&self, result: PartResult, archive: Option<&Path>) {
        if self.send_with(&NodeMessage::Ended(result), archive).is_err() {
            self.close();
        }
    }

    pub(crate) fn request_stop(&self) {
        let _ = self.send(&NodeMessage::StopRequested);
    }

    pub(crate) fn refuse(&self, error: NodeError) {
        let _ = self.send(&NodeMessage::Refused(error));
        self.close();
    }

    pub(super) fn start_heartbeats(self: &Arc<Self>, interval: Duration) -> io::Result<()> {
        let sender = Arc::downgrade(self);
        let send = move || {
            let beat =
                |sender: Arc<Self>| sender.writer.lock().unwrap_or_else(PoisonError::into_inner).beat();
            while sender.upgrade().is_some_and(|sender| beat(sender).is_ok()) {
                thread::sleep(interval);
            }
        };
        thread::Builder::new().name("heartbeats".to_owned()).spawn(send).map(drop)
    }

    pub(super) fn close(&self) {
        match &self.closer {
            Closer::Stream(stream) => drop(stream.shutdown(Shutdown::Both)),
            Closer::Folder(end) => end.close(),
        }
    }
}

impl NodeReceiver {
    pub(super) fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.reader.set_timeout(timeout)
    }

    /// Returns the next message other than a heartbeat, with the file that follows it. Fails if the connection is closed,
    /// nothing arrives within the timeout, or a message has another form.
    pub(super) fn receive(&mut self) -> io::Result<(NodeMessage, Option<PathBuf>)> {
        loop {
            let Envelope { message, file } =
                serde_json::from_slice::<Envelope<NodeMessage>>(&self.reader.read()?)
                    .map_err(|_| invalid("it sent what is no message of this version of npubench"))?;
            let message = message.checked().ok_or_else(|| invalid("it sent a message with a wrong value"))?;
            let file = match (&message, file, self.folder.clone()) {
                (_, None, _) => None,
                (NodeMessage::Ended(_), Some(size), Some(folder)) => Some(self.receive_file(size, &folder)?),
                _ => return Err(invalid(UNEXPECTED)),
            };
            if message != NodeMessage::Heartbeat {
                return Ok((message, file));
            }
        }
    }

    fn receive_file(&mut self, size: u64, folder: &Path) -> io::Result<PathBuf> {
        let free = free_bytes(folder).unwrap_or(u64::MAX);
        if size > MAX_FILE || free < size.saturating_add(FREE_SPACE) {
            let problem = format!(
                "it sent a file of {} MiB; {} MiB are free, at most {} MiB are accepted",
                size >> 20,
                free >> 20,
                MAX_FILE >> 20
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("received-{}-{number}.tar.gz", std::process::id()));
        let received = self.reader.read_file(size, &mut File::create(&path)?);
        if received.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        received.map(|()| path)
    }
}

pub(super) fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

pub(super) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")
}

pub(super) fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it sent no heartbeat in time")
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Instant};

    use super::{
        super::{
            secret_stream::{NodeSecret, SecretListener, connect},
            shared_folder::{SharedSession, join},
        },
        *,
    };

    const TIMEOUT: Duration = Duration::from_millis(400);

    fn wait<T>(mut find: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = find() {
                return found;
            }
            assert!(Instant::now() < deadline, "it takes too long");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Connections of node 0 and of a follower, by a secret and by a shared folder.
    fn pairs(folder: &Path) -> Vec<([Channel; 2], Option<SharedSession>)> {
        let secret = NodeSecret::new("a secret of nodes").expect("long enough");
        let (mut listener, port) = wait(|| {
            let port = 20_000
                + u16::try_from(std::process::id() % 1000).expect("small") * 10
                + u16::try_from(NEXT_FILE.fetch_add(1, Ordering::Relaxed) % 10).expect("small");
            SecretListener::open("127.0.0.1", port, secret.clone()).ok().map(|listener| (listener, port))
        });
        let connecting =
            thread::spawn(move || connect("127.0.0.1", port, &secret, Duration::from_secs(20)).ok());
        let node_0 = wait(|| listener.accept().expect("accepted"));
        let sealed = [node_0, connecting.join().expect("no panic").expect("connected")];
        let mut session = SharedSession::open(folder).expect("a session");
        let place = folder.to_owned();
        let joining = thread::spawn(move || join(&place, 1, Duration::from_secs(20)));
        let follower = joining.join().expect("no panic").expect("joined");
        let (sender, receiver) = follower.split(None);
        sender.send(&NodeMessage::Accepted).expect("sent");
        let node_0 = wait(|| session.accept(2));
        let (own, mut first) = node_0.split(None);
        assert_eq!(first.receive().expect("the first message").0, NodeMessage::Accepted);
        let joined = |sender: Arc<NodeSender>, receiver: NodeReceiver| {
            let NodeSender { writer, closer } = Arc::into_inner(sender).expect("the only one");
            Channel { writer: writer.into_inner().expect("not poisoned"), reader: receiver.reader, closer }
        };
        vec![(sealed, None), ([joined(own, first), joined(sender, receiver)], Some(session))]
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn messages_and_files_arrive_in_order_and_missing_heartbeats_are_noticed() {
        let (shared, received) = (folder(), folder());
        let file = received.path().join("file");
        fs::write(&file, vec![b'\n'; 200_000]).expect("written");
        for ([node_0, follower], session) in pairs(shared.path()) {
            let (sender, _receiver) = follower.split(None);
            let (own, mut receiver) = node_0.split(Some(received.path()));
            let result = PartResult {
                collection: 3,
                end: super::super::PartEnd::Done,
                message: "done".to_owned(),
                archive: None,
            };
            sender.send_result(result.clone(), Some(&file));
            sender.send(&NodeMessage::StopRequested).expect("sent");
            let (message, archive) = receiver.receive().expect("received");
            assert_eq!(message, NodeMessage::Ended(result));
            assert_eq!(fs::read(archive.expect("a file")).expect("read"), vec![b'\n'; 200_000]);
            assert_eq!(receiver.receive().expect("received"), (NodeMessage::StopRequested, None));
            receiver.set_timeout(TIMEOUT).expect("set");
            sender.start_heartbeats(TIMEOUT / 8).expect("a thread");
            let later = {
                let sender = Arc::clone(&sender);
                thread::spawn(move || {
                    thread::sleep(3 * TIMEOUT);
                    sender.send(&NodeMessage::Accepted)
                })
            };
            // With heartbeats it is waited for.
            receiver.set_timeout(2 * TIMEOUT).expect("set");
            assert_eq!(receiver.receive().expect("received").0, NodeMessage::Accepted);
            later.join().expect("no panic").expect("sent");
            sender.send(&NodeMessage::StopRequested).expect("sent");
            sender.close();
            assert_eq!(receiver.receive().expect("sent before the end").0, NodeMessage::StopRequested);
            assert_eq!(receiver.receive().expect_err("closed").to_string(), "it closed the connection");
            own.close();
            drop(session);
        }
        let left: Vec<_> =
            fs::read_dir(shared.path()).expect("listed").flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "the session is removed: {left:?}");
    }

    #[test]
    fn foreign_and_endless_messages_and_files_are_refused() {
        let (shared, received) = (folder(), folder());
        let long = vec![b'x'; usize::try_from(MAX_MESSAGE).expect("small") + 9];
        let size = MAX_FILE + 1;
        let large = format!(
            r#"{{"message": {{"ended": {{"collection": 1, "end": "done", "message": ""}}}}, "file": {size}}}"#
        );
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1"[..], "no message of this version"),
            (b"\xff\x00\n\n", "no message of this version"),
            (&long, "too long"),
            (large.as_bytes(), "at most 1024 MiB"),
            (br#"{"message": "accepted", "file": 5}"#, UNEXPECTED),
            (br#"{"message": {"start": {"run": "x\ny"}}}"#, "no message of this version"),
            (
                br#"{"message": {"hello": {"version": "0", "node": 1, "nodes": 2, "host": "h\u001b"}}}"#,
                "a wrong value",
            ),
        ] {
            for ([node_0, mut follower], session) in pairs(shared.path()) {
                let (own, mut receiver) = node_0.split(Some(received.path()));
                let text = bytes.to_vec();
                let writing = thread::spawn(move || {
                    let _ = follower.writer.write(&text, None);
                    follower
                });
                let problem = receiver.receive().expect_err("refused").to_string();
                assert!(problem.contains(expected), "{problem}");
                own.close();
                let follower = writing.join().expect("no panic");
                follower.split(None).0.close();
                drop(session);
            }
        }
        assert_eq!(fs::read_dir(received.path()).expect("listed").count(), 0, "no file was written");
    }
}
