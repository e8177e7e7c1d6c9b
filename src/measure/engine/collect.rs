//! Runs the collections of a device one after the other, on its lane: renders the folder of each, runs its script, and assesses its
//! records. The result goes to the dispatcher, which stores it in the ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    CollectionSettings, EngineError, Result,
    assess::{CollectionConditions, CollectionOutput, LaunchedCase, expected_launches},
    gang::{GangEnd, GangParts},
    run::LaneContext,
};
use crate::{
    base::{
        files::write_archive,
        process::{self, CommandSpec, ExitKind, end_of_log},
        worker_thread::WorkerThread,
    },
    cases::plan::{DEFAULT_LAUNCHES, LaunchCount, PlannedCase},
    database::collection_path,
    kernel::{
        Attempt, CaseOutcome, Cause, ControlReading, LogicalDeviceId, SoftwareFingerprint, Verdict,
        render::{
            CollectScript, ControlLaunches, GangHost, GangLaunch, GangRendezvous, HostNumbers, Manifest,
            ManifestCase, ScriptCommunication, SentinelLengths, collect_script, files, replay_script,
        },
    },
    measure::{
        device::DeviceLeases,
        evidence::files_to_archive,
        sched::{CollectionExit, CollectionFinished, StartCollection},
        verify::{CollectionTermination, ExpectedLaunches, LaunchJournal, coded_error, read_journal},
    },
};

#[derive(Debug)]
pub(super) struct CollectionResult {
    pub(super) attempts: Vec<Attempt>,
    /// Seconds of each case, in the order of the attempts; `None` if it did not end.
    pub(super) seconds: Vec<Option<f64>>,
    /// Its end for the scheduler; its results and seconds follow.
    pub(super) end: CollectionFinished,
    pub(super) software: SoftwareFingerprint,
    pub(super) controls: Vec<ControlReading>,
    /// SHA-256 of the compressed evidence; `None` if it could not be written.
    pub(super) archive: Option<String>,
}

