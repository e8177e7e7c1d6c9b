//! Collections with ranks on several nodes. Node 0 starts the parts of the others, waits for their ends and collects their evidence;
//! each of the others runs its parts and sends the evidence back.

use std::{
    collections::BTreeSet,
    fs, io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{
    CollectionSettings, EngineError, Result,
    collect::{RenderedCollection, collection_manifest, last_line},
    host_monitor::missing_space,
    run::STOP_DEBOUNCE,
};
use crate::{
    base::{
        exit::ExitStatus,
        files::{disk_space::has_space, keep_folder, unpack_archive, write_archive},
        process::{ExitKind, ProcessGuard},
        worker_thread::WorkerThread,
    },
    cases::plan::PlannedCase,
    database::collection_path,
    kernel::render::{GangHost, GangRendezvous, files},
    measure::{
        collective::{NodeLayout, sweep_rounds::MAX_REFINEMENTS, sweep_session::SweepPart},
        device::DeviceLeases,
        evidence::files_to_archive,
        nodes::{
            LeaderConnection, NodeCluster, NodeError, NodeHost, NodeMessage, NodePlace, PartEnd, PartOrder,
            PartResult, PartState,
        },
        sched::StartCollection,
    },
};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time in which the part of this node may end by itself after another one has failed; its log names the cause then.
const FAILURE_GRACE: Duration = Duration::from_secs(1);
/// Time in which a part ends after the request to end it: programs have a part of it, the evidence the rest.
const END_TIME: Duration = Duration::from_secs(90);
/// Time for the evidence of a part that ended by itself.
const EVIDENCE_TIME: Duration = Duration::from_secs(300);
/// Time in which the dispatcher learns that a node was lost or has failed, before it could start another collection.
const LOST_PAUSE: Duration = Duration::from_millis(300);

#[derive(Clone, Debug)]
pub(crate) struct SweepNodes {
    pub(crate) layout: NodeLayout,
    pub(crate) cluster: Arc<NodeCluster>,
}

pub(super) struct GangParts<'a> {
    nodes: &'a SweepNodes,
    collection: u32,
    hosts: Vec<NodeHost>,
}

pub(super) struct GangEnd {
    /// Exit of the script of this node; a script that was ended because another part had failed has exited.
    pub(super) exit: ExitKind,
    pub(super) cause: Option<String>,
}

impl<'a> GangParts<'a> {
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

    pub(super) fn devices(&self, start: &StartCollection) -> Vec<u32> {
        start.devices.iter().map(|device| self.nodes.layout.number_on_host(*device)).collect()
    }

    pub(super) fn manifest_hosts(&self) -> Vec<GangHost> {
        manifest_hosts(&self.hosts)
    }

