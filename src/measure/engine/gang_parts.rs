//! Parts of a collection on other nodes: their start, their end together with the part of this node, and their
//! evidence.

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::EngineError;
use crate::{
    base::{files::unpack_archive, process::ExitKind},
    kernel::render::{GangHost, Manifest, files},
    measure::{
        collective::NodeLayout,
        nodes::{NodeCluster, NodeHost, PartEnd, PartOrder, PartResult, PartState},
        sched::StartCollection,
    },
};

/// Interval at which the parts are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time in which the part of this node may end by itself after another one has failed; its log names the cause then.
const FAILURE_GRACE: Duration = Duration::from_secs(1);
/// Time in which a part ends after the request to end it: programs have a part of it, the evidence the rest.
const END_TIME: Duration = Duration::from_secs(90);
/// Time for the evidence of a part that ended by itself.
const EVIDENCE_TIME: Duration = Duration::from_secs(300);
/// Time in which the dispatcher learns that a node was lost or has failed, before it could start another collection.
const LOST_PAUSE: Duration = Duration::from_millis(300);

/// Nodes of a run, as node 0 has them.
#[derive(Clone, Debug)]
pub(crate) struct SweepNodes {
    pub(crate) layout: NodeLayout,
    pub(crate) cluster: Arc<NodeCluster>,
}

/// Hosts of a collection with ranks on several nodes.
pub(super) struct GangParts<'a> {
    nodes: &'a SweepNodes,
    collection: u32,
    hosts: Vec<NodeHost>,
}

/// End of all parts.
pub(super) struct GangEnd {
    /// Exit of the script of this node, as it would be on one host: a script that was ended because another part had
    /// failed has exited.
    pub(super) exit: ExitKind,
    /// Reason of the end, if it lies in another part.
    pub(super) cause: Option<String>,
}

impl<'a> GangParts<'a> {
    /// Returns the parts; `None` if all devices are of this node.
    pub(super) fn find(nodes: Option<&'a SweepNodes>, start: &StartCollection) -> Option<Self> {
        let nodes = nodes?;
        let mut hosts: Vec<NodeHost> = Vec::new();
        for &device in &start.devices {
            let node = nodes.layout.node_of(device);
            match hosts.last_mut() {
                Some(host) if host.node == node => host.ranks += 1,
                _ => hosts.push(NodeHost { node, name: nodes.cluster.host(node).to_owned(), ranks: 1 }),
            }
        }
        (hosts.len() > 1).then_some(Self { nodes, collection: start.collection, hosts })
    }

    /// Returns the devices by rank, each by the number on its host.
    pub(super) fn devices(&self, start: &StartCollection) -> Vec<u32> {
        start.devices.iter().map(|device| self.nodes.layout.number_on_host(*device)).collect()
    }

    pub(super) fn manifest_hosts(&self) -> Vec<GangHost> {
        manifest_hosts(&self.hosts)
    }

    pub(super) fn address(&self) -> (&str, u16) {
        (self.nodes.cluster.address(), self.nodes.cluster.store_port())
    }

    /// Starts the parts of the other nodes; `order` is that of all.
    pub(super) fn start(&self, order: &PartOrder) {
        for (place, host) in self.others() {
            let order = PartOrder { hosts: self.hosts.clone(), place, ..order.clone() };
            self.nodes.cluster.start_part(host.node, order);
        }
    }

    /// Other hosts with their places.
    fn others(&self) -> impl Iterator<Item = (usize, &NodeHost)> {
        self.hosts.iter().enumerate().filter(|(_, host)| host.node != 0)
    }

    fn state(&self, host: &NodeHost) -> PartState {
        self.nodes.cluster.part_state(host.node, self.collection)
    }