pub(super) fn run_collection(context: &LaneContext, start: &StartCollection) -> Result<CollectionResult> {
    let settings = &context.settings;
    let cases: Vec<&PlannedCase> = start.cases.iter().map(|&index| &context.cases[index]).collect();
    let folder = settings.folder.join(collection_path(start.collection));
    let parts = GangParts::find(settings.nodes.as_ref(), start);
    let devices = parts.as_ref().map_or_else(|| start.devices.clone(), |parts| parts.devices(start));
    let hosts = parts.as_ref().map(GangParts::manifest_hosts).unwrap_or_default();
    let id = (settings.run.as_str(), start.collection);
    let manifest = collection_manifest(settings, id, &devices, (hosts, 0), &cases);
    let job = RenderedCollection {
        settings,
        leases: &context.leases,
        manifest,
        cases: &cases,
        devices: &start.devices,
        limit: start.limit,
        cut_off: start.cut_off,
        export_reserve: start.export_reserve,
        folder: &folder,
    };
    let manifest = &job.manifest;
    job.write(parts.as_ref().map(GangParts::rendezvous))?;
    let software = settings.host_software.read_fingerprint();
    let started = SystemTime::now();
    let own_ranks = manifest.ranks_of_host(0);
    let GangEnd { exit: ended, cause } = match &parts {
        Some(parts) => parts.run(&job, &context.stop)?,
        None => GangEnd { exit: job.run_script(None, files::LOG, &context.stop)?, cause: None },
    };
    let collection_end = CollectionTermination::from(ended);
    let expected: Vec<ExpectedLaunches<'_>> =
        cases.iter().map(|planned| expected_launches(&settings.catalogue, planned)).collect();
    let mut output = CollectionOutput::read(&folder, manifest);
    // msprof may exit with 0 without exporting tables; a second export of its raw data mostly succeeds.
    let lacks_device = |(rank, device): (usize, &LogicalDeviceId)| {
        let host = manifest.host_of_rank(rank);
        !output.records.iter().any(|record| record.host == host && record.device == Some(*device))
    };
    let has_silent_device = manifest.devices().iter().enumerate().any(lacks_device);
    let is_silent = output.unreadable.is_none()
        && (output.records.is_empty() || (manifest.devices().len() > 1 && has_silent_device))
        // A process that did not end by itself has left nothing that could be exported.
        && output.journal().has_ended
        && !output.journal().lines.is_empty();
    let profile = folder.join(files::PROFILE);
    if is_silent && collection_end == CollectionTermination::Exited && has_profile(&profile) {
        job.run_script(Some("export"), files::EXPORT_LOG, &context.stop)?;
        output = CollectionOutput::read(&folder, manifest);
    }
    let conditions = CollectionConditions {
        termination: collection_end,
        software_checked: settings.software.clone(),
        software_at_start: software.clone(),
        software_at_end: settings.host_software.read_fingerprint(),
        cases: cases.iter().map(|planned| LaunchedCase::new(planned)).collect(),
    };
    conditions.write(&folder);
    let attempts = output.assess(manifest, &expected, collection_end, &conditions.software_change());
    for attempt in &attempts {
        let CaseOutcome { verdict, reason } = &attempt.outcome;
        tracing::debug!(collection = start.collection, case = %attempt.case, %verdict, %reason, "assessed");
    }
    let controls = output.controls(manifest);
    write_rank_durations(&folder, &attempts);
    let journal = output.journal();
    // The clocks of other hosts differ.
    let of_host = output.journals.get(own_ranks).map(LaunchJournal::merge_all).unwrap_or_default();
    let CollectionOutput { journals, records, unreadable, .. } = output;
    let miscounted = journals.iter().find_map(|journal| settings.numbering.mismatch(journal.device_count?));
    let has_readable_profile = unreadable.is_none() && !records.is_empty();
    let message = cause.or(miscounted).or(unreadable);
    let mut message = message.unwrap_or_else(|| end_message(ended, &journal, has_readable_profile, &job));
    let seconds = manifest.cases.iter().map(|case| journal.lines.get(&case.ordinal)?.seconds);
    let startup = of_host.started_at.filter(|_| journal.is_started);
    let archive = write_archive(&folder.join(files::EVIDENCE), &folder, &files_to_archive(&folder));
    if let Err(error) = &archive {
        message = format!("{message}; its evidence is not archived: {error}");
    }
    Ok(CollectionResult {
        attempts,
        seconds: seconds.collect(),
        end: CollectionFinished {
            collection: start.collection,
            exit: collection_exit(&journal, collection_end),
            has_readable_profile,
            failed_devices: failed_devices(manifest, &start.devices, &folder),
            startup: startup.and_then(|at| seconds_since(started, at)),
            message,
            ..CollectionFinished::default()
        },
        software: software.with_imported(journal.imported.clone().unwrap_or_default()),
        controls,
        archive: archive.ok(),
    })
}

fn end_message(
    ended: ExitKind,
    journal: &LaunchJournal,
    is_readable: bool,
    job: &RenderedCollection<'_>,
) -> String {
    let last_line = || last_line(&job.folder.join(files::LOG));
    let is_done = journal.is_done;
    match ended {
        ExitKind::Exited(0) if is_done && !is_readable => {
            format!("msprof left no records in {}", job.folder.join(files::PROFILE).display())
        }
        ExitKind::Exited(0) if journal.is_out_of_time => {
            let (launched, cases) = (journal.lines.len(), job.cases.len());
            format!("ended by itself after {launched} of {cases} cases, in time to export their records")
        }
        ExitKind::Exited(0) if is_done => "done".to_owned(),
        ExitKind::Exited(_) if is_done => format!("the script failed after its last case: {}", last_line()),
        ExitKind::Exited(_) => format!("the script did not finish: {}", last_line()),
        ExitKind::Signalled(signal) => format!("ended by signal {signal}"),
        ExitKind::CutOff => "ended by npubench at the deadline".to_owned(),
        ExitKind::TimedOut => format!("ended by npubench at its time limit of {:.0} s", job.limit),
        ExitKind::TooMuchOutput => format!("ended by npubench: it printed too much, {}", last_line()),
        ExitKind::Stopped => "stopped".to_owned(),
    }
}

