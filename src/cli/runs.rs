//! `npubench runs`: which runs a database has seen.

use std::path::PathBuf;

use clap::Args;

use super::options::OutputFormat;
use crate::{
    database::Database,
    exit::ExitStatus,
    ledger::Ledger,
    report::{PastRun, Timestamp, history, print_data, print_note, runs_json, runs_table},
    session::CommandError,
};

/// Lists the runs of a database, the oldest first, and says how each ended
#[derive(Debug, Args)]
pub(super) struct RunsOptions {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// `json` prints a line of JSON for each run
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

pub(super) fn run(options: &RunsOptions) -> Result<ExitStatus, CommandError> {
    let (_, runs) = past_runs(&Database::open(&options.db)?)?;
    let now = Timestamp::now();
    match options.format {
        OutputFormat::Json => print_data(&runs_json(&runs, now)),
        OutputFormat::Plain if runs.is_empty() => print_note("no run has begun on this database"),
        OutputFormat::Plain => print_data(&runs_table(&runs, now)),
    }
    Ok(ExitStatus::Done)
}

/// The runs of a database and its ledger, where there is one.
pub(super) fn past_runs(database: &Database) -> Result<(Option<Ledger>, Vec<PastRun>), CommandError> {
    if !database.has_tables() {
        return Err(no_database(database));
    }
    let ledger = database.existing_ledger()?;
    let runs = ledger.as_ref().map_or_else(|| Ok(Vec::new()), |ledger| history(database, ledger))?;
    Ok((ledger, runs))
}

/// A folder without tables.
pub(super) fn no_database(database: &Database) -> CommandError {
    CommandError::bad_input(
        format!("`{}` is not a database folder", database.folder().display()),
        "give the folder with the kernels' CSVs",
    )
}

/// The run that a word names: an id or an unambiguous beginning of one, the latest for `last`.
pub(super) fn find_run<'a>(runs: &'a [PastRun], word: &str) -> Result<&'a PastRun, CommandError> {
    let id = |past: &PastRun| past.record.run.clone();
    let Some(latest) = runs.last() else {
        return Err(CommandError::bad_input(
            "no run has begun on this database",
            "`npubench run --db DIR` begins one",
        ));
    };
    if word == "last" {
        return Ok(latest);
    }
    let exact = runs.iter().find(|past| past.record.run == word);
    let named: Vec<&PastRun> = match exact {
        Some(past) => vec![past],
        None => runs.iter().filter(|past| past.record.run.starts_with(word)).collect(),
    };
    match named.as_slice() {
        [one] => Ok(one),
        [] => Err(CommandError::bad_input(
            format!("no run of this database begins with `{word}`; the latest is {}", id(latest)),
            "`npubench runs --db DIR` lists them",
        )),
        [first, .., last] => Err(CommandError::bad_input(
            format!("{} runs begin with `{word}`, from {} to {}", named.len(), id(first), id(last)),
            "give more of the id",
        )),
    }
}
