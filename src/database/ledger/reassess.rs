//! Attempts of a collection as content that can be compared with another assessment of its evidence, and replaced by
//! it.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Transaction, params};

use super::{
    AttemptState, Ledger, LedgerError,
    attempts::{insert_attempt, insert_case},
    launch_lists::read_launches,
    outcomes::{parse_reason, parse_verdict},
    read_word,
};
use crate::{
    base::stats::CycleRate,
    kernel::{CacheState, CaseId, CaseOutcome, IdentifiedCase, RecordedTask},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptedCollection {
    pub(crate) collection: i64,
    pub(crate) run: String,
    pub(crate) number: u32,
    pub(crate) cache: CacheState,
    /// SHA-256 of the compressed evidence; `None` if it was not written.
    pub(crate) archive: Option<String>,
    pub(crate) has_launches: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredAttempt {
    pub(crate) attempt: i64,
    pub(crate) case: CaseId,
    pub(crate) kernel: String,
    pub(crate) state: AttemptState,
}

/// Another content of an attempt, or a new attempt.
#[derive(Clone, Debug)]
pub(crate) struct AttemptChange {
    pub(crate) case: CaseId,
    pub(crate) kernel: String,
    /// Key and content of the stored attempt; `None` for a new one.
    pub(crate) before: Option<(i64, AttemptState)>,
    pub(crate) after: AttemptState,
    /// Case of a new attempt, which the ledger may not have.
    pub(crate) new_case: Option<IdentifiedCase>,
}

impl Ledger {
    /// Returns the collections with attempts, of one run or of all, in their order.
    pub(crate) fn attempted_collections(
        &self,
        run: Option<&str>,
    ) -> Result<Vec<AttemptedCollection>, LedgerError> {
        let sql = "SELECT c.collection, c.run, c.number, c.archive, max(a.launched) > 0, c.cache
                   FROM collections c JOIN attempts a USING (collection)
                   WHERE ?1 IS NULL OR c.run = ?1 GROUP BY c.collection ORDER BY c.collection";
        self.read_rows(sql, [run], |row| {
            Ok(AttemptedCollection {
                collection: row.get(0)?,
                run: row.get(1)?,
                number: row.get(2)?,
                archive: row.get(3)?,
                has_launches: row.get(4)?,
                cache: read_word(row, 5)?,
            })
        })
    }

    /// Returns the ended collections with evidence, also those whose attempts are lost, in their order.
    pub(crate) fn archived_collections(&self) -> Result<Vec<AttemptedCollection>, LedgerError> {
        let sql = "SELECT collection, run, number, archive, cache FROM collections
                   WHERE archive IS NOT NULL AND ended_ns IS NOT NULL ORDER BY collection";
        self.read_rows(sql, [], |row| {
            Ok(AttemptedCollection {
                collection: row.get(0)?,
                run: row.get(1)?,
                number: row.get(2)?,
                archive: row.get(3)?,
                has_launches: true,
                cache: read_word(row, 4)?,
            })
        })
    }

    /// Returns the attempts of a collection, in their order.
    pub(crate) fn collection_attempts(&self, collection: i64) -> Result<Vec<StoredAttempt>, LedgerError> {
        let sql = "SELECT a.attempt, a.case_id, c.kernel, a.launched, a.verdict, a.cause, a.counters, a.op_state, a.core,
                          a.cycle_rate, a.cycle_rate_error, a.is_withdrawn, a.operator, l.states, l.start_ns, l.offsets_ns,
                          l.durations_ns, a.remarks
                   FROM attempts a JOIN cases c USING (case_id) LEFT JOIN launch_lists l USING (attempt) WHERE a.collection = ?1 ORDER BY a.attempt";
        self.read_rows(sql, [collection], |row| {
            let (rate, error): (Option<f64>, Option<f64>) = (row.get(9)?, row.get(10)?);
            let text = |column: usize| -> rusqlite::Result<&str> { Ok(row.get_ref(column)?.as_str()?) };
            let state = AttemptState {
                launched: row.get(3)?,
                launches: read_launches(row, 13)?,
                counters: row.get(6)?,
                task: RecordedTask { state: row.get(7)?, core: row.get(8)?, operator: row.get(12)? },
                cycle_rate: rate
                    .zip(error)
                    .map(|(per_microsecond, error)| CycleRate { per_microsecond, error }),
                outcome: CaseOutcome::new(parse_verdict(text(4)?)?, parse_reason(text(5)?, text(17)?)?),
                is_withdrawn: row.get(11)?,
            };
            let case: CaseId = row.get(1)?;
            Ok(StoredAttempt { attempt: row.get(0)?, case, kernel: row.get(2)?, state })
        })
    }

    /// Returns the ids of all planned cases.
    pub(crate) fn planned_cases(&self) -> Result<BTreeSet<CaseId>, LedgerError> {
        self.read_rows("SELECT DISTINCT case_id FROM planned", [], |row| row.get(0))
    }

    /// Returns the place of each planned case in the order of the first runs that have planned it.
    pub(crate) fn planned_order(&self) -> Result<BTreeMap<CaseId, usize>, LedgerError> {
        let sql =
            "SELECT p.case_id FROM planned p JOIN runs r USING (run) ORDER BY r.started_ns, r.run, p.ordinal";
        let planned: Vec<String> = self.read_rows(sql, [], |row| row.get(0))?;
        let mut order = BTreeMap::new();
        for case in planned {
            let next = order.len();
            order.entry(CaseId::from_stored(case)).or_insert(next);
        }
        Ok(order)
    }

    /// Returns the cases with attempts in one state of the cache, each with its kernel.
    pub(crate) fn attempted_cases(&self, cache: CacheState) -> Result<Vec<(CaseId, String)>, LedgerError> {
        let sql = "SELECT DISTINCT a.case_id, k.kernel FROM attempts a JOIN collections c USING (collection)
                   JOIN cases k USING (case_id) WHERE c.cache = ?1 ORDER BY a.case_id";
        self.read_rows(sql, [cache.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Replaces attempts of a collection in one transaction. A verdict of its run that was that of a replaced attempt,
    /// and of no other attempt of the run, becomes the new one. A new attempt counts as the newest of its case.
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

fn replace_attempt(
    tx: &Transaction<'_>,
    collection: &AttemptedCollection,
    change: &AttemptChange,
) -> rusqlite::Result<()> {
    let case = change.case.as_str();
    change.new_case.iter().try_for_each(|case| insert_case(tx, case))?;
    let key = change.before.as_ref().map(|(key, _)| *key);
    if let Some(key) = key {
        tx.prepare_cached("DELETE FROM launch_lists WHERE attempt = ?1")?.execute([key])?;
        tx.prepare_cached("DELETE FROM attempts WHERE attempt = ?1")?.execute([key])?;
    }
    insert_attempt(tx, collection.collection, &change.case, key, &change.after)?;
    let Some((_, before)) = &change.before else { return Ok(()) };
    let verdict = change.after.outcome.verdict;
    let [cause, remarks] = change.after.outcome.reason.to_json();
    let [cause_before, remarks_before] = before.outcome.reason.to_json();
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
        before.outcome.verdict.as_str(),
        cause_before,
        remarks_before,
        verdict.as_str(),
        cause,
        remarks,
    ])?;
    Ok(())
}
