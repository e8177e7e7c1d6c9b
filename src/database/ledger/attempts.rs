//! Attempts of cases with their launches: their storage, and their replacement by another assessment of their evidence.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Row, Transaction, params};

use super::{
    Ledger, LedgerError,
    launch_lists::{insert_launches, read_launches},
    software::store_software,
    values::{fields, read_cycle_rate, read_outcome},
};
use crate::{
    base::stats::CycleRate,
    kernel::{
        Attempt, CacheState, CaseId, CaseOutcome, CollectionPurpose, EqualCallAttempt, IdentifiedCase,
        Launch, Nanos, RecordedTask, SoftwareFingerprint,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptedCollection {
    pub(crate) collection: i64,
    pub(crate) run: String,
    pub(crate) number: u32,
    pub(crate) cache: CacheState,
    /// SHA-256 of the compressed evidence; `None` if it was not written.
    pub(crate) archive: Option<String>,
    pub(crate) purpose: CollectionPurpose,
    pub(crate) has_launches: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredAttempt {
    pub(crate) attempt: i64,
    pub(crate) case: CaseId,
    pub(crate) kernel: String,
    pub(crate) state: AttemptState,
}

#[derive(Clone, Debug)]
pub(crate) struct AttemptChange {
    pub(crate) case: CaseId,
    pub(crate) kernel: String,
    /// Key and content of the stored attempt; `None` for a new one.
    pub(crate) before: Option<(i64, AttemptState)>,
    pub(crate) after: AttemptState,
    pub(crate) new_case: Option<IdentifiedCase>,
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
                params![collection, ended, outcome, software],
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

    pub(crate) fn attempted_collections(
        &self,
        run: Option<&str>,
    ) -> Result<Vec<AttemptedCollection>, LedgerError> {
        let sql = "SELECT c.collection, c.run, c.number, c.cache, c.archive, c.purpose, max(a.launched) > 0
                   FROM collections c JOIN attempts a USING (collection)
                   WHERE ?1 IS NULL OR c.run = ?1 GROUP BY c.collection ORDER BY c.collection";
        self.read_rows(sql, [run], read_collection)
    }

    /// Returns the ended collections with evidence, also those whose attempts are lost, in their order.
    pub(crate) fn archived_collections(&self) -> Result<Vec<AttemptedCollection>, LedgerError> {
        let sql = "SELECT collection, run, number, cache, archive, purpose, 1 FROM collections
                   WHERE archive IS NOT NULL AND ended_ns IS NOT NULL ORDER BY collection";
        self.read_rows(sql, [], read_collection)
    }

    pub(crate) fn collection_attempts(&self, collection: i64) -> Result<Vec<StoredAttempt>, LedgerError> {
        let sql = "SELECT a.attempt, a.case_id, c.kernel, a.launched, a.counters, a.is_withdrawn, a.op_state, a.core, a.operator,
                          a.cycle_rate, a.cycle_rate_error, a.verdict, a.cause, a.remarks, l.states, l.start_ns, l.offsets_ns,
                          l.durations_ns
                   FROM attempts a JOIN cases c USING (case_id) LEFT JOIN launch_lists l USING (attempt)
                   WHERE a.collection = ?1 ORDER BY a.attempt";
        self.read_rows(sql, [collection], |row| {
            let state = AttemptState {
                launched: row.get(3)?,
                launches: read_launches(row, 14)?,
                counters: row.get(4)?,
                task: RecordedTask { state: row.get(6)?, core: row.get(7)?, operator: row.get(8)? },
                cycle_rate: read_cycle_rate(row, 9)?,
                outcome: read_outcome(row, 11)?,
                is_withdrawn: row.get(5)?,
            };
            Ok(StoredAttempt { attempt: row.get(0)?, case: row.get(1)?, kernel: row.get(2)?, state })
        })
    }

    pub(crate) fn planned_cases(&self) -> Result<BTreeSet<CaseId>, LedgerError> {
        self.read_column("SELECT DISTINCT case_id FROM planned", [])
    }

    pub(crate) fn planned_order(&self) -> Result<BTreeMap<CaseId, usize>, LedgerError> {
        let sql =
            "SELECT p.case_id FROM planned p JOIN runs r USING (run) ORDER BY r.started_ns, r.run, p.ordinal";
        let mut order = BTreeMap::new();
        self.visit_rows(sql, [], |row| {
            let next = order.len();
            order.entry(row.get(0)?).or_insert(next);
            Ok(())
        })?;
        Ok(order)
    }

    pub(crate) fn attempted_cases(&self, cache: CacheState) -> Result<Vec<(CaseId, String)>, LedgerError> {
        let sql = "SELECT DISTINCT a.case_id, k.kernel FROM attempts a JOIN collections c USING (collection)
                   JOIN cases k USING (case_id) WHERE c.cache = ?1 ORDER BY a.case_id";
        self.read_rows(sql, [cache], fields)
    }

    /// Replaces attempts of a collection in one transaction. The run's verdict of a case is replaced as well if the replaced
    /// attempt had that verdict, and no other attempt of the run has it. A new attempt counts as the newest of its case.
    pub(crate) fn replace_attempts(
        &mut self,
        collection: &AttemptedCollection,
        changes: &[AttemptChange],
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            changes.iter().try_for_each(|change| replace_attempt(tx, collection, change))
        })
    }
}

fn read_collection(row: &Row<'_>) -> rusqlite::Result<AttemptedCollection> {
    let (collection, run, number, cache, archive, purpose, has_launches) = fields(row)?;
    Ok(AttemptedCollection { collection, run, number, cache, archive, purpose, has_launches })
}

pub(super) fn insert_case(tx: &Transaction<'_>, case: &IdentifiedCase) -> rusqlite::Result<()> {
    let sql = "INSERT INTO cases (case_id, kernel, signature) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    tx.prepare_cached(sql)?.execute(params![case.id(), case.kernel.as_str(), case.signature()])?;
    Ok(())
}

/// Stores an attempt with its launches, under a key of its own unless one is given; a second one for a case of the same
/// collection is left out.
fn insert_attempt(
    tx: &Transaction<'_>,
    collection: i64,
    case: &CaseId,
    key: Option<i64>,
    state: &AttemptState,
) -> rusqlite::Result<()> {
    let AttemptState { launched, launches, counters, task, cycle_rate, outcome, is_withdrawn } = state;
    let [cause, remarks] = outcome.reason.to_json();
    let rate = cycle_rate.map(|rate| rate.per_microsecond);
    let rate_error = cycle_rate.map(|rate| rate.error);
    let RecordedTask { state, core, operator } = task;
    let inserted = tx
        .prepare_cached(
            "INSERT INTO attempts (attempt, collection, case_id, launched, verdict, cause, remarks, counters, op_state, core,
                                   operator, cycle_rate, cycle_rate_error, is_withdrawn)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT (collection, case_id) DO NOTHING",
        )?
        .execute(params![
            key, collection, case, launched, outcome.verdict, cause, remarks, counters, state, core, operator, rate,
            rate_error, is_withdrawn,
        ])?;
    if inserted == 0 {
        return Ok(());
    }
    insert_launches(tx, tx.last_insert_rowid(), launches)
}