/// Writes the durations of the fastest and of the slowest rank of a gang: a line for each case, in nanoseconds, in the
/// order of the launches, of which the first are warm-ups. The ledger has the launches of the slowest rank, so that a
/// failed write loses no sample.
fn write_rank_durations(folder: &Path, attempts: &[Attempt]) {
    let attempts = attempts.iter().flat_map(Attempt::with_equal_calls);
    let lines = attempts.filter(|attempt| !attempt.fastest_ranks.is_empty()).map(|attempt| {
        let slowest: Vec<_> = attempt.launches.iter().map(|launch| launch.duration).collect();
        let fastest = &attempt.fastest_ranks;
        serde_json::json!({ "case": attempt.case, "fastest_ns": fastest, "slowest_ns": slowest }).to_string()
            + "\n"
    });
    let text: String = lines.collect();
    if !text.is_empty() {
        let _ = fs::write(folder.join(files::RANKS), text);
    }
}

/// Writes the scripts of a collection and their manifest into its folder, which is created.
pub(crate) fn write_scripts(folder: &Path, replay: &str, collect: &str, manifest: &str) -> Result<()> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| EngineError::Io { path, source }
    };
    let profile = folder.join(files::PROFILE);
    fs::create_dir_all(&profile).map_err(failed(&profile))?;
    for (name, text) in [(files::REPLAY, replay), (files::COLLECT, collect), (files::MANIFEST, manifest)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}

pub(super) struct RenderedCollection<'a> {
    pub(super) settings: &'a CollectionSettings,
    pub(super) leases: &'a DeviceLeases,
    pub(super) manifest: Manifest,
    pub(super) cases: &'a [&'a PlannedCase],
    /// Devices whose leases the programs hold.
    pub(super) devices: &'a [u32],
    pub(super) limit: f64,
    /// Wall time in seconds after which the script is ended in any case.
    pub(super) cut_off: Option<f64>,
    /// Seconds before either of them at which the script ends its last case.
    pub(super) export_reserve: f64,
    pub(super) folder: &'a Path,
}

impl RenderedCollection<'_> {
    fn communication(&self) -> ScriptCommunication {
        match has_collectives(self.cases) {
            true => self.settings.options.communication(),
            false => ScriptCommunication::Kernels,
        }
    }

    fn replay_script(&self) -> Result<String> {
        let entry = |planned: &&PlannedCase| self.settings.catalogue.entry(&planned.case.kernel);
        let entries = self.cases.iter().filter_map(|planned| Some((&planned.case.kernel, entry(planned)?)));
        Ok(replay_script(&self.settings.assets, self.communication(), entries)?)
    }

    pub(super) fn digest(&self) -> Result<String> {
        // The manifests of the hosts differ in the place of the host.
        let manifest = Manifest { host: 0, ..self.manifest.clone() };
        let manifest = serde_json::to_string(&manifest).expect("a manifest is JSON");
        let text = format!("{manifest}\n{}", self.replay_script()?);
        Ok(Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(super) fn write(&self, rendezvous: Option<GangRendezvous<'_>>) -> Result<()> {
        let Self { settings, manifest, folder, .. } = self;
        let is_gloo = self.communication() == ScriptCommunication::Gloo;
        let ranks = manifest.ranks_of_host(manifest.host).len();
        let script = CollectScript {
            run: &manifest.run,
            collection: manifest.collection,
            python: &settings.options.python,
            // The stand-ins of a rehearsal host have no torch that communicates.
            environment: if is_gloo { &[] } else { &settings.environment },
            pinned: &manifest.environment,
            profiler: &manifest.profiler,
            gang: (!manifest.gang.is_empty()).then_some(GangLaunch { ranks, rendezvous }),
            is_gloo,
        };
        let collect = collect_script(&settings.assets, &script)?;
        let text = serde_json::to_string_pretty(manifest).expect("a manifest is JSON");
        write_scripts(folder, &self.replay_script()?, &collect, &text)
    }

    /// Returns true if all ranks of this host have launched everything; exit codes of msprof are unreliable.
    pub(super) fn is_done(&self) -> bool {
        let mut ranks = self.manifest.ranks_of_host(self.manifest.host);
        ranks.all(|rank| read_journal(&self.folder.join(files::journal(rank))).is_done)
    }

    /// Returns the variable with the times, in seconds since the epoch, at which the script ends its last case: before the limit
    /// and before the cut-off. No part of the manifest, so that the script can be started again by hand.
    fn launch_until(&self) -> (String, String) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let end = |seconds: f64| now + seconds - self.export_reserve;
        let times = (end(self.limit), self.cut_off.map(end));
        ("NPUBENCH_LAUNCH_UNTIL".to_owned(), serde_json::json!(times).to_string())
    }

    pub(super) fn run_script(&self, mode: Option<&str>, log: &str, stop: &AtomicBool) -> Result<ExitKind> {
        let record = format!("{}-{:05}.json", self.manifest.run, self.manifest.collection);
        let stdin =
            self.leases.share_files(self.devices).map_err(EngineError::system("a file descriptor"))?;
        let environment: Vec<(String, String)> =
            mode.is_none().then(|| self.launch_until()).into_iter().collect();
        let job = CommandSpec {
            command: ["sh", files::COLLECT].into_iter().chain(mode).map(Into::into).collect(),
            folder: self.folder,
            environment: &environment,
            log: &self.folder.join(log),
            limit: Duration::try_from_secs_f64(self.limit).unwrap_or(Duration::MAX),
            cut_off: self.cut_off.and_then(|cut_off| Duration::try_from_secs_f64(cut_off).ok()),
            stdin: Some(stdin),
            record: Some(&self.settings.processes.join(record)),
            ..CommandSpec::new(Vec::new(), self.folder, &self.folder.join(log), Duration::MAX)
        };
        Ok(process::run_command(&job, stop)?)
    }
}

