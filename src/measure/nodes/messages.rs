//! Messages between the nodes.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::NodeError;

/// Values of a node by their names.
pub(crate) type NodeAgreement = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeHost {
    pub(crate) node: usize,
    pub(crate) name: String,
    /// Number of its ranks, which follow the ranks of the hosts before it.
    pub(crate) ranks: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartOrder {
    pub(crate) run: String,
    pub(crate) collection: u32,
    /// Ids of the cases in the order of their launches.
    pub(crate) cases: Vec<String>,
    /// Devices by rank, each by its number on its host.
    pub(crate) devices: Vec<u32>,
    pub(crate) hosts: Vec<NodeHost>,
    pub(crate) place: usize,
    pub(crate) store_port: u16,
    /// Time limit in seconds.
    pub(crate) limit: f64,
    /// Wall time in seconds after which the part is ended in any case.
    pub(crate) cut_off: Option<f64>,
    /// Digest of the manifest and the script that the node must render.
    pub(crate) digest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartEnd {
    Done,
    Failed,
    TimedOut,
    Stopped,
    NotStarted,
    /// The host cannot write or archive the evidence of the part.
    EvidenceUnwritable,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartResult {
    pub(crate) collection: u32,
    pub(crate) end: PartEnd,
    /// Last line of the log, or the reason why the script was not started or its evidence is missing.
    pub(crate) message: String,
    /// Archive of the evidence in the receiving node.
    #[serde(skip)]
    pub(crate) archive: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeMessage {
    /// First message of a follower. Its form must not change between versions.
    Hello {
        version: String,
        node: usize,
        nodes: usize,
        host: String,
    },
    /// Answer of node 0: the device profile of its database, by which groups are found.
    Welcome {
        device_profile: String,
    },
    /// What the follower has, by name.
    Agreement(NodeAgreement),
    /// The sender cannot take part, or refuses the other one.
    Refused(NodeError),
    Accepted,
    /// Further cases of the sweep, as text of JSON.
    FurtherCases {
        sweep: String,
    },
    Start(Box<PartOrder>),
    Stop {
        collection: u32,
    },
    Ended(PartResult),
    StopRequested,
    End {
        exit: u8,
    },
    Heartbeat,
}
