//! Connections of nodes that have a common secret: Noise (NNpsk0) over TCP. Nothing of a stranger is parsed or stored.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    sync::Arc,
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use snow::{Builder, HandshakeState, StatelessTransportState};

use super::{
    NodeError,
    connection::{Channel, Closer, MAX_MESSAGE, MessageReader, MessageWriter, closed, invalid, silent},
    message::NodeMessage,
};
use crate::base::print::print_note;

/// NN: no node has a key of its own. psk0: the first message already proves that its sender has the secret.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const CONTEXT: &[u8] = b"npubench sweep over nodes 1";
/// Bytes of each of the two messages of a handshake: a public key and the tag of an empty text.
const GREETING: usize = 48;
/// Bytes of the empty frame by which a follower proves that it has read the answer: the first message could be a copy of an
/// earlier one.
const PROOF: usize = 2 + TAG;
const TAG: usize = 16;
/// Answer to a greeting with another secret.
const REFUSAL: u8 = 0;
const MAX_FRAME: usize = 65_535 - TAG;

/// MAX of the connections at a time that have not proved the secret; a further one takes the place of the oldest.
const MAX_STRANGERS: usize = 16;
/// MAX of the connections that are accepted between two looks at the nodes: the queue of a port (`SOMAXCONN` of std).
const MAX_ACCEPTED: usize = 128;
const GREETING_TIME: Duration = Duration::from_secs(5);
const MIN_SECRET: usize = 16;

/// Key derived from the secret of a user.
#[derive(Clone)]
pub(crate) struct NodeSecret([u8; 32]);

impl fmt::Debug for NodeSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NodeSecret")
    }
}

impl NodeSecret {
    /// Returns `None` for a text of fewer than 16 characters. Blanks around it do not count.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let digest = || Sha256::new().chain_update(CONTEXT).chain_update([0]).chain_update(text).finalize();
        (text.chars().count() >= MIN_SECRET).then(|| Self(digest().into()))
    }

    fn handshake(&self, is_node_0: bool) -> io::Result<HandshakeState> {
        let built = PATTERN.parse().and_then(|pattern| {
            let builder = Builder::new(pattern).prologue(CONTEXT)?.psk(0, &self.0)?;
            if is_node_0 { builder.build_responder() } else { builder.build_initiator() }
        });
        built.map_err(io::Error::other)
    }
}

#[derive(Debug)]
struct SealedWriter {
    stream: TcpStream,
    keys: Arc<StatelessTransportState>,
    nonce: u64,
}

impl SealedWriter {
    fn seal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut frame = vec![0; 2 + bytes.len() + TAG];
        let length = self.keys.write_message(self.nonce, bytes, &mut frame[2..]).map_err(io::Error::other)?;
        self.nonce += 1;
        frame[..2].copy_from_slice(&u16::try_from(length).map_err(io::Error::other)?.to_be_bytes());
        self.stream.write_all(&frame)
    }
}

impl Write for SealedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(MAX_FRAME);
        self.seal(&bytes[..length])?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl MessageWriter for SealedWriter {
    fn write(&mut self, message: &[u8], file: Option<(File, u64)>) -> io::Result<()> {
        self.write_all(&[message, b"\n"].concat())?;
        if let Some((file, size)) = file
            && io::copy(&mut file.take(size), self)? < size
        {
            // The receiver would take the next message for a part of the file.
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        Ok(())
    }

    fn beat(&mut self) -> io::Result<()> {
        let beat = serde_json::json!({ "message": NodeMessage::Heartbeat });
        MessageWriter::write(self, &serde_json::to_vec(&beat)?, None)
    }
}

#[derive(Debug)]
struct SealedReader {
    stream: TcpStream,
    keys: Arc<StatelessTransportState>,
    nonce: u64,
    text: Vec<u8>,
    position: usize,
}

impl Read for SealedReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.position == self.text.len() {
            let mut length = [0; 2];
            self.stream.read_exact(&mut length)?;
            let mut frame = vec![0; u16::from_be_bytes(length).into()];
            self.stream.read_exact(&mut frame)?;
            self.text.resize(frame.len(), 0);
            let length = self.keys.read_message(self.nonce, &frame, &mut self.text);
            self.text.truncate(length.map_err(|_| invalid("it sent what the secret has not sealed"))?);
            (self.nonce, self.position) = (self.nonce + 1, 0);
        }
        let length = bytes.len().min(self.text.len() - self.position);
        bytes[..length].copy_from_slice(&self.text[self.position..self.position + length]);
        self.position += length;
        Ok(length)
    }
}

