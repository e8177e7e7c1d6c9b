//! One collection from its folder to its attempts. Runs on a lane's thread; keeps nothing in the ledger.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{EngineError, lane::LaneContext};
use crate::{
    catalogue::{Catalogue, CatalogueEntry},
    config::AssetFiles,
    device::DeviceLease,
    domain::{Attempt, DataKind},
    plan::{InitialCosts, PlannedCase},
    process::{self, CommandSpec, ExitKind},
    render::{CollectScript, Manifest, ManifestCase, SentinelLengths, collect_script, files, replay_script},
    sched::{CollectionExit, StartCollection},
    verify::{
        CollectionVerdicts, ExpectedLaunches, LaunchJournal, RawRecord, assess, read_journal, read_records,
    },
};

/// What all collections of a run share.
#[derive(Clone, Debug)]
pub struct CollectionSettings {
    /// The run.
    pub run: String,
    /// Measured or rehearsed.
    pub kind: DataKind,
    /// Where the run's scripts, logs and raw output go.
    pub folder: PathBuf,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Launches of a case before its samples.
    pub warm_up: u32,
    /// Samples of a case.
    pub measured: u32,
    /// Python, as a name or a path.
    pub python: String,
    /// Variables of the host.
    pub environment: Vec<(String, String)>,
    /// How unevenly tokens go to experts; 0 is even.
    pub expert_skew: f64,
    /// Where leases of devices are.
    pub leases: PathBuf,
    /// Where running programs are written down.
    pub processes: PathBuf,
    /// Predicted costs.
    pub costs: InitialCosts,
    /// The kernels.
    pub catalogue: Catalogue,
    /// The templates.
    pub assets: AssetFiles,
}

/// What a collection found.
#[derive(Debug)]
pub(super) struct CollectionResult {
    pub(super) attempts: Vec<Attempt>,
    /// Seconds that each case took, in the order of the attempts; `None` where it did not end.
    pub(super) seconds: Vec<Option<f64>>,
    /// Seconds until the script could use its device.
    pub(super) start: Option<f64>,
    /// How its process ended.
    pub(super) end: CollectionExit,
    /// The same in words.
    pub(super) outcome: String,
}

/// Renders a collection, runs it and judges its records.
pub(super) fn collect(
    shared: &LaneContext,
    start: &StartCollection,
) -> Result<CollectionResult, EngineError> {
    let settings = &shared.settings;
    let cases: Vec<&PlannedCase> = start.cases.iter().map(|&index| &shared.cases[index]).collect();
    let folder = settings.folder.join("collections").join(format!("{:05}", start.collection));
    let manifest = manifest(settings, start, &cases);
    write_folder(settings, &folder, &manifest, &cases)?;
    let begun = SystemTime::now();
    let job = CollectionScript { shared, start, folder: &folder };
    let ended = job.run(None, files::LOG)?;
    let collection_end = match ended {
        ExitKind::Exited(_) | ExitKind::Signalled(_) => CollectionVerdicts::ByItself,
        ExitKind::TimedOut => CollectionVerdicts::TimedOut,
        ExitKind::CutOff | ExitKind::Stopped => CollectionVerdicts::Stopped,
    };
    let ranks = 0..manifest.devices().len();
    let journals: Vec<LaunchJournal> =
        ranks.map(|rank| read_journal(&folder.join(files::journal(rank)))).collect();
    let journal = LaunchJournal::merge_all(&journals);
    let expected: Vec<ExpectedLaunches<'_>> =
        cases.iter().map(|planned| expected(settings, planned)).collect();
    let profile = folder.join(files::PROFILE);
    let mut read = records(&profile);
    // msprof may exit with 0 and leave nothing; its data is there, and exporting it again mostly helps.
    let is_silent = read.as_ref().is_ok_and(|records| lacks_a_device(&manifest, records));
    let is_silent = is_silent && !journal.lines.is_empty();
    if is_silent && collection_end == CollectionVerdicts::ByItself && has_profile(&profile) {
        job.run(Some("export"), files::EXPORT_LOG)?;
        read = records(&profile);
    }
    let (records, unreadable) = match read {
        Ok(records) => (records, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let attempts = assess(&manifest, &expected, &journals, &records, collection_end);
    let outcome = unreadable.unwrap_or_else(|| match ended {
        ExitKind::Exited(0) if journal.is_done => "done".to_owned(),
        ExitKind::Exited(_) => {
            format!("the script did not come to its end: {}", last_line(&folder.join(files::LOG)))
        }
        ExitKind::Signalled(signal) => format!("ended by signal {signal}"),
        ExitKind::CutOff => "ended by npubench, because the deadline came".to_owned(),
        ExitKind::TimedOut => format!("ended by npubench after {:.0} s", start.limit),
        ExitKind::Stopped => "stopped".to_owned(),
    });
    let seconds = manifest.cases.iter().map(|case| journal.lines.get(&case.ordinal)?.seconds);
    Ok(CollectionResult {
        attempts,
        seconds: seconds.collect(),
        start: journal.started_at.and_then(|at| since(begun, at)),
        end: end(&journal, collection_end),
        outcome,
    })
}

/// The script of a collection, ready to be run.
struct CollectionScript<'a> {
    shared: &'a LaneContext,
    start: &'a StartCollection,
    folder: &'a Path,
}

impl CollectionScript<'_> {
    /// Runs the script to its end, its limit, or the moment the run is stopped at once.
    fn run(&self, argument: Option<&str>, log: &str) -> Result<ExitKind, EngineError> {
        let settings = &self.shared.settings;
        let record = format!("{}-{:05}.json", settings.run, self.start.collection);
        let leases: Vec<&DeviceLease> =
            self.start.devices.iter().filter_map(|device| self.shared.leases.get(device)).collect();
        let stdin = DeviceLease::share_all(&leases)
            .map_err(|source| EngineError::System { what: "a file descriptor", source })?;
        let job = CommandSpec {
            command: ["sh", files::COLLECT].into_iter().chain(argument).map(Into::into).collect(),
            folder: self.folder,
            environment: &[],
            log: &self.folder.join(log),
            limit: Duration::try_from_secs_f64(self.start.limit).unwrap_or(Duration::MAX),
            cut_off: self.start.cut_off.and_then(|cut_off| Duration::try_from_secs_f64(cut_off).ok()),
            stdin: Some(stdin),
            record: Some(&settings.processes.join(record)),
        };
        Ok(process::run(&job, &self.shared.stop)?)
    }
}

