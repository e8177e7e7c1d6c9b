//! Runs of a database: which there were, and how each ended.

use std::{collections::BTreeMap, path::PathBuf};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;

use super::{RunStatusFile, Timestamp, timestamp::clock};
use crate::{
    database::{Database, DatabaseError},
    exit::ExitStatus,
    files::{LockOwner, LockState},
    ledger::{Ledger, RunRecord},
};

/// A run on another host whose lock cannot be seen here lives if it said something so many seconds ago.
const SIGN_OF_LIFE: f64 = 60.0;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It goes on.
    Running,
    /// By itself.
    Done,
    /// It was told to stop before its plan was done.
    Interrupted,
    /// Without a word: killed, a crash of the host, or an error that it told its own terminal.
    Killed,
    /// It does not say, and its host is not this one.
    Unknown,
}

impl RunStatus {
    /// The word used in files and on screen.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Interrupted => "interrupted",
            Self::Killed => "killed",
            Self::Unknown => "unknown",
        }
    }
}

/// A run and what became of it.
#[derive(Clone, Debug)]
pub struct PastRun {
    /// What the ledger has.
    pub record: RunRecord,
    /// How it ended.
    pub life: RunStatus,
    /// What it said last, where the ledger does not know its end.
    pub status: Option<RunStatusFile>,
    /// Where its scripts, logs and raw output are.
    pub folder: PathBuf,
}

impl PastRun {
    /// Seconds from its start to its end, to now, or to its last sign of life.
    #[must_use]
    pub fn seconds(&self, now: Timestamp) -> Option<f64> {
        let end = match (self.record.ended, self.life) {
            (Some(ended), _) => Some(Timestamp(ended)),
            (None, RunStatus::Running) => Some(now),
            (None, _) => self.status.as_ref().map(|status| status.written),
        };
        end.map(|end| end.since(Timestamp(self.record.started)))
    }
}

/// Every run of a database, the oldest first.
///
/// # Errors
/// [`DatabaseError::Ledger`].
pub fn history(database: &Database, ledger: &Ledger) -> Result<Vec<PastRun>, DatabaseError> {
    // The lock is looked at first: a run that ends in between has its end in the ledger by then.
    let lock = database.lock_state();
    let records = ledger.runs()?;
    let newest = records.len().saturating_sub(1);
    let (now, here) = (Timestamp::now(), LockOwner::this_process().host);
    let past = records.into_iter().enumerate().map(|(index, record)| {
        let folder = database.run_folder(&record.run);
        let status = if record.ended.is_none() { RunStatusFile::read(&folder) } else { None };
        let life = match (record.ended, record.exit) {
            (Some(_), Some(exit)) if exit == i64::from(ExitStatus::Interrupted.code()) => {
                RunStatus::Interrupted
            }
            (Some(_), _) => RunStatus::Done,
            (None, _) => open_life(&lock, status.as_ref(), index == newest, &here, now),
        };
        PastRun { record, life, status, folder }
    });
    Ok(past.collect())
}

/// Whether a run goes on that has no end in the ledger.
fn open_life(
    lock: &LockState,
    status: Option<&RunStatusFile>,
    is_newest: bool,
    here: &str,
    now: Timestamp,
) -> RunStatus {
    let is_owner = match (status, &lock.owner) {
        (Some(status), Some(owner)) => status.owner() == *owner,
        // A lock without a name is being taken; a run without a status has just begun, or cannot write.
        _ => is_newest,
    };
    let is_here = lock.owner.as_ref().is_none_or(|owner| owner.host == here);
    match status {
        _ if !is_owner => RunStatus::Killed,
        _ if lock.is_held => RunStatus::Running,
        _ if is_here => RunStatus::Killed,
        Some(status) if now.since(status.written) < SIGN_OF_LIFE => RunStatus::Running,
        _ => RunStatus::Unknown,
    }
}

