//! Hosts of a sweep over several nodes: what they agree on, and the connections between them.
//!
//! Node 0 listens on the control port, compares what the others have with what it has, and starts the parts of each
//! collection. The others are followers: they render the scripts themselves, so that only numbers and evidence are
//! sent. A message is a line of JSON with a limited length; a file follows the line that announces its size. Both
//! sides send heartbeats, so that a lost host is noticed.

use crate::base::command_error::Failure;
use crate::base::exit::ExitStatus;

mod admission;
mod agreement;
mod cluster;
mod connection;
mod follower;
mod messages;
pub(crate) mod session;

pub(crate) use admission::{AdmissionTerms, NodeListener};
pub(crate) use agreement::NodeAgreement;
pub(crate) use cluster::{NodeCluster, PartState};
pub(crate) use follower::{FollowerRequest, LeaderAddress, LeaderConnection, ResultSender};
pub(crate) use messages::{NodeHost, NodeRefusal, PartEnd, PartOrder, PartResult};

/// Error of the agreement of the nodes. Nothing has been launched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// A node differs, or cannot take part.
    #[error("{}", .0.message)]
    Refused(NodeRefusal),
    /// A port cannot be opened.
    #[error("port {port} of {address} cannot be opened: {problem}")]
    Port { address: String, port: u16, problem: String },
    /// The system refuses connections or threads.
    #[error("the other nodes cannot connect to {address} port {port}: {problem}")]
    Admission { address: String, port: u16, problem: String },
    /// Followers did not connect in time.
    #[error("{nodes} did not connect to {address} port {port} within {seconds} s")]
    Missing { nodes: String, address: String, port: u16, seconds: u64 },
    /// The connection of a follower was lost before all nodes had agreed.
    #[error("{node} was lost: {problem}")]
    FollowerLost { node: String, problem: String },
    /// A follower cannot connect to node 0.
    #[error("node 0 at {address} port {port} is not reachable within {seconds} s: {problem}")]
    Unreachable { address: String, port: u16, seconds: u64, problem: String },
    /// The connection to node 0 was lost.
    #[error("node 0 at {address} port {port} was lost: {problem}")]
    LeaderLost { address: String, port: u16, problem: String },
}

impl NodeError {
    /// Returns the reason for the other nodes.
    fn refusal(&self) -> NodeRefusal {
        NodeRefusal::new(self.to_string(), self.hint())
    }
}

impl Failure for NodeError {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Refused(refusal) if refusal.hint.is_empty() => {
                "the output of the other node has the reason; nothing has been launched"
            }
            Self::Refused(refusal) => &refusal.hint,
            Self::Port { .. } => {
                "choose another one for all nodes with `--master-port`; it and the following port must be free on node 0"
            }
            Self::Admission { .. } => {
                "raise the limits of open files (`ulimit -n`) and processes (`ulimit -u`) on node 0, then start the same \
                 command again on all nodes"
            }
            Self::Missing { .. } => {
                "start the same command on each node with its `--node-rank`; `--node-timeout` gives the time to wait, and a \
                 firewall must allow the port and the following one"
            }
            Self::FollowerLost { .. } => {
                "the output of that node has the reason, unless its host or the network failed; start the same command again \
                 on all nodes"
            }
            Self::Unreachable { .. } => {
                "`--master-addr` and `--master-port` are those of node 0, where the same command must run; `--node-timeout` \
                 gives the time to wait"
            }
            Self::LeaderLost { .. } => {
                "the output of node 0 has the reason, unless its host or the network failed; start the same command again on \
                 all nodes"
            }
        };
        hint.to_owned()
    }

    fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Refused(_) | Self::Port { .. } => ExitStatus::BadInput,
            _ => ExitStatus::CannotMeasure,
        }
    }
}

/// Returns `node 1 (host-b)`.
fn node_name(node: usize, host: &str) -> String {
    format!("node {node} ({host})")
}