impl MessageReader for BufReader<SealedReader> {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        let stream = &self.get_ref().stream;
        stream.set_write_timeout(Some(timeout)).and_then(|()| stream.set_read_timeout(Some(timeout)))
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.take(MAX_MESSAGE).read_until(b'\n', &mut line).map_err(describe)?;
        if line.pop() == Some(b'\n') {
            Ok(line)
        } else {
            Err(invalid("it sent a message that is cut or too long"))
        }
    }

    fn read_file(&mut self, size: u64, target: &mut File) -> io::Result<()> {
        io::copy(&mut self.take(size), target).map(drop).map_err(describe)
    }
}

fn describe(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(),
        io::ErrorKind::UnexpectedEof => closed(),
        _ => error,
    }
}

fn channel(
    stream: TcpStream,
    keys: StatelessTransportState,
    [sent, received]: [u64; 2],
) -> io::Result<Channel> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let (keys, copy) = (Arc::new(keys), || stream.try_clone());
    let reader = SealedReader {
        stream: copy()?,
        keys: Arc::clone(&keys),
        nonce: received,
        text: Vec::new(),
        position: 0,
    };
    let writer = SealedWriter { stream: copy()?, keys, nonce: sent };
    Ok(Channel {
        writer: Box::new(writer),
        reader: Box::new(BufReader::new(reader)),
        closer: Closer::Stream(stream),
    })
}

#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    deadline: Instant,
    received: Vec<u8>,
    keys: Option<StatelessTransportState>,
}

impl Stranger {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, deadline: Instant::now() + GREETING_TIME, received: Vec::new(), keys: None })
    }

    /// Reads what has arrived. Returns true if the secret is proved; fails if it is another one.
    fn advance(&mut self, secret: &NodeSecret) -> io::Result<bool> {
        loop {
            let wanted = if self.keys.is_none() { GREETING } else { PROOF };
            let mut bytes = [0; GREETING];
            match self.stream.read(&mut bytes[..wanted - self.received.len()]) {
                Ok(0) => return Err(closed()),
                Ok(length) => self.received.extend(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < self.deadline => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
            if self.received.len() < wanted {
                continue;
            }
            let received = std::mem::take(&mut self.received);
            if let Some(keys) = &self.keys {
                return keys
                    .read_message(0, &received[2..], &mut [0; TAG])
                    .map(|_| true)
                    .map_err(io::Error::other);
            }
            let (mut handshake, mut answer) = (secret.handshake(true)?, [0; GREETING]);
            if handshake.read_message(&received, &mut bytes).is_err() {
                let _ = self.stream.write(&[REFUSAL]);
                return Err(invalid("another secret"));
            }
            handshake.write_message(&[], &mut answer).map_err(io::Error::other)?;
            // An empty socket takes it at once.
            self.stream.write_all(&answer)?;
            self.keys = Some(handshake.into_stateless_transport_mode().map_err(io::Error::other)?);
        }
    }
}

/// The control port of node 0. It listens on the address that is given, until all nodes have connected.
#[derive(Debug)]
pub(crate) struct SecretListener {
    listener: TcpListener,
    secret: NodeSecret,
    strangers: VecDeque<Stranger>,
    has_noted: bool,
}

fn bind(place: SocketAddr, address: &str) -> Result<TcpListener, NodeError> {
    let port = place.port();
    TcpListener::bind(place).map_err(|error| {
        let (problem, hint) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                "another program uses it".to_owned(),
                "choose another one for all nodes with `--master-port`; with a secret, the following port must be free, too",
            ),
            io::ErrorKind::AddrNotAvailable => (
                format!("{} is no address of this host", place.ip()),
                "give an address of node 0 by which the other nodes reach it with `--master-addr`",
            ),
            _ => (error.to_string(), "choose another one for all nodes with `--master-port`, above 1023"),
        };
        NodeError::refused(format!("port {port} of {address} cannot be opened: {problem}"), hint)
    })
}

