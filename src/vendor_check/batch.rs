//! One batch of cases in one Python process, and what is left of it in another where the process dies.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::fd::OwnedFd,
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{CheckError, CheckSettings, python::last_line};
use crate::{
    domain::{CheckMethod, CheckOutcome, CheckVerdict, DataKind},
    plan::PlannedCase,
    process::{self, CommandSpec, ExitKind},
    render::{Manifest, ManifestCase, SentinelLengths, replay_script},
};

/// A case takes about a millisecond; a process that says nothing for so long is ended.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_TO_START: Duration = Duration::from_secs(180);
/// No batch takes longer.
const LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How often the journal is looked at.
const STEP: Duration = Duration::from_millis(100);

/// A line of the journal.
#[derive(Deserialize)]
struct JournalEntry {
    #[serde(default)]
    started: bool,
    ordinal: Option<u32>,
    verdict: Option<String>,
    by: Option<String>,
    #[serde(default)]
    message: String,
}

/// Checks the cases at `places`. Where the process dies, the case in hand is tried alone; if it dies with
/// that as well, it is the case's own result.
pub(super) fn check(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    places: Vec<usize>,
    stop: &AtomicBool,
    told: &Sender<(usize, CheckOutcome)>,
) -> Result<(), CheckError> {
    let mut left = vec![places];
    while let Some(places) = left.pop() {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (done, death) = run(settings, cases, &places, stop, told)?;
        let Some(death) = death else { continue };
        match &places[done..] {
            [] => {}
            [only] if done == 0 => {
                // Only where Python lives without the case is it the case that kills it.
                run(settings, cases, &[], stop, told)?;
                let outcome =
                    CheckOutcome { verdict: CheckVerdict::Rejected, by: CheckMethod::Meta, message: death };
                // Whoever listens has gone only when the check is over.
                let _ = told.send((*only, outcome));
            }
            [suspect, others @ ..] => left.extend([others.to_vec(), vec![*suspect]]),
        }
    }
    Ok(())
}

/// Runs one process. Returns how many cases it judged, and how it died where it did.
fn run(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    places: &[usize],
    stop: &AtomicBool,
    told: &Sender<(usize, CheckOutcome)>,
) -> Result<(usize, Option<String>), CheckError> {
    let folder =
        tempfile::tempdir().map_err(|source| CheckError::Io { path: std::env::temp_dir(), source })?;
    let folder = folder.path();
    write_scripts(settings, cases, places, folder)?;
    let (journal, log) = (folder.join("checked.jsonl"), folder.join("log"));
    let environment = [
        ("TORCH_DEVICE_BACKEND_AUTOLOAD".to_owned(), "0".to_owned()),
        ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
    ];
    let words =
        ["replay.py", "manifest.json", "--mode", "check", "--journal", "checked.jsonl", "--until-stdin-ends"];
    // Python ends with whoever holds the other end, also where that is killed.
    let (reader, writer) =
        std::io::pipe().map_err(|source| CheckError::Io { path: folder.to_owned(), source })?;
    let job = CommandSpec {
        command: std::iter::once(&*settings.python).chain(words).map(Into::into).collect(),
        folder,
        environment: &environment,
        log: &log,
        limit: LIMIT,
        cut_off: None,
        stdin: Some(File::from(OwnedFd::from(reader))),
        record: None,
    };
    let mut follower = JournalFollower::new(&journal);
    let halt = AtomicBool::new(false);
    let mut is_stalled = false;
    let ended = thread::scope(|scope| {
        let process = scope.spawn(|| process::run(&job, &halt));
        let mut heard = Instant::now();
        while !process.is_finished() {
            thread::sleep(STEP);
            if follower.follow(places, told) > 0 {
                heard = Instant::now();
            }
            let patience = if follower.has_started { PATIENCE } else { PATIENCE_TO_START };
            is_stalled |= heard.elapsed() > patience;
            halt.store(is_stalled || stop.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        process.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    drop(writer);
    follower.follow(places, told);
    let death = match ended {
        ExitKind::Stopped if !is_stalled => return Ok((places.len(), None)),
        _ if follower.has_started && follower.judged.len() == places.len() => None,
        ExitKind::Stopped | ExitKind::TimedOut | ExitKind::CutOff => {
            Some(format!("Python said nothing for {} s", PATIENCE.as_secs()))
        }
        ExitKind::Exited(status) => Some(format!("Python ended with {status}: {}", last_line(&log))),
        ExitKind::Signalled(signal) => Some(format!("Python died of signal {signal}: {}", last_line(&log))),
    };
    if !follower.has_started {
        let why = death.unwrap_or_else(|| last_line(&log));
        return Err(CheckError::Python { python: settings.python.clone(), why });
    }
    Ok((follower.judged.len(), death))
}

fn write_scripts(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    places: &[usize],
    folder: &Path,
) -> Result<(), CheckError> {
    let kernels: BTreeSet<_> = places.iter().map(|&place| &cases[place].case.kernel).collect();
    let entries = kernels.into_iter().filter_map(|kernel| Some((kernel, settings.catalogue.entry(kernel)?)));
    let manifest = Manifest {
        run: "check".to_owned(),
        collection: 0,
        kind: DataKind::Npu,
        device: 0,
        gang: Vec::new(),
        seed: 0,
        warm_up: 0,
        measured: 1,
        expert_skew: 0.0,
        sentinels: SentinelLengths::default(),
        cases: places
            .iter()
            .zip(0..)
            .map(|(&place, ordinal)| ManifestCase::new(ordinal, &cases[place].case, &cases[place].reading, 0))
            .collect(),
    };
    let files = [
        ("replay.py", replay_script(&settings.assets, entries)?),
        ("manifest.json", serde_json::to_string(&manifest).unwrap_or_default()),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| CheckError::Io { path, source })?;
    }
    Ok(())
}

/// Reads a journal while it is written.
struct JournalFollower<'a> {
    path: &'a Path,
    input: Option<BufReader<File>>,
    partial: String,
    has_started: bool,
    judged: BTreeSet<u32>,
}

impl<'a> JournalFollower<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, input: None, partial: String::new(), has_started: false, judged: BTreeSet::new() }
    }

    /// Passes on what was added since the last look; returns how many lines that were.
    fn follow(&mut self, places: &[usize], told: &Sender<(usize, CheckOutcome)>) -> usize {
        let mut lines = 0;
        if self.input.is_none() {
            self.input = File::open(self.path).ok().map(BufReader::new);
        }
        let Some(input) = &mut self.input else { return 0 };
        while input.read_line(&mut self.partial).is_ok_and(|read| read > 0) && self.partial.ends_with('\n') {
            let line: Result<JournalEntry, _> = serde_json::from_str(&self.partial);
            self.partial.clear();
            lines += 1;
            let Ok(line) = line else { continue };
            self.has_started |= line.started;
            let (Some(ordinal), Some(verdict), Some(by)) = (line.ordinal, line.verdict, line.by) else {
                continue;
            };
            let place = usize::try_from(ordinal).ok().and_then(|ordinal| places.get(ordinal));
            if let (Some(place), Ok(verdict), Ok(by)) = (place, verdict.parse(), by.parse())
                && self.judged.insert(ordinal)
            {
                // Whoever listens has gone only when the check is over.
                let _ = told.send((*place, CheckOutcome { verdict, by, message: line.message }));
            }
        }
        lines
    }
}
