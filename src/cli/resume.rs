//! `npubench resume`: continues a run that was interrupted.

use std::os::unix::fs::MetadataExt as _;

use super::prelude::*;
use crate::{
    database::ledger::{CaseRecord, RunRecord},
    measure::nodes::session::resume_on_all_nodes,
};

/// Continues a run that was interrupted
///
/// The run keeps its id, its seed and its options. Cases with a verdict keep it; cases that were being measured when
/// the run ended are measured again, and no sample is counted twice.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench resume --db a3")]
pub(super) struct ResumeOptions {
    /// Id of the run, or an unambiguous prefix of it; by default the last run that was interrupted
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    deadline: DeadlineOptions,
    #[command(flatten)]
    leases: LeaseOption,
    #[command(flatten)]
    output: OutputOptions,
}

pub(super) fn run(options: &ResumeOptions) -> Result<ExitStatus, CommandError> {
    let ResumeOptions { run, database, deadline, leases, output } = options;
    resume_run(&database.db, run.as_deref(), deadline, leases.folder(), output.format)
}

pub(super) fn resume_run(
    db: &Path,
    run: Option<&str>,
    deadline: &DeadlineOptions,
    leases: Option<PathBuf>,
    format: OutputFormat,
) -> Result<ExitStatus, CommandError> {
    let database = Database::open(db)?;
    let lock = database.lock()?;
    let ledger = database.existing_ledger()?.ok_or_else(|| no_interrupted_run(&database))?;
    let record = interrupted_run(&ledger, run, &database)?;
    let mut run_options = RunOptions::of_run(&record)?;
    if run_options.sweep.as_ref().is_some_and(|sweep| sweep.nodes.is_some()) {
        return Err(resume_on_all_nodes(&record.run, &run_options));
    }
    run_options.leases = leases.or(run_options.leases);
    check_ledger_owner(&database)?;
    print_programs(&record.run, &run_options);
    let assets = match &run_options.assets {
        Some(folder) => AssetFiles::overlaid(folder)?,
        None => AssetFiles::embedded(),
    };
    let context = RunContext::find(db, database.kind(), assets, &run_options, run_screen(format))?;
    context.require_host(&run_options)?;
    let kernels = parse_kernels(&run_options.kernels)?;
    let (plan, resumed) = context.resumed_plan(&run_options, &kernels, &ledger, &record.run)?;
    drop(ledger);
    let ended = context.measure(&record.run, run_options, plan, Some(resumed), deadline.deadline());
    drop(lock);
    Ok(ended?.exit)
}

/// Checks that the ledger is the user's own: its run names the interpreter and the assets, which are executed.
fn check_ledger_owner(database: &Database) -> Result<(), CommandError> {
    let path = database.ledger_path();
    let user = nix::unistd::geteuid().as_raw();
    match fs::metadata(&path).map(|metadata| metadata.uid()) {
        Ok(owner) if owner != user => Err(CommandError::bad_input(
            format!("`{}` belongs to user {owner}, and its run names programs to execute", path.display()),
            format!("{} measures what is missing, with programs of your own", run_command(database)),
        )),
        _ => Ok(()),
    }
}

fn print_programs(run: &str, options: &RunOptions) {
    let default_python =
        Path::new(&options.python).file_name().is_some_and(|name| name == options.python.as_str());
    let python = (!default_python).then(|| format!("the interpreter `{}`", options.python));
    let assets = options.assets.as_ref().map(|folder| format!("the assets of `{}`", folder.display()));
    let programs: Vec<String> = python.into_iter().chain(assets).collect();
    if !programs.is_empty() {
        print_note(&format!("run {run} uses {}", programs.join(" and ")));
    }
}

fn interrupted_run(
    ledger: &Ledger,
    wanted: Option<&str>,
    database: &Database,
) -> Result<RunRecord, CommandError> {
    if let Some(wanted) = wanted {
        let (_, past) = past_runs(database)?;
        let record = find_run(database, &past, wanted)?.record.clone();
        if !is_interrupted(&record) {
            return Err(CommandError::bad_input(
                format!("run {} was not interrupted: it has ended", record.run),
                format!("{} measures what is missing", run_command(database)),
            ));
        }
        return Ok(record);
    }
    let runs = ledger.list_runs()?;
    let mut done_later = None;
    for (index, run) in runs.iter().enumerate().rev().filter(|(_, run)| is_interrupted(run)) {
        if !is_done_later(ledger, run, &runs[index + 1..])? {
            return Ok(run.clone());
        }
        done_later.get_or_insert(&run.run);
    }
    Err(match done_later {
        Some(run) => CommandError::bad_input(
            format!("later runs have measured the open cases of run {run}, the last that was interrupted"),
            format!("`npubench resume {run} --db {}` measures them again", quoted_path(database.folder())),
        ),
        None => no_interrupted_run(database),
    })
}

pub(super) fn is_interrupted(run: &RunRecord) -> bool {
    run.ended.is_none() || run.exit == Some(i64::from(ExitStatus::Interrupted.code()))
}

/// Returns true if a run has open cases, and later runs with the same state of the cache have a verdict for all of them.
fn is_done_later(ledger: &Ledger, run: &RunRecord, later: &[RunRecord]) -> Result<bool, CommandError> {
    let has_verdict =
        |case: &CaseRecord| case.outcome.as_ref().is_some_and(|outcome| outcome.verdict != Verdict::NotRun);
    let cases = ledger.run_cases(&run.run)?.into_iter().filter(|case| !has_verdict(case));
    let mut open: BTreeSet<CaseId> = cases.map(|case| case.case).collect();
    if open.is_empty() {
        return Ok(false);
    }
    let cache = run_cache(run)?;
    for run in later {
        if run_cache(run)? == cache {
            for case in ledger.run_cases(&run.run)?.iter().filter(|case| has_verdict(case)) {
                open.remove(&case.case);
            }
        }
    }
    Ok(open.is_empty())
}

fn no_interrupted_run(database: &Database) -> CommandError {
    CommandError::bad_input(
        format!("no run of `{}` was interrupted", database.folder().display()),
        format!("{} measures what is missing", run_command(database)),
    )
}
