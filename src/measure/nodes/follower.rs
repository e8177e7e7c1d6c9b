//! The connection of a follower to node 0.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs as _},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    NodeError, NodePlace, UNEXPECTED,
    connection::{
        HEARTBEAT_INTERVAL, NodeAgreement, NodeMessage, NodeReceiver, NodeSender, TIMEOUT, split_stream,
    },
};

const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct LeaderConnection {
    place: NodePlace,
    pub(crate) sender: Arc<NodeSender>,
    receiver: NodeReceiver,
}

impl NodePlace {
    fn leader_lost(&self, problem: &impl ToString) -> NodeError {
        NodeError::of_host(
            format!("node 0 at {} port {} was lost: {}", self.address, self.port, problem.to_string()),
            "the output of node 0 has the reason, unless its host or the network failed; start the same command again on all \
             nodes",
        )
    }

    fn connect(&self) -> Result<TcpStream, NodeError> {
        let Self { address, port, timeout, .. } = self;
        let deadline = Instant::now() + *timeout;
        let attempt = || -> io::Result<TcpStream> {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for place in (address.as_str(), *port).to_socket_addrs()? {
                let left = deadline.saturating_duration_since(Instant::now());
                let limit = left.clamp(CONNECT_INTERVAL, Duration::from_secs(10));
                match TcpStream::connect_timeout(&place, limit) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        loop {
            match attempt() {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() >= deadline => {
                    let seconds = timeout.as_secs();
                    return Err(NodeError::of_host(
                        format!(
                            "node 0 at {address} port {port} is not reachable within {seconds} s: {error}"
                        ),
                        "`--master-addr` and `--master-port` are those of node 0, where the same command must run; \
                         `--node-timeout` gives the time to wait",
                    ));
                }
                Err(_) => thread::sleep(CONNECT_INTERVAL),
            }
        }
    }
}

impl LeaderConnection {
    /// Connects to node 0 and returns the device profile of its database. Received files would be written into
    /// `folder`.
    pub(crate) fn open(place: &NodePlace, host: &str, folder: &Path) -> Result<(Self, String), NodeError> {
        let stream = place.connect()?;
        // Node 0 answers when all nodes have connected.
        let (sender, receiver) = split_stream(stream, folder, place.timeout.max(TIMEOUT))
            .map_err(|error| place.leader_lost(&error))?;
        let mut connection = Self { place: place.clone(), sender, receiver };
        let NodePlace { node, nodes, .. } = *place;
        let (version, host) = (env!("CARGO_PKG_VERSION").to_owned(), host.to_owned());
        connection.send(&NodeMessage::Hello { version, node, nodes, host })?;
        match connection.receive()? {
            NodeMessage::Welcome { device_profile } => Ok((connection, device_profile)),
            _ => Err(connection.unexpected()),
        }
    }

    pub(crate) fn agree(&mut self, agreement: NodeAgreement) -> Result<(), NodeError> {
        self.send(&NodeMessage::Agreement(agreement))?;
        if self.receive()? != NodeMessage::Accepted {
            return Err(self.unexpected());
        }
        self.receiver
            .set_timeout(TIMEOUT)
            .and_then(|()| self.sender.start_heartbeats(HEARTBEAT_INTERVAL))
            .map_err(|error| self.place.leader_lost(&error))
    }

    fn send(&self, message: &NodeMessage) -> Result<(), NodeError> {
        self.sender.send(message).map_err(|error| self.place.leader_lost(&error))
    }

    pub(crate) fn receive(&mut self) -> Result<NodeMessage, NodeError> {
        match self.receiver.receive().map_err(|error| self.place.leader_lost(&error))?.0 {
            NodeMessage::Refused(error) => Err(error),
            message => Ok(message),
        }
    }

    pub(crate) fn unexpected(&self) -> NodeError {
        self.place.leader_lost(&UNEXPECTED)
    }
}

impl Drop for LeaderConnection {
    fn drop(&mut self) {
        self.sender.close();
    }
}
