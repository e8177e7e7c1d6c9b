//! The part of a follower in a sweep over several nodes: it runs what node 0 starts, and sends the evidence back.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool, atomic::Ordering, mpsc},
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
    lane_context::LaneContext,
};
use crate::{
    database::collection_path,
    device::DeviceLeases,
    evidence::files_to_archive,
    files::write_archive,
    nodes::{FollowedConnection, FollowerRequest, PartEnd, PartOrder, PartResult, ResultSender},
    plan::PlannedCase,
    process::{ExitKind, ProcessGuard},
    render::{GangRendezvous, files},
    verify::read_journal,
};

/// Stop requests closer together than this count as one.
const STOP_DEBOUNCE: Duration = Duration::from_millis(50);

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

impl FollowerRun {
    /// Runs the parts that node 0 starts, until it ends the sweep; returns its exit code. `report` gets a line for each
    /// part. Fails if node 0 is lost.
    pub(crate) fn follow(
        self,
        mut connection: FollowedConnection,
        report: impl Fn(&str) + Send + Clone + 'static,
    ) -> Result<u8, EngineError> {
        let Self { settings, cases, leases, address } = self;
        let system = |what| move |source| EngineError::System { what, source };
        // Ends the programs if this process is killed.
        let _guard = ProcessGuard::start(&settings.processes).map_err(system("a process"))?;
        let context = Arc::new(LaneContext { settings, cases, leases, stop: AtomicBool::new(false) });
        let results = connection.results();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(system("signal handlers"))?;
        let handle = signals.handle();
        let (of_signals, sender, note) = (Arc::clone(&context), results.clone(), report.clone());
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
                        of_signals.stop.store(true, Ordering::Relaxed);
                    }
                    Some(_) => {}
                }
            }
        };
        let listener =
            thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(system("a thread"))?;
        let (orders, inbox) = mpsc::channel::<PartOrder>();
        let of_parts = Arc::clone(&context);
        let work = move || {
            inbox.iter().for_each(|order| run_and_send(&of_parts, &address, &order, &results, &report));
        };
        let worker =
            thread::Builder::new().name("parts".to_owned()).spawn(work).map_err(system("a thread"))?;
        let mut current = None;
        let end = loop {
            match connection.receive() {
                Ok(FollowerRequest::Start(order)) => {
                    current = Some(order.collection);
                    context.stop.store(false, Ordering::Relaxed);
                    // The worker ends only after this sender is dropped.
                    let _ = orders.send(*order);
                }
                Ok(FollowerRequest::Stop { collection }) => {
                    if current == Some(collection) {
                        context.stop.store(true, Ordering::Relaxed);
                    }
                }
                Ok(FollowerRequest::End { exit }) => break Ok(exit),
                Err(error) => break Err(error.into()),
            }
        };
        context.stop.store(true, Ordering::Relaxed);
        drop(orders);
        let _ = worker.join();
        handle.close();
        let _ = listener.join();
        end
    }
}

/// Runs a part and sends its result with the evidence.
fn run_and_send(
    context: &LaneContext,
    address: &str,
    order: &PartOrder,
    results: &ResultSender,
    report: &impl Fn(&str),
) {
    let folder = context.settings.folder.join(collection_path(order.collection));
    // A panic is a defect of npubench; node 0 must not wait for this part.
    let run = catch_unwind(AssertUnwindSafe(|| run_part(context, address, order, &folder)));
    let (end, message) = match run {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => (PartEnd::NotStarted, error.to_string()),
        Err(_) => (PartEnd::NotStarted, "npubench has a defect: its part panicked".to_owned()),
    };
    let name = order.hosts.first().map_or("node 0", |host| host.name.as_str());
    let (number, cases) = (order.collection, order.cases.len());
    report(&format!("collection {number} of {cases} cases with {name}: {message}"));
    let archive = folder.with_extension("tar.gz");
    let has_archive =
        end != PartEnd::NotStarted && write_archive(&archive, &folder, &part_files(&folder)).is_ok();
    let result = PartResult { collection: order.collection, end, message, archive: None };
    results.send_result(result, has_archive.then_some(archive.as_path()));
    let _ = fs::remove_file(&archive);
    let _ = fs::remove_dir_all(&folder);
}

/// Returns the evidence of a part; script and manifest are those of node 0.
fn part_files(folder: &Path) -> Vec<PathBuf> {
    let rendered = [files::REPLAY, files::MANIFEST].map(|name| folder.join(name));
    files_to_archive(folder).into_iter().filter(|path| !rendered.contains(path)).collect()
}

fn run_part(
    context: &LaneContext,
    address: &str,
    order: &PartOrder,
    folder: &Path,
) -> Result<(PartEnd, String), EngineError> {
    let settings = &context.settings;
    let refused = |problem: String| Ok((PartEnd::NotStarted, problem));
    let find = |id: &String| context.cases.iter().find(|planned| planned.case.id().as_str() == id);
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
            "this node renders another script or manifest than node 0: catalogue, assets or devices differ"
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
        leases: &context.leases,
        run: &order.run,
        collection: order.collection,
        devices,
        limit: order.limit,
        cut_off: order.cut_off,
        folder,
    };
    let exit = script.run_script(None, files::LOG, &context.stop)?;
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
