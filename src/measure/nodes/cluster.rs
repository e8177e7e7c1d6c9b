//! The followers of node 0 during a sweep.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::{
    NodePlace, UNEXPECTED,
    connection::{HEARTBEAT_INTERVAL, NodeReceiver, NodeSender},
    message::{NodeMessage, PartOrder, PartResult},
    node_name,
    shared_folder::SharedSession,
};
use crate::measure::collective::sweep_session::SweepPart;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartState {
    Running,
    Ended(PartResult),
    Lost(String),
}

/// Connected followers, by the numbers of their nodes from 1 on. Dropping it closes the connections, which ends their sweep.
#[derive(Debug)]
pub(crate) struct NodeCluster {
    pub(super) host: String,
    pub(crate) place: NodePlace,
    pub(super) followers: BTreeMap<usize, Follower>,
    /// Removed after the connections were closed.
    pub(super) session: Option<SharedSession>,
}

#[derive(Debug)]
pub(super) struct Follower {
    host: String,
    name: String,
    sender: Arc<NodeSender>,
    state: Arc<Mutex<FollowerState>>,
}

#[derive(Debug, Default)]
struct FollowerState {
    /// The collection that was started last, with its result.
    part: Option<(u32, Option<PartResult>)>,
    lost: Option<String>,
    failure: Option<String>,
    is_stop_requested: bool,
}

fn lock(state: &Mutex<FollowerState>) -> MutexGuard<'_, FollowerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Follower {
    pub(super) fn start(
        node: usize,
        host: String,
        (sender, mut receiver): (Arc<NodeSender>, NodeReceiver),
        timeout: Duration,
    ) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(FollowerState::default()));
        sender.start_heartbeats(HEARTBEAT_INTERVAL)?;
        receiver.set_timeout(timeout)?;
        let shared = Arc::clone(&state);
        let receive = move || {
            let problem = loop {
                match receiver.receive() {
                    Ok((NodeMessage::Ended(result), archive)) => match &mut lock(&shared).part {
                        Some((collection, ended @ None)) if *collection == result.collection => {
                            *ended = Some(PartResult { archive, ..result });
                        }
                        _ => break UNEXPECTED.to_owned(),
                    },
                    Ok((NodeMessage::StopRequested, _)) => lock(&shared).is_stop_requested = true,
                    Ok((NodeMessage::Refused(error), _)) => break error.to_string(),
                    Ok(_) => break UNEXPECTED.to_owned(),
                    Err(error) => break error.to_string(),
                }
            };
            lock(&shared).lost.get_or_insert(problem);
        };
        thread::Builder::new().name(format!("node {node}")).spawn(receive)?;
        Ok(Self { name: node_name(node, &host), host, sender, state })
    }

    fn send(&self, message: &NodeMessage) {
        if let Err(error) = self.sender.send(message) {
            self.give_up(error.to_string());
        }
    }

    fn give_up(&self, problem: String) {
        lock(&self.state).lost.get_or_insert(problem);
        self.sender.close();
    }
}

impl NodeCluster {
    pub(crate) fn host(&self, node: usize) -> &str {
        self.followers.get(&node).map_or(&self.host, |follower| &follower.host)
    }

    pub(crate) fn start_part(&self, node: usize, order: PartOrder) {
        let follower = &self.followers[&node];
        lock(&follower.state).part = Some((order.collection, None));
        follower.send(&NodeMessage::Start(Box::new(order)));
    }

    pub(crate) fn add_cases(&self, parts: &[SweepPart]) {
        let message = NodeMessage::FurtherCases { parts: parts.to_vec() };
        self.followers.values().for_each(|follower| follower.send(&message));
    }

    pub(crate) fn stop_part(&self, node: usize, collection: u32) {
        self.followers[&node].send(&NodeMessage::Stop { collection });
    }

    pub(crate) fn part_state(&self, node: usize, collection: u32) -> PartState {
        let follower = &self.followers[&node];
        let state = lock(&follower.state);
        match (&state.part, &state.lost) {
            (Some((known, Some(result))), _) if *known == collection => PartState::Ended(result.clone()),
            (_, Some(problem)) => PartState::Lost(format!("{} was lost: {problem}", follower.name)),
            (_, None) => PartState::Running,
        }
    }

    pub(crate) fn give_up(&self, node: usize) {
        self.followers[&node].give_up("it did not end its part in time".to_owned());
    }

    /// Ends the sweep after the running collection, because the host of a node cannot measure any more.
    pub(crate) fn fail_node(&self, node: usize, reason: &str) {
        lock(&self.followers[&node].state).failure.get_or_insert_with(|| reason.to_owned());
    }

    /// Returns true if a follower has received a signal to stop, was lost, or cannot measure any more: then the sweep ends
    /// after the running collection.
    pub(crate) fn wants_stop(&self) -> bool {
        self.followers.values().any(|follower| {
            let state = lock(&follower.state);
            state.is_stop_requested || state.lost.is_some() || state.failure.is_some()
        })
    }

    pub(crate) fn node_failures(&self) -> Vec<String> {
        let failures = self.followers.values().filter_map(|Follower { name, state, .. }| {
            let state = lock(state);
            let lost = || state.lost.as_ref().map(|problem| format!("{name} was lost: {problem}"));
            state.failure.as_ref().map(|failure| format!("{name}: {failure}")).or_else(lost)
        });
        failures.collect()
    }

    pub(crate) fn end(&self, exit: u8) {
        for follower in self.followers.values() {
            let _ = follower.sender.send(&NodeMessage::End { exit });
        }
    }
}

impl Drop for NodeCluster {
    fn drop(&mut self) {
        self.followers.values().for_each(|follower| follower.sender.close());
        drop(self.session.take());
    }
}
