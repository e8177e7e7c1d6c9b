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
    NodeError,
    admission::NodeAgreement,
    connection::{HEARTBEAT_INTERVAL, NodeReceiver, NodeSender, TIMEOUT, split_stream},
    messages::NodeMessage,
};

const CONNECT_INTERVAL: Duration = Duration::from_millis(200);
pub(super) const UNEXPECTED: &str = "it sent an unexpected message";

#[derive(Clone, Debug)]
pub(crate) struct LeaderAddress {
    pub(crate) address: String,
    pub(crate) port: u16,
}

#[derive(Debug)]
pub(crate) struct LeaderConnection {
    leader: LeaderAddress,
    pub(crate) sender: Arc<NodeSender>,
    receiver: NodeReceiver,
}

impl LeaderAddress {
    fn lost(&self, problem: &impl ToString) -> NodeError {
        NodeError::of_host(
            format!("node 0 at {} port {} was lost: {}", self.address, self.port, problem.to_string()),
            "the output of node 0 has the reason, unless its host or the network failed; start the same command again on all \
             nodes",
        )
    }

    /// Connects to the first address of the host that answers; tries again until the deadline.
    fn connect(&self, timeout: Duration) -> Result<TcpStream, NodeError> {
        let deadline = Instant::now() + timeout;
        let attempt = || -> io::Result<TcpStream> {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for place in (self.address.as_str(), self.port).to_socket_addrs()? {
                let left = deadline.saturating_duration_since(Instant::now());
                match TcpStream::connect_timeout(
                    &place,
                    left.clamp(CONNECT_INTERVAL, Duration::from_secs(10)),
                ) {
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
                    let (Self { address, port }, seconds) = (self, timeout.as_secs());
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
    pub(crate) fn open(
        leader: LeaderAddress,
        node: usize,
        nodes: usize,
        host: &str,
        timeout: Duration,
        folder: &Path,
    ) -> Result<(Self, String), NodeError> {
        let stream = leader.connect(timeout)?;
        // Node 0 answers when all nodes have connected.
        let (sender, receiver) =
            split_stream(stream, folder, timeout.max(TIMEOUT)).map_err(|e| leader.lost(&e))?;
        let mut connection = Self { leader, sender, receiver };
        let (version, host) = (env!("CARGO_PKG_VERSION").to_owned(), host.to_owned());
        connection.send(&NodeMessage::Hello { version, node, nodes, host })?;
        match connection.receive()? {
            NodeMessage::Welcome { device_profile, .. } => Ok((connection, device_profile)),
            _ => Err(connection.unexpected()),
        }
    }

    pub(crate) fn agree(&mut self, agreement: NodeAgreement) -> Result<(), NodeError> {
        self.send(&NodeMessage::Agreement(agreement))?;
        if self.receive()? != NodeMessage::Accepted {
            return Err(self.unexpected());
        }
        let started = self.receiver.set_timeout(TIMEOUT);
        started
            .and_then(|()| self.sender.start_heartbeats(HEARTBEAT_INTERVAL))
            .map_err(|e| self.leader.lost(&e))
    }

    fn send(&self, message: &NodeMessage) -> Result<(), NodeError> {
        self.sender.send(message).map_err(|error| self.leader.lost(&error))
    }

    /// Returns the next message of node 0. Fails if it was lost, or refuses this node.
    pub(crate) fn receive(&mut self) -> Result<NodeMessage, NodeError> {
        match self.receiver.receive().map_err(|error| self.leader.lost(&error))?.0 {
            NodeMessage::Refused(error) => Err(error),
            message => Ok(message),
        }
    }

    pub(crate) fn unexpected(&self) -> NodeError {
        self.leader.lost(&UNEXPECTED)
    }
}

impl Drop for LeaderConnection {
    fn drop(&mut self) {
        self.sender.close();
    }
}
