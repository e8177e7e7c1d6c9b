//! Admission of the followers by node 0: all connect, and all must have the same values, before anything is launched.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    NodeAgreement, NodeError,
    cluster::{NodeCluster, StartedFollower},
    connection::{ConnectionTimes, NodeReceiver, NodeSender, divide},
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

/// A follower during its admission.
enum Admission {
    Ready {
        node: usize,
        host: String,
        agreement: NodeAgreement,
        sides: Box<(Arc<NodeSender>, NodeReceiver)>,
    },
    Refused(NodeError),
    /// A connection of another program.
    Foreign,
}

/// Values that node 0 compares with, or sends to, each follower that connects.
#[derive(Clone, Debug)]
struct Greeting {
    nodes: usize,
    host: String,
    device_profile: String,
}

impl NodeListener {
    /// Opens the control port, and checks that the following one, of torchrun's store, can be opened.
    pub(crate) fn open(address: &str, port: u16) -> Result<Self, NodeError> {
        let listener = open(address, port)?;
        drop(open(address, port.saturating_add(1))?);
        Ok(Self { listener, address: address.to_owned(), port })
    }

    /// Waits until all followers have connected, and compares their values with those of node 0. Received files are
    /// written into `folder`. Fails if a follower is missing or differs; all connected ones get the reason.
    pub(crate) fn admit(
        self,
        nodes: usize,
        host: &str,
        device_profile: &str,
        agreement: &NodeAgreement,
        timeout: Duration,
        folder: &Path,
    ) -> Result<NodeCluster, NodeError> {
        let mut ready: BTreeMap<usize, (String, Arc<NodeSender>, NodeReceiver)> = BTreeMap::new();
        let admitted =
            self.wait_for_followers(nodes, host, device_profile, agreement, timeout, folder, &mut ready);
        if let Err(error) = admitted {
            let message = error.to_string();
            for (_, sender, _) in ready.values() {
                let _ = sender.send(&NodeMessage::Refused { message: message.clone() });
            }
            return Err(error);
        }
        let lost = |node: usize, host: &str, error: &io::Error| {
            NodeError::Refused(format!("{} was lost: {error}", node_name(node, host)))
        };
        let mut followers = BTreeMap::new();
        for (node, (host, sender, receiver)) in ready {
            sender.send(&NodeMessage::Accepted).map_err(|error| lost(node, &host, &error))?;
            let follower = StartedFollower::start(node, host.clone(), sender, receiver);
            followers.insert(node, follower.map_err(|error| lost(node, &host, &error))?);
        }
        Ok(NodeCluster::new(host.to_owned(), self.address, self.port.saturating_add(1), followers))
    }

    #[expect(clippy::too_many_arguments, reason = "the conditions of an admission")]
    fn wait_for_followers(
        &self,
        nodes: usize,
        host: &str,
        device_profile: &str,
        agreement: &NodeAgreement,
        timeout: Duration,
        folder: &Path,
        ready: &mut BTreeMap<usize, (String, Arc<NodeSender>, NodeReceiver)>,
    ) -> Result<(), NodeError> {
        let greeting = Greeting { nodes, host: host.to_owned(), device_profile: device_profile.to_owned() };
        let system = |error: &io::Error| NodeError::Port {
            address: self.address.clone(),
            port: self.port,
            problem: error.to_string(),
        };
        self.listener.set_nonblocking(true).map_err(|error| system(&error))?;
        let (admissions, admitted) = mpsc::channel();
        let deadline = Instant::now() + timeout;
        while ready.len() + 1 < nodes {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let (admissions, greeting, folder) =
                        (admissions.clone(), greeting.clone(), folder.to_owned());
                    let greet = move || {
                        let _ = admissions.send(greet_follower(stream, &greeting, &folder, deadline));
                    };
                    thread::Builder::new()
                        .name("node".to_owned())
                        .spawn(greet)
                        .map_err(|error| system(&error))?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(ACCEPT_INTERVAL),
                Err(error) => return Err(system(&error)),
            }
            while let Ok(admission) = admitted.try_recv() {
                match admission {
                    Admission::Foreign => {}
                    Admission::Refused(error) => return Err(error),
                    Admission::Ready { node, host: other_host, agreement: others, sides } => {
                        let (sender, receiver) = *sides;
                        let difference = match ready.get(&node) {
                            Some((first, ..)) => {
                                Some(format!("two hosts are node {node}: {first} and {other_host}"))
                            }
                            None => agreement.difference(host, node, &others, &other_host),
                        };
                        if let Some(message) = difference {
                            let _ = sender.send(&NodeMessage::Refused { message: message.clone() });
                            return Err(NodeError::Refused(message));
                        }
                        ready.insert(node, (other_host, sender, receiver));
                    }
                }
            }
            if Instant::now() >= deadline {
                let missing: Vec<String> = (1..nodes)
                    .filter(|node| !ready.contains_key(node))
                    .map(|node| node.to_string())
                    .collect();
                let word = if missing.len() == 1 { "node" } else { "nodes" };
                return Err(NodeError::Missing {
                    nodes: format!("{word} {}", missing.join(", ")),
                    address: self.address.clone(),
                    port: self.port,
                    seconds: timeout.as_secs(),
                });
            }
        }
        Ok(())
    }
}

/// Exchanges versions and values with a follower.
fn greet_follower(stream: TcpStream, greeting: &Greeting, folder: &Path, deadline: Instant) -> Admission {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
    // A follower reads its devices and its catalogue before it answers.
    let times = ConnectionTimes {
        silence: left.max(ConnectionTimes::default().silence),
        ..ConnectionTimes::default()
    };
    let Ok((sender, mut receiver)) = divide(stream, folder, times) else { return Admission::Foreign };
    let Ok((NodeMessage::Hello { version, node, nodes, host }, _)) = receiver.receive() else {
        return Admission::Foreign;
    };
    let refuse = |message: String| {
        let _ = sender.send(&NodeMessage::Refused { message: message.clone() });
        Admission::Refused(NodeError::Refused(message))
    };
    let [first, other] = [node_name(0, &greeting.host), node_name(node, &host)];
    let own_version = env!("CARGO_PKG_VERSION");
    if version != own_version {
        return refuse(format!("npubench is {own_version} on {first} and {version} on {other}"));
    }
    if nodes != greeting.nodes {
        return refuse(format!(
            "the number of nodes is {} on {first} and {nodes} on {other}",
            greeting.nodes
        ));
    }
    if node == 0 || node >= nodes {
        return refuse(format!("{host} is node {node}, expected 1 to {}", nodes.saturating_sub(1)));
    }
    let welcome =
        NodeMessage::Welcome { device_profile: greeting.device_profile.clone(), host: greeting.host.clone() };
    let answer = sender.send(&welcome).and_then(|()| receiver.receive());
    match answer {
        Ok((NodeMessage::Agreement(values), _)) => Admission::Ready {
            node,
            host,
            agreement: NodeAgreement::from_values(values),
            sides: Box::new((sender, receiver)),
        },
        Ok((NodeMessage::Refused { message }, _)) => {
            Admission::Refused(NodeError::Refused(format!("{other} cannot take part: {message}")))
        }
        Ok(_) => Admission::Refused(NodeError::Refused(format!("{other} sent an unexpected message"))),
        Err(error) => Admission::Refused(NodeError::Refused(format!("{other} was lost: {error}"))),
    }
}
