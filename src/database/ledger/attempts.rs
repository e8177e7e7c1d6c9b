//! Attempts of cases with their launches.

use rusqlite::{Transaction, params};

use super::{Ledger, LedgerError, launch_lists::insert_launches, software::store_software};
use crate::{
    base::stats::CycleRate,
    kernel::{
        Attempt, CaseId, CaseOutcome, EqualCallAttempt, IdentifiedCase, Launch, Nanos, RecordedTask,
        SoftwareFingerprint,
    },
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttemptState {
    pub(crate) launched: u32,
    pub(crate) launches: Vec<Launch>,
    /// Means of the counters, as JSON.
    pub(crate) counters: String,
    pub(crate) task: RecordedTask,
    pub(crate) cycle_rate: Option<CycleRate>,
    pub(crate) outcome: CaseOutcome,
    /// True for an attempt that was accepted and does not count any more.
    pub(crate) is_withdrawn: bool,
}

impl From<&Attempt> for AttemptState {
    fn from(attempt: &Attempt) -> Self {
        Self {
            launched: attempt.launched,
            launches: attempt.launches.clone(),
            counters: serde_json::to_string(&attempt.counters).expect("counters are numbers"),
            task: attempt.task.clone(),
            cycle_rate: attempt.cycle_rate,
            outcome: attempt.outcome.clone(),
            is_withdrawn: false,
        }
    }
}

impl Ledger {
    /// Stores all results of a collection in one transaction, with the software that it used. Results of other cases with
    /// the same calls are stored under their cases, which need not be planned.
    pub fn finish_collection(
        &mut self,
        collection: i64,
        ended: Nanos,
        outcome: &str,
        software: &SoftwareFingerprint,
        attempts: &[Attempt],
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let software = store_software(tx, software)?;
            tx.execute(
                "UPDATE collections SET ended_ns = ?2, outcome = ?3, software = ?4 WHERE collection = ?1",
                params![collection, ended.0, outcome, software],
            )?;
            for attempt in attempts {
                insert_attempt(tx, collection, &attempt.case, None, &AttemptState::from(attempt))?;
            }
            for EqualCallAttempt { case, attempt } in attempts.iter().flat_map(|own| &own.of_equal_calls) {
                insert_case(tx, case)?;
                insert_attempt(tx, collection, &attempt.case, None, &AttemptState::from(attempt))?;
            }
            Ok(())
        })
    }
}

/// Stores a case unless it is stored.
pub(super) fn insert_case(tx: &Transaction<'_>, case: &IdentifiedCase) -> rusqlite::Result<()> {
    let sql = "INSERT INTO cases (case_id, kernel, signature) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let mut insert = tx.prepare_cached(sql)?;
    insert.execute(params![case.id().as_str(), case.kernel.as_str(), case.signature()])?;
    Ok(())
}

/// Stores an attempt with its launches, under a key of its own unless one is given; a second one for a case of the same
/// collection is left out.
pub(super) fn insert_attempt(
    tx: &Transaction<'_>,
    collection: i64,
    case: &CaseId,
    key: Option<i64>,
    state: &AttemptState,
) -> rusqlite::Result<()> {
    let AttemptState { launched, launches, counters, task, cycle_rate, outcome, is_withdrawn } = state;
    let [cause, remarks] = outcome.reason.to_json();
    let inserted = tx
        .prepare_cached(
            "INSERT INTO attempts (attempt, collection, case_id, launched, verdict, cause, counters, op_state, core,
                                   cycle_rate, cycle_rate_error, is_withdrawn, operator, remarks)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT (collection, case_id) DO NOTHING",
        )?
        .execute(params![
            key,
            collection,
            case.as_str(),
            launched,
            outcome.verdict.as_str(),
            cause,
            counters,
            task.state,
            task.core,
            cycle_rate.map(|rate| rate.per_microsecond),
            cycle_rate.map(|rate| rate.error),
            is_withdrawn,
            task.operator,
            remarks,
        ])?;
    if inserted == 0 {
        return Ok(());
    }
    insert_launches(tx, tx.last_insert_rowid(), launches)
}
