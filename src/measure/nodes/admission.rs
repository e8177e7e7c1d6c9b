//! Admission of the followers by node 0: all connect, and all must have the same values, before anything is launched.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    NodeError, NodeMeeting, NodePlace, UNEXPECTED,
    cluster::{Follower, NodeCluster},
    connection::{NodeReceiver, NodeSender, NodeStreams, connection},
    message::{NodeAgreement, NodeMessage},
    node_name,
    secret_stream::{SecretListener, check_store_port},
    shared_folder::SharedSession,
};
use crate::base::suggest::truncate_for_message;

const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) enum NodeListener {
    Shared(SharedSession),
    Secret(SecretListener),
}

struct AdmittedFollower {
    node: usize,
    host: String,
    agreement: NodeAgreement,
    sender: Arc<NodeSender>,
    receiver: NodeReceiver,
}

/// What node 0 has, with which the followers are compared.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionTerms {
    pub(crate) place: NodePlace,
    pub(crate) host: String,
    pub(crate) device_profile: String,
    pub(super) agreement: NodeAgreement,
    pub(crate) folder: PathBuf,
}

impl NodeListener {
    /// Begins a session, or opens the control port, and checks that torchrun's store can open its port.
    pub(crate) fn open(place: &NodePlace) -> Result<Self, NodeError> {
        let NodePlace { address, port, meeting, .. } = place;
        check_store_port(address, *port)?;
        Ok(match meeting {
            NodeMeeting::Shared(folder) => Self::Shared(SharedSession::open(folder)?),
            NodeMeeting::Secret(secret) => {
                Self::Secret(SecretListener::open(address, place.control_port(), secret.clone())?)
            }
        })
    }

    fn accept(&mut self, nodes: usize) -> io::Result<Option<NodeStreams>> {
        match self {
            Self::Shared(session) => session.accept(nodes),
            Self::Secret(listener) => listener.accept(),
        }
    }

    /// Waits until all followers have connected, and compares their values with the values of node 0. Fails if a
    /// follower is missing or differs; all connected followers are told the reason.
    pub(crate) fn admit(mut self, terms: AdmissionTerms) -> Result<NodeCluster, NodeError> {
        let mut ready: BTreeMap<usize, AdmittedFollower> = BTreeMap::new();
        let (host, place) = (terms.host.clone(), terms.place.clone());
        if let Err(error) = self.wait_for_followers(terms, &mut ready) {
            ready.values().for_each(|follower| follower.sender.refuse(error.clone()));
            return Err(error);
        }
        let mut followers = BTreeMap::new();
        for (node, AdmittedFollower { host, sender, receiver, .. }) in ready {
            let accepted = sender.send(&NodeMessage::Accepted);
            let started = accepted
                .and_then(|()| Follower::start(node, host.clone(), (sender, receiver), place.lost_after()));
            followers.insert(node, started.map_err(|error| follower_lost(node, &host, &error))?);
        }
        let session = match self {
            Self::Shared(session) => Some(session),
            Self::Secret(_) => None,
        };
        Ok(NodeCluster { host, place, followers, session })
    }

    fn wait_for_followers(
        &mut self,
        terms: AdmissionTerms,
        ready: &mut BTreeMap<usize, AdmittedFollower>,
    ) -> Result<(), NodeError> {
        let (NodePlace { nodes, timeout, .. }, meeting) = (terms.place.clone(), terms.place.meeting_place());
        let system = |error: io::Error| {
            NodeError::of_host(
                format!("the other nodes cannot connect {meeting}: {error}"),
                "raise the limits of open files (`ulimit -n`) and processes (`ulimit -u`) on node 0, then start the same \
                 command again on all nodes",
            )
        };
        let (admissions, admitted) = mpsc::channel();
        let deadline = Instant::now() + timeout;
        let terms = Arc::new(terms);
        let (mut last_error, mut admitting) = (String::new(), 0);
        while ready.len() + 1 < nodes {
            // Also a node with the secret may open connections without an end.
            match if admitting < 2 * nodes { self.accept(nodes) } else { Ok(None) } {
                Ok(Some(streams)) => {
                    let (admissions, terms) = (admissions.clone(), Arc::clone(&terms));
                    let admit = move || admissions.send(terms.admit(streams, deadline));
                    admitting += 1;
                    thread::Builder::new().name("node".to_owned()).spawn(admit).map_err(system)?;
                }
                Ok(None) => thread::sleep(ACCEPT_INTERVAL),
                // It may belong to one connection, or be over soon.
                Err(error) => {
                    last_error = format!(" ({error})");
                    thread::sleep(ACCEPT_INTERVAL);
                }
            }
            for admission in admitted.try_iter() {
                admitting -= 1;
                let Some(follower) = admission? else { continue };
                if let Some(error) = terms.difference(&follower, ready.get(&follower.node)) {
                    follower.sender.refuse(error.clone());
                    return Err(error);
                }
                ready.insert(follower.node, follower);
            }
            if Instant::now() >= deadline {
                let missing = (1..nodes).filter(|node| !ready.contains_key(node));
                let missing: Vec<String> = missing.map(|node| node.to_string()).collect();
                let word = if missing.len() == 1 { "node" } else { "nodes" };
                let (missing, seconds) = (missing.join(", "), timeout.as_secs());
                return Err(NodeError::of_host(
                    format!("{word} {missing} did not connect {meeting} within {seconds} s{last_error}"),
                    "start the same command on each node with its `--node-rank`; `--node-timeout` gives the time to wait. All nodes \
                     must see the folder; with a secret, a firewall must allow `--master-port` and the following port",
                ));
            }
        }
        Ok(())
    }
}

