//! The connection of a follower to node 0.

use std::{
    io,
    net::ToSocketAddrs as _,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    NodeError, NodeMeeting, NodePlace, NodeSecret, UNEXPECTED,
    connection::{HEARTBEAT_INTERVAL, NodeReceiver, NodeSender, NodeStreams, connection},
    message::{NodeAgreement, NodeMessage},
    secret_stream::connect,
    shared_folder::join,
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
            format!("node 0 {} was lost: {}", self.meeting_place(), problem.to_string()),
            "the output of node 0 has the reason, unless its host or the network failed; start the same command again on all \
             nodes",
        )
    }

    fn connect(&self, secret: &NodeSecret) -> Result<NodeStreams, NodeError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(CONNECT_INTERVAL);
            let places = (self.address.as_str(), self.control_port()).to_socket_addrs();
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for place in places.into_iter().flatten() {
                match connect(place, secret, left) {
                    Ok(Some(streams)) => return Ok(streams),
                    Ok(None) => {
                        return Err(NodeError::refused(
                            format!("node 0 {} has another secret than this node", self.meeting_place()),
                            "give the same NPUBENCH_SECRET or `--secret-file` on all nodes",
                        ));
                    }
                    Err(error) => last = error,
                }
            }
            if Instant::now() >= deadline {
                let (place, seconds) = (self.meeting_place(), self.timeout.as_secs());
                return Err(NodeError::of_host(
                    format!("node 0 {place} is not reachable within {seconds} s: {last}"),
                    "`--master-addr` and `--master-port` are those of node 0, where the same command must run; \
                     `--node-timeout` gives the time to wait",
                ));
            }
            thread::sleep(CONNECT_INTERVAL);
        }
    }
}

impl LeaderConnection {
    /// Connects to node 0 and returns the device profile of its database.
    pub(crate) fn open(place: &NodePlace, host: &str) -> Result<(Self, String), NodeError> {
        let streams = match &place.meeting {
            NodeMeeting::Shared(folder) => join(folder, place.node, place.timeout)?,
            NodeMeeting::Secret(secret) => place.connect(secret)?,
        };
        let (sender, mut receiver) = connection(streams, None);
        // Node 0 answers when all nodes have connected.
        receiver
            .set_timeout(place.timeout.max(place.lost_after()))
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
            .set_timeout(self.place.lost_after())
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
