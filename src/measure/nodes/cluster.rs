//! The followers of node 0 during a sweep.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::{
    connection::{ConnectionTimes, NodeReceiver, NodeSender},
    messages::{NodeMessage, PartOrder, PartResult},
    node_name,
};

/// State of the part of a node in a collection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartState {
    Running,
    Ended(PartResult),
    /// The node was lost, for this reason.
    Lost(String),
}

/// Connected followers. Dropping it closes the connections, which ends their sweep.
#[derive(Debug)]
pub(crate) struct NodeCluster {
    host: String,
    address: String,
    store_port: u16,
    followers: BTreeMap<usize, StartedFollower>,
}

/// A follower with the thread that receives from it.
#[derive(Debug)]
pub(super) struct StartedFollower {
    node: usize,
    host: String,
    sender: Arc<NodeSender>,
    state: Arc<FollowerState>,
}

#[derive(Debug, Default)]
struct FollowerState {
    received: Mutex<Received>,
    /// True if the follower has received a signal to stop, was lost, or cannot measure any more.
    wants_stop: AtomicBool,
}

#[derive(Debug, Default)]
struct Received {
    results: BTreeMap<u32, PartResult>,
    lost: Option<String>,
    /// Reason why its host cannot measure any more.
    failure: Option<String>,
}

impl FollowerState {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StartedFollower {
    /// Starts the heartbeats and the thread that receives.
    pub(super) fn start(
        node: usize,
        host: String,
        sender: Arc<NodeSender>,
        mut receiver: NodeReceiver,
    ) -> io::Result<Self> {
        let state = Arc::new(FollowerState::default());
        let times = ConnectionTimes::default();
        sender.start_heartbeats(times)?;
        receiver.set_read_timeout(times.timeout)?;
        let shared = Arc::clone(&state);
        let receive = move || {
            let problem = loop {
                match receiver.receive() {
                    Ok((NodeMessage::Ended(result), archive)) => {
                        shared.lock().results.insert(result.collection, PartResult { archive, ..result });
                    }
                    Ok((NodeMessage::StopRequested, _)) => shared.wants_stop.store(true, Ordering::Relaxed),
                    Ok((NodeMessage::Refused(refusal), _)) => break refusal.message,
                    Ok(_) => break "it sent an unexpected message".to_owned(),
                    Err(error) => break error.to_string(),
                }
            };
            shared.lock().lost = Some(problem);
            shared.wants_stop.store(true, Ordering::Relaxed);
        };
        thread::Builder::new().name(format!("node {node}")).spawn(receive)?;
        Ok(Self { node, host, sender, state })
    }
}

impl NodeCluster {
    pub(super) const fn new(
        host: String,
        address: String,
        store_port: u16,
        followers: BTreeMap<usize, StartedFollower>,
    ) -> Self {
        Self { host, address, store_port, followers }
    }

    /// Address of node 0 for torchrun's store.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Port of torchrun's store on node 0.
    pub(crate) const fn store_port(&self) -> u16 {
        self.store_port
    }

    /// Returns the name of a node's host.
    pub(crate) fn host(&self, node: usize) -> &str {
        self.followers.get(&node).map_or(&self.host, |follower| &follower.host)
    }

    /// Starts the part of a node. A node that cannot be reached is lost.
    pub(crate) fn start_part(&self, node: usize, order: PartOrder) {
        // Collections of an earlier run of the sweep have the same numbers.
        if let Some(follower) = self.followers.get(&node) {
            follower.state.lock().results.remove(&order.collection);
        }
        self.send(node, &NodeMessage::Start(Box::new(order)));
    }

    /// Sends all nodes further cases of the sweep.
    pub(crate) fn add_cases(&self, sweep: &str) {
        let message = NodeMessage::FurtherCases { sweep: sweep.to_owned() };
        self.followers.keys().for_each(|node| self.send(*node, &message));
    }

    /// Ends the part of a node in a collection.
    pub(crate) fn stop_part(&self, node: usize, collection: u32) {
        self.send(node, &NodeMessage::Stop { collection });
    }

    fn send(&self, node: usize, message: &NodeMessage) {
        let Some(follower) = self.followers.get(&node) else { return };
        if let Err(error) = follower.sender.send(message) {
            follower.state.lock().lost.get_or_insert_with(|| error.to_string());
            follower.state.wants_stop.store(true, Ordering::Relaxed);
            follower.sender.close();
        }
    }

    /// Returns the state of the part of a node in a collection.
    pub(crate) fn part_state(&self, node: usize, collection: u32) -> PartState {
        let Some(follower) = self.followers.get(&node) else {
            return PartState::Lost(format!("node {node} is no node of the sweep"));
        };
        let received = follower.state.lock();
        match (received.results.get(&collection), &received.lost) {
            (Some(result), _) => PartState::Ended(result.clone()),
            (None, Some(problem)) => {
                PartState::Lost(format!("{} was lost: {problem}", node_name(follower.node, &follower.host)))
            }
            (None, None) => PartState::Running,
        }
    }

    /// Gives a node up that does not answer any more.
    pub(crate) fn give_up(&self, node: usize) {
        let Some(follower) = self.followers.get(&node) else { return };
        follower.state.lock().lost.get_or_insert_with(|| "it did not end its part in time".to_owned());
        follower.state.wants_stop.store(true, Ordering::Relaxed);
        follower.sender.close();
    }

    /// Ends the sweep after the running collection, because the host of a node cannot measure any more.
    pub(crate) fn fail_node(&self, node: usize, reason: &str) {
        let Some(follower) = self.followers.get(&node) else { return };
        follower.state.lock().failure.get_or_insert_with(|| reason.to_owned());
        follower.state.wants_stop.store(true, Ordering::Relaxed);
    }

    /// Returns true if a follower has received a signal to stop, was lost, or cannot measure any more: then the sweep ends
    /// after the running collection.
    pub(crate) fn wants_stop(&self) -> bool {
        self.followers.values().any(|follower| follower.state.wants_stop.load(Ordering::Relaxed))
    }

    /// Returns the reasons for which nodes were lost or cannot measure any more.
    pub(crate) fn node_failures(&self) -> Vec<String> {
        let failures = self.followers.values().filter_map(|follower| {
            let name = node_name(follower.node, &follower.host);
            let received = follower.state.lock();
            match (&received.failure, &received.lost) {
                (Some(failure), _) => Some(format!("{name}: {failure}")),
                (None, Some(problem)) => Some(format!("{name} was lost: {problem}")),
                (None, None) => None,
            }
        });
        failures.collect()
    }

    /// Ends the sweep on all nodes with the exit code of node 0.
    pub(crate) fn end(&self, exit: u8) {
        for follower in self.followers.values() {
            let _ = follower.sender.send(&NodeMessage::End { exit });
        }
    }
}

impl Drop for NodeCluster {
    fn drop(&mut self) {
        self.followers.values().for_each(|follower| follower.sender.close());
    }
}
