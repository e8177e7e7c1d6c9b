//! Nodes that have a secret: a connection by TCP that is sealed by Noise (NNpsk0). Nothing of a stranger is parsed or stored.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read, Write},
    mem,
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    sync::Arc,
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use snow::{Builder, HandshakeState, StatelessTransportState};

use super::{
    NodeError,
    connection::{NodeCloser, NodeInput, NodeStreams, invalid},
};
use crate::base::print::print_note;

/// NN: no node has a key of its own. psk0: the first message proves that its sender has the secret.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const CONTEXT: &[u8] = b"npubench sweep over nodes 1";
const TAG: usize = 16;
/// Bytes of each of the two messages of the handshake: a public key and the tag of an empty text.
const GREETING: usize = 32 + TAG;
/// Bytes of an empty frame, by which a follower proves that its first message is no copy of an earlier one.
const PROOF: usize = 2 + TAG;
/// Answer to a greeting with another secret.
const REFUSAL: [u8; 1] = [0];
const MAX_FRAME: usize = 65_535 - TAG;
/// MAX of the connections at a time that have not proved the secret; a new one takes the place of the oldest.
const MAX_STRANGERS: usize = 16;
/// MAX of the connections that are accepted at a time: the queue of a listener of std.
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
        let key = || Sha256::digest([CONTEXT, b"\0", text.as_bytes()].concat()).into();
        (text.chars().count() >= MIN_SECRET).then(|| Self(key()))
    }

    fn handshake(&self, is_node_0: bool) -> io::Result<HandshakeState> {
        let build = || {
            let builder = Builder::new(PATTERN.parse()?).prologue(CONTEXT)?.psk(0, &self.0)?;
            if is_node_0 { builder.build_responder() } else { builder.build_initiator() }
        };
        build().map_err(io::Error::other)
    }
}

/// One direction of a connection: frames with their length.
#[derive(Debug)]
struct Sealed {
    stream: TcpStream,
    keys: Arc<StatelessTransportState>,
    nonce: u64,
    /// What was read and opened, and its part that was returned.
    text: Vec<u8>,
    position: usize,
}

impl Write for Sealed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(MAX_FRAME)];
        let mut frame = vec![0; 2 + bytes.len() + TAG];
        self.keys.write_message(self.nonce, bytes, &mut frame[2..]).map_err(io::Error::other)?;
        self.nonce += 1;
        let length = u16::try_from(bytes.len() + TAG).map_err(io::Error::other)?;
        frame[..2].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Read for Sealed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.position == self.text.len() {
            let mut length = [0; 2];
            match self.stream.read_exact(&mut length) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => read?,
            }
            let mut frame = vec![0; u16::from_be_bytes(length).into()];
            self.stream.read_exact(&mut frame)?;
            self.text.resize(frame.len(), 0);
            let opened = self.keys.read_message(self.nonce, &frame, &mut self.text);
            self.text.truncate(opened.map_err(|_| invalid("it sent what the secret has not sealed"))?);
            (self.nonce, self.position) = (self.nonce + 1, 0);
        }
        let length = (&self.text[self.position..]).read(bytes)?;
        self.position += length;
        Ok(length)
    }
}

impl NodeInput for Sealed {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(timeout))?;
        self.stream.set_read_timeout(Some(timeout))
    }
}

impl NodeCloser for TcpStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Seals a connection. The proof of a follower was the first frame.
fn streams(stream: TcpStream, keys: StatelessTransportState, is_node_0: bool) -> io::Result<NodeStreams> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let keys = Arc::new(keys);
    let sealed = |nonce: bool| -> io::Result<Box<Sealed>> {
        let (stream, keys, nonce) = (stream.try_clone()?, Arc::clone(&keys), nonce.into());
        Ok(Box::new(Sealed { stream, keys, nonce, text: Vec::new(), position: 0 }))
    };
    Ok((sealed(is_node_0)?, sealed(!is_node_0)?, Box::new(stream)))
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

    /// Reads what has arrived. Returns true if the secret is proved; fails if it is another one, or the time is over.
    fn advance(&mut self, secret: &NodeSecret) -> io::Result<bool> {
        loop {
            let wanted = if self.keys.is_none() { GREETING } else { PROOF };
            let mut bytes = [0; GREETING];
            match self.stream.read(&mut bytes[..wanted - self.received.len()]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < self.deadline => {
                    return Ok(false);
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.received.extend(&bytes[..length?]),
            }
            if self.received.len() < wanted {
                continue;
            }
            let received = mem::take(&mut self.received);
            if let Some(keys) = &self.keys {
                return keys
                    .read_message(0, &received[2..], &mut [0; TAG])
                    .map(|_| true)
                    .map_err(io::Error::other);
            }
            let (mut handshake, mut answer) = (secret.handshake(true)?, [0; GREETING]);
            if let Err(error) = handshake.read_message(&received, &mut bytes) {
                self.stream.write_all(&REFUSAL)?;
                return Err(io::Error::other(error));
            }
            handshake.write_message(&[], &mut answer).map_err(io::Error::other)?;
            self.stream.write_all(&answer)?;
            self.keys = Some(handshake.into_stateless_transport_mode().map_err(io::Error::other)?);
        }
    }
}

/// The control port of node 0, which is open until all nodes have connected.
#[derive(Debug)]
pub(crate) struct SecretListener {
    listener: TcpListener,
    secret: NodeSecret,
    strangers: VecDeque<Stranger>,
    has_noted: bool,
}

