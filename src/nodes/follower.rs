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
    NodeAgreement, NodeError,
    connection::{ConnectionTimes, NodeReceiver, NodeSender, divide},
    messages::{NodeMessage, PartOrder, PartResult},
};

/// Interval at which a follower tries to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// Address and control port of node 0.
#[derive(Clone, Debug)]
pub(crate) struct LeaderPlace {
    pub(crate) address: String,
    pub(crate) port: u16,
}

/// Connection of a follower.
#[derive(Debug)]
pub(crate) struct FollowedConnection {
    place: LeaderPlace,
    sender: Arc<NodeSender>,
    receiver: NodeReceiver,
}

/// Request of node 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FollowerRequest {
    Start(Box<PartOrder>),
    Stop {
        collection: u32,
    },
    /// The sweep has ended with this exit code.
    End {
        exit: u8,
    },
}

/// Sends the results of a follower, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct ResultSender(Arc<NodeSender>);

impl ResultSender {
    /// Sends a result with its archive. A failure is noticed by the thread that receives.
    pub(crate) fn send_result(&self, result: PartResult, archive: Option<&Path>) {
        let message = NodeMessage::Ended(result);
        let sent = match archive {
            Some(archive) => self.0.send_file(&message, archive),
            None => self.0.send(&message),
        };
        if sent.is_err() {
            self.0.close();
        }
    }

    /// Sends node 0 the request to end the sweep after the running collection.
    pub(crate) fn request_stop(&self) {
        let _ = self.0.send(&NodeMessage::StopRequested);
    }
}

impl LeaderPlace {
    /// Returns an error about node 0.
    pub(crate) fn error(&self, problem: impl Into<String>) -> NodeError {
        NodeError::Leader { address: self.address.clone(), port: self.port, problem: problem.into() }
    }

    fn connect(&self, timeout: Duration) -> Result<TcpStream, NodeError> {
        let deadline = Instant::now() + timeout;
        loop {
            let attempt = || -> io::Result<TcpStream> {
                let places = (self.address.as_str(), self.port).to_socket_addrs()?;
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                for place in places {
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
            match attempt() {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() >= deadline => {
                    return Err(
                        self.error(format!("is not reachable within {} s: {error}", timeout.as_secs()))
                    );
                }
                Err(_) => thread::sleep(CONNECT_INTERVAL),
            }
        }
    }
}

impl FollowedConnection {
    /// Connects to node 0 and returns the device profile of its database. Received files would be written into
    /// `folder`.
    pub(crate) fn open(
        place: LeaderPlace,
        node: usize,
        nodes: usize,
        host: &str,
        timeout: Duration,
        folder: &Path,
    ) -> Result<(Self, String), NodeError> {
        let stream = place.connect(timeout)?;
        let lost = |error: io::Error| place.error(format!("was lost: {error}"));
        // Node 0 answers when all nodes have connected.
        let patient = ConnectionTimes::default();
        let patient = ConnectionTimes { silence: timeout.max(patient.silence), ..patient };
        let (sender, mut receiver) = divide(stream, folder, patient).map_err(lost)?;
        let hello = NodeMessage::Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node,
            nodes,
            host: host.to_owned(),
        };
        sender.send(&hello).map_err(lost)?;
        match receiver.receive().map_err(lost)?.0 {
            NodeMessage::Welcome { device_profile, .. } => {
                Ok((Self { place, sender, receiver }, device_profile))
            }
            NodeMessage::Refused { message } => Err(NodeError::Refused(message)),
            _ => Err(place.error("sent an unexpected message")),
        }
    }

    /// Sends the values of this node, and waits until all nodes agree.
    pub(crate) fn agree(&mut self, agreement: &NodeAgreement) -> Result<(), NodeError> {
        let lost = |error: io::Error| self.place.error(format!("was lost: {error}"));
        self.sender.send(&NodeMessage::Agreement(agreement.values())).map_err(lost)?;
        match self.receiver.receive().map_err(lost)?.0 {
            NodeMessage::Accepted => {}
            NodeMessage::Refused { message } => return Err(NodeError::Refused(message)),
            _ => return Err(self.place.error("sent an unexpected message")),
        }
        let times = ConnectionTimes::default();
        self.receiver.set_silence(times).and_then(|()| self.sender.start_beats(times)).map_err(lost)
    }

    /// Sends node 0 the reason why this node cannot take part.
    pub(crate) fn refuse(&self, message: &str) {
        let _ = self.sender.send(&NodeMessage::Refused { message: message.to_owned() });
        self.sender.close();
    }

    pub(crate) fn results(&self) -> ResultSender {
        ResultSender(Arc::clone(&self.sender))
    }

    /// Returns the next request of node 0. Fails if it was lost.
    pub(crate) fn receive(&mut self) -> Result<FollowerRequest, NodeError> {
        let lost = |error: io::Error| self.place.error(format!("was lost: {error}"));
        match self.receiver.receive().map_err(lost)?.0 {
            NodeMessage::Start(order) => Ok(FollowerRequest::Start(order)),
            NodeMessage::Stop { collection } => Ok(FollowerRequest::Stop { collection }),
            NodeMessage::End { exit } => Ok(FollowerRequest::End { exit }),
            NodeMessage::Refused { message } => Err(NodeError::Refused(message)),
            _ => Err(self.place.error("sent an unexpected message")),
        }
    }
}

impl Drop for FollowedConnection {
    fn drop(&mut self) {
        self.sender.close();
    }
}
