//! One collection: probe, start, work, stop, folders, analysis.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::Read as _,
    num::NonZeroUsize,
    path::{self, Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    offline_analysis::{AnalysedRank, AnalysisSettings, RankState, analyse_folders},
    profile_folders::{await_new_folders, profile_folders},
    profiled_servers::{ProfiledServers, StopSignals},
    vllm_server::VllmServer,
};
use crate::base::{
    command_error::CommandError,
    count_text::format_count,
    deadline::parse_limit,
    print::{print_note, print_output},
    process::{CommandSpec, ExitKind, run_command},
};

/// Longest work while the profiler runs; a benchmark has a limit of its own.
const MAX_WORK: Duration = Duration::from_secs(7 * 24 * 3600);
const OUTPUT_POLL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) enum VllmWork {
    Command(Vec<OsString>),
    Requests(Vec<Value>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct VllmSettings {
    /// Address of the server on a node, such as http://node0:8000; once for each node
    #[arg(long = "url", value_name = "URL", required = true, value_parser = VllmServer::parse)]
    pub(crate) servers: Vec<VllmServer>,
    /// Folder of the server's profiler (`torch_profiler_dir`) as this host has it; several are searched all
    #[arg(long = "profile-dir", value_name = "DIR", required = true)]
    pub(crate) folders: Vec<PathBuf>,
    /// Number of ranks that write a profile; by default all that appear count
    #[arg(long, value_name = "N")]
    ranks: Option<NonZeroUsize>,
    /// Runs the command or sends the requests once before the profiler starts
    #[arg(long)]
    warm_up: bool,
    /// Time limit for the answer to a start, and to a request
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_limit)]
    start_limit: Duration,
    /// Time limit for the answer to a stop
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_limit)]
    stop_limit: Duration,
    /// Time limit for the folders of all ranks after the stop
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_limit)]
    folder_limit: Duration,
    /// Time without a change after which the folders are complete
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_limit)]
    still: Duration,
    /// Profiles a server that records call stacks, which can end its workers, and runs a command with `--profile`
    #[arg(long)]
    force: bool,
}

#[derive(Debug)]
pub(crate) struct VllmCollection<'a> {
    pub(crate) settings: &'a VllmSettings,
    pub(crate) work: VllmWork,
    pub(crate) analysis: AnalysisSettings,
}

#[derive(Debug, Default)]
pub(crate) struct CollectedRanks {
    pub(crate) ranks: Vec<AnalysedRank>,
    pub(crate) problems: Vec<String>,
}

