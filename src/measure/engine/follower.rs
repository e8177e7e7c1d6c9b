//! The part of a follower in a sweep over several nodes: it runs what node 0 starts, and sends the evidence back.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{
    CollectionSettings, EngineError,
    collect::{
        CollectionScript, ManifestRequest, collection_manifest, last_line, rendered_digest, write_folder,
    },
    gang_parts::manifest_hosts,
    host_monitor::missing_space,
};
use crate::{
    base::{
        exit::ExitStatus,
        files::{disk_space::has_space, keep_folder, write_archive},
        process::{ExitKind, ProcessGuard},
    },
    cases::plan::PlannedCase,
    database::collection_path,
    kernel::render::{GangRendezvous, files},
    measure::{
        device::DeviceLeases,
        evidence::files_to_archive,
        nodes::{FollowerRequest, LeaderConnection, PartEnd, PartOrder, PartResult, ResultSender},
        verify::read_journal,
    },
};

/// Stop requests closer together than this count as one.
const STOP_DEBOUNCE: Duration = Duration::from_millis(50);
/// Prefix of folders with evidence that could not be archived, beside the temporary ones.
const UNSAVED_EVIDENCE: &str = "npubench-evidence-";

/// Part of a follower in a sweep.
#[derive(Debug)]
pub(crate) struct FollowerRun {
    pub(crate) settings: CollectionSettings,
    /// All cases of the sweep.
    pub(crate) cases: Vec<PlannedCase>,
    /// Leases of the devices.
    pub(crate) leases: DeviceLeases,
    /// Address of node 0 for torchrun's store.
    pub(crate) address: String,
}

/// Requests to end the parts of a follower.
#[derive(Debug, Default)]
struct PartStops {
    /// True if the running part is to be ended.
    part: AtomicBool,
    /// True if all further parts are to be ended, too.
    all: Mutex<bool>,
}

impl PartStops {
    /// Resets the request of an earlier part.
    fn begin_part(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.part.store(*all, Ordering::Relaxed);
    }

    fn end_part(&self) {
        self.part.store(true, Ordering::Relaxed);
    }

    fn end_all(&self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        *all = true;
        self.part.store(true, Ordering::Relaxed);
    }