fn failed_devices(manifest: &Manifest, devices: &[u32], folder: &Path) -> Vec<u32> {
    if devices.len() < 2 {
        return Vec::new();
    }
    let of_host = |host: usize| {
        let place = if host == 0 { folder.to_owned() } else { folder.join(files::host_folder(host)) };
        let devices = devices.get(manifest.ranks_of_host(host)).unwrap_or_default();
        named_devices(devices, &place.join(files::LOG))
    };
    (0..manifest.hosts.len().max(1)).flat_map(of_host).collect()
}

/// Returns the devices of the ranks that torchrun names as failed in a log, such as `failed (exitcode: 1) local_rank: 5`.
fn named_devices(devices: &[u32], log: &Path) -> Vec<u32> {
    let ranks = |line: &str| -> Option<usize> {
        let (_, rest) = line.split_once("failed (exitcode:")?;
        let (_, rest) = rest.split_once("local_rank: ")?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let ranks: BTreeSet<usize> = end_of_log(log).lines().filter_map(ranks).collect();
    ranks.into_iter().filter_map(|rank| devices.get(rank).copied()).collect()
}

fn has_profile(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with("PROF_"))
}

/// Derives how the collection ended from the journal; exit codes of msprof are unreliable.
fn collection_exit(journal: &LaunchJournal, end: CollectionTermination) -> CollectionExit {
    match end {
        CollectionTermination::Stopped => CollectionExit::Stopped,
        _ if !journal.is_started => CollectionExit::NothingLaunched,
        CollectionTermination::Exited if journal.is_done => CollectionExit::Completed,
        CollectionTermination::Exited if journal.has_ended => CollectionExit::EndedByCase,
        CollectionTermination::Exited
        | CollectionTermination::TimedOut
        | CollectionTermination::TooMuchOutput => CollectionExit::Broken,
    }
}

/// Returns the seconds from `started` to `at` (seconds since the epoch); `None` if the clock was set back meanwhile.
fn seconds_since(started: SystemTime, at: f64) -> Option<f64> {
    let started = started.duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(at - started).filter(|seconds| *seconds >= 0.0)
}

const LOG_LINE: usize = 300;

