//! A connection to another node: lines of JSON with a limited length, and files, over two streams of bytes.

use std::{
    fmt::Debug,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read, Write},
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

const MAX_LINE: u64 = 4 << 20;
/// MAX of an archive of evidence: a third of the space that a run keeps free for a collection (`disk_limits`), most of which
/// are the profiler's binary data, which are not sent.
const MAX_FILE: u64 = 1 << 30;
/// MIN of the free space beside a received file.
const FREE_SPACE: u64 = 16 << 20;
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// Stream from another node. It ends when one of the nodes closes it.
pub(super) trait NodeInput: Read + Debug + Send {
    /// Sets the time after which a read without a byte fails with [`io::ErrorKind::TimedOut`].
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()>;
}

/// Stream to another node.
pub(super) trait NodeOutput: Write + Debug + Send {}

impl<T: Write + Debug + Send> NodeOutput for T {}

/// Closes both streams while other threads use them.
pub(super) trait NodeCloser: Debug + Send + Sync {
    fn close(&self);
}

pub(super) type NodeStreams = (Box<dyn NodeInput>, Box<dyn NodeOutput>, Box<dyn NodeCloser>);

#[derive(Serialize, Deserialize)]
struct MessageLine<M> {
    message: M,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct NodeSender {
    output: Mutex<Box<dyn NodeOutput>>,
    closer: Box<dyn NodeCloser>,
}

#[derive(Debug)]
pub(super) struct NodeReceiver {
    input: BufReader<Box<dyn NodeInput>>,
    /// Folder for the evidence of parts; `None` in a follower, which gets no files.
    folder: Option<PathBuf>,
}

static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

pub(super) fn connection(
    (input, output, closer): NodeStreams,
    folder: Option<&Path>,
) -> (Arc<NodeSender>, NodeReceiver) {
    let sender = NodeSender { output: Mutex::new(output), closer };
    (Arc::new(sender), NodeReceiver { input: BufReader::new(input), folder: folder.map(Path::to_owned) })
}

impl NodeSender {
    pub(super) fn send(&self, message: &NodeMessage) -> io::Result<()> {
        self.send_with(message, None)
    }

    fn send_with(&self, message: &NodeMessage, file: Option<&Path>) -> io::Result<()> {
        let file = file.map(File::open).transpose()?;
        let size = file.as_ref().map(File::metadata).transpose()?.map(|metadata| metadata.len());
        let mut line = serde_json::to_vec(&MessageLine { message, file: size })?;
        line.push(b'\n');
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(&line)?;
        if let (Some(file), Some(size)) = (file, size) {
            let sent = io::copy(&mut file.take(size), &mut *output)?;
            if sent < size {
                // The receiver would take the next message for a part of the file.
                self.close();
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
            }
        }
        output.flush()
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
        let sender = Arc::clone(self);
        let send = move || {
            while sender.send(&NodeMessage::Heartbeat).is_ok() {
                thread::sleep(interval);
            }
        };
        thread::Builder::new().name("heartbeats".to_owned()).spawn(send).map(drop)
    }

    pub(super) fn close(&self) {
        self.closer.close();
    }
}

impl NodeReceiver {
    pub(super) fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.input.get_mut().set_timeout(timeout)
    }

    /// Returns the next message other than a heartbeat, with the file that follows it. Fails if the connection is closed,
    /// nothing arrives within the timeout, or a message has another form.
    pub(super) fn receive(&mut self) -> io::Result<(NodeMessage, Option<PathBuf>)> {
        loop {
            let mut line = Vec::new();
            self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(describe)?;
            match line.last() {
                Some(b'\n') => {}
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
                Some(_) => return Err(invalid("it sent a message that is cut or too long")),
            }
            let MessageLine { message, file } = serde_json::from_slice::<MessageLine<NodeMessage>>(&line)
                .map_err(|_| invalid("it sent a line that is no message of this version of npubench"))?;
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
            let [size, free, most] = [size, free, MAX_FILE].map(|bytes| bytes >> 20);
            let problem =
                format!("it sent a file of {size} MiB; {free} MiB are free, at most {most} MiB are accepted");
            return Err(invalid(&problem));
        }
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("received-{}-{number}.tar.gz", std::process::id()));
        let mut file = File::create(&path)?;
        let received = io::copy(&mut self.input.by_ref().take(size), &mut file).map_err(describe);
        if !matches!(received, Ok(received) if received == size) {
            let _ = fs::remove_file(&path);
            return Err(received.err().unwrap_or_else(|| invalid("it closed the connection within a file")));
        }
        Ok(path)
    }
}

pub(super) fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

fn describe(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, "it sent no heartbeat in time")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, time::Instant};

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

    /// Streams of node 0 and of a follower, by a secret and by a shared folder.
    fn pairs(folder: &Path) -> Vec<([NodeStreams; 2], Option<SharedSession>)> {
        let secret = NodeSecret::new("a secret of nodes").expect("long enough");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let mut listener = SecretListener::open("127.0.0.1", free.port(), secret.clone()).expect("opened");
        let connecting =
            thread::spawn(move || connect(free, &secret, Duration::from_secs(20)).expect("connected"));
        let node_0 = wait(|| listener.accept().expect("accepted"));
        let sealed = [node_0, connecting.join().expect("no panic").expect("the same secret")];
        let mut session = SharedSession::open(folder).expect("a session");
        let follower = join(folder, 1, Duration::from_secs(20)).expect("joined");
        let node_0 = wait(|| session.accept(2).expect("accepted"));
        vec![(sealed, None), ([node_0, follower], Some(session))]
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn messages_and_files_arrive_in_order_and_heartbeats_keep_a_connection() {
        let (shared, received) = (folder(), folder());
        let file = received.path().join("file");
        fs::write(&file, vec![b'\n'; 200_000]).expect("written");
        for ([node_0, follower], session) in pairs(shared.path()) {
            let (sender, _receiver) = connection(follower, None);
            let (own, mut receiver) = connection(node_0, Some(received.path()));
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
    fn missing_heartbeats_are_noticed() {
        let shared = folder();
        for ([node_0, follower], session) in pairs(shared.path()) {
            let (_own, mut receiver) = connection(node_0, None);
            receiver.set_timeout(TIMEOUT / 4).expect("set");
            let silent = receiver.receive().expect_err("nothing is sent");
            assert_eq!(silent.to_string(), "it sent no heartbeat in time");
            drop((session, follower));
        }
    }

    #[test]
    fn foreign_and_endless_messages_and_files_are_refused() {
        let (shared, received) = (folder(), folder());
        let long = vec![b'x'; usize::try_from(MAX_LINE).expect("small") + 9];
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
                let (own, mut receiver) = connection(node_0, Some(received.path()));
                let text = [bytes, b"\n"].concat();
                let writing = thread::spawn(move || {
                    let _ = follower.1.write_all(&text);
                    follower
                });
                let problem = receiver.receive().expect_err("refused").to_string();
                assert!(problem.contains(expected), "{problem}");
                own.close();
                let follower = writing.join().expect("no panic");
                follower.2.close();
                drop(session);
            }
        }
        assert_eq!(fs::read_dir(received.path()).expect("listed").count(), 0, "no file was written");
    }
}
