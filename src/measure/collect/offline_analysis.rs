//! Analysis of raw profiles by torch_npu, one process for each rank, and the check of what came out.
//!
//! torch_npu's `analyse` swallows its errors, ends with 0 and writes `analyse.done` after a failure as well, so that only the
//! kernels of a rank show that its profile is complete. An analysis that was interrupted leaves tables without it, which may lack
//! rows.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::profiled_servers::StopSignals;
use crate::{
    base::{
        command_error::CommandError,
        process::{CommandSpec, ExitKind, Question, end_of_log, last_line, run_command, run_query},
        shared_work::share_work,
    },
    profile::timeline::read_runs,
};

const ANALYSE: &str = include_str!("../../../templates/analyse_profile.py");

const FIND_TORCH_NPU: &str =
    "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch_npu') is None)";
/// File that torch_npu writes when an analysis has ended, with or without success.
const END_MARK: &str = "ASCEND_PROFILER_OUTPUT/analyse.done";

#[derive(Debug)]
pub(crate) struct AnalysisSettings {
    pub(crate) python: String,
    /// Forms of the output: `db`, `text` or `db,text`.
    pub(crate) export: String,
    pub(crate) workers: usize,
    pub(crate) limit: Duration,
    pub(crate) logs: PathBuf,
}

impl AnalysisSettings {
    pub(crate) fn create_log_folder(&self) -> Result<(), CommandError> {
        let parents = self.logs.parent().map_or(Ok(()), fs::create_dir_all);
        let created = parents.and_then(|()| fs::create_dir(&self.logs));
        created.map_err(CommandError::io("create the folder", &self.logs, "give a new folder with `--logs`"))
    }

    /// Checks that the interpreter has torch_npu, without an import, which takes seconds.
    pub(super) fn check_python(&self, signals: &StopSignals) -> Result<(), CommandError> {
        let log = self.logs.join("python.log");
        let job = CommandSpec::query(
            vec![self.python.clone().into(), "-c".into(), FIND_TORCH_NPU.into()],
            &self.logs,
            &log,
            Question::Simple,
        );
        let reason = match run_query(&job, signals.flag()) {
            Ok(ExitKind::Exited(0) | ExitKind::Stopped) => return Ok(()),
            Ok(end) if end != ExitKind::Exited(1) => format!("`{}` {}", self.python, end.problem(&job)),
            Ok(_) => format!("`{}` has no torch_npu, which analyses the profiles", self.python),
            Err(error) => error.to_string(),
        };
        Err(CommandError::cannot_measure(
            reason,
            "give the interpreter of the server's environment with `--python`; nothing was started",
        ))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RankState {
    Complete {
        kernels: usize,
        collectives: usize,
    },
    Failed(String),
    /// The analysis was interrupted, or not begun.
    Raw,
}

#[derive(Clone, Debug)]
pub(crate) struct AnalysedRank {
    pub(crate) folder: PathBuf,
    pub(crate) state: RankState,
}

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
    let workers = vec![(); settings.workers.clamp(1, folders.len().max(1))];
    let analyse = |(): &(), folder: &PathBuf| {
        let state = analyse_folder(folder, settings, signals);
        Ok::<_, Infallible>(AnalysedRank { folder: folder.clone(), state })
    };
    let Ok(ranks) = share_work(&workers, folders.iter().collect(), analyse);
    ranks
}

fn analyse_folder(folder: &Path, settings: &AnalysisSettings, signals: &StopSignals) -> RankState {
    let mark = folder.join(END_MARK);
    // torch_npu removes the tables before it reads raw records: without these the tables are all there is.
    let has_raw_records = has_raw_records(folder);
    if mark.is_file() || !has_raw_records {
        match check_folder(folder) {
            Ok(state) => return state,
            Err(reason) if !has_raw_records => {
                return RankState::Failed(format!("it has no raw records, and {reason}"));
            }
            Err(_) => {}
        }
    }
    if signals.is_set() {
        return RankState::Raw;
    }
    // The mark of an earlier analysis must not stand beside the tables of one that is interrupted.
    if let Err(reason) = remove_mark(&mark) {
        return RankState::Failed(reason);
    }
    match run_analysis(folder, settings, signals) {
        state @ RankState::Complete { .. } => state,
        state => remove_mark(&mark).map_or_else(RankState::Failed, |()| state),
    }
}

fn has_raw_records(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return true };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name == "FRAMEWORK" || name.to_string_lossy().starts_with("PROF_"))
}

fn remove_mark(mark: &Path) -> Result<(), String> {
    match fs::remove_file(mark) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove `{}`: {error}", mark.display()))
        }
        _ => Ok(()),
    }
}

fn run_analysis(folder: &Path, settings: &AnalysisSettings, signals: &StopSignals) -> RankState {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let log = settings.logs.join(format!("analyse-{name}.log"));
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let job = CommandSpec::new(
        vec![
            settings.python.clone().into(),
            "-c".into(),
            ANALYSE.into(),
            folder.clone().into(),
            "1".into(),
            settings.export.clone().into(),
        ],
        &settings.logs,
        &log,
        settings.limit,
    );
    let end = match run_command(&job, signals.flag()) {
        Ok(ExitKind::Stopped) => return RankState::Raw,
        Ok(ExitKind::Exited(0)) => String::new(),
        Ok(end) => format!("the analysis {}", end.problem(&job)),
        Err(error) => error.to_string(),
    };
    match check_folder(&folder) {
        Ok(state) if end.is_empty() => state,
        // The tables of an analysis that died may be cut off at a row.
        Ok(_) => RankState::Failed(format!("{end}; see `{}`", log.display())),
        Err(reason) => {
            let end = if end.is_empty() { reason } else { end };
            let last = last_line(&end_of_log(&log)).to_owned();
            RankState::Failed(format!("{end}: {last}; see `{}`", log.display()))
        }
    }
}
