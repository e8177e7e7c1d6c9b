//! `npubench runs`: which runs a database has seen.

use std::path::PathBuf;

use clap::Args;

use super::options::Format;
use crate::session::Failure;
use crate::{
    database::Database,
    exit::Exit,
    ledger::Ledger,
    report::{Moment, PastRun, history, print_data, print_note, runs_json, runs_table},
};

/// Lists the runs of a database, the oldest first, and says how each ended
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// `json` prints a line of JSON for each run
    #[arg(long, value_enum, default_value = "plain")]
    format: Format,
}

pub(super) fn run(options: &Options) -> Result<Exit, Failure> {
    let (_, runs) = past_runs(&Database::open(&options.db)?)?;
    let now = Moment::now();
    match options.format {
        Format::Json => print_data(&runs_json(&runs, now)),
        Format::Plain if runs.is_empty() => print_note("no run has begun on this database"),
        Format::Plain => print_data(&runs_table(&runs, now)),
    }
    Ok(Exit::Done)
}

/// The runs of a database and its ledger, where there is one.
pub(super) fn past_runs(database: &Database) -> Result<(Option<Ledger>, Vec<PastRun>), Failure> {
    if !database.has_tables() {
        return Err(no_database(database));
    }
    let ledger = database.existing_ledger()?;
    let runs = ledger.as_ref().map_or_else(|| Ok(Vec::new()), |ledger| history(database, ledger))?;
    Ok((ledger, runs))
}

/// A folder without tables.
pub(super) fn no_database(database: &Database) -> Failure {
    Failure::bad_input(
        format!("`{}` is not a database folder", database.folder().display()),
        "give the folder with the kernels' CSVs",
    )
}

/// The run that a word names: an id or an unambiguous beginning of one, the latest for `last`.
pub(super) fn find_run<'a>(runs: &'a [PastRun], word: &str) -> Result<&'a PastRun, Failure> {
    let id = |past: &PastRun| past.record.run.clone();
    let Some(latest) = runs.last() else {
        return Err(Failure::bad_input(
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
        [] => Err(Failure::bad_input(
            format!("no run of this database begins with `{word}`; the latest is {}", id(latest)),
            "`npubench runs --db DIR` lists them",
        )),
        [first, .., last] => Err(Failure::bad_input(
            format!("{} runs begin with `{word}`, from {} to {}", named.len(), id(first), id(last)),
            "give more of the id",
        )),
    }
}
