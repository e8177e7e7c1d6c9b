//! Analysis of raw profiles by torch_npu, one process for each rank, and the check of what came out.
//!
//! torch_npu's `analyse` swallows its errors, ends with 0 and writes `analyse.done` after a failure as well, so that only the
//! kernels of a rank show that its profile is complete.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::stop_signals::StopSignals;
use crate::{
    process::{CommandSpec, ExitKind, run_command},
    session::CommandError,
    timeline::read_runs,
};

/// Script of an analysis.
const ANALYSE: &str = include_str!("../../templates/analyse_profile.py");

/// Settings of an analysis.
#[derive(Debug)]
pub(crate) struct AnalysisSettings {
    /// Python interpreter with torch_npu.
    pub(crate) python: String,
    /// Forms of the output: `db`, `text` or `db,text`.
    pub(crate) export: String,
    /// Number of ranks that are analysed at the same time.
    pub(crate) workers: usize,
    /// Time limit of one rank.
    pub(crate) limit: Duration,
    /// Folder for the output of the analyses; absolute.
    pub(crate) logs: PathBuf,
}

impl AnalysisSettings {
    /// Creates the folder for the output of programs.
    pub(crate) fn create_log_folder(&self) -> Result<(), CommandError> {
        let parents = self.logs.parent().map_or(Ok(()), fs::create_dir_all);
        parents.and_then(|()| fs::create_dir(&self.logs)).map_err(|error| {
            CommandError::bad_input(
                format!("cannot create the folder `{}`: {error}", self.logs.display()),
                "give a new folder with `--logs`",
            )
        })
    }
}

/// State of a rank's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RankState {
    /// It has kernels or collectives.
    Complete { kernels: usize, collectives: usize },
    /// It cannot be used, with the reason.
    Failed(String),
    /// The analysis was interrupted, or not begun.
    Raw,
}

/// Profile of one rank.
#[derive(Clone, Debug)]
pub(crate) struct AnalysedRank {
    pub(crate) folder: PathBuf,
    pub(crate) state: RankState,
}

/// Reads the profile of a rank; `Err` with the reason if it has neither kernels nor collectives.
fn check_folder(folder: &Path) -> Result<RankState, String> {
    let runs = read_runs(folder).map_err(|error| error.to_string())?;
    let kernels = runs.iter().map(|run| run.kernels().count()).sum();
    let collectives = runs.iter().map(|run| run.collectives.len()).sum();
    match kernels + collectives {
        0 => Err("the analysed profile has no kernel".to_owned()),
        _ => Ok(RankState::Complete { kernels, collectives }),
    }
}

/// Analyses the folders that are not analysed yet, and checks all. A failure affects its rank alone.
pub(crate) fn analyse_folders(
    folders: &BTreeSet<PathBuf>,
    settings: &AnalysisSettings,
    signals: &StopSignals,
) -> Vec<AnalysedRank> {
    let queue: Mutex<VecDeque<&PathBuf>> = Mutex::new(folders.iter().collect());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let done: Mutex<Vec<AnalysedRank>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..settings.workers.clamp(1, folders.len().max(1)) {
            scope.spawn(|| {
                while let Some(folder) = next() {
                    let state = analyse_folder(folder, settings, signals);
                    let rank = AnalysedRank { folder: folder.clone(), state };
                    done.lock().unwrap_or_else(PoisonError::into_inner).push(rank);
                }
            });
        }
    });
    let mut ranks = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    ranks.sort_by(|a, b| a.folder.cmp(&b.folder));
    ranks
}

fn analyse_folder(folder: &Path, settings: &AnalysisSettings, signals: &StopSignals) -> RankState {
    if let Ok(state) = check_folder(folder) {
        return state;
    }
    if signals.is_set() {
        return RankState::Raw;
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let log = settings.logs.join(format!("analyse-{name}.log"));
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let job = CommandSpec {
        command: vec![
            settings.python.clone().into(),
            "-c".into(),
            ANALYSE.into(),
            folder.clone().into(),
            "1".into(),
            settings.export.clone().into(),
        ],
        folder: &settings.logs,
        environment: &[],
        log: &log,
        limit: settings.limit,
        cut_off: None,
        stdin: None,
        record: None,
    };
    let end = match run_command(&job, signals.flag()) {
        Ok(ExitKind::Stopped) => return RankState::Raw,
        Ok(ExitKind::Exited(0)) => String::new(),
        Ok(ExitKind::Exited(status)) => format!("the analysis ended with exit code {status}"),
        Ok(ExitKind::Signalled(signal)) => format!("the analysis was ended by signal {signal}"),
        Ok(ExitKind::TimedOut | ExitKind::CutOff) => {
            format!("the analysis did not end within {} s", settings.limit.as_secs())
        }
        Err(error) => error.to_string(),
    };
    match check_folder(&folder) {
        Ok(state) if end.is_empty() => state,
        // The tables of an analysis that died may be cut off at a row.
        Ok(_) => RankState::Failed(format!("{end}; see `{}`", log.display())),
        Err(reason) => {
            let end = if end.is_empty() { reason } else { end };
            let last = last_line(&log).map(|line| format!(": {line}")).unwrap_or_default();
            RankState::Failed(format!("{end}{last}; see `{}`", log.display()))
        }
    }
}

/// Returns the last line of a log that is not blank.
fn last_line(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
