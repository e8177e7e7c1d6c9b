//! Checks every case by the vendor's own torch_npu, without a device: on meta tensors, or under FakeTensorMode if an
//! operator has no Meta kernel.
//!
//! A few Python processes check many cases each, by the same script that a device runs; if a process ends early, the
//! remaining cases are checked in another. Nothing is launched, and no case counts as measured.

mod python;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    iter, mem,
    os::fd::OwnedFd,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;

use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        files::scratch::{ScratchFolder, temporary_folder},
        process::{self, CommandSpec, ExitKind, ProcessError, Question, end_of_log, last_line},
        shared_work::share_work,
    },
    cases::plan::PlannedCase,
    kernel::{
        CheckMethod, CheckOutcome, CheckVerdict, DataKind, Slot,
        catalogue::Catalogue,
        render::{Manifest, ManifestCase, ScriptCommunication, replay_script},
    },
};
use python::END_WITH_PARENT;
pub(crate) use python::{
    CheckSoftware, first_device_soc, installed_software, installed_torch, operator_schemas, package_folders,
    require_gloo, torch_devices,
};

fn unusable_python(python: &str, reason: &str) -> CommandError {
    CommandError::cannot_measure(
        format!("`{python}` cannot be used for checks: {reason}"),
        "give a Python with torch and torch_npu by `--python`; it needs no NPU, but may need the libraries of CANN",
    )
}

fn not_run(error: &ProcessError) -> CommandError {
    CommandError::cannot_measure(error.to_string(), "check the program given with `--python`")
}

fn not_accessed(path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    CommandError::io("use", path, "check free space and permissions of the temporary folder")
}

#[derive(Clone, Debug)]
pub(crate) struct CheckSettings {
    pub python: String,
    pub processes: usize,
    pub catalogue: Catalogue,
    pub assets: AssetFiles,
}

/// Maximum number of cases of one process: large compared with its start, small enough to occupy all processes.
const MAX_BATCH: usize = 20_000;

/// Checks cases and passes each outcome to `report` as it arrives, with the index of the case in `cases`. Ends early if
/// `stop` is set. Outcomes reported before a failure remain valid.
pub(crate) fn check_cases(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    stop: &AtomicBool,
    report: &mut dyn FnMut(usize, CheckOutcome),
) -> Result<(), CommandError> {
    let processes = settings.processes.max(1);
    let size = cases.len().div_ceil(processes).clamp(1, MAX_BATCH);
    let indices: Vec<usize> = (0..cases.len()).collect();
    let batches: Vec<Vec<usize>> = indices.chunks(size).map(<[usize]>::to_vec).collect();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let check = scope.spawn(move || {
            share_work(&vec![sender; processes], batches, |sender, batch| {
                check_batch(settings, cases, batch, stop, sender)
            })
        });
        for (index, outcome) in receiver {
            report(index, outcome);
        }
        check.join().unwrap_or_else(|panic| resume_unwind(panic)).map(drop)
    })
}

pub(crate) fn slot_texts(slots: &[Slot]) -> Vec<String> {
    slots.iter().map(|slot| slot.as_ref().map_or_else(String::new, ToString::to_string)).collect()
}

/// Time without output after which a process is ended; a case takes about a millisecond.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(24 * 3600);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const JOURNAL: &str = "checked.jsonl";

/// Runs the script that is the first argument, with the others, as Python itself would.
const RUN_SCRIPT: &str =
    "import runpy, sys\nsys.argv.pop(0)\nrunpy.run_path(sys.argv[0], run_name='__main__')";

#[derive(Deserialize)]
struct JournalEntry {
    #[serde(default)]
    started: bool,
    /// Place of the case in the manifest.
    ordinal: Option<usize>,
    verdict: Option<CheckVerdict>,
    by: Option<CheckMethod>,
    #[serde(default)]
    message: String,
}

/// Outcomes with the indices of their cases. The receiver is dropped only after the check.
type OutcomeSender = Sender<(usize, CheckOutcome)>;

/// Checks the cases at `indices` and sends each outcome with the index of its case. If the process fails, its current
/// case is checked alone; if the process fails again, the case is rejected.
fn check_batch(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    indices: Vec<usize>,
    stop: &AtomicBool,
    outcomes: &OutcomeSender,
) -> Result<(), CommandError> {
    let mut batches = vec![indices];
    while let Some(indices) = batches.pop() {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (done, failure) = run_process(settings, cases, &indices, stop, outcomes)?;
        let Some(failure) = failure else { continue };
        match &indices[done..] {
            [] => {}
            [only] if done == 0 => {
                // The case is at fault only if Python works without it.
                run_process(settings, cases, &[], stop, outcomes)?;
                let outcome =
                    CheckOutcome { verdict: CheckVerdict::Rejected, by: CheckMethod::Meta, message: failure };
                let _ = outcomes.send((*only, outcome));
            }
            [suspect, others @ ..] => batches.extend([others.to_vec(), vec![*suspect]]),
        }
    }
    Ok(())
}