fn resolve(address: &str, port: u16) -> Vec<SocketAddr> {
    (address, port).to_socket_addrs().into_iter().flatten().collect()
}

/// Fails if the port of torchrun's store is in use. The store listens on all interfaces
/// (pytorch, torch/csrc/distributed/c10d/socket.cpp).
pub(super) fn check_store_port(address: &str, port: u16) -> Result<(), NodeError> {
    let any = match resolve(address, port).first() {
        Some(SocketAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    bind(SocketAddr::new(any, port), address).map(drop)
}

impl SecretListener {
    pub(super) fn open(address: &str, port: u16, secret: NodeSecret) -> Result<Self, NodeError> {
        let hint = "give an address of node 0 by which the other nodes reach it with `--master-addr`";
        let found = resolve(address, port);
        let is_local = address == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        // Some systems resolve the name of the host to 127.0.1.1.
        let Some(&place) = found.iter().find(|place| is_local || !place.ip().is_loopback()) else {
            let problem = match found.is_empty() {
                true => "this name has no address",
                false => "this name stands for an address that no other host reaches",
            };
            return Err(NodeError::refused(format!("`--master-addr {address}`: {problem}"), hint));
        };
        let listener = bind(place, address)?;
        let strangers = VecDeque::new();
        Ok(Self { listener, secret, strangers, has_noted: false })
    }

    /// Returns a connection whose other side has proved the secret, if there is one now.
    pub(super) fn accept(&mut self) -> io::Result<Option<Channel>> {
        self.listener.set_nonblocking(true)?;
        let waiting = std::mem::take(&mut self.strangers);
        let mut new = 0..MAX_ACCEPTED;
        let mut waiting = waiting.into_iter();
        loop {
            let mut stranger = match waiting.next() {
                Some(stranger) => stranger,
                None if new.next().is_none() => return Ok(None),
                None => match self.listener.accept() {
                    Ok((stream, _)) => Stranger::new(stream)?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(error),
                },
            };
            match stranger.advance(&self.secret) {
                Ok(true) => {
                    self.strangers.extend(waiting);
                    return stranger.keys.map(|keys| channel(stranger.stream, keys, [0, 1])).transpose();
                }
                Ok(false) => self.strangers.push_back(stranger),
                Err(_) => self.refuse(&stranger),
            }
            if self.strangers.len() > MAX_STRANGERS {
                // One that has shown the secret waits for its answer only.
                let oldest = self.strangers.iter().position(|stranger| stranger.keys.is_none());
                if let Some(oldest) = self.strangers.remove(oldest.unwrap_or_default()) {
                    self.refuse(&oldest);
                }
            }
        }
    }

    fn refuse(&mut self, stranger: &Stranger) {
        if !self.has_noted {
            self.has_noted = true;
            let from = stranger
                .stream
                .peer_addr()
                .map_or_else(|_| "a program".to_owned(), |peer| peer.ip().to_string());
            print_note(&format!(
                "{from} connected without the secret of this sweep and was refused; further ones are refused without a note"
            ));
        }
    }
}

pub(super) enum ConnectError {
    OtherSecret,
    Failed(io::Error),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Connects to node 0 and proves the secret.
pub(super) fn connect(
    address: &str,
    port: u16,
    secret: &NodeSecret,
    limit: Duration,
) -> Result<Channel, ConnectError> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in (address, port).to_socket_addrs()? {
        let mut stream = match TcpStream::connect_timeout(&place, limit) {
            Ok(stream) => stream,
            Err(error) => {
                last = error;
                continue;
            }
        };
        // Node 0 answers when it has looked at its host.
        stream.set_read_timeout(Some(limit))?;
        let (mut handshake, mut bytes) = (secret.handshake(false)?, [0; GREETING]);
        handshake.write_message(&[], &mut bytes).map_err(io::Error::other)?;
        stream.write_all(&bytes)?;
        let mut answer = Vec::new();
        while answer.len() < GREETING {
            match stream.read(&mut bytes[..GREETING - answer.len()]).map_err(describe)? {
                0 if answer == [REFUSAL] => return Err(ConnectError::OtherSecret),
                0 => return Err(closed().into()),
                length => answer.extend(&bytes[..length]),
            }
        }
        handshake.read_message(&answer, &mut bytes).map_err(|_| ConnectError::OtherSecret)?;
        let keys = handshake.into_stateless_transport_mode().map_err(io::Error::other)?;
        let mut proof = SealedWriter { stream: stream.try_clone()?, keys: Arc::new(keys), nonce: 0 };
        proof.seal(&[])?;
        let keys = Arc::into_inner(proof.keys).ok_or_else(closed)?;
        return Ok(channel(stream, keys, [1, 0])?);
    }
    Err(last.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> NodeSecret {
        NodeSecret::new(text).expect("long enough")
    }

    fn listener() -> (SecretListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = listener.local_addr().expect("an address");
        let strangers = VecDeque::new();
        (SecretListener { listener, secret: secret("a secret of nodes"), strangers, has_noted: false }, place)
    }

    /// Strangers of all kinds, 1,000 of them at a time: none is accepted, and a node with the secret is.
    #[test]
    fn strangers_neither_take_part_nor_keep_a_node_out() {
        let (mut listener, place) = listener();
        let mut greeting = [0; GREETING];
        secret("another secret of nodes")
            .handshake(false)
            .and_then(|mut own| own.write_message(&[], &mut greeting).map_err(io::Error::other))
            .expect("a greeting");
        let mut copied = [0; GREETING];
        secret("a secret of nodes")
            .handshake(false)
            .and_then(|mut own| own.write_message(&[], &mut copied).map_err(io::Error::other))
            .expect("a greeting");
        let kinds: [Vec<u8>; 6] = [
            Vec::new(),
            vec![7],
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n{\"message\": \"accepted\"}\n".to_vec(),
            greeting.to_vec(),
            // A copy of a node's first message, and what its sender cannot seal.
            [&copied[..], &[0, 16], &[9; 100]].concat(),
            vec![b'x'; 100_000],
        ];
        let mut streams = Vec::new();
        for number in 0..1000 {
            let mut stream = TcpStream::connect(place).expect("connected");
            stream.set_nonblocking(true).expect("set");
            let _ = stream.write(&kinds[number % kinds.len()]);
            streams.push(stream);
            if number % 50 == 0 {
                assert!(listener.accept().expect("goes on").is_none());
                assert!(listener.strangers.len() <= MAX_STRANGERS);
            }
        }
        let node = std::thread::spawn(move || {
            connect("127.0.0.1", place.port(), &secret("a secret of nodes"), Duration::from_secs(20)).is_ok()
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        while listener.accept().expect("goes on").is_none() {
            assert!(listener.strangers.len() <= MAX_STRANGERS && Instant::now() < deadline);
        }
        assert!(node.join().expect("no panic"));
    }

    #[test]
    fn another_secret_is_named_to_its_node() {
        let (mut listener, place) = listener();
        let node = std::thread::spawn(move || {
            connect("127.0.0.1", place.port(), &secret("another secret of nodes"), Duration::from_secs(20))
                .err()
        });
        while !node.is_finished() {
            assert!(listener.accept().expect("goes on").is_none());
        }
        assert!(matches!(node.join().expect("no panic"), Some(ConnectError::OtherSecret)));
        assert!(
            NodeSecret::new("only 15 letters").is_none()
                && NodeSecret::new("   sixteen letters!\n").is_some()
        );
    }
}