pub(crate) fn last_line(log: &Path) -> String {
    let text = end_of_log(log);
    // torchrun draws frames around its summary.
    let has_text = |line: &&str| line.contains(char::is_alphanumeric);
    let lines = || text.lines().rev().map(str::trim).filter(has_text);
    // Lines of msprof follow the lines of the script and are less informative, except for warnings and errors.
    let own = |line: &&str| ["[INFO]", "[WARNING]", "[ERROR]"].iter().any(|mark| line.starts_with(mark));
    let warns = |line: &&str| line.starts_with("[WARNING]") || line.starts_with("[ERROR]");
    // The summary of torchrun is long; one line of it names the rank that was ended by a signal.
    let of_torchrun = || lines().find_map(|line| line.find("failed (exitcode: -").map(|at| &line[at..]));
    let coded = coded_error(&text);
    let line = of_torchrun().or(coded.as_deref()).or_else(|| lines().find(|line| !own(line)));
    let line = line.or_else(|| lines().find(warns)).or_else(|| lines().next());
    let line = line.unwrap_or("no output");
    let cut = line.char_indices().nth(LOG_LINE).map_or(line.len(), |(at, _)| at);
    let mark = if cut < line.len() { "…" } else { "" };
    format!("{}{mark} ({})", &line[..cut], log.display())
}

/// `numbers` are the devices by rank; `hosts` those of the ranks, empty for one host, with the place of this host among them.
pub(super) fn collection_manifest(
    settings: &CollectionSettings,
    (run, collection): (&str, u32),
    numbers: &[u32],
    (hosts, host): (Vec<GangHost>, usize),
    cases: &[&PlannedCase],
) -> Manifest {
    let listed = cases.iter().zip(0..).map(|(planned, ordinal)| {
        let measured = match settings.costs.launches {
            LaunchCount::Adaptive => Some(settings.costs.sample_count(planned.predicted_launch())),
            LaunchCount::Fixed(_) => None,
        };
        let case = ManifestCase::new(ordinal, &planned.case, &planned.call, settings.options.seed);
        ManifestCase { measured, ..case }
    });
    let numbering = &settings.numbering;
    let devices: Vec<LogicalDeviceId> = numbers.iter().map(|id| numbering.logical_id(*id)).collect();
    let mut manifest = Manifest {
        run: run.to_owned(),
        collection,
        kind: settings.kind,
        device: devices.first().copied().unwrap_or_default(),
        gang: Vec::new(),
        hosts,
        host,
        host_numbers: HostNumbers {
            devices: numbers.to_vec(),
            listed: numbering.listed(),
            is_exact: numbering.is_exact,
        },
        seed: settings.options.seed,
        warm_up: settings.costs.warm_up,
        measured: match settings.costs.launches {
            LaunchCount::Adaptive => DEFAULT_LAUNCHES,
            LaunchCount::Fixed(number) => number,
        },
        flush_bytes: None,
        expert_skew: settings.options.expert_skew,
        profiler: settings.options.profiler.clone(),
        environment: settings.options.pinned_environment(),
        sentinels: SentinelLengths::default(),
        // Collectives are bound by links, which control kernels do not use.
        controls: (!has_collectives(cases)).then(ControlLaunches::default),
        cases: listed.collect(),
    };
    manifest.set_gang(&devices);
    manifest.set_flush(settings.costs.flush.map(|flush| flush.bytes));
    manifest
}

fn has_collectives(cases: &[&PlannedCase]) -> bool {
    cases.iter().any(|planned| planned.case.kernel.is_collective())
}

/// Number of collections with launches after which a failure of a case counts although the disk was full: the case may
/// fill the disk itself.
const MAX_EXCUSES: u32 = 3;

fn is_excusable(outcome: &CaseOutcome) -> bool {
    outcome.is_worth_a_retry() || matches!(outcome.reason.cause, Cause::NoSpace { .. })
}

pub(super) fn stays_excused(stored: &CaseOutcome, assessed: &CaseOutcome) -> bool {
    matches!(stored.reason.cause, Cause::DiskFull { .. }) && is_excusable(assessed)
}

#[derive(Debug, Default)]
pub(super) struct DiskFailures(BTreeMap<usize, u32>);

