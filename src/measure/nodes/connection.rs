//! Messages between the nodes, and a connection to another node: lines of JSON with a limited length, and files.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
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

use super::NodeError;

pub(crate) type NodeAgreement = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeHost {
    pub(crate) node: usize,
    pub(crate) name: String,
    /// Number of its ranks, which follow the ranks of the hosts before it.
    pub(crate) ranks: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartOrder {
    pub(crate) run: String,
    pub(crate) collection: u32,
    pub(crate) cases: Vec<String>,
    /// Devices by rank, each by its number on its host.
    pub(crate) devices: Vec<u32>,
    pub(crate) hosts: Vec<NodeHost>,
    pub(crate) place: usize,
    /// Port of torchrun's store on the first host.
    pub(crate) store_port: u16,
    /// Time limit in seconds.
    pub(crate) limit: f64,
    /// Wall time in seconds after which the part is ended in any case.
    pub(crate) cut_off: Option<f64>,
    /// Digest of the manifest and the script that the node must render.
    pub(crate) digest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartEnd {
    Done,
    Failed,
    TimedOut,
    Stopped,
    NotStarted,
    /// The host cannot write or archive the evidence of the part.
    EvidenceUnwritable,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartResult {
    pub(crate) collection: u32,
    pub(crate) end: PartEnd,
    /// Last line of the log, or the reason why the script was not started or its evidence is missing.
    pub(crate) message: String,
    /// Archive of the evidence in the receiving node.
    #[serde(skip)]
    pub(crate) archive: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeMessage {
    /// First message of a follower. Its form must not change between versions.
    Hello {
        version: String,
        node: usize,
        nodes: usize,
        host: String,
    },
    /// Answer of node 0: the device profile of its database, by which groups are found.
    Welcome {
        device_profile: String,
    },
    /// What the follower has, by name.
    Agreement(NodeAgreement),
    /// The sender cannot take part, or refuses the other one.
    Refused(NodeError),
    Accepted,
    FurtherCases {
        sweep: String,
    },
    Start(Box<PartOrder>),
    Stop {
        collection: u32,
    },
    Ended(PartResult),
    StopRequested,
    End {
        exit: u8,
    },
    Heartbeat,
}

const MAX_LINE: u64 = 4 << 20;
const MAX_FILE: u64 = 8 << 30;
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Time without a message after which the other node counts as lost.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
struct MessageLine<M> {
    message: M,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct NodeSender {
    stream: Mutex<TcpStream>,
    closer: TcpStream,
}

#[derive(Debug)]
pub(super) struct NodeReceiver {
    stream: BufReader<TcpStream>,
    folder: PathBuf,
}

static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

pub(super) fn split_stream(
    stream: TcpStream,
    folder: &Path,
    timeout: Duration,
) -> io::Result<(Arc<NodeSender>, NodeReceiver)> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let sender = NodeSender { stream: Mutex::new(stream.try_clone()?), closer: stream.try_clone()? };
    Ok((Arc::new(sender), NodeReceiver { stream: BufReader::new(stream), folder: folder.to_owned() }))
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
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&line)?;
        if let (Some(file), Some(size)) = (file, size) {
            let sent = io::copy(&mut file.take(size), &mut *stream)?;
            if sent < size {
                // The receiver would take the next message for a part of the file.
                self.close();
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
            }
        }
        stream.flush()
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
        let _ = self.closer.shutdown(Shutdown::Both);
    }
}

impl NodeReceiver {
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))
    }

    /// Returns the next message other than a heartbeat, with the file that follows it. Fails if the connection is closed,
    /// nothing arrives within the timeout, or a line is no message.
    pub(super) fn receive(&mut self) -> io::Result<(NodeMessage, Option<PathBuf>)> {
        loop {
            let mut line = Vec::new();
            let length = self.stream.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
            let length = length.map_err(describe_timeout)?;
            if length == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
            }
            if line.last() != Some(&b'\n') {
                return Err(invalid("it sent a message that is cut or too long"));
            }
            let line: MessageLine<NodeMessage> = serde_json::from_slice(&line)
                .map_err(|_| invalid("it sent a line that is no message of this version of npubench"))?;
            let file = line.file.map(|size| self.receive_file(size)).transpose()?;
            if line.message != NodeMessage::Heartbeat {
                return Ok((line.message, file));
            }
        }
    }

    fn receive_file(&mut self, size: u64) -> io::Result<PathBuf> {
        if size > MAX_FILE {
            return Err(invalid("it sent a file that is too large"));
        }
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("received-{}-{number}.tar.gz", std::process::id()));
        let mut file = File::create(&path)?;
        let received = io::copy(&mut self.stream.by_ref().take(size), &mut file).map_err(describe_timeout)?;
        if received < size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
        }
        Ok(path)
    }
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

fn describe_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, "it sent no heartbeat in time")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, net::TcpListener};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(200);

    type Side = (Arc<NodeSender>, NodeReceiver);

    fn pair(folder: &Path) -> (Side, Side, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let raw = one.try_clone().expect("cloned");
        let other = listener.accept().expect("accepted").0;
        let split = |stream| split_stream(stream, folder, TIMEOUT).expect("set");
        (split(one), split(other), raw)
    }

    #[test]
    fn messages_and_files_arrive_in_order_and_missing_heartbeats_are_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, mut other, _) = pair(folder.path());
        let file = folder.path().join("file");
        fs::write(&file, vec![b'\n'; 100_000]).expect("written");
        let stop = NodeMessage::Stop { collection: 3 };
        one.0.send_with(&NodeMessage::Accepted, Some(&file)).expect("sent");
        one.0.send(&stop).expect("sent");
        let (message, received) = other.1.receive().expect("received");
        assert_eq!(message, NodeMessage::Accepted);
        assert_eq!(fs::read(received.expect("a file")).expect("read"), vec![b'\n'; 100_000]);
        assert_eq!(other.1.receive().expect("received"), (stop.clone(), None));
        let silent = other.1.receive().expect_err("nothing is sent");
        assert_eq!(silent.to_string(), "it sent no heartbeat in time");
        // With heartbeats it is waited for.
        one.0.start_heartbeats(TIMEOUT / 10).expect("a thread");
        let waiting = thread::spawn(move || other.1.receive().map(|(message, _)| message));
        thread::sleep(3 * TIMEOUT);
        one.0.send(&stop).expect("sent");
        assert_eq!(waiting.join().expect("no panic").expect("received"), stop);
        one.0.close();
    }

    #[test]
    fn foreign_and_endless_lines_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_one, mut other, mut raw) = pair(folder.path());
        raw.write_all(b"GET / HTTP/1.1\r\n").expect("written");
        assert!(
            other.1.receive().expect_err("no message").to_string().contains("no message of this version")
        );
        raw.write_all(b"{\"message\": \"accepted\", \"file\": 99999999999999}\n").expect("written");
        assert!(other.1.receive().expect_err("too large").to_string().contains("too large"));
        let endless = thread::spawn(move || {
            let text = vec![b'x'; 1 << 20];
            while raw.write_all(&text).is_ok() {}
        });
        assert!(other.1.receive().expect_err("too long").to_string().contains("too long"));
        other.0.close();
        endless.join().expect("no panic");
    }
}
