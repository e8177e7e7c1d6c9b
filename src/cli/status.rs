//! `npubench status`: shows the active run from another terminal.

use super::prelude::*;
use crate::show::{
    runs::{PastRun, RunStatus},
    status::status_table,
};

/// Shows the active run: the state of each device, the progress, and the predicted end
///
/// Ends with 3 if no run is active.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench status --db a3")]
pub(super) struct StatusOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    output: TableOptions,
}

pub(super) fn run(options: &StatusOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let (_, runs) = past_runs(&database)?;
    let Some(live) = live_run(&runs) else {
        return Err(no_active_run(&database, runs.last()));
    };
    let status = live.last_status.as_ref().ok_or_else(|| {
        CommandError::bad_input(
            format!("run {} is active, and its status has not been written yet", live.record.run),
            format!("try again in a second; the file is {}", live.folder.join("status.json").display()),
        )
    })?;
    options.output.emit([status], |width| status_table(status, Timestamp::now(), width));
    Ok(ExitStatus::Done)
}

pub(super) fn live_run(runs: &[PastRun]) -> Option<&PastRun> {
    runs.iter().rev().find(|past| past.state == RunStatus::Running)
}

fn no_active_run(database: &Database, last: Option<&PastRun>) -> CommandError {
    let lock = database.lock_state();
    if let Some(owner) = lock.owner.filter(|_| lock.is_held) {
        return CommandError::bad_input(
            format!("no run is active; the database is in use by {owner}"),
            "a run that is still being planned starts in a moment",
        );
    }
    let db = quoted_path(database.folder());
    let Some(PastRun { record, state, .. }) = last else { return no_run(database) };
    let shows = format!("`npubench show --db {db}` shows its cases");
    let (was, hint) = match state {
        RunStatus::Unknown => {
            return CommandError::bad_input(
                format!(
                    "run {} has no recorded end and no longer writes its status; it was on another host",
                    record.run
                ),
                format!("run `npubench status` there; `npubench runs --db {db}` lists all runs"),
            );
        }
        RunStatus::Done => ("is", shows),
        _ => ("was", format!("`npubench resume --db {db}` continues it, {shows}")),
    };
    CommandError::bad_input(format!("no run is active; the last, {}, {was} {state}", record.run), hint)
}