fn replace_attempt(
    tx: &Transaction<'_>,
    collection: &AttemptedCollection,
    change: &AttemptChange,
) -> rusqlite::Result<()> {
    let AttemptChange { case, before, after, new_case, .. } = change;
    new_case.iter().try_for_each(|case| insert_case(tx, case))?;
    let key = before.as_ref().map(|(key, _)| *key);
    if let Some(key) = key {
        tx.prepare_cached("DELETE FROM launch_lists WHERE attempt = ?1")?.execute([key])?;
        tx.prepare_cached("DELETE FROM attempts WHERE attempt = ?1")?.execute([key])?;
    }
    insert_attempt(tx, collection.collection, case, key, after)?;
    let Some((_, before)) = before else { return Ok(()) };
    let [cause, remarks] = after.outcome.reason.to_json();
    let [cause_before, remarks_before] = before.outcome.reason.to_json();
    let (verdict, verdict_before) = (after.outcome.verdict, before.outcome.verdict);
    tx.prepare_cached(
        "UPDATE verdicts SET verdict = ?6, cause = ?7, remarks = ?8
         WHERE run = ?1 AND case_id = ?2 AND verdict = ?3 AND cause = ?4 AND remarks = ?5
         AND NOT EXISTS (SELECT 1 FROM attempts a JOIN collections c USING (collection)
                         WHERE c.run = ?1 AND a.case_id = ?2 AND a.verdict = ?3 AND a.cause = ?4
                         AND a.remarks = ?5)",
    )?
    .execute(params![
        collection.run,
        case,
        verdict_before,
        cause_before,
        remarks_before,
        verdict,
        cause,
        remarks
    ])?;
    Ok(())
}
