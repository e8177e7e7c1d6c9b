//! Admission of the followers by node 0: all connect, and all must have the same values, before anything is launched.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::errno::Errno;

use super::{
    NodeAgreement, NodeError, NodeRefusal,
    cluster::{NodeCluster, StartedFollower},
    connection::{ConnectionTimes, NodeReceiver, NodeSender, split_stream},
    follower::UNEXPECTED,
    messages::NodeMessage,
    node_name,
};

/// Interval at which connections are accepted.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);

/// Control port of node 0.
#[derive(Debug)]
pub(crate) struct NodeListener {
    listener: TcpListener,
    address: String,
    port: u16,
}

/// Returns the address on which node 0 listens: only hosts that are this one by name get connections of this one alone.
fn listening_address(address: &str, port: u16) -> SocketAddr {
    let resolved = (address, port).to_socket_addrs().into_iter().flatten().next();
    let is_given_as_local =
        address == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    match resolved {
        Some(resolved) if is_given_as_local => resolved,
        Some(SocketAddr::V6(_)) => SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), port),
        _ => any,
    }
}

fn open(address: &str, port: u16) -> Result<TcpListener, NodeError> {
    TcpListener::bind(listening_address(address, port)).map_err(|error| NodeError::Port {
        address: address.to_owned(),
        port,
        problem: match error.kind() {
            io::ErrorKind::AddrInUse => "another program uses it".to_owned(),
            _ => error.to_string(),
        },
    })
}

/// Result of the admission of a connection.
enum Admission {
    Ready {
        node: usize,
        agreement: NodeAgreement,
        follower: AdmittedFollower,
    },
    Refused(NodeError),
    /// A connection of another program.
    Foreign,
}

/// A follower that waits for the others.
struct AdmittedFollower {
    host: String,
    sender: Arc<NodeSender>,
    receiver: NodeReceiver,
}

/// Conditions of the admission of followers.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionTerms {
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Name of the host of node 0.
    pub(crate) host: String,
    /// Device profile of the database.
    pub(crate) device_profile: String,
    /// Values of node 0.
    pub(crate) agreement: NodeAgreement,
    /// Time in which all followers must have connected.
    pub(crate) timeout: Duration,
    /// Folder of received files.
    pub(crate) folder: PathBuf,
}

/// Returns true if an error of `accept` belongs to one connection, or a signal interrupted the call; accept(2) lists the
/// errors of the network.
fn is_retried(error: &io::Error) -> bool {
    let is_of_network = || {
        let codes = [
            Errno::ENETDOWN,
            Errno::EPROTO,
            Errno::ENOPROTOOPT,
            Errno::EHOSTDOWN,
            Errno::ENONET,
            Errno::EHOSTUNREACH,
            Errno::EOPNOTSUPP,
            Errno::ENETUNREACH,
        ];
        error.raw_os_error().is_some_and(|code| codes.contains(&Errno::from_raw(code)))
    };
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    ) || is_of_network()
}

impl NodeListener {
    /// Opens the control port, and checks that the following one, of torchrun's store, can be opened.
    pub(crate) fn open(address: &str, port: u16) -> Result<Self, NodeError> {
        let listener = open(address, port)?;
        drop(open(address, port.saturating_add(1))?);
        Ok(Self { listener, address: address.to_owned(), port })
    }

    /// Waits until all followers have connected, and compares their values with those of node 0. Fails if a follower is
    /// missing or differs; all connected ones get the reason.
    pub(crate) fn admit(self, terms: AdmissionTerms) -> Result<NodeCluster, NodeError> {
        let mut ready: BTreeMap<usize, AdmittedFollower> = BTreeMap::new();
        let host = terms.host.clone();
        if let Err(error) = self.wait_for_followers(terms, &mut ready) {
            let refusal = error.refusal();
            for follower in ready.values() {
                let _ = follower.sender.send(&NodeMessage::Refused(refusal.clone()));
            }
            return Err(error);
        }
        let mut followers = BTreeMap::new();
        for (node, AdmittedFollower { host, sender, receiver }) in ready {
            let lost = |error: io::Error| follower_lost(node, &host, &error);
            sender.send(&NodeMessage::Accepted).map_err(lost)?;
            let follower = StartedFollower::start(node, host.clone(), sender, receiver).map_err(lost)?;
            followers.insert(node, follower);
        }
        Ok(NodeCluster::new(host, self.address, self.port.saturating_add(1), followers))
    }