/// A line of JSON for each run.
#[must_use]
pub fn runs_json(runs: &[PastRun], now: Timestamp) -> String {
    #[derive(Serialize)]
    struct RunLine<'a> {
        run: &'a str,
        kind: &'a str,
        state: RunStatus,
        started: Timestamp,
        ended: Option<Timestamp>,
        seconds: Option<f64>,
        exit: Option<i64>,
        seed: u64,
        cases: usize,
        verdicts: &'a BTreeMap<String, usize>,
        process: Option<u32>,
        host: Option<&'a str>,
    }
    let line = |past: &PastRun| {
        let record = &past.record;
        let line = RunLine {
            run: &record.run,
            kind: &record.kind,
            state: past.life,
            started: Timestamp(record.started),
            ended: record.ended.map(Timestamp),
            seconds: past.seconds(now),
            exit: record.exit,
            seed: record.seed,
            cases: record.planned,
            verdicts: &record.verdicts,
            process: past.status.as_ref().map(|status| status.process),
            host: past.status.as_ref().map(|status| status.host.as_str()),
        };
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    };
    runs.iter().map(line).collect()
}

/// A line for each run.
#[must_use]
pub fn runs_table(runs: &[PastRun], now: Timestamp) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["run", "kind", "started", "length", "cases", "state", "verdicts"]);
    for past in runs {
        let record = &past.record;
        table.add_row([
            record.run.clone(),
            record.kind.clone(),
            Timestamp(record.started).local(),
            past.seconds(now).map_or_else(String::new, clock),
            record.planned.to_string(),
            past.life.as_str().to_owned(),
            counts(record),
        ]);
    }
    for column in table.column_iter_mut().skip(3).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    super::summary_tables::trimmed(&table)
}

/// `43 ok, 1 hung, 2 open`.
pub(super) fn counts(record: &RunRecord) -> String {
    let open = record.planned.saturating_sub(record.verdicts.values().sum());
    let mut counts: Vec<(&str, usize)> =
        record.verdicts.iter().map(|(verdict, count)| (verdict.as_str(), *count)).collect();
    counts.sort_by_key(|(verdict, count)| (*verdict != "ok", std::cmp::Reverse(*count)));
    counts.extend((open > 0).then_some(("open", open)));
    let counts: Vec<String> = counts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::Nanos, report::RunState};

    #[test]
    fn the_lock_and_its_owner_tell_a_live_run_from_a_dead_one() {
        let now = Timestamp(Nanos(0)).after(1e9);
        let owner = |process, host: &str| LockOwner { process, host: host.to_owned() };
        let says = |process, host: &str, age: f64| {
            Some(RunStatusFile {
                written: now.after(-age),
                process,
                host: host.to_owned(),
                board: RunState::default(),
            })
        };
        let life = |is_held, lock: Option<LockOwner>, status: Option<RunStatusFile>, is_newest| {
            let lock = LockState { is_held, owner: lock };
            open_life(&lock, status.as_ref(), is_newest, "here", now).as_str()
        };
        let cases = [
            // Its own lock, however long ago it said something.
            (life(true, Some(owner(7, "here")), says(7, "here", 1e6), false), "running"),
            // Somebody else has the lock, such as an `ingest` or a later run.
            (life(true, Some(owner(8, "here")), says(7, "here", 0.0), true), "killed"),
            // The number of a process that ended says nothing without the lock.
            (life(false, Some(owner(7, "here")), says(7, "here", 0.0), true), "killed"),
            (life(true, Some(owner(7, "here")), None, true), "running"),
            (life(true, Some(owner(7, "here")), None, false), "killed"),
            (life(true, None, None, true), "running"),
            (life(false, None, None, true), "killed"),
            // A lock that is not seen from here: only the age is left.
            (life(false, Some(owner(7, "there")), says(7, "there", 5.0), true), "running"),
            (life(false, Some(owner(7, "there")), says(7, "there", 500.0), true), "unknown"),
            (life(false, Some(owner(7, "there")), None, true), "unknown"),
            (life(true, Some(owner(7, "there")), says(7, "there", 500.0), true), "running"),
        ];
        for (number, (found, expected)) in cases.into_iter().enumerate() {
            assert_eq!(found, expected, "case {number}");
        }
    }
}
