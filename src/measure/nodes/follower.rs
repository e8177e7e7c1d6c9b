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
    connection::{ConnectionTimes, NodeReceiver, NodeSender, split_stream},
    messages::{NodeMessage, NodeRefusal, PartOrder, PartResult},
};

/// Interval at which a follower tries to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// Problem of a connection on which a message has another meaning.
pub(super) const UNEXPECTED: &str = "it sent an unexpected message";

/// Address and control port of node 0.
#[derive(Clone, Debug)]
pub(crate) struct LeaderAddress {
    pub(crate) address: String,
    pub(crate) port: u16,
}

/// Connection of a follower to node 0.
#[derive(Debug)]
pub(crate) struct LeaderConnection {
    leader: LeaderAddress,
    sender: Arc<NodeSender>,
    receiver: NodeReceiver,
}

/// Request of node 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FollowerRequest {
    /// Adds cases of the sweep, as text of JSON.
    AddCases {
        sweep: String,
    },
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

    /// Leaves the sweep for this reason.
    pub(crate) fn leave(&self, reason: &str) {
        let _ = self.0.send(&NodeMessage::Refused(NodeRefusal::new(reason, "")));
        self.0.close();
    }
}

impl LeaderAddress {
    /// Returns the error of a lost connection.
    fn lost(&self, problem: &impl ToString) -> NodeError {
        NodeError::LeaderLost { address: self.address.clone(), port: self.port, problem: problem.to_string() }
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
                    return Err(NodeError::Unreachable {
                        address: self.address.clone(),
                        port: self.port,
                        seconds: timeout.as_secs(),
                        problem: error.to_string(),
                    });
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
        let lost = |error: io::Error| leader.lost(&error);
        // Node 0 answers when all nodes have connected.
        let times = ConnectionTimes::default();
        let times = ConnectionTimes { timeout: timeout.max(times.timeout), ..times };
        let (sender, mut receiver) = split_stream(stream, folder, times).map_err(lost)?;
        let hello = NodeMessage::Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node,
            nodes,
            host: host.to_owned(),
        };
        sender.send(&hello).map_err(lost)?;
        match receiver.receive().map_err(lost)?.0 {
            NodeMessage::Welcome { device_profile, .. } => {
                Ok((Self { leader, sender, receiver }, device_profile))
            }
            NodeMessage::Refused(refusal) => Err(NodeError::Refused(refusal)),
            _ => Err(leader.lost(&UNEXPECTED)),
        }
    }

    /// Sends the values of this node, and waits until all nodes agree.
    pub(crate) fn agree(&mut self, agreement: &NodeAgreement) -> Result<(), NodeError> {
        let lost = |error: io::Error| self.leader.lost(&error);
        self.sender.send(&NodeMessage::Agreement(agreement.values())).map_err(lost)?;
        match self.receiver.receive().map_err(lost)?.0 {
            NodeMessage::Accepted => {}
            NodeMessage::Refused(refusal) => return Err(NodeError::Refused(refusal)),
            _ => return Err(self.leader.lost(&UNEXPECTED)),
        }
        let times = ConnectionTimes::default();
        let receiver = self.receiver.set_read_timeout(times.timeout);
        receiver.and_then(|()| self.sender.start_heartbeats(times)).map_err(lost)
    }

    /// Sends node 0 the reason why this node cannot take part.
    pub(crate) fn refuse(&self, refusal: NodeRefusal) {
        let _ = self.sender.send(&NodeMessage::Refused(refusal));
        self.sender.close();
    }

    pub(crate) fn results(&self) -> ResultSender {
        ResultSender(Arc::clone(&self.sender))
    }

    /// Returns the next request of node 0. Fails if it was lost.
    pub(crate) fn receive(&mut self) -> Result<FollowerRequest, NodeError> {
        let lost = |error: io::Error| self.leader.lost(&error);
        match self.receiver.receive().map_err(lost)?.0 {
            NodeMessage::FurtherCases { sweep } => Ok(FollowerRequest::AddCases { sweep }),
            NodeMessage::Start(order) => Ok(FollowerRequest::Start(order)),
            NodeMessage::Stop { collection } => Ok(FollowerRequest::Stop { collection }),
            NodeMessage::End { exit } => Ok(FollowerRequest::End { exit }),
            NodeMessage::Refused(refusal) => Err(NodeError::Refused(refusal)),
            _ => Err(self.leader.lost(&UNEXPECTED)),
        }
    }
}

impl Drop for LeaderConnection {
    fn drop(&mut self) {
        self.sender.close();
    }
}