impl VllmCollection<'_> {
    /// Collects the profiles. Errors come before the first profiler runs; whatever fails later is in the result.
    pub(crate) fn collect(&self, signals: &StopSignals) -> Result<CollectedRanks, CommandError> {
        let settings = self.settings;
        // A server may run in another folder.
        let folder =
            settings.folders.first().and_then(|folder| path::absolute(folder).ok()).unwrap_or_default();
        let folder = folder.display().to_string();
        self.check_input()?;
        for server in &settings.servers {
            let version = server.probe(&folder, settings.force)?;
            let version = version.unwrap_or_else(|| "of unknown version".to_owned());
            print_note(&format!("{}: vLLM {version}, started with a profiler", server.url));
        }
        self.analysis.create_log_folder()?;
        self.analysis.check_python(signals)?;
        let known = profile_folders(&settings.folders);
        if settings.warm_up {
            self.work("warm-up", signals).map_err(|problem| {
                CommandError::bad_input(
                    format!("{problem}, in the warm-up"),
                    "correct the command or the requests",
                )
            })?;
        }
        let mut collected = CollectedRanks::default();
        let mut profiled = ProfiledServers::new(&settings.servers, settings.stop_limit, signals.clone());
        if signals.is_set() {
            return Ok(collected);
        }
        profiled.start_all(settings.start_limit, &folder)?;
        print_note(&format!("profilers of {} started", format_count(settings.servers.len(), "server")));
        // An interruption while the profilers are started leaves no work to do.
        if !signals.is_set()
            && let Err(problem) = self.work("work", signals)
        {
            collected.problems.push(problem);
        }
        print_note("stopping the profilers, which can take minutes");
        collected.problems.extend(profiled.stop_all());
        let ranks = settings.ranks.map(NonZeroUsize::get);
        let (still, limit) = (settings.still, settings.folder_limit);
        let new = await_new_folders(&settings.folders, &known, ranks, still, limit, signals);
        if signals.is_set() {
            let raw = |folder: PathBuf| AnalysedRank { folder, state: RankState::Raw };
            collected.ranks = new.into_iter().map(raw).collect();
            return Ok(collected);
        }
        match ranks {
            Some(ranks) if new.len() != ranks => {
                collected.problems.push(format!("{} of {ranks} ranks have written a profile", new.len()));
            }
            None if new.is_empty() => {
                let folders = settings.folders.iter().map(|folder| format!("`{}`", folder.display()));
                let folders = folders.collect::<Vec<_>>().join(", ");
                collected.problems.push(format!("no profile appeared below {folders}"));
            }
            _ => {}
        }
        if !new.is_empty() {
            print_note(&format!("analysis of {} by torch_npu", format_count(new.len(), "new profile")));
        }
        collected.ranks = analyse_folders(&new, &self.analysis, signals);
        Ok(collected)
    }

    fn check_input(&self) -> Result<(), CommandError> {
        let mut seen = BTreeSet::new();
        if let Some(server) =
            self.settings.servers.iter().find(|server| !seen.insert(server.url.to_ascii_lowercase()))
        {
            return Err(CommandError::bad_input(
                format!("{} is given twice, and a second stop can end a server", server.url),
                "give the address of each node once",
            ));
        }
        if let Some(folder) = self.settings.folders.iter().find(|folder| !folder.is_dir()) {
            return Err(CommandError::bad_input(
                format!("`{}` is no folder on this host", folder.display()),
                "give the folder of the profiler (`torch_profiler_dir`) as this host has it, and create it before the server starts",
            ));
        }
        let VllmWork::Command(command) = &self.work else { return Ok(()) };
        let words = command.iter().map(|word| word.to_string_lossy());
        let has_profile = |word: Cow<'_, str>| word.split_whitespace().any(|own| own == "--profile");
        if !self.settings.force && words.into_iter().any(has_profile) {
            return Err(CommandError::bad_input(
                "the command has `--profile`, by which `vllm bench` starts and stops the profiler itself",
                "leave `--profile` out, since a second stop can end the server; `--force` if it means something else",
            ));
        }
        Ok(())
    }

    fn work(&self, name: &str, signals: &StopSignals) -> Result<(), String> {
        match &self.work {
            VllmWork::Command(command) => {
                let log = self.analysis.logs.join(format!("{name}.log"));
                run_work(command, &log, signals)
            }
            VllmWork::Requests(bodies) => {
                let Some(server) = self.settings.servers.first() else { return Ok(()) };
                for (number, body) in (1..).zip(bodies) {
                    if signals.is_set() {
                        return Err("interrupted".to_owned());
                    }
                    server
                        .send_request(body, self.settings.start_limit)
                        .map_err(|error| format!("request {number} of {}: {error}", bodies.len()))?;
                }
                Ok(())
            }
        }
    }
}

fn run_work(command: &[OsString], log: &Path, signals: &StopSignals) -> Result<(), String> {
    let here = std::env::current_dir().map_err(|error| format!("the current folder is unknown: {error}"))?;
    // What the user's command leaves running on purpose is the user's.
    let job = CommandSpec {
        ends_descendants: false,
        // It is the user's own command, and may print for days.
        max_output: u64::MAX,
        ..CommandSpec::new(command.to_vec(), &here, log, MAX_WORK)
    };
    // The file of an earlier command would be shown.
    fs::File::create(log).map_err(|error| format!("cannot write `{}`: {error}", log.display()))?;
    let has_ended = AtomicBool::new(false);
    let end = thread::scope(|scope| {
        scope.spawn(|| show_output(log, &has_ended));
        let end = run_command(&job, signals.flag());
        has_ended.store(true, Ordering::Relaxed);
        end
    });
    let end = end.map_err(|error| error.to_string())?;
    let log = log.display();
    match end {
        ExitKind::Exited(0) => Ok(()),
        ExitKind::Stopped => Err("interrupted".to_owned()),
        end => Err(format!("the command {}; see `{log}`", end.problem(&job))),
    }
}

/// Bytes of a line that is shown before its end.
const MAX_LINE: usize = 64 << 10;

fn show_output(log: &Path, has_ended: &AtomicBool) {
    let Ok(mut log) = fs::File::open(log) else { return };
    let mut output = Vec::new();
    loop {
        let is_last = has_ended.load(Ordering::Relaxed);
        let is_read = log.read_to_end(&mut output).is_ok();
        if is_last && output.last().is_some_and(|last| *last != b'\n') {
            output.push(b'\n');
        }
        // A character and a control sequence may be written in two parts.
        let lines = output.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        let shown = if output.len() - lines > MAX_LINE { output.len() } else { lines };
        print_output(&output[..shown]);
        output.drain(..shown);
        if is_last || !is_read {
            return;
        }
        thread::sleep(OUTPUT_POLL);
    }
}