/// A table that is cut or garbled is lost records, not the end of the night.
fn records(profile: &Path) -> Result<Vec<RawRecord>, String> {
    read_records(profile).map_err(|error| error.to_string())
}

/// Whether a device has left no records at all.
fn lacks_a_device(manifest: &Manifest, records: &[RawRecord]) -> bool {
    let is_silent = |device: &u32| !records.iter().any(|record| record.device == Some(*device));
    records.is_empty() || (manifest.devices().len() > 1 && manifest.devices().iter().any(is_silent))
}

/// Whether msprof has begun a profile below the folder.
fn has_profile(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with("PROF_"))
}

/// How the process ended, for the scheduler. Exit codes prove nothing: the journal does.
fn end(journal: &LaunchJournal, end: CollectionVerdicts) -> CollectionExit {
    match end {
        CollectionVerdicts::Stopped => CollectionExit::Stopped,
        _ if !journal.is_started => CollectionExit::NothingLaunched,
        CollectionVerdicts::ByItself if journal.is_done => CollectionExit::Clean,
        CollectionVerdicts::ByItself | CollectionVerdicts::TimedOut => CollectionExit::Broken,
    }
}

/// Seconds from one moment to another, by the host's clock; `None` where the clock was set back in between.
fn since(begun: SystemTime, at: f64) -> Option<f64> {
    let begun = begun.duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(at - begun).filter(|seconds| *seconds >= 0.0)
}

/// The last thing that the script said, and where the rest is.
fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // torchrun frames its last words.
    let says = |line: &&str| line.contains(char::is_alphanumeric);
    let lines = || text.lines().rev().map(str::trim).filter(says);
    // msprof's own lines come behind the script's, and say less; its warnings say more than what it goes on with.
    let own = |line: &&str| ["[INFO]", "[WARNING]", "[ERROR]"].iter().any(|mark| line.starts_with(mark));
    let warns = |line: &&str| line.starts_with("[WARNING]") || line.starts_with("[ERROR]");
    // torchrun's last words are long; one line of its log tells which rank a signal ended.
    let of_torchrun = || lines().find_map(|line| line.find("failed (exitcode: -").map(|at| &line[at..]));
    let said = of_torchrun().or_else(|| lines().find(|line| !own(line)));
    let said = said.or_else(|| lines().find(warns)).or_else(|| lines().next());
    format!("{} ({})", said.unwrap_or("no output"), log.display())
}

fn manifest(settings: &CollectionSettings, start: &StartCollection, cases: &[&PlannedCase]) -> Manifest {
    let listed = cases
        .iter()
        .zip(0..)
        .map(|(planned, ordinal)| ManifestCase::new(ordinal, &planned.case, &planned.reading, settings.seed));
    let mut manifest = Manifest {
        run: settings.run.clone(),
        collection: start.collection,
        kind: settings.kind,
        device: start.devices.first().copied().unwrap_or_default(),
        gang: Vec::new(),
        seed: settings.seed,
        warm_up: settings.warm_up,
        measured: settings.measured,
        expert_skew: settings.expert_skew,
        sentinels: SentinelLengths::default(),
        cases: listed.collect(),
    };
    manifest.set_gang(&start.devices);
    manifest
}

fn expected<'a>(settings: &'a CollectionSettings, planned: &'a PlannedCase) -> ExpectedLaunches<'a> {
    let entry = settings.catalogue.entry(&planned.case.kernel);
    ExpectedLaunches {
        case: &planned.case,
        names: entry.map(|entry| entry.names().collect()).unwrap_or_default(),
        beside: entry.map(|entry| entry.also_launches.as_slice()).unwrap_or_default(),
        fastest: planned.fastest,
        notes: &planned.reading.notes,
        host_slots: entry.map(CatalogueEntry::host_slots).unwrap_or_default(),
    }
}

fn write_folder(
    settings: &CollectionSettings,
    folder: &Path,
    manifest: &Manifest,
    cases: &[&PlannedCase],
) -> Result<(), EngineError> {
    let entries = cases
        .iter()
        .filter_map(|planned| Some((&planned.case.kernel, settings.catalogue.entry(&planned.case.kernel)?)));
    let replay = replay_script(&settings.assets, entries)?;
    let script = CollectScript {
        run: &settings.run,
        collection: manifest.collection,
        python: &settings.python,
        environment: &settings.environment,
        ranks: Some(manifest.gang.len()).filter(|ranks| *ranks > 0),
    };
    let collect = collect_script(&settings.assets, &script)?;
    let manifest = serde_json::to_string_pretty(manifest).unwrap_or_default();
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| EngineError::Io { path, source }
    };
    let profile = folder.join(files::PROFILE);
    fs::create_dir_all(&profile).map_err(io(&profile))?;
    for (name, text) in [(files::REPLAY, replay), (files::COLLECT, collect), (files::MANIFEST, manifest)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(io(&path))?;
    }
    Ok(())
}