    fn wait_for_followers(
        &self,
        terms: AdmissionTerms,
        ready: &mut BTreeMap<usize, AdmittedFollower>,
    ) -> Result<(), NodeError> {
        let system = |error: io::Error| NodeError::Admission {
            address: self.address.clone(),
            port: self.port,
            problem: error.to_string(),
        };
        self.listener.set_nonblocking(true).map_err(system)?;
        let (admissions, admitted) = mpsc::channel();
        let deadline = Instant::now() + terms.timeout;
        let terms = Arc::new(terms);
        while ready.len() + 1 < terms.nodes {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let (admissions, terms) = (admissions.clone(), Arc::clone(&terms));
                    let admit = move || {
                        let _ = admissions.send(admit_follower(stream, &terms, deadline));
                    };
                    thread::Builder::new().name("node".to_owned()).spawn(admit).map_err(system)?;
                }
                Err(error) if is_retried(&error) => thread::sleep(ACCEPT_INTERVAL),
                Err(error) => return Err(system(error)),
            }
            while let Ok(admission) = admitted.try_recv() {
                match admission {
                    Admission::Foreign => {}
                    Admission::Refused(error) => return Err(error),
                    Admission::Ready { node, agreement, follower } => {
                        if let Some(refusal) = terms.difference(node, &agreement, &follower, ready.get(&node))
                        {
                            let _ = follower.sender.send(&NodeMessage::Refused(refusal.clone()));
                            return Err(NodeError::Refused(refusal));
                        }
                        ready.insert(node, follower);
                    }
                }
            }
            if Instant::now() >= deadline {
                let missing: Vec<String> = (1..terms.nodes)
                    .filter(|node| !ready.contains_key(node))
                    .map(|node| node.to_string())
                    .collect();
                let word = if missing.len() == 1 { "node" } else { "nodes" };
                return Err(NodeError::Missing {
                    nodes: format!("{word} {}", missing.join(", ")),
                    address: self.address.clone(),
                    port: self.port,
                    seconds: terms.timeout.as_secs(),
                });
            }
        }
        Ok(())
    }
}

fn follower_lost(node: usize, host: &str, problem: &impl ToString) -> NodeError {
    NodeError::FollowerLost { node: node_name(node, host), problem: problem.to_string() }
}

impl AdmissionTerms {
    /// Describes why a follower cannot be admitted: another one has its number, or its values differ.
    fn difference(
        &self,
        node: usize,
        agreement: &NodeAgreement,
        follower: &AdmittedFollower,
        known: Option<&AdmittedFollower>,
    ) -> Option<NodeRefusal> {
        if let Some(known) = known {
            return Some(NodeRefusal::new(
                format!("two hosts are node {node}: {} and {}", known.host, follower.host),
                "give each node its own `--node-rank`; under `srun`, start one task on each node",
            ));
        }
        let difference = self.agreement.difference(&self.host, node, agreement, &follower.host)?;
        Some(NodeRefusal::new(
            difference,
            "start the same command, with the same options and variables of HCCL, on hosts with the same devices and versions; \
             nothing has been launched",
        ))
    }

    /// Checks version and number of a follower.
    fn check_hello(&self, version: &str, node: usize, nodes: usize, host: &str) -> Result<(), NodeRefusal> {
        let [first, other] = [node_name(0, &self.host), node_name(node, host)];
        let own_version = env!("CARGO_PKG_VERSION");
        if version != own_version {
            return Err(NodeRefusal::new(
                format!("npubench is {own_version} on {first} and {version} on {other}"),
                "install the same version of npubench on all nodes",
            ));
        }
        if nodes != self.nodes {
            return Err(NodeRefusal::new(
                format!("the number of nodes is {} on {first} and {nodes} on {other}", self.nodes),
                "give the same `--nnodes` on all nodes",
            ));
        }
        if node == 0 || node >= nodes {
            let last = nodes.saturating_sub(1);
            return Err(NodeRefusal::new(
                format!("{host} is node {node}, expected 1 to {last}"),
                format!("give each node its own `--node-rank`, from 0 to {last}"),
            ));
        }
        Ok(())
    }
}

/// Exchanges versions and values with a follower.
fn admit_follower(stream: TcpStream, terms: &AdmissionTerms, deadline: Instant) -> Admission {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
    // A follower reads its devices and its catalogue before it answers.
    let times = ConnectionTimes::default();
    let times = ConnectionTimes { timeout: left.max(times.timeout), ..times };
    let Ok((sender, mut receiver)) = split_stream(stream, &terms.folder, times) else {
        return Admission::Foreign;
    };
    let Ok((NodeMessage::Hello { version, node, nodes, host }, _)) = receiver.receive() else {
        return Admission::Foreign;
    };
    if let Err(refusal) = terms.check_hello(&version, node, nodes, &host) {
        let _ = sender.send(&NodeMessage::Refused(refusal.clone()));
        return Admission::Refused(NodeError::Refused(refusal));
    }
    let welcome =
        NodeMessage::Welcome { device_profile: terms.device_profile.clone(), host: terms.host.clone() };
    let answer = sender.send(&welcome).and_then(|()| receiver.receive());
    match answer {
        Ok((NodeMessage::Agreement(values), _)) => Admission::Ready {
            node,
            agreement: NodeAgreement::from_values(values),
            follower: AdmittedFollower { host, sender, receiver },
        },
        Ok((NodeMessage::Refused(NodeRefusal { message, hint }), _)) => {
            let message = format!("{} cannot take part: {message}", node_name(node, &host));
            Admission::Refused(NodeError::Refused(NodeRefusal { message, hint }))
        }
        Ok(_) => Admission::Refused(follower_lost(node, &host, &UNEXPECTED)),
        Err(error) => Admission::Refused(follower_lost(node, &host, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_accepts_and_broken_connections_do_not_end_the_admission() {
        for code in [Errno::EINTR, Errno::ECONNABORTED, Errno::EAGAIN, Errno::ENETUNREACH, Errno::EPROTO] {
            assert!(is_retried(&io::Error::from_raw_os_error(code as i32)), "{code}");
        }
        for code in [Errno::EMFILE, Errno::ENOBUFS, Errno::EBADF] {
            assert!(!is_retried(&io::Error::from_raw_os_error(code as i32)), "{code}");
        }
    }
}
