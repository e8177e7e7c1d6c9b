//! `npubench runs`: lists the runs of a database.

use super::prelude::*;
use crate::show::runs::{PastRun, RunRecordLine, run_history, runs_table};

/// Lists the runs of a database, oldest first, with their state or end
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench runs --db a3")]
pub(super) struct RunsOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    output: TableOptions,
}

pub(super) fn run(options: &RunsOptions) -> Result<ExitStatus, CommandError> {
    let (_, runs) = past_runs(&Database::open(&options.database.db)?)?;
    let now = Timestamp::now();
    if runs.is_empty() && options.output.format == OutputFormat::Plain {
        print_note("no run has been started on this database");
        return Ok(ExitStatus::Done);
    }
    emit_paged(options.output.format, runs.iter().map(|past| RunRecordLine::new(past, now)), || {
        runs_table(&runs, now, options.output.wide.width())
    });
    Ok(ExitStatus::Done)
}

pub(super) fn past_runs(database: &Database) -> Result<(Option<Ledger>, Vec<PastRun>), CommandError> {
    let ledger = database.existing_ledger()?;
    let runs = ledger.as_ref().map_or_else(|| Ok(Vec::new()), |ledger| run_history(database, ledger))?;
    Ok((ledger, runs))
}

pub(super) fn run_command(database: &Database) -> String {
    format!("`npubench run --db {}{}`", quoted_path(database.folder()), database.kind().host_option())
}

pub(super) fn no_run(database: &Database) -> CommandError {
    let problem = "no run has been started on this database";
    CommandError::bad_input(problem, format!("{} starts one", run_command(database)))
}

/// Finds a run by its id, by an unambiguous prefix of it, or by `last` the latest that had cases to measure.
pub(super) fn find_run<'a>(
    database: &Database,
    runs: &'a [PastRun],
    name: &str,
) -> Result<&'a PastRun, CommandError> {
    let db = quoted_path(database.folder());
    let id = |past: &PastRun| past.record.run.clone();
    let Some(latest) = runs.last() else {
        return Err(no_run(database));
    };
    if name == "last" {
        let with_cases = runs.iter().rfind(|past| past.record.planned > 0).unwrap_or(latest);
        if with_cases.record.run != latest.record.run {
            let (latest, chosen) = (id(latest), id(with_cases));
            print_note(&format!("run {latest} had nothing to measure; the last with cases is {chosen}"));
        }
        return Ok(with_cases);
    }
    let named: Vec<&PastRun> = match runs.iter().find(|past| past.record.run == name) {
        Some(past) => vec![past],
        None => runs.iter().filter(|past| past.record.run.starts_with(name)).collect(),
    };
    let (problem, hint) = match named.as_slice() {
        [one] => return Ok(one),
        [] => {
            let is_case = parse_case_prefix(name).is_ok() && name.parse::<u64>().is_err();
            let why = or_empty(is_case.then(|| format!("`npubench why {name} --db {db}` explains a case; ")));
            (
                format!(
                    "the id of no run of this database begins with `{name}`; the latest is {}",
                    id(latest)
                ),
                format!("{why}`npubench runs --db {db}` lists all runs"),
            )
        }
        [first, .., last] => (
            format!(
                "the ids of {} runs begin with `{name}`, from {} to {}",
                named.len(),
                id(first),
                id(last)
            ),
            "give more characters of the id".to_owned(),
        ),
    };
    Err(CommandError::bad_input(problem, hint))
}
