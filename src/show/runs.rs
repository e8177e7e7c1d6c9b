//! `npubench runs`: the runs of a database with their states.

use super::prelude::*;
use crate::{
    base::{
        exit::ExitStatus,
        files::{LockOwner, LockState},
    },
    database::{DatabaseError, ledger::RunRecord},
};

/// Largest age in seconds of the status file of an active run on another host, whose lock cannot be tested here. The
/// file is written at least every ten seconds.
const MAX_STATUS_AGE: f64 = 60.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RunStatus {
    Running,
    /// The run ended by itself.
    Done,
    /// The run was stopped before its plan was done.
    Interrupted,
    /// The run has no recorded end: killed, a crash of the host, or an error printed on its own terminal only.
    Killed,
    /// The run has no recorded end and was on another host.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct PastRun {
    pub record: RunRecord,
    pub state: RunStatus,
    /// Last status that the run wrote, if its end is not in the ledger.
    pub last_status: Option<RunStatusFile>,
    pub folder: PathBuf,
}

impl PastRun {
    /// Returns the seconds from the start of the run to its end; to `now` if it is active; else to its last status.
    pub(crate) fn elapsed_seconds(&self, now: Timestamp) -> Option<f64> {
        let end = match (self.record.ended, self.state) {
            (Some(ended), _) => Some(Timestamp(ended)),
            (None, RunStatus::Running) => Some(now),
            (None, _) => self.last_status.as_ref().map(|status| status.written),
        };
        end.map(|end| end.seconds_since(Timestamp(self.record.started)))
    }
}

pub(crate) fn run_history(database: &Database, ledger: &Ledger) -> Result<Vec<PastRun>, DatabaseError> {
    // The lock is tested first: if a run ends in between, its end is in the ledger when the ledger is read.
    let lock = database.lock_state();
    let records = ledger.list_runs()?;
    let newest = records.len().saturating_sub(1);
    let (now, here) = (Timestamp::now(), LockOwner::this_process().host);
    let past = records.into_iter().enumerate().map(|(index, record)| {
        let folder = database.run_folder(&record.run);
        let last_status = if record.ended.is_none() { RunStatusFile::load(&folder)? } else { None };
        let state = match (record.ended, record.exit) {
            (Some(_), Some(exit)) if exit == i64::from(ExitStatus::Interrupted.code()) => {
                RunStatus::Interrupted
            }
            (Some(_), _) => RunStatus::Done,
            (None, _) => state_without_end(&lock, last_status.as_ref(), index == newest, &here, now),
        };
        Ok(PastRun { record, state, last_status, folder })
    });
    past.collect()
}

fn state_without_end(
    lock: &LockState,
    status: Option<&RunStatusFile>,
    is_newest: bool,
    here: &str,
    now: Timestamp,
) -> RunStatus {
    let is_owner = match (status, &lock.owner) {
        (Some(status), Some(owner)) => status.lock_owner() == *owner,
        // A lock without an owner is being taken; a run without a status has just started, or cannot write.
        _ => is_newest,
    };
    let is_here = lock.owner.as_ref().is_none_or(|owner| owner.host == here);
    match status {
        _ if !is_owner => RunStatus::Killed,
        _ if lock.is_held => RunStatus::Running,
        _ if is_here => RunStatus::Killed,
        Some(status) if now.seconds_since(status.written) < MAX_STATUS_AGE => RunStatus::Running,
        _ => RunStatus::Unknown,
    }
}

record! {
    /// A run in JSON.
    #[derive(JsonSchema)]
    pub(crate) RunRecordLine<'a>(past: &'a PastRun, now: Timestamp) with { let record = &past.record; } {
        run: &'a str = &record.run,
        kind: &'a str = &record.kind,
        state: RunStatus = past.state,
        started: Timestamp = Timestamp(record.started),
        ended: Option<Timestamp> = record.ended.map(Timestamp),
        elapsed_s: Option<f64> = past.elapsed_seconds(now),
        exit_code: Option<i64> = record.exit,
        seed: u64 = record.seed,
        cases: usize = record.planned,
        /// Number of cases by verdict.
        verdicts: &'a BTreeMap<String, usize> = &record.verdicts,
        process: Option<u32> = past.last_status.as_ref().map(|status| status.process),
        host: Option<&'a str> = past.last_status.as_ref().map(|status| status.host.as_str()),
    }
}

pub(crate) fn runs_table(runs: &[PastRun], now: Timestamp, width: Option<usize>) -> String {
    Table::new(runs)
        .text("run", 0, |past| &past.record.run)
        .text("kind", DETAIL, |past| &past.record.kind)
        .text("started", 3, |past| Timestamp(past.record.started).local_date_time())
        .number("elapsed", 2, |past| or_empty(past.elapsed_seconds(now).map(format_clock)))
        .number("cases", 1, |past| past.record.planned)
        .text("state", 0, |past| past.state)
        .text("verdicts", rank(1).min(10).wanted(24), |past| verdict_counts(&past.record))
        .print(width)
}

/// Returns the number of cases by verdict, such as `43 ok, 1 hung, 2 open`; open cases have no verdict yet.
pub(crate) fn verdict_counts(record: &RunRecord) -> String {
    let open = record.planned.saturating_sub(record.verdicts.values().sum());
    let mut counts: Vec<(&str, usize)> =
        record.verdicts.iter().map(|(verdict, count)| (verdict.as_str(), *count)).collect();
    counts.sort_by_key(|(verdict, count)| (*verdict != "ok", std::cmp::Reverse(*count)));
    counts.extend((open > 0).then_some(("open", open)));
    counted(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kernel::Nanos, measure::run_state::RunState};

    #[test]
    fn lock_owner_and_status_age_determine_the_state_of_a_run_without_end() {
        let now = Timestamp(Nanos(0)).plus_seconds(1e9);
        let owner = |process, host: &str| LockOwner { process, host: host.to_owned() };
        let status = |process, host: &str, age: f64| {
            Some(RunStatusFile {
                written: now.plus_seconds(-age),
                process,
                host: host.to_owned(),
                state: RunState::default(),
            })
        };
        let state = |is_held, lock: Option<LockOwner>, status: Option<RunStatusFile>, is_newest| {
            let lock = LockState { is_held, owner: lock };
            state_without_end(&lock, status.as_ref(), is_newest, "here", now).to_string()
        };
        let cases = [
            // The run holds the lock; the age of its status does not matter.
            (state(true, Some(owner(7, "here")), status(7, "here", 1e6), false), "running"),
            // Another process holds the lock, such as an `ingest` or a later run.
            (state(true, Some(owner(8, "here")), status(7, "here", 0.0), true), "killed"),
            // The lock is free, although its last owner was the run.
            (state(false, Some(owner(7, "here")), status(7, "here", 0.0), true), "killed"),
            (state(true, Some(owner(7, "here")), None, true), "running"),
            (state(true, Some(owner(7, "here")), None, false), "killed"),
            (state(true, None, None, true), "running"),
            (state(false, None, None, true), "killed"),
            // The lock cannot be tested from this host: only the age of the status decides.
            (state(false, Some(owner(7, "there")), status(7, "there", 5.0), true), "running"),
            (state(false, Some(owner(7, "there")), status(7, "there", 500.0), true), "unknown"),
            (state(false, Some(owner(7, "there")), None, true), "unknown"),
            (state(true, Some(owner(7, "there")), status(7, "there", 500.0), true), "running"),
        ];
        for (number, (found, expected)) in cases.into_iter().enumerate() {
            assert_eq!(found, expected, "case {number}");
        }
    }
}
