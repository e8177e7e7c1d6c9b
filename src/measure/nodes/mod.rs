//! Hosts of a sweep over several nodes: what they agree on, and the connections between them.
//!
//! Node 0 compares what the others have with what it has, and starts the parts of each collection. The others are
//! followers: they render the scripts themselves, so that only numbers, names and evidence are sent. Messages are JSON of a
//! limited length, in a shared folder or over a connection that is sealed with a secret. Both sides send
//! heartbeats, so that a lost host is noticed.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::base::{command_error::Failure, exit::ExitStatus};

mod admission;
mod cluster;
mod connection;
mod follower;
mod message;
mod secret_stream;
pub(crate) mod session;
mod shared_folder;

pub(crate) use admission::{AdmissionTerms, NodeListener};
pub(crate) use cluster::{NodeCluster, PartState};
pub(crate) use follower::LeaderConnection;
pub(crate) use message::{NodeHost, NodeMessage, PartEnd, PartOrder, PartResult};
pub(crate) use secret_stream::NodeSecret;

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
    /// Address of node 0, and the port of torchrun's store there.
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) meeting: NodeMeeting,
    pub(crate) timeout: Duration,
    /// True if a step of Slurm has started the nodes.
    pub(crate) is_slurm_step: bool,
}

/// How the nodes exchange messages.
#[derive(Clone, Debug)]
pub(crate) enum NodeMeeting {
    /// By a folder that all nodes see.
    Shared(PathBuf),
    /// By the port after that of torchrun's store, with a secret.
    Secret(NodeSecret),
}

/// Time without a sign of life after which the other node counts as lost, with a secret.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The same by a shared folder: NFS may show what another host wrote 60 s late (nfs(5): acregmax), and a writer waits for
/// its server.
const SHARED_TIMEOUT: Duration = Duration::from_secs(150);
pub(crate) const MAX_NODES: usize = 4096;

impl NodePlace {
    const fn control_port(&self) -> u16 {
        self.port.saturating_add(1)
    }

    const fn lost_after(&self) -> Duration {
        match self.meeting {
            NodeMeeting::Shared(_) => SHARED_TIMEOUT,
            NodeMeeting::Secret(_) => TIMEOUT,
        }
    }

    /// Returns the place where the nodes meet, for messages.
    fn meeting_place(&self) -> String {
        match &self.meeting {
            NodeMeeting::Shared(folder) => format!("in the folder `{}`", folder.display()),
            NodeMeeting::Secret(_) => format!("at {} port {}", self.address, self.control_port()),
        }
    }
}

const UNEXPECTED: &str = "it sent an unexpected message";

fn node_name(node: usize, host: &str) -> String {
    format!("node {node} ({host})")
}