impl DiskFailures {
    /// Makes failed attempts of a collection during which the disk was full attempts that were not run; complete results stay.
    pub(super) fn excuse(&mut self, cases: &[usize], result: &mut CollectionResult) {
        if result.end.exit == CollectionExit::Stopped {
            return;
        }
        let has_launched = result.end.exit != CollectionExit::NothingLaunched;
        let failed =
            cases.iter().zip(&mut result.attempts).filter(|(_, attempt)| is_excusable(&attempt.outcome));
        let failed: Vec<_> = failed.collect();
        let is_known = |case: &usize| self.0.get(case).is_some_and(|count| *count >= MAX_EXCUSES);
        if failed.is_empty() || (has_launched && failed.iter().any(|(case, _)| is_known(case))) {
            return;
        }
        for (case, attempt) in failed {
            *self.0.entry(*case).or_default() += u32::from(has_launched);
            let failure = Box::new(attempt.outcome.reason.clone());
            attempt.outcome = CaseOutcome::new(Verdict::NotRun, Cause::DiskFull { failure });
            attempt.launches.clear();
            attempt.of_equal_calls.clear();
        }
        result.end.exit = CollectionExit::DiskFull;
        result.end.message = format!("the disk was full: {}", result.end.message);
    }
}

pub(super) struct LaneReport {
    pub(super) start: StartCollection,
    pub(super) seconds: f64,
    pub(super) result: Result<CollectionResult>,
}

/// Starts the lanes of a run: one long-lived thread for each device, because the kernel may end a child process with the thread that
/// started it (`PR_SET_PDEATHSIG`). Returns the function that starts a collection; that of a gang runs on the lane of its first device,
/// and the scheduler starts none on the other devices meanwhile.
pub(super) fn spawn_lanes(
    devices: &[u32],
    context: &Arc<LaneContext>,
    reports: &UnboundedSender<LaneReport>,
) -> Result<impl Fn(StartCollection) + use<>> {
    let spawn = |&device: &u32| {
        let (context, reports) = (Arc::clone(context), reports.clone());
        let lane = WorkerThread::spawn(format!("device {device}"), move |inbox| {
            for start in inbox {
                let started = Instant::now();
                // A panic here is a defect of npubench; it must not leave the run waiting for this lane.
                let result = catch_unwind(AssertUnwindSafe(|| run_collection(&context, &start)))
                    .unwrap_or(Err(EngineError::Panicked { device }));
                let seconds = started.elapsed().as_secs_f64();
                if reports.send(LaneReport { start, seconds, result }).is_err() {
                    break;
                }
            }
        });
        Ok((device, lane.map_err(EngineError::system("a thread"))?))
    };
    let lanes: BTreeMap<u32, WorkerThread<StartCollection>> =
        devices.iter().map(spawn).collect::<Result<_>>()?;
    Ok(move |start: StartCollection| {
        if let Some(lane) = start.devices.first().and_then(|device| lanes.get(device)) {
            lane.send(start);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_log_is_read_and_quoted() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("collect.log");
        let lines = |text: String| {
            fs::write(&log, text).expect("written");
            let line = last_line(&log);
            line.strip_suffix(&format!(" ({})", log.display())).expect("the path").to_owned()
        };
        assert_eq!(
            lines(format!("{}\nRuntimeError: é\n[INFO] bye\n", "x".repeat(1 << 20))),
            "RuntimeError: é"
        );
        let quoted = lines("ü".repeat(1 << 20));
        assert_eq!(quoted, format!("{}…", "ü".repeat(LOG_LINE)));
        assert_eq!(lines(String::new()), "no output");
        assert!(end_of_log(&log).is_empty());
    }

    #[test]
    fn failed_ranks_are_read_from_the_log_of_torchrun() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("collect.log");
        let text = "E1122 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 5 \
            (pid: 71) of binary: /usr/bin/python3\nfailed (exitcode: -9) local_rank: 99 (pid: 7)\n";
        fs::write(&log, text).expect("written");
        let devices: Vec<u32> = (8..16).collect();
        assert_eq!(named_devices(&devices, &log), [13]);
        assert!(named_devices(&devices, &folder.path().join("none")).is_empty());
    }

    /// A sparse file of a terabyte is read in no time.
    #[test]
    fn a_log_larger_than_memory_is_no_problem() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("collect.log");
        fs::File::create(&log).expect("created").set_len(1 << 40).expect("a sparse file");
        assert!(last_line(&log).starts_with("no output"));
    }
}
