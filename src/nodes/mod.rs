//! Hosts of a sweep over several nodes: what they agree on, and the connections between them.
//!
//! Layer 4: imports no module of this crate.
//!
//! Node 0 listens on the control port, compares what the others have with what it has, and starts the parts of each
//! collection. The others are followers: they render the scripts themselves, so that only numbers and evidence are
//! sent. A message is a line of JSON with a limited length; a file follows the line that announces its size. Both
//! sides send a sign of life while nothing else is sent, so that a lost host is noticed.

mod admission;
mod agreement;
mod cluster;
mod connection;
mod follower;
mod messages;

pub(crate) use admission::NodeListener;
pub(crate) use agreement::NodeAgreement;
pub(crate) use cluster::{NodeCluster, PartState};
pub(crate) use follower::{FollowedConnection, FollowerRequest, LeaderPlace, ResultSender};
pub(crate) use messages::{NodeHost, PartEnd, PartOrder, PartResult};

/// Error of the agreement of the nodes. Nothing has been launched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// A node differs, or cannot take part.
    #[error("{0}")]
    Refused(String),
    /// A port cannot be opened.
    #[error("port {port} of {address} cannot be opened: {problem}")]
    Port { address: String, port: u16, problem: String },
    /// Followers did not connect in time.
    #[error("{nodes} did not connect to {address} port {port} within {seconds} s")]
    Missing { nodes: String, address: String, port: u16, seconds: u64 },
    /// Node 0 cannot be reached, or its connection was lost.
    #[error("node 0 at {address} port {port} {problem}")]
    Leader { address: String, port: u16, problem: String },
}

impl NodeError {
    /// Returns the recommended action.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::Refused(_) => "make the nodes equal; nothing has been launched",
            Self::Port { .. } => {
                "choose another one for all nodes with `--master-port`; it and the following port must be free on node 0"
            }
            Self::Missing { .. } => {
                "start the same command on each node with its `--node-rank`; `--node-timeout` gives the time to wait, and a \
                 firewall must allow the port and the following one"
            }
            Self::Leader { .. } => {
                "`--master-addr` and `--master-port` are those of node 0, where the same command must run; `--node-timeout` \
                 gives the time to wait"
            }
        }
    }
}

/// Returns `node 1 (host-b)`.
fn node_name(node: usize, host: &str) -> String {
    format!("node {node} ({host})")
}