fn follower_lost(node: usize, host: &str, problem: &impl ToString) -> NodeError {
    NodeError::of_host(
        format!("{} was lost: {}", node_name(node, host), problem.to_string()),
        "the output of that node has the reason, unless its host or the network failed; start the same command again on all \
         nodes",
    )
}

fn differing_values(own: &NodeAgreement, others: &NodeAgreement, [one, two]: [&str; 2]) -> Option<String> {
    let shown = |value: Option<&String>| match value.map(String::as_str) {
        None | Some("") => "none".to_owned(),
        Some(value) => format!("`{}`", truncate_for_message(value)),
    };
    let names: BTreeSet<&String> = own.keys().chain(others.keys()).collect();
    let values = names.into_iter().map(|name| (name, own.get(name), others.get(name)));
    let differing: Vec<String> = values
        .filter(|(_, own, other)| own != other)
        .map(|(name, own, other)| format!("{name}: {} on {one}, {} on {two}", shown(own), shown(other)))
        .collect();
    (!differing.is_empty()).then(|| format!("the nodes differ: {}", differing.join("; ")))
}

impl AdmissionTerms {
    fn difference(&self, follower: &AdmittedFollower, known: Option<&AdmittedFollower>) -> Option<NodeError> {
        let AdmittedFollower { node, host, agreement, .. } = follower;
        if let Some(known) = known {
            return Some(NodeError::refused(
                format!("two hosts are node {node}: {} and {host}", known.host),
                "give each node its own `--node-rank`; under `srun`, start one task on each node",
            ));
        }
        let names = [&*node_name(0, &self.host), &node_name(*node, host)];
        let difference = differing_values(&self.agreement, agreement, names)?;
        Some(NodeError::refused(
            difference,
            "start the same command, with the same options and variables of HCCL, on hosts with the same devices and versions; \
             nothing has been launched",
        ))
    }

    fn check_hello(&self, version: &str, node: usize, nodes: usize, host: &str) -> Result<(), NodeError> {
        let [first, other] = [node_name(0, &self.host), node_name(node, host)];
        let (own_version, own_nodes) = (env!("CARGO_PKG_VERSION"), self.place.nodes);
        let (problem, hint) = if version != own_version {
            (
                format!("npubench is {own_version} on {first} and {version} on {other}"),
                "install the same version of npubench on all nodes".to_owned(),
            )
        } else if nodes != own_nodes {
            (
                format!("the number of nodes is {own_nodes} on {first} and {nodes} on {other}"),
                "give the same `--nnodes` on all nodes".to_owned(),
            )
        } else if node == 0 || node >= nodes {
            let last = nodes.saturating_sub(1);
            (
                format!("{host} is node {node}, expected 1 to {last}"),
                format!("give each node its own `--node-rank`, from 0 to {last}"),
            )
        } else {
            return Ok(());
        };
        Err(NodeError::refused(problem, hint))
    }

    /// Exchanges versions and values with a follower. Returns `None` if another program has connected.
    fn admit(&self, streams: NodeStreams, deadline: Instant) -> Result<Option<AdmittedFollower>, NodeError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let (sender, mut receiver) = connection(streams, Some(&self.folder));
        // A follower reads its devices and its catalogue before it answers.
        if receiver.set_timeout(left.max(self.place.lost_after())).is_err() {
            return Ok(None);
        }
        let Ok((NodeMessage::Hello { version, node, nodes, host }, _)) = receiver.receive() else {
            return Ok(None);
        };
        if let Err(error) = self.check_hello(&version, node, nodes, &host) {
            sender.refuse(error.clone());
            return Err(error);
        }
        let welcome = NodeMessage::Welcome { device_profile: self.device_profile.clone() };
        match sender.send(&welcome).and_then(|()| receiver.receive()) {
            Ok((NodeMessage::Agreement(agreement), _)) => {
                Ok(Some(AdmittedFollower { node, host, agreement, sender, receiver }))
            }
            Ok((NodeMessage::Refused(NodeError { message, hint, .. }), _)) => {
                let message = format!("{} cannot take part: {message}", node_name(node, &host));
                Err(NodeError::refused(message, hint))
            }
            Ok(_) => Err(follower_lost(node, &host, &UNEXPECTED)),
            Err(error) => Err(follower_lost(node, &host, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_values_and_both_hosts() {
        let values = |pairs: &[(&str, &str)]| -> NodeAgreement {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let one = values(&[("sizes", "1024, 2048"), ("HCCL variables", "")]);
        assert_eq!(differing_values(&one, &one, ["a", "b"]), None);
        let other =
            values(&[("sizes", "1024, 2048"), ("HCCL variables", "HCCL_ALGO=ring"), ("torch", "2.9")]);
        assert_eq!(
            differing_values(&one, &other, ["a", "b"]).expect("they differ"),
            "the nodes differ: HCCL variables: none on a, `HCCL_ALGO=ring` on b; torch: none on a, `2.9` on b"
        );
    }
}
