//! `npubench collect`: profiles of servers, from the start of the profiler to the analysed profile of every rank.

use std::{ffi::OsString, num::NonZeroUsize};

use serde_json::Value;

use super::{
    ingest::{self, IngestOptions},
    prelude::*,
};
use crate::{
    base::files::{MAX_TABLE, read_regular_text},
    measure::collect::{
        AnalysisSettings, CollectedRanks, RankState, StopSignals, VllmCollection, VllmSettings, VllmWork,
        analyse_folders, profile_folders,
    },
    profile::timeline::step_times,
    show::{
        collected_ranks::{RankRecord, ranks_text},
        run_timeline::{StepTimesReport, step_times_records, step_times_text},
    },
};

subcommands! {
    /// Collects profiles of whole models: from servers, or from folders that are not analysed yet
    #[derive(Debug, Subcommand)]
    #[command(after_help = "Examples:
  npubench collect analyse profiles")]
    pub(super) enum CollectCommand {
        Vllm(Box<VllmOptions>) => collect_vllm,
        Analyse(Box<AnalyseOptions>) => analyse,
    }
}

#[derive(Clone, Copy, Debug, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum ExportArg {
    /// One database for each rank
    Db,
    /// trace_view.json, kernel_details.csv and other tables
    Text,
    /// Both
    #[strum(serialize = "db,text")]
    Both,
}

#[derive(Debug, Args)]
struct RankOptions {
    #[command(flatten)]
    python: PythonOption,
    /// Form of the analysed profiles
    #[arg(long, value_enum, default_value = "db")]
    export: ExportArg,
    /// Number of ranks that are analysed at the same time
    #[arg(long, value_name = "N", default_value = "4")]
    jobs: NonZeroUsize,
    /// Time limit for the analysis of one rank
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = parse_limit)]
    analysis_limit: Duration,
    /// New folder for the output of the command and of the analyses; by default `collect-` and the time
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Database into which the complete ranks are ingested
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Kind of a new database, by default `npu`
    #[arg(long, value_enum, requires = "db")]
    kind: Option<DataKind>,
    #[command(flatten)]
    common: CommonOptions<JsonOutput>,
}

/// Profiles a server of vLLM-Ascend while a command or given requests run, and analyses and checks every rank
///
/// The server must have been started with a profiler. It is stopped exactly once, whatever happens: also on Ctrl-C, and if the
/// command fails. A stop takes minutes, since the workers write their profiles; torch_npu then analyses each rank, and
/// the step times of complete ranks are shown. docs/collecting.md has the details.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench collect vllm --url http://node0:8000 --profile-dir /data/prof -- vllm bench serve --model M --num-prompts 8
  npubench collect vllm --url http://node0:8000 --url http://node1:8000 --profile-dir /nfs/prof --ranks 16 --requests prompts.jsonl
  npubench collect analyse /data/prof                # continues after an interruption")]
pub(super) struct VllmOptions {
    #[command(flatten)]
    settings: VllmSettings,
    /// Requests to the first server, one JSON object a line: bodies of /v1/completions, or with `messages` of
    /// /v1/chat/completions
    #[arg(long, value_name = "FILE", conflicts_with = "command", required_unless_present = "command")]
    requests: Option<PathBuf>,
    #[command(flatten)]
    options: RankOptions,
    /// Command that runs while the profiler is on; it must not start the profiler itself (`vllm bench serve --profile`)
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Analyses raw profiles of torch_npu, and checks every rank
///
/// Folders that are analysed are only checked, so that the command continues what was interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench collect analyse /data/prof
  npubench collect analyse /data/prof --python /opt/venv/bin/python3 --db a3")]
pub(super) struct AnalyseOptions {
    /// Folders with `*_ascend_pt`, or these themselves
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    options: RankOptions,
}

impl RankOptions {
    fn settings(&self) -> Result<AnalysisSettings, CommandError> {
        let python = self.python.program()?;
        let logs = self.logs.clone().unwrap_or_else(unused_log_folder);
        let logs = std::path::absolute(&logs).map_err(|error| {
            let problem = format!("the current folder is unknown: {error}");
            CommandError::bad_input(problem, "give an absolute folder with `--logs`")
        })?;
        let export = <&str>::from(self.export).to_owned();
        let (workers, limit) = (self.jobs.get(), self.analysis_limit);
        Ok(AnalysisSettings { python, export, workers, limit, logs })
    }