/// Runs one process. Returns the number of checked cases and, if the process failed, the reason.
fn run_process(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    indices: &[usize],
    stop: &AtomicBool,
    outcomes: &OutcomeSender,
) -> Result<(usize, Option<String>), CommandError> {
    let folder = ScratchFolder::create().map_err(not_accessed(&temporary_folder()))?;
    let folder = folder.path();
    write_scripts(settings, cases, indices, folder)?;
    let log = folder.join("log");
    let environment = [("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"), ("PYTHONDONTWRITEBYTECODE", "1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let script = format!("{END_WITH_PARENT}{RUN_SCRIPT}");
    let arguments = ["-c", &script, "replay.py", "manifest.json", "--mode", "check"];
    let arguments = arguments.into_iter().chain(["--journal", JOURNAL, "--until-stdin-ends"]);
    // Python ends when the other end of the pipe is closed, also if this program is killed.
    let (reader, writer) = io::pipe().map_err(not_accessed(folder))?;
    let words = iter::once(&*settings.python).chain(arguments).map(Into::into);
    let job = CommandSpec {
        environment: &environment,
        stdin: Some(File::from(OwnedFd::from(reader))),
        ..CommandSpec::new(words.collect(), folder, &log, LIMIT)
    };
    let (path, partial, checked) = (folder.join(JOURNAL), String::new(), BTreeSet::new());
    let mut follower =
        JournalFollower { path, input: None, partial, has_started: false, indices, outcomes, checked };
    let halt = AtomicBool::new(false);
    let (mut is_stalled, mut is_announced) = (false, false);
    let ended = thread::scope(|scope| {
        let process = scope.spawn(|| process::run_command(&job, &halt));
        let mut last_output = Instant::now();
        while !process.is_finished() {
            thread::sleep(POLL_INTERVAL);
            if follower.read_new_lines() > 0 {
                last_output = Instant::now();
            }
            let timeout = if follower.has_started { OUTPUT_TIMEOUT } else { Question::Import.limit() };
            is_stalled |= last_output.elapsed() > timeout;
            if last_output.elapsed() > process::SILENT_WAIT && !mem::replace(&mut is_announced, true) {
                process::announce_wait(&settings.python, timeout);
            }
            halt.store(is_stalled || stop.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        process.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    let ended = ended.map_err(|error| not_run(&error))?;
    drop(writer);
    follower.read_new_lines();
    let failure = match ended {
        ExitKind::Stopped if !is_stalled => return Ok((indices.len(), None)),
        _ if follower.has_started && follower.checked.len() == indices.len() => None,
        ExitKind::Stopped if !follower.has_started => {
            let limit = Question::Import.limit().as_secs();
            Some(format!("the import of torch_npu did not end within {limit} s"))
        }
        ExitKind::Stopped | ExitKind::TimedOut | ExitKind::CutOff => {
            Some(format!("Python printed nothing for {} s", OUTPUT_TIMEOUT.as_secs()))
        }
        end => Some(format!("Python {}: {}", end.problem(&job), last_line(&end_of_log(&log)))),
    };
    if !follower.has_started {
        let reason = failure.unwrap_or_else(|| last_line(&end_of_log(&log)).to_owned());
        return Err(unusable_python(&settings.python, &reason));
    }
    Ok((follower.checked.len(), failure))
}

fn write_scripts(
    settings: &CheckSettings,
    cases: &[PlannedCase],
    indices: &[usize],
    folder: &Path,
) -> Result<(), CommandError> {
    let kernels: BTreeSet<_> = indices.iter().map(|&index| &cases[index].case.kernel).collect();
    let entries = kernels.into_iter().filter_map(|kernel| Some((kernel, settings.catalogue.entry(kernel)?)));
    let planned = indices.iter().map(|&index| &cases[index]).zip(0..);
    let cases = planned.map(|(planned, ordinal)| ManifestCase::new(ordinal, &planned.case, &planned.call, 0));
    let manifest = Manifest {
        measured: 1,
        cases: cases.collect(),
        ..Manifest::without_cases("check", 0, DataKind::Npu)
    };
    let files = [
        ("replay.py", replay_script(&settings.assets, ScriptCommunication::Kernels, entries)?),
        ("manifest.json", serde_json::to_string(&manifest).expect("a manifest has texts as keys")),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(not_accessed(&path))?;
    }
    Ok(())
}

struct JournalFollower<'a> {
    path: PathBuf,
    input: Option<BufReader<File>>,
    partial: String,
    has_started: bool,
    indices: &'a [usize],
    outcomes: &'a OutcomeSender,
    checked: BTreeSet<usize>,
}

impl JournalFollower<'_> {
    /// Sends the outcomes added since the last call; returns the number of lines read.
    fn read_new_lines(&mut self) -> usize {
        let mut lines = 0;
        if self.input.is_none() {
            self.input = File::open(&self.path).ok().map(BufReader::new);
        }
        let Some(input) = &mut self.input else { return 0 };
        while input.read_line(&mut self.partial).is_ok_and(|read| read > 0) && self.partial.ends_with('\n') {
            let line: Result<JournalEntry, _> = serde_json::from_str(&self.partial);
            self.partial.clear();
            lines += 1;
            // A case without a line that can be read counts as not checked.
            let Ok(JournalEntry { started, ordinal, verdict, by, message }) = line else { continue };
            self.has_started |= started;
            if let (Some(place), Some(verdict), Some(by)) = (ordinal, verdict, by)
                && let Some(index) = self.indices.get(place)
                && self.checked.insert(place)
            {
                let _ = self.outcomes.send((*index, CheckOutcome { verdict, by, message }));
            }
        }
        lines
    }
}