/// Fails if the port of torchrun's store is in use. The store listens on all addresses
/// (pytorch, torch/csrc/distributed/c10d/socket.cpp).
pub(super) fn check_store_port(address: &str, port: u16) -> Result<(), NodeError> {
    bind((Ipv4Addr::UNSPECIFIED, port).into(), address).map(drop)
}

fn bind(place: SocketAddr, address: &str) -> Result<TcpListener, NodeError> {
    TcpListener::bind(place).map_err(|error| {
        let problem = match error.kind() {
            io::ErrorKind::AddrInUse => "another program uses it".to_owned(),
            io::ErrorKind::AddrNotAvailable => format!("{} is no address of this host", place.ip()),
            _ => error.to_string(),
        };
        NodeError::refused(
            format!("port {} of {address} cannot be opened: {problem}", place.port()),
            "`--master-addr` is an address of node 0, `--master-port` for all nodes a port that is free there; with a secret, the \
             following port must be free, too",
        )
    })
}

impl SecretListener {
    pub(super) fn open(address: &str, port: u16, secret: NodeSecret) -> Result<Self, NodeError> {
        let is_local = address == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let mut found = (address, port).to_socket_addrs().into_iter().flatten();
        // Some systems resolve the name of the host to 127.0.1.1.
        let place = found.find(|place| is_local || !place.ip().is_loopback()).ok_or_else(|| {
            let problem = format!("`--master-addr {address}` stands for no address that other hosts reach");
            NodeError::refused(problem, "give an address of node 0 by which the other nodes reach it")
        })?;
        Self::new(bind(place, address)?, secret).map_err(|error| NodeError::refused(error.to_string(), ""))
    }

    fn new(listener: TcpListener, secret: NodeSecret) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, secret, strangers: VecDeque::new(), has_noted: false })
    }

    /// Returns the streams of a node that has proved the secret since, if there is one.
    pub(super) fn accept(&mut self) -> io::Result<Option<NodeStreams>> {
        let mut waiting = mem::take(&mut self.strangers).into_iter();
        let mut new = 0..MAX_ACCEPTED;
        loop {
            let mut stranger = match waiting.next() {
                Some(stranger) => stranger,
                None if new.next().is_none() => return Ok(None),
                None => match self.listener.accept() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    accepted => Stranger::new(accepted?.0)?,
                },
            };
            match stranger.advance(&self.secret) {
                Ok(true) => {
                    self.strangers.extend(waiting);
                    return stranger.keys.map(|keys| streams(stranger.stream, keys, true)).transpose();
                }
                Ok(false) => self.strangers.push_back(stranger),
                Err(_) => self.note(&stranger),
            }
            if self.strangers.len() > MAX_STRANGERS {
                // One that has shown the secret waits for its answer only.
                let oldest = self.strangers.iter().position(|stranger| stranger.keys.is_none());
                let oldest = self.strangers.remove(oldest.unwrap_or_default());
                oldest.iter().for_each(|oldest| self.note(oldest));
            }
        }
    }

    fn note(&mut self, stranger: &Stranger) {
        if !mem::replace(&mut self.has_noted, true) {
            let peer = stranger.stream.peer_addr();
            let from = peer.map_or_else(|_| "a program".to_owned(), |peer| peer.ip().to_string());
            print_note(&format!(
                "{from} connected without the secret of this sweep and was refused; further ones are refused without a note"
            ));
        }
    }
}

/// Connects to node 0 and proves the secret; `None` if node 0 has another one.
pub(super) fn connect(
    place: SocketAddr,
    secret: &NodeSecret,
    limit: Duration,
) -> io::Result<Option<NodeStreams>> {
    let mut stream = TcpStream::connect_timeout(&place, limit)?;
    // Node 0 answers when it has looked at its host.
    stream.set_read_timeout(Some(limit))?;
    let (mut handshake, mut bytes) = (secret.handshake(false)?, [0; GREETING]);
    handshake.write_message(&[], &mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes)?;
    let mut answer = Vec::new();
    Read::by_ref(&mut stream).take(GREETING as u64).read_to_end(&mut answer)?;
    if answer == REFUSAL || (answer.len() == GREETING && handshake.read_message(&answer, &mut bytes).is_err())
    {
        return Ok(None);
    }
    let keys = handshake.into_stateless_transport_mode().map_err(|_| io::ErrorKind::ConnectionAborted)?;
    let mut proof = [0; PROOF];
    proof[1] = u8::try_from(TAG).map_err(io::Error::other)?;
    keys.write_message(0, &[], &mut proof[2..]).map_err(io::Error::other)?;
    stream.write_all(&proof)?;
    streams(stream, keys, false).map(Some)
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
        (SecretListener::new(listener, secret("a secret of nodes")).expect("set"), place)
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
            connect(place, &secret("a secret of nodes"), Duration::from_secs(20))
                .is_ok_and(|streams| streams.is_some())
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
            connect(place, &secret("another secret of nodes"), Duration::from_secs(20)).expect("an answer")
        });
        while !node.is_finished() {
            assert!(listener.accept().expect("goes on").is_none());
        }
        assert!(node.join().expect("no panic").is_none(), "another secret");
        assert!(
            NodeSecret::new("only 15 letters").is_none()
                && NodeSecret::new("   sixteen letters!\n").is_some()
        );
    }
}