    fn ends_all(&self) -> bool {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Task of the thread that runs the parts.
#[derive(Debug)]
enum FollowerTask {
    Run(PartOrder),
    /// Adds cases of the sweep, as text of JSON.
    AddCases(String),
    /// Leaves the sweep at the request of a user.
    Leave,
}

impl FollowerRun {
    /// Describes the lack of space for a part; `None` if there is enough.
    pub(crate) fn missing_space(&self) -> Option<String> {
        // The folder exists from the first part on.
        let folder = self.settings.folder.ancestors().find(|folder| folder.is_dir())?;
        missing_space(self.settings.kind, folder)
    }

    /// Runs the parts that node 0 starts, until it ends the sweep; returns its exit code. `plan` plans further cases from
    /// the text of node 0, and `report` gets a line for each part. A second signal to stop ends the running part and leaves
    /// the sweep. Fails if node 0 is lost.
    pub(crate) fn follow(
        self,
        mut connection: LeaderConnection,
        plan: impl Fn(&str) -> Result<Vec<PlannedCase>, String> + Send + 'static,
        report: impl Fn(&str) + Send + Clone + 'static,
    ) -> Result<u8, EngineError> {
        let system = |what| move |source| EngineError::System { what, source };
        // Ends the programs if this process is killed.
        let _guard = ProcessGuard::start(&self.settings.processes).map_err(system("a process"))?;
        let stops = Arc::new(PartStops::default());
        let (tasks, inbox) = mpsc::channel::<FollowerTask>();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(system("signal handlers"))?;
        let handle = signals.handle();
        let (sender, note) = (connection.results(), report.clone());
        let (of_signals, leave) = (Arc::clone(&stops), tasks.clone());
        let listen = move || {
            let mut last: Option<Instant> = None;
            for _ in signals.forever() {
                let previous = last.replace(Instant::now());
                match previous {
                    None => {
                        sender.request_stop();
                        note(
                            "stop requested: node 0 ends the sweep after the running collection; once more ends it at once",
                        );
                    }
                    Some(previous) if previous.elapsed() >= STOP_DEBOUNCE => {
                        of_signals.end_all();
                        let _ = leave.send(FollowerTask::Leave);
                    }
                    Some(_) => {}
                }
            }
        };
        let listener =
            thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(system("a thread"))?;
        let runner = PartRunner {
            run: self,
            stops: Arc::clone(&stops),
            results: connection.results(),
            plan,
            plan_problem: None,
            report,
        };
        let worker = thread::Builder::new()
            .name("parts".to_owned())
            .spawn(move || runner.execute_tasks(&inbox))
            .map_err(system("a thread"))?;
        let mut current = None;
        let end = loop {
            // The worker ends only after all senders of tasks are dropped.
            match connection.receive() {
                Ok(FollowerRequest::AddCases { sweep }) => {
                    let _ = tasks.send(FollowerTask::AddCases(sweep));
                }
                Ok(FollowerRequest::Start(order)) => {
                    current = Some(order.collection);
                    stops.begin_part();
                    let _ = tasks.send(FollowerTask::Run(*order));
                }
                Ok(FollowerRequest::Stop { collection }) => {
                    if current == Some(collection) {
                        stops.end_part();
                    }
                }
                Ok(FollowerRequest::End { exit }) => break Ok(exit),
                Err(_) if stops.ends_all() => break Ok(ExitStatus::Interrupted.code()),
                Err(error) => break Err(error.into()),
            }
        };
        stops.end_all();
        handle.close();
        let _ = listener.join();
        drop(tasks);
        let _ = worker.join();
        end
    }
}

/// Runs the parts of a follower one after the other.
struct PartRunner<P, R> {
    run: FollowerRun,
    stops: Arc<PartStops>,
    results: ResultSender,
    plan: P,
    /// Reason why further cases could not be planned.
    plan_problem: Option<String>,
    report: R,
}

impl<P, R> PartRunner<P, R>
where
    P: Fn(&str) -> Result<Vec<PlannedCase>, String>,
    R: Fn(&str),
{
    fn execute_tasks(mut self, inbox: &mpsc::Receiver<FollowerTask>) {
        for task in inbox {
            match task {
                FollowerTask::Run(order) => self.run_and_send(&order),
                FollowerTask::AddCases(sweep) => match (self.plan)(&sweep) {
                    Ok(cases) => self.run.cases.extend(cases),
                    Err(problem) => self.plan_problem = Some(problem),
                },
                FollowerTask::Leave => self.results.leave("a user has ended its part"),
            }
        }
    }

    /// Runs a part and sends its result with the evidence.
    fn run_and_send(&self, order: &PartOrder) {
        let folder = self.run.settings.folder.join(collection_path(order.collection));
        // A panic is a defect of npubench; node 0 must not wait for this part.
        if let Some(problem) = self.run.missing_space() {
            let message = format!("{problem}; free space there, or set TMPDIR");
            (self.report)(&message);
            let end = PartEnd::EvidenceUnwritable;
            let result = PartResult { collection: order.collection, end, message, archive: None };
            self.results.send_result(result, None);
            return;
        }
        let run = catch_unwind(AssertUnwindSafe(|| self.run.run_part(order, &folder, &self.stops.part)));
        let (mut end, mut message) = match run {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => (PartEnd::NotStarted, error.to_string()),
            Err(_) => (PartEnd::NotStarted, "npubench has a defect: its part panicked".to_owned()),
        };
        if let Some(problem) = self.plan_problem.as_ref().filter(|_| end == PartEnd::NotStarted) {
            message = format!("{message}; further cases could not be planned: {problem}");
        }
        let archive = folder.with_extension("tar.gz");
        let mut saved = None;
        if !matches!(end, PartEnd::NotStarted | PartEnd::EvidenceUnwritable) {
            match write_archive(&archive, &folder, &part_files(&folder)) {
                Ok(_) if !has_space(&folder) => {
                    message =
                        format!("{message}, but its evidence may be incomplete: the disk of TMPDIR is full");
                    end = PartEnd::EvidenceUnwritable;
                }
                Ok(_) => saved = Some(archive.as_path()),
                Err(error) => {
                    // Without the evidence of its ranks there is no result, and it is needed to find the cause.
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
        (self.report)(&format!("collection {number} of {cases} cases with {name}: {message}"));
        self.results.send_result(PartResult { collection: number, end, message, archive: None }, saved);
        let _ = fs::remove_file(&archive);
        let _ = fs::remove_dir_all(&folder);
    }
}

/// Returns the evidence of a part; script and manifest are those of node 0.
fn part_files(folder: &Path) -> Vec<PathBuf> {
    let rendered = [files::REPLAY, files::MANIFEST].map(|name| folder.join(name));
    files_to_archive(folder).into_iter().filter(|path| !rendered.contains(path)).collect()
}

impl FollowerRun {
    /// Runs the script of a part; returns its end with the reason. Fails if it could not be started.
    fn run_part(
        &self,
        order: &PartOrder,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<(PartEnd, String), EngineError> {
        let Self { settings, cases, leases, address } = self;
        let refused = |problem: String| Ok((PartEnd::NotStarted, problem));
        let find = |id: &String| cases.iter().find(|planned| planned.case.id().as_str() == id);
        let Some(cases) = order.cases.iter().map(find).collect::<Option<Vec<&PlannedCase>>>() else {
            return refused("this node does not have all cases of the collection".to_owned());
        };
        let request = ManifestRequest {
            run: &order.run,
            collection: order.collection,
            devices: &order.devices,
            hosts: manifest_hosts(&order.hosts),
            host: order.place,
        };
        let manifest = collection_manifest(settings, request, &cases);
        if rendered_digest(settings, &manifest, &cases)? != order.digest {
            return refused(
            "this node renders another script or manifest than node 0; use the same `--assets`, devices and build of npubench"
                .to_owned(),
        );
        }
        let ranks = manifest.ranks_of_host(order.place);
        let Some(devices) = order.devices.get(ranks.clone()) else {
            return refused("the collection has no devices of this node".to_owned());
        };
        let rendezvous =
            GangRendezvous { hosts: order.hosts.len(), host: order.place, address, port: order.store_port };
        write_folder(settings, folder, &manifest, &cases, Some(rendezvous))?;
        let script = CollectionScript {
            settings,
            leases,
            run: &order.run,
            collection: order.collection,
            devices,
            limit: order.limit,
            cut_off: order.cut_off,
            folder,
        };
        let exit = script.run_script(None, files::LOG, stop)?;
        // Exit codes of msprof are unreliable.
        let is_done = ranks.clone().all(|rank| read_journal(&folder.join(files::journal(rank))).is_done);
        Ok(match exit {
            _ if is_done => (PartEnd::Done, "done".to_owned()),
            ExitKind::Exited(_) => (PartEnd::Failed, last_line(&folder.join(files::LOG))),
            ExitKind::Signalled(signal) => (PartEnd::Failed, format!("ended by signal {signal}")),
            ExitKind::TimedOut => {
                (PartEnd::TimedOut, format!("ended by npubench at its time limit of {:.0} s", order.limit))
            }
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
        stops.end_part();
        stops.begin_part();
        assert!(!stops.part.load(Ordering::Relaxed), "the request was for another part");
        stops.end_all();
        stops.begin_part();
        assert!(stops.part.load(Ordering::Relaxed) && stops.ends_all());
    }
}
