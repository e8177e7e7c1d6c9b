//! Hosts of a sweep over several nodes: what they agree on, and the connections between them.
//!
//! Node 0 listens on the control port, compares what the others have with what it has, and starts the parts of each
//! collection. The others are followers: they render the scripts themselves, so that only numbers and evidence are
//! sent. A message is a line of JSON with a limited length; a file follows the line that announces its size. Both
//! sides send heartbeats, so that a lost host is noticed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{command_error::Failure, exit::ExitStatus};

mod admission;
mod cluster;
mod connection;
mod follower;
pub(crate) mod session;

pub(crate) use admission::{AdmissionTerms, NodeListener};
pub(crate) use cluster::{NodeCluster, PartState};
pub(crate) use connection::{NodeHost, NodeMessage, NodeSender, PartEnd, PartOrder, PartResult};
pub(crate) use follower::LeaderConnection;

/// Reason why a node cannot take part, also as it is sent to the others. Nothing has been launched, unless a connection
/// was lost later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NodeError {
    message: String,
    hint: String,
    /// False if the input of a node is wrong, or differs from the input of the other nodes.
    #[serde(skip)]
    is_of_host: bool,
}

impl NodeError {
    pub(crate) fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), is_of_host: false }
    }

    fn of_host(message: String, hint: &str) -> Self {
        Self { message, hint: hint.to_owned(), is_of_host: true }
    }
}

impl Failure for NodeError {
    fn hint(&self) -> String {
        if self.hint.is_empty() {
            return "the output of the other node has the reason; nothing has been launched".to_owned();
        }
        self.hint.clone()
    }

    fn exit_status(&self) -> ExitStatus {
        if self.is_of_host { ExitStatus::CannotMeasure } else { ExitStatus::BadInput }
    }
}

/// Place of this process among the nodes of a sweep.
#[derive(Clone, Debug)]
pub(crate) struct NodePlace {
    pub(crate) nodes: usize,
    pub(crate) node: usize,
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) timeout: Duration,
    /// True if a step of Slurm has started the nodes.
    pub(crate) is_slurm_step: bool,
}

const UNEXPECTED: &str = "it sent an unexpected message";

fn node_name(node: usize, host: &str) -> String {
    format!("node {node} ({host})")
}