    /// Runs the script of this node by `run`, which must end it when its flag is set, then waits for the other parts
    /// and puts their evidence into the folder. `has_finished` returns true after the script if its ranks have
    /// launched everything.
    pub(super) fn run(
        &self,
        folder: &Path,
        stop: &AtomicBool,
        run: impl FnOnce(&AtomicBool) -> Result<ExitKind, EngineError>,
        has_finished: impl FnOnce() -> bool,
    ) -> Result<GangEnd, EngineError> {
        let (end, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let (exit, cause) = thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(stop, &end, &has_ended));
            let exit = run(&end);
            has_ended.store(true, Ordering::Relaxed);
            (exit, watch.join().expect("the watch does not panic"))
        });
        let is_complete = matches!(exit, Ok(ExitKind::Exited(_))) && cause.is_none() && has_finished();
        if !is_complete {
            self.others().for_each(|(_, host)| self.nodes.cluster.stop_part(host.node, self.collection));
        }
        let results = self.wait_for_results(is_complete, stop);
        let unpacked = results.iter().map(|(place, host, result)| {
            unpack_part(folder, *place, result)
                .map_err(|error| format!("the evidence of {} cannot be unpacked: {error}", host.name))
        });
        let damaged = unpacked.collect::<Vec<_>>().into_iter().find_map(Result::err);
        let exit = exit?;
        let is_stopped = stop.load(Ordering::Relaxed);
        let lost = self.others().find_map(|(_, host)| match self.state(host) {
            PartState::Lost(problem) => Some(problem),
            _ => None,
        });
        if let Some(problem) = lost {
            thread::sleep(LOST_PAUSE);
            return Ok(GangEnd { exit: ExitKind::Stopped, cause: Some(problem) });
        }
        // The host and not the case is at fault.
        let unwritable = results.iter().find(|(.., result)| result.end == PartEnd::EvidenceUnwritable);
        if let Some((_, host, result)) = unwritable {
            self.nodes.cluster.fail_node(host.node, &result.message);
            thread::sleep(LOST_PAUSE);
            let cause = Some(format!("on {}: {}", host.name, result.message));
            return Ok(GangEnd { exit: ExitKind::Stopped, cause });
        }
        let has_timed_out =
            exit == ExitKind::TimedOut || results.iter().any(|(.., result)| result.end == PartEnd::TimedOut);
        let failed = results.iter().find(|(.., result)| {
            matches!(result.end, PartEnd::NotStarted) || (result.end == PartEnd::Failed && cause.is_some())
        });
        let is_part_stopped =
            cause.is_some() && results.iter().any(|(.., result)| result.end == PartEnd::Stopped);
        let cause =
            failed.map(|(_, host, result)| format!("on {}: {}", host.name, result.message)).or(damaged);
        let exit = match exit {
            ExitKind::CutOff => exit,
            // A user has stopped the follower.
            _ if is_stopped || is_part_stopped => ExitKind::Stopped,
            _ if has_timed_out => ExitKind::TimedOut,
            // It was ended because of another part.
            ExitKind::Stopped => ExitKind::Exited(1),
            exit => exit,
        };
        Ok(GangEnd { exit, cause })
    }

    /// Watches the other parts while the script of this node runs; sets `end` when it must be ended. Returns the
    /// reason.
    fn watch(&self, stop: &AtomicBool, end: &AtomicBool, has_ended: &AtomicBool) -> Option<String> {
        let mut failed: Option<(Instant, String)> = None;
        while !has_ended.load(Ordering::Relaxed) {
            if stop.load(Ordering::Relaxed) {
                end.store(true, Ordering::Relaxed);
            }
            for (_, host) in self.others() {
                match self.state(host) {
                    PartState::Lost(problem) => {
                        end.store(true, Ordering::Relaxed);
                        failed.get_or_insert_with(|| (Instant::now(), problem));
                    }
                    PartState::Ended(PartResult { end: part_end, message, .. })
                        if part_end != PartEnd::Done =>
                    {
                        let name = &host.name;
                        failed.get_or_insert_with(|| (Instant::now(), format!("on {name}: {message}")));
                    }
                    PartState::Running | PartState::Ended(_) => {}
                }
            }
            if failed.as_ref().is_some_and(|(at, _)| at.elapsed() >= FAILURE_GRACE) {
                end.store(true, Ordering::Relaxed);
            }
            thread::sleep(POLL_INTERVAL);
        }
        failed.map(|(_, problem)| problem)
    }

    /// Waits until all parts have ended. Parts that do not end in time get a request to end, and are given up as lost
    /// after that.
    fn wait_for_results(&self, is_complete: bool, stop: &AtomicBool) -> Vec<(usize, &NodeHost, PartResult)> {
        let mut deadline = Instant::now() + if is_complete { EVIDENCE_TIME } else { END_TIME };
        let mut has_requested = !is_complete;
        loop {
            let states: Vec<(usize, &NodeHost, PartState)> =
                self.others().map(|(place, host)| (place, host, self.state(host))).collect();
            let is_open = states.iter().any(|(.., state)| *state == PartState::Running);
            if !is_open {
                let ended = states.into_iter().filter_map(|(place, host, state)| match state {
                    PartState::Ended(result) => Some((place, host, result)),
                    PartState::Running | PartState::Lost(_) => None,
                });
                return ended.collect();
            }
            if !has_requested && (stop.load(Ordering::Relaxed) || Instant::now() >= deadline) {
                has_requested = true;
                deadline = Instant::now() + END_TIME;
                self.others().for_each(|(_, host)| self.nodes.cluster.stop_part(host.node, self.collection));
            }
            if has_requested && Instant::now() >= deadline {
                let running = states.iter().filter(|(.., state)| *state == PartState::Running);
                running.for_each(|(_, host, _)| self.nodes.cluster.give_up(host.node));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the hosts as a manifest has them.
pub(super) fn manifest_hosts(hosts: &[NodeHost]) -> Vec<GangHost> {
    hosts.iter().map(|host| GangHost { name: host.name.clone(), ranks: host.ranks }).collect()
}

/// Unpacks the evidence of a part: journals beside that of this node, all other files into a folder of the host.
fn unpack_part(folder: &Path, place: usize, result: &PartResult) -> io::Result<()> {
    let Some(archive) = &result.archive else { return Ok(()) };
    let target = folder.join(files::host_folder(place));
    fs::create_dir_all(&target)?;
    let unpacked = unpack_archive(archive, &target);
    let _ = fs::remove_file(archive);
    unpacked?;
    for entry in fs::read_dir(&target)?.flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let is_journal = text.starts_with("launched.") && text.ends_with(".jsonl") && text != files::JOURNAL;
        if is_journal && entry.file_type()?.is_file() {
            fs::rename(entry.path(), folder.join(&name))?;
        }
    }
    Ok(())
}

/// Returns the manifest of all parts, from which those of the hosts differ by the place of the host.
pub(super) fn common_text(manifest: &Manifest) -> String {
    serde_json::to_string(&Manifest { host: 0, ..manifest.clone() }).expect("a manifest is JSON")
}
