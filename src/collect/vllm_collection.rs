//! One collection: probe, start, work, stop, folders, analysis.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use super::{
    offline_analysis::{AnalysedRank, AnalysisSettings, RankState, analyse_folders},
    profile_folders::{await_new_folders, profile_folders},
    profiled_servers::ProfiledServers,
    stop_signals::StopSignals,
    vllm_server::VllmServer,
};
use crate::{
    process::{CommandSpec, ExitKind, run_command},
    report::print_note,
    session::CommandError,
};

/// Longest work while the profiler runs; a benchmark has a limit of its own.
const LONGEST_WORK: Duration = Duration::from_secs(7 * 24 * 3600);
/// Lines of a command's output that are shown.
const SHOWN_LINES: usize = 40;

/// Work of the servers while their profilers run.
#[derive(Debug)]
pub(crate) enum VllmWork {
    /// Program with arguments, such as `vllm bench serve`.
    Command(Vec<OsString>),
    /// Bodies of requests to the first server, one after another.
    Requests(Vec<Value>),
}

/// Time limits of a collection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectionLimits {
    /// Of the answer to a start, and of one request.
    pub(crate) start: Duration,
    /// Of the answer to a stop, in which workers write their profiles.
    pub(crate) stop: Duration,
    /// Of the wait for folders.
    pub(crate) folders: Duration,
    /// Time without a change after which folders are complete.
    pub(crate) still: Duration,
}

/// Collection of the profiles of a server of vLLM on one or more nodes.
#[derive(Debug)]
pub(crate) struct VllmCollection {
    pub(crate) servers: Vec<VllmServer>,
    /// Folders of the profiler as this host has them.
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) work: VllmWork,
    /// Whether the work runs once before the profiler starts.
    pub(crate) warm_up: bool,
    pub(crate) ranks: Option<usize>,
    pub(crate) limits: CollectionLimits,
    pub(crate) analysis: AnalysisSettings,
    pub(crate) accept_stacks: bool,
}

/// Ranks of a collection, and what failed beside them.
#[derive(Debug, Default)]
pub(crate) struct CollectedRanks {
    pub(crate) ranks: Vec<AnalysedRank>,
    pub(crate) problems: Vec<String>,
}

impl VllmCollection {
    /// Collects the profiles. Errors come before the first profiler runs; whatever fails later is in the result.
    pub(crate) fn collect(&self, signals: &StopSignals) -> Result<CollectedRanks, CommandError> {
        let folder = self.folders.first().map(|folder| folder.display().to_string()).unwrap_or_default();
        for server in &self.servers {
            let version = server.probe(&folder, self.accept_stacks)?;
            let version = version.unwrap_or_else(|| "of unknown version".to_owned());
            print_note(&format!("{}: vLLM {version}, started with a profiler", server.url()));
        }
        self.analysis.create_log_folder()?;
        let known = profile_folders(&self.folders);
        if self.warm_up {
            self.work("warm-up", signals).map_err(|problem| {
                CommandError::bad_input(
                    format!("{problem}, in the warm-up"),
                    "correct the command or the requests",
                )
            })?;
        }
        let mut collected = CollectedRanks::default();
        let mut profiled = ProfiledServers::new(&self.servers, self.limits.stop, signals.clone());
        if signals.is_set() {
            return Ok(collected);
        }
        profiled.start_all(self.limits.start)?;
        print_note(&format!("profilers of {} started", servers_text(self.servers.len())));
        if let Err(problem) = self.work("work", signals) {
            collected.problems.push(problem);
        }
        print_note("stopping the profilers, which can take minutes");
        collected.problems.extend(profiled.stop_all());
        let CollectionLimits { folders: limit, still, .. } = self.limits;
        let new = await_new_folders(&self.folders, &known, self.ranks, still, limit, signals);
        if signals.is_set() {
            let raw = |folder: PathBuf| AnalysedRank { folder, state: RankState::Raw };
            collected.ranks = new.into_iter().map(raw).collect();
            return Ok(collected);
        }
        match self.ranks {
            Some(ranks) if new.len() != ranks => {
                collected.problems.push(format!("{} of {ranks} ranks have written a profile", new.len()));
            }
            None if new.is_empty() => {
                collected.problems.push(format!("no profile appeared below {}", folders_text(&self.folders)));
            }
            _ => {}
        }
        print_note(&format!("{} new profiles; analysis by torch_npu", new.len()));
        collected.ranks = analyse_folders(&new, &self.analysis, signals);
        Ok(collected)
    }

    /// Runs the command or sends the requests. Returns what failed.
    fn work(&self, name: &str, signals: &StopSignals) -> Result<(), String> {
        match &self.work {
            VllmWork::Command(command) => {
                let log = self.analysis.logs.join(format!("{name}.log"));
                run_work(command, &log, signals)
            }
            VllmWork::Requests(bodies) => {
                let Some(server) = self.servers.first() else { return Ok(()) };
                for (number, body) in (1..).zip(bodies) {
                    if signals.is_set() {
                        return Err("interrupted".to_owned());
                    }
                    server
                        .send_request(body, self.limits.start)
                        .map_err(|error| format!("request {number} of {}: {error}", bodies.len()))?;
                }
                Ok(())
            }
        }
    }
}

fn run_work(command: &[OsString], log: &Path, signals: &StopSignals) -> Result<(), String> {
    let here = std::env::current_dir().map_err(|error| format!("the current folder is unknown: {error}"))?;
    let job = CommandSpec {
        command: command.to_vec(),
        folder: &here,
        environment: &[],
        log,
        limit: LONGEST_WORK,
        cut_off: None,
        stdin: None,
        record: None,
    };
    let end = run_command(&job, signals.flag()).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        print_note(&format!("  {line}"));
    }
    let log = log.display();
    match end {
        ExitKind::Exited(0) => Ok(()),
        ExitKind::Exited(status) => Err(format!("the command ended with exit code {status}; see `{log}`")),
        ExitKind::Signalled(signal) => Err(format!("the command was ended by signal {signal}; see `{log}`")),
        ExitKind::Stopped => Err("interrupted".to_owned()),
        ExitKind::TimedOut | ExitKind::CutOff => Err(format!("the command did not end; see `{log}`")),
    }
}

fn servers_text(count: usize) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{count} servers") }
}

fn folders_text(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| format!("`{}`", folder.display())).collect::<Vec<_>>().join(", ")
}
