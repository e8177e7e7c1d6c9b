//! `npubench status`: what the running run does, from another terminal.

use std::path::PathBuf;

use clap::Args;

use super::{options::OutputFormat, runs::past_runs};
use crate::{
    database::Database,
    exit::ExitStatus,
    report::{PastRun, RunStatus, RunStatusFile, Timestamp, print_data, status_table},
    session::CommandError,
};

/// Says what the running run does on each device, how far it is and when it will end
///
/// Ends with 3 where no run is going on.
#[derive(Debug, Args)]
pub(super) struct StatusOptions {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// How it is printed
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

pub(super) fn run(options: &StatusOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.db)?;
    let (_, runs) = past_runs(&database)?;
    let Some(live) = live_run(&runs) else {
        return Err(nothing_runs(&database, runs.last()));
    };
    let status = live.status.as_ref().ok_or_else(|| {
        CommandError::bad_input(
            format!("run {} is going on, and has not said yet what it does", live.record.run),
            format!("ask again in a second; it says so in {}", live.folder.join("status.json").display()),
        )
    })?;
    print_data(&match options.format {
        OutputFormat::Plain => status_table(status, Timestamp::now()),
        OutputFormat::Json => serde_json::to_string(status).unwrap_or_default() + "\n",
    });
    Ok(ExitStatus::Done)
}

/// The run that goes on.
pub(super) fn live_run(runs: &[PastRun]) -> Option<&PastRun> {
    runs.iter().rev().find(|past| past.life == RunStatus::Running)
}

/// What the run that goes on said last.
pub(super) fn live_status(database: &Database) -> Result<Option<RunStatusFile>, CommandError> {
    let (_, runs) = past_runs(database)?;
    Ok(live_run(&runs).and_then(|live| live.status.clone()))
}

fn nothing_runs(database: &Database, last: Option<&PastRun>) -> CommandError {
    let lock = database.lock_state();
    if let Some(owner) = lock.owner.filter(|_| lock.is_held) {
        return CommandError::bad_input(
            format!("no run is going on; the database is in use by {owner}"),
            "a run that is being planned begins in a moment",
        );
    }
    let (message, hint) = match last {
        None => ("no run has begun on this database".to_owned(), "`npubench run --db DIR` begins one"),
        Some(PastRun { record, life: RunStatus::Unknown, .. }) => (
            format!("run {} has no end, and says nothing any more; it was on another host", record.run),
            "ask there; `npubench runs --db DIR` lists all",
        ),
        Some(PastRun { record, life, .. }) => {
            let (was, hint) = match life {
                RunStatus::Done => ("is", "`npubench show --db DIR` shows its cases"),
                _ => (
                    "was",
                    "`npubench resume --db DIR` goes on with it, `npubench show --db DIR` shows its cases",
                ),
            };
            (format!("no run is going on; the last, {}, {was} {}", record.run, life.as_str()), hint)
        }
    };
    CommandError::bad_input(message, hint)
}
