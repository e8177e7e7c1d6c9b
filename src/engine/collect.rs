//! One collection from its folder to its attempts. Runs on a lane's thread; keeps nothing in the ledger.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use super::EngineError;
use crate::{
    device::Lease,
    model::Kind,
    plan::{Costs, Planned},
    process::{self, Ended, Job},
    render::{CollectScript, Manifest, ManifestCase, Sentinels, collect_script, files, replay_script},
    spec::{Assets, Catalogue, Entry},
    store::ledger::Attempt,
    verify::{CollectionEnd, Expected, judge, read_journal, read_records},
};

/// What all collections of a run share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The run.
    pub run: String,
    /// Measured or rehearsed.
    pub kind: Kind,
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
    /// Predicted costs.
    pub costs: Costs,
    /// The kernels.
    pub catalogue: Catalogue,
    /// The templates.
    pub assets: Assets,
}

/// Starting Python, torch and msprof, and exporting, take this long before anything is wrong.
const PATIENCE: Duration = Duration::from_secs(300);
/// A prediction may be wrong by this factor before a collection counts as hung.
const FACTOR: f64 = 10.0;

/// What a collection found.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) attempts: Vec<Attempt>,
    /// Whether anything was launched.
    pub(super) launched: bool,
    /// How it ended, in words.
    pub(super) outcome: String,
}

/// Renders a collection, runs it and judges its records.
pub(super) fn collect(
    settings: &Settings,
    collection: u32,
    device: u32,
    cases: &[&Planned],
    lease: &Lease,
    stop: &AtomicBool,
) -> Result<Collected, EngineError> {
    let folder = settings.folder.join("collections").join(format!("{collection:05}"));
    let manifest = manifest(settings, collection, device, cases);
    write_folder(settings, &folder, &manifest, cases)?;
    let predicted: f64 = cases.iter().map(|planned| settings.costs.seconds(planned.fastest)).sum();
    let job = Job {
        command: vec!["sh".into(), files::COLLECT.into()],
        folder: &folder,
        environment: &[],
        log: &folder.join(files::LOG),
        limit: PATIENCE + Duration::from_secs_f64(predicted * FACTOR),
        stdin: Some(
            lease.share().map_err(|source| EngineError::System { what: "a file descriptor", source })?,
        ),
    };
    let ended = process::run(&job, stop)?;
    let end = match ended {
        Ended::Exited(_) | Ended::Signalled(_) => CollectionEnd::ByItself,
        Ended::TimedOut => CollectionEnd::TimedOut,
        Ended::Stopped => CollectionEnd::Stopped,
    };
    let journal = read_journal(&folder.join(files::JOURNAL));
    let expected: Vec<Expected<'_>> = cases.iter().map(|planned| expected(settings, planned)).collect();
    // A table that is cut or garbled is lost records, not the end of the night.
    let (records, unreadable) = match read_records(&folder.join(files::PROFILE)) {
        Ok(records) => (records, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let attempts = judge(&manifest, &expected, &journal, &records, end);
    let outcome = unreadable.unwrap_or_else(|| match ended {
        Ended::Exited(0) if journal.is_done => "done".to_owned(),
        Ended::Exited(_) => format!("the script did not come to its end: {}", last_line(job.log)),
        Ended::Signalled(signal) => format!("ended by signal {signal}"),
        Ended::TimedOut => format!("ended by npubench after {} s", job.limit.as_secs()),
        Ended::Stopped => "stopped".to_owned(),
    });
    let launched = journal.lines.values().any(|line| line.launched > 0);
    Ok(Collected { attempts, launched, outcome })
}

/// The last thing that the script said, and where the rest is.
fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = || text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    // msprof's own lines come behind the script's, and say less.
    let own = |line: &&str| ["[INFO]", "[WARNING]", "[ERROR]"].iter().any(|mark| line.starts_with(mark));
    let said = lines().find(|line| !own(line)).or_else(|| lines().next());
    format!("{} ({})", said.unwrap_or("no output"), log.display())
}

fn manifest(settings: &Settings, collection: u32, device: u32, cases: &[&Planned]) -> Manifest {
    let listed = cases
        .iter()
        .zip(0..)
        .map(|(planned, ordinal)| ManifestCase::new(ordinal, &planned.case, &planned.reading, settings.seed));
    Manifest {
        run: settings.run.clone(),
        collection,
        kind: settings.kind,
        device,
        seed: settings.seed,
        warm_up: settings.warm_up,
        measured: settings.measured,
        expert_skew: settings.expert_skew,
        sentinels: Sentinels::default(),
        cases: listed.collect(),
    }
}

fn expected<'a>(settings: &'a Settings, planned: &'a Planned) -> Expected<'a> {
    let entry = settings.catalogue.entry(&planned.case.kernel);
    Expected {
        case: &planned.case,
        names: entry.map(|entry| entry.names().collect()).unwrap_or_default(),
        beside: entry.map(|entry| entry.beside.as_slice()).unwrap_or_default(),
        fastest: planned.fastest,
        notes: &planned.reading.notes,
        host_slots: entry.map(Entry::host_slots).unwrap_or_default(),
    }
}

fn write_folder(
    settings: &Settings,
    folder: &Path,
    manifest: &Manifest,
    cases: &[&Planned],
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
