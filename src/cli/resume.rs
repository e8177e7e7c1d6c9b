//! `npubench resume`: goes on with a run that was interrupted.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;

use super::{
    options::{OutputFormat, kernels},
    runs::{find_run, past_runs},
};
use crate::{
    config::AssetFiles,
    database::Database,
    domain::{Case, CaseId, CaseOutcome, Verdict},
    engine::ResumedRun,
    exit::ExitStatus,
    ledger::{CaseRecord, Ledger, RunRecord},
    plan::{PlannedCase, RunPlan},
    session::{CommandError, DeadlineOptions, RunContext, RunOptions, UpdateArg},
};

/// Goes on with a run that was interrupted
///
/// The run keeps its id, its seed and its options. Cases that have a verdict keep it, what was being measured
/// when the run ended is measured again, and no sample is counted twice.
#[derive(Debug, Args)]
pub(super) struct ResumeOptions {
    /// The run: its id, or an unambiguous beginning of it; the last one that was interrupted where not given
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    #[command(flatten)]
    end: DeadlineOptions,
    /// `json` prints every event as a line of JSON
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

pub(super) fn run(options: &ResumeOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.db)?;
    let lock = database.lock()?;
    let ledger = database.existing_ledger()?.ok_or_else(|| nothing(&database))?;
    let record = interrupted(&ledger, options.run.as_deref(), &database)?;
    let recipe: RunOptions = serde_json::from_str(&record.options).map_err(|error| {
        CommandError::bad_input(
            format!("the options of run {} cannot be read: {error}", record.run),
            "`npubench run` measures what is missing, with options given anew",
        )
    })?;
    let assets = match &recipe.assets {
        Some(folder) => AssetFiles::overlaid(folder)?,
        None => AssetFiles::embedded(),
    };
    let kind = database.kind();
    let host = RunContext::find(&options.db, kind, assets, &recipe)?;
    // What has results from this run is told apart below.
    let all = RunOptions { update: UpdateArg::All, ..recipe.clone() };
    let plan = host.plan(&all, &kernels(&recipe.kernels)?)?;
    let cases = ledger.cases(&record.run)?;
    let last = ledger.collections(&record.run)?.last().map_or(0, |collection| collection.number);
    drop(ledger);
    let (plan, findings) = split_resumed(plan, &cases);
    let open = cases.iter().filter(|record| record.finding.is_none());
    let tried = open
        .flat_map(|record| record.attempts.iter().map(|attempt| (record.case.clone(), attempt.collection)));
    let resumed = ResumedRun { collections: last, outcomes: findings, attempted: tried.collect() };
    let exit = host.measure(record.run, recipe, plan, Some(resumed), &options.end, options.format);
    drop(lock);
    exit
}

/// The run to go on with.
fn interrupted(
    ledger: &Ledger,
    wanted: Option<&str>,
    database: &Database,
) -> Result<RunRecord, CommandError> {
    let runs = ledger.runs()?;
    let Some(wanted) = wanted else {
        let open = |run: &RunRecord| {
            run.ended.is_none() || run.exit == Some(i64::from(ExitStatus::Interrupted.code()))
        };
        return runs.into_iter().rev().find(open).ok_or_else(|| nothing(database));
    };
    drop(runs);
    let (_, past) = past_runs(database)?;
    Ok(find_run(&past, wanted)?.record.clone())
}

fn nothing(database: &Database) -> CommandError {
    CommandError::bad_input(
        format!("no run of `{}` was interrupted", database.folder().display()),
        "`npubench run` measures what is missing",
    )
}

/// What is still to be measured of a run, and the cases that have their verdict.
fn split_resumed(plan: RunPlan, cases: &[CaseRecord]) -> (RunPlan, Vec<(Case, CaseOutcome)>) {
    let records: BTreeMap<&CaseId, &CaseRecord> = cases.iter().map(|record| (&record.case, record)).collect();
    let mut findings = Vec::new();
    let mut settle = |case: Case, record: &CaseRecord| match final_outcome(record) {
        Some(finding) => {
            findings.push((case, finding));
            None
        }
        None => Some(case),
    };
    let mut open = Vec::new();
    for planned in plan.cases {
        let Some(record) = records.get(&planned.case.id()) else { continue };
        let PlannedCase { case, call: reading, fastest, value, devices } = planned;
        open.extend(settle(case, record).map(|case| PlannedCase {
            case,
            call: reading,
            fastest,
            value,
            devices,
        }));
    }
    let mut refused = Vec::new();
    for (case, finding) in plan.rejected {
        let Some(record) = records.get(&case.id()) else { continue };
        refused.extend(settle(case, record).map(|case| (case, finding)));
    }
    (RunPlan { cases: open, rejected: refused, already_measured: 0, ..plan }, findings)
}

/// The verdict of a case, or what its last attempt comes to: the run may have been killed between the two.
fn final_outcome(record: &CaseRecord) -> Option<CaseOutcome> {
    let is_last = |finding: &&CaseOutcome| finding.verdict != Verdict::NotRun;
    if let Some(finding) = record.finding.as_ref().filter(is_last) {
        return Some(finding.clone());
    }
    let last = record.attempts.last().map(|attempt| &attempt.finding);
    last.filter(|finding| !finding.verdict.is_worth_a_retry() && finding.verdict != Verdict::Oom).cloned()
}