    pub(super) fn rendezvous(&self) -> GangRendezvous<'_> {
        let NodePlace { address, port, .. } = &self.nodes.cluster.place;
        GangRendezvous { hosts: self.hosts.len(), host: 0, address, port: *port }
    }

    fn others(&self) -> impl Iterator<Item = (usize, &NodeHost)> {
        self.hosts.iter().enumerate().filter(|(_, host)| host.node != 0)
    }

    fn state(&self, host: &NodeHost) -> PartState {
        self.nodes.cluster.part_state(host.node, self.collection)
    }

    pub(super) fn run(&self, job: &RenderedCollection<'_>, stop: &AtomicBool) -> Result<GangEnd> {
        let RenderedCollection { manifest, folder, .. } = job;
        let order = PartOrder {
            run: manifest.run.clone(),
            collection: manifest.collection,
            cases: job.cases.iter().map(|planned| planned.case.id().as_str().to_owned()).collect(),
            devices: manifest.host_numbers.devices.clone(),
            hosts: self.hosts.clone(),
            place: 0,
            limit: job.limit,
            cut_off: job.cut_off,
            digest: job.digest()?,
        };
        for (place, host) in self.others() {
            self.nodes.cluster.start_part(host.node, PartOrder { place, ..order.clone() });
        }
        let (end, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let (exit, cause) = thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(stop, &end, &has_ended));
            let exit = job.run_script(None, files::LOG, &end);
            has_ended.store(true, Ordering::Relaxed);
            (exit, watch.join().expect("the watch does not panic"))
        });
        let is_complete = matches!(exit, Ok(ExitKind::Exited(_))) && cause.is_none() && job.is_done();
        if !is_complete {
            self.others().for_each(|(_, host)| self.nodes.cluster.stop_part(host.node, self.collection));
        }
        let results = self.wait_for_results(is_complete, stop);
        let unpacked = results.iter().map(|(place, host, result)| {
            unpack_part(folder, *place, manifest.ranks_of_host(*place), result)
                .map_err(|error| format!("the evidence of {} cannot be unpacked: {error}", host.name))
        });
        let damaged = unpacked.collect::<Vec<_>>().into_iter().find_map(Result::err);
        let exit = exit?;
        let is_stopped = stop.load(Ordering::Relaxed);
        let problem_of = |host: &NodeHost| match self.state(host) {
            PartState::Lost(problem) => Some(problem),
            _ => None,
        };
        // The host and not the case is at fault.
        let unwritable = results.iter().find(|(.., result)| result.end == PartEnd::EvidenceUnwritable);
        let fail_host = |(_, host, result): &(usize, &NodeHost, PartResult)| {
            self.nodes.cluster.fail_node(host.node, &result.message);
            format!("on {}: {}", host.name, result.message)
        };
        let lost = self.others().find_map(|(_, host)| problem_of(host));
        if let Some(problem) = lost.or_else(|| unwritable.map(fail_host)) {
            thread::sleep(LOST_PAUSE);
            return Ok(GangEnd { exit: ExitKind::Stopped, cause: Some(problem) });
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

    /// Parts that do not end in time get a request to end, and are given up as lost after that.
    fn wait_for_results(&self, is_complete: bool, stop: &AtomicBool) -> Vec<(usize, &NodeHost, PartResult)> {
        let mut deadline = Instant::now() + if is_complete { EVIDENCE_TIME } else { END_TIME };
        let mut has_requested = !is_complete;
        loop {
            let states: Vec<(usize, &NodeHost, PartState)> =
                self.others().map(|(place, host)| (place, host, self.state(host))).collect();
            if states.iter().all(|(.., state)| *state != PartState::Running) {
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

pub(super) fn manifest_hosts(hosts: &[NodeHost]) -> Vec<GangHost> {
    hosts.iter().map(|host| GangHost { name: host.name.clone(), ranks: host.ranks }).collect()
}

/// Unpacks the evidence of a part into the folder of its host, and moves the journals of its own ranks beside those of node 0.
fn unpack_part(folder: &Path, place: usize, ranks: Range<usize>, result: &PartResult) -> io::Result<()> {
    let Some(archive) = &result.archive else { return Ok(()) };
    let target = folder.join(files::host_folder(place));
    fs::create_dir_all(&target)?;
    let unpacked = unpack_archive(archive, &target);
    let _ = fs::remove_file(archive);
    unpacked?;
    for journal in ranks.map(files::journal) {
        let path = target.join(&journal);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            fs::rename(path, folder.join(journal))?;
        }
    }
    Ok(())
}

/// Prefix of folders with evidence that could not be archived, beside the temporary ones.
const UNSAVED_EVIDENCE: &str = "npubench-evidence-";

#[derive(Debug)]
pub(crate) struct FollowerRun {
    pub(crate) settings: CollectionSettings,
    pub(crate) cases: Vec<PlannedCase>,
    pub(crate) leases: DeviceLeases,
    pub(crate) devices: Vec<u32>,
    pub(crate) place: NodePlace,
}

#[derive(Debug, Default)]
struct PartStops {
    part: AtomicBool,
    all: AtomicBool,
    /// From the order of a part to its result.
    is_running: AtomicBool,
}

impl PartStops {
    /// Resets the request of an earlier part. The order of the two writes keeps a request for all parts that comes meanwhile.
    fn begin_part(&self) {
        self.part.store(false, Ordering::SeqCst);
        self.part.fetch_or(self.all.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn end_all(&self) {
        self.all.store(true, Ordering::SeqCst);
        self.part.store(true, Ordering::SeqCst);
    }
}

enum FollowerTask {
    Run(PartOrder),
    AddCases(Vec<SweepPart>),
    Leave,
}

impl FollowerRun {
    pub(crate) fn missing_space(&self) -> Option<String> {
        // The folder exists from the first part on.
        let folder = self.settings.folder.ancestors().find(|folder| folder.is_dir())?;
        missing_space(self.settings.kind, folder)
    }

    /// Runs the parts that node 0 starts, until it ends the sweep; returns its exit code. `plan` plans the further cases of
    /// node 0, and `report` gets a line for each part. A second signal to stop ends the running part and leaves
    /// the sweep. Fails if node 0 is lost.
    pub(crate) fn follow(
        self,
        mut connection: LeaderConnection,
        plan: impl Fn(Vec<SweepPart>) -> Result<Vec<PlannedCase>, String> + Send + 'static,
        report: impl Fn(&str) + Send + Clone + 'static,
    ) -> Result<u8> {
        let system = EngineError::system;
        // Ends the programs if this process is killed.
        let _guard = ProcessGuard::start(&self.settings.processes).map_err(system("a process"))?;
        let stops = Arc::new(PartStops::default());
        let (part_stops, results) = (Arc::clone(&stops), Arc::clone(&connection.sender));
        let report_part = report.clone();
        let mut run = self;
        let worker = WorkerThread::spawn("parts".to_owned(), move |inbox| {
            let mut plan_problem: Option<String> = None;
            for task in inbox {
                match task {
                    FollowerTask::Run(order) => {
                        let send = |result: PartResult, archive: Option<&Path>| {
                            // Before node 0 can start the next one.
                            part_stops.is_running.store(false, Ordering::SeqCst);
                            results.send_result(result, archive);
                        };
                        let (stop, problem) = (&part_stops.part, plan_problem.as_deref());
                        run.run_and_send(&order, stop, send, problem, &report_part);
                    }
                    FollowerTask::AddCases(parts) => match plan(parts) {
                        Ok(cases) => run.cases.extend(cases),
                        Err(problem) => plan_problem = Some(problem),
                    },
                    FollowerTask::Leave => {
                        results.refuse(NodeError::refused("a user has ended its part", ""));
                    }
                }
            }
        });
        let worker = Arc::new(worker.map_err(system("a thread"))?);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(system("signal handlers"))?;
        let handle = signals.handle();
        let sender = Arc::clone(&connection.sender);
        let (of_signals, leave) = (Arc::clone(&stops), Arc::clone(&worker));
        let listen = move || {
            let mut last: Option<Instant> = None;
            for _ in signals.forever() {
                let previous = last.replace(Instant::now());
                match previous {
                    None => {
                        sender.request_stop();
                        report(
                            "stop requested: node 0 ends the sweep after the running collection; once more ends it at once",
                        );
                    }
                    Some(previous) if previous.elapsed() >= STOP_DEBOUNCE => {
                        of_signals.end_all();
                        leave.send(FollowerTask::Leave);
                    }
                    Some(_) => {}
                }
            }
        };
        let listener =
            thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(system("a thread"))?;
        let (mut current, mut additions) = (None, 0..MAX_REFINEMENTS);
        let end = loop {
            match connection.receive() {
                Ok(NodeMessage::FurtherCases { parts }) if additions.next().is_some() => {
                    worker.send(FollowerTask::AddCases(parts));
                }
                Ok(NodeMessage::Start(order)) if !stops.is_running.swap(true, Ordering::SeqCst) => {
                    current = Some(order.collection);
                    stops.begin_part();
                    worker.send(FollowerTask::Run(*order));
                }
                Ok(NodeMessage::Stop { collection }) => {
                    stops.part.fetch_or(current == Some(collection), Ordering::SeqCst);
                }
                Ok(NodeMessage::End { exit }) => break Ok(exit),
                Ok(_) => break Err(connection.unexpected().into()),
                Err(_) if stops.all.load(Ordering::SeqCst) => break Ok(ExitStatus::Interrupted.code()),
                Err(error) => break Err(error.into()),
            }
        };
        stops.end_all();
        handle.close();
        let _ = listener.join();
        end
    }

    fn run_and_send(
        &self,
        order: &PartOrder,
        stop: &AtomicBool,
        send: impl FnOnce(PartResult, Option<&Path>),
        plan_problem: Option<&str>,
        report: &dyn Fn(&str),
    ) {
        let folder = self.settings.folder.join(collection_path(order.collection));
        // A panic is a defect of npubench; node 0 must not wait for this part.
        if let Some(problem) = self.missing_space() {
            let message = format!("{problem}; free space there, or set TMPDIR");
            report(&message);
            let end = PartEnd::EvidenceUnwritable;
            let result = PartResult { collection: order.collection, end, message, archive: None };
            send(result, None);
            return;
        }
        let run = catch_unwind(AssertUnwindSafe(|| self.run_part(order, &folder, stop)));
        let (mut end, mut message) = match run {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => (PartEnd::NotStarted, error.to_string()),
            Err(_) => (PartEnd::NotStarted, "npubench has a defect: its part panicked".to_owned()),
        };
        if let Some(problem) = plan_problem.filter(|_| end == PartEnd::NotStarted) {
            message = format!("{message}; further cases could not be planned: {problem}");
        }
        let archive = folder.with_extension("tar.gz");
        let mut saved = None;
        if !matches!(end, PartEnd::NotStarted | PartEnd::EvidenceUnwritable) {
            // All nodes have the script and the manifest of node 0.
            let rendered = [files::REPLAY, files::MANIFEST].map(|name| folder.join(name));
            let files: Vec<PathBuf> =
                files_to_archive(&folder).into_iter().filter(|path| !rendered.contains(path)).collect();
            match write_archive(&archive, &folder, &files) {
                Ok(_) if !has_space(&folder) => {
                    message =
                        format!("{message}, but its evidence may be incomplete: the disk of TMPDIR is full");
                    end = PartEnd::EvidenceUnwritable;
                }
                Ok(_) => saved = Some(archive.as_path()),
                Err(error) => {
                    // Without the evidence of the ranks there is no result, and no cause.
                    message = format!("{message}, but its evidence cannot be archived: {error}");
                    if let Ok(kept) = keep_folder(&folder, UNSAVED_EVIDENCE) {
                        message.push_str(&format!("; it is in {}", kept.display()));
                    }
                    end = PartEnd::EvidenceUnwritable;
                }
            }
        }
        let name = order.hosts.first().map_or("node 0", |host| host.name.as_str());
        let (number, cases) = (order.collection, order.cases.len());
        report(&format!("collection {number} of {cases} cases with {name}: {message}"));
        send(PartResult { collection: number, end, message, archive: None }, saved);
        let _ = fs::remove_file(&archive);
        let _ = fs::remove_dir_all(&folder);
    }
    fn run_part(&self, order: &PartOrder, folder: &Path, stop: &AtomicBool) -> Result<(PartEnd, String)> {
        let Self { settings, cases, leases, devices: own_devices, place } = self;
        let refused = |problem: &str| Ok((PartEnd::NotStarted, problem.to_owned()));
        let find = |id: &String| cases.iter().find(|planned| planned.case.id().as_str() == id);
        let Some(cases) = order.cases.iter().map(find).collect::<Option<Vec<&PlannedCase>>>() else {
            return refused("this node does not have all cases of the collection");
        };
        let is_own = order.hosts.get(order.place).is_some_and(|host| host.node == place.node);
        if !is_own
            || !order.devices.iter().all(|device| own_devices.contains(device))
            || order.cases.iter().collect::<BTreeSet<_>>().len() < order.cases.len()
        {
            return refused("node 0 ordered a part that is not of this node");
        }
        let (id, hosts) = ((&*order.run, order.collection), manifest_hosts(&order.hosts));
        let manifest = collection_manifest(settings, id, &order.devices, (hosts, order.place), &cases);
        let devices = order.devices.get(manifest.ranks_of_host(order.place)).unwrap_or_default();
        let (limit, cut_off) = (order.limit, order.cut_off);
        // The first rank, on node 0, decides for all ranks when the last case begins.
        let export_reserve = 0.0;
        let part = RenderedCollection {
            settings,
            leases,
            manifest,
            cases: &cases,
            devices,
            limit,
            cut_off,
            export_reserve,
            folder,
        };
        if part.digest()? != order.digest {
            return refused(
                "this node renders another script or manifest than node 0; use the same `--assets`, devices and build of npubench",
            );
        }
        if devices.is_empty() {
            return refused("the collection has no devices of this node");
        }
        let rendezvous = GangRendezvous {
            hosts: order.hosts.len(),
            host: order.place,
            address: &place.address,
            port: place.port,
        };
        part.write(Some(rendezvous))?;
        let exit = part.run_script(None, files::LOG, stop)?;
        Ok(match exit {
            _ if part.is_done() => (PartEnd::Done, "done".to_owned()),
            ExitKind::Exited(_) => (PartEnd::Failed, last_line(&folder.join(files::LOG))),
            ExitKind::Signalled(signal) => (PartEnd::Failed, format!("ended by signal {signal}")),
            ExitKind::TimedOut => {
                (PartEnd::TimedOut, format!("ended by npubench at its time limit of {:.0} s", order.limit))
            }
            ExitKind::TooMuchOutput => (PartEnd::Failed, "ended by npubench: it printed too much".to_owned()),
            ExitKind::CutOff | ExitKind::Stopped => (PartEnd::Stopped, "ended by npubench".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_stop_request_between_two_collections_ends_the_next_one() {
        let stops = PartStops::default();
        stops.begin_part();
        stops.part.store(true, Ordering::SeqCst);
        stops.begin_part();
        assert!(!stops.part.load(Ordering::Relaxed), "the request was for another part");
        stops.end_all();
        stops.begin_part();
        assert!(stops.part.load(Ordering::Relaxed) && stops.all.load(Ordering::SeqCst));
    }
}