    fn report(
        &self,
        collected: &CollectedRanks,
        folders: &[PathBuf],
        signals: &StopSignals,
    ) -> Result<ExitStatus, CommandError> {
        let CollectedRanks { ranks, problems } = collected;
        self.common.output.emit(ranks.iter().map(RankRecord::new), |width| ranks_text(ranks, width));
        let complete = ranks.iter().filter(|rank| matches!(rank.state, RankState::Complete { .. }));
        let complete: Vec<PathBuf> = complete.map(|rank| rank.folder.clone()).collect();
        let mut exit = ExitStatus::done_if(problems.is_empty() && complete.len() == ranks.len());
        if !complete.is_empty() {
            self.print_step_times(&complete)?;
        }
        if let Some(db) = self.db.as_ref().filter(|_| !complete.is_empty() && !signals.is_set()) {
            let (db, kind, assets) = (db.clone(), self.kind, self.common.assets.clone());
            let common = CommonOptions { assets, ..CommonOptions::default() };
            let ingest = IngestOptions { paths: complete, db, kind, common, ..IngestOptions::default() };
            // The profiles are complete whatever the database is.
            if let Err(error) = ingest::run(&ingest) {
                print_note(&format!("not ingested: {}", error.message));
                print_hint(&error.hint);
                exit = ExitStatus::SomeNotOk;
            }
        }
        problems.iter().for_each(|problem| print_note(problem));
        if signals.is_set() {
            print_note(&format!(
                "interrupted; the profiles that were written are kept: `npubench collect analyse {}` continues",
                joined(folders.iter().map(|folder| quoted_path(folder)), " ")
            ));
            exit = ExitStatus::Interrupted;
        }
        Ok(exit)
    }

    fn print_step_times(&self, complete: &[PathBuf]) -> Result<(), CommandError> {
        let (runs, notes) = read_all_runs(complete)?;
        notes.iter().for_each(|note| print_note(note));
        let times: Vec<_> =
            runs.iter().enumerate().flat_map(|(number, run)| step_times(number, run)).collect();
        let report = StepTimesReport { runs: &runs, times: &times, arrivals: &[], vendor: &[], gaps: 0 };
        self.common
            .output
            .emit(step_times_records(&report), |width| format!("\n{}", step_times_text(&report, width)));
        Ok(())
    }
}

fn signals() -> Result<StopSignals, CommandError> {
    StopSignals::register().map_err(|error| {
        CommandError::bad_input(
            format!("cannot register signal handlers: {error}"),
            "check the limits of this user for threads and open files",
        )
    })
}

fn collect_vllm(options: &VllmOptions) -> Result<ExitStatus, CommandError> {
    let work = match &options.requests {
        Some(file) => VllmWork::Requests(read_requests(file)?),
        None => VllmWork::Command(options.command.clone()),
    };
    let analysis = options.options.settings()?;
    let collection = VllmCollection { settings: &options.settings, work, analysis };
    let signals = signals()?;
    let collected = collection.collect(&signals)?;
    options.options.report(&collected, &options.settings.folders, &signals)
}

fn analyse(options: &AnalyseOptions) -> Result<ExitStatus, CommandError> {
    let folders = profile_folders(&options.folders);
    if folders.is_empty() {
        let given = joined(options.folders.iter().map(|folder| format!("`{}`", folder.display())), ", ");
        return Err(CommandError::bad_input(
            format!("no folder `*_ascend_pt` in {given}"),
            "give the folder of the profiler (`torch_profiler_dir`) as this host has it",
        ));
    }
    let settings = options.options.settings()?;
    settings.create_log_folder()?;
    let signals = signals()?;
    let ranks = analyse_folders(&folders, &settings, &signals);
    let collected = CollectedRanks { ranks, problems: Vec::new() };
    options.options.report(&collected, &options.folders, &signals)
}

fn read_requests(file: &Path) -> Result<Vec<Value>, CommandError> {
    let shown = file.display();
    let wrong = |problem: String| {
        let hint =
            "write one request a line, such as {\"model\": \"M\", \"prompt\": \"text\", \"max_tokens\": 64}";
        CommandError::bad_input(problem, hint)
    };
    let text = read_regular_text(file, MAX_TABLE)
        .map_err(|error| wrong(format!("cannot read `{shown}`: {error}")))?;
    let mut bodies = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(body) if body.is_object() => bodies.push(body),
            Ok(_) => return Err(wrong(format!("{shown}:{number}: expected an object"))),
            Err(error) => return Err(wrong(format!("{shown}:{number}: {error}"))),
        }
    }
    if bodies.is_empty() {
        return Err(wrong(format!("`{shown}` has no request")));
    }
    Ok(bodies)
}

/// Returns a folder in the current one that is named after the time and does not exist.
fn unused_log_folder() -> PathBuf {
    let name = Timestamp::now().to_zoned().strftime("collect-%Y%m%d-%H%M%S").to_string();
    let numbered = (2..).map(|number| PathBuf::from(format!("{name}-{number}")));
    let mut names = std::iter::once(PathBuf::from(&name)).chain(numbered);
    names.find(|folder| !folder.exists()).unwrap_or_default()
}
