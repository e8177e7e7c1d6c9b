//! Cycles per time of attempts, and attempts that are withdrawn because their clock was low.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Params, params};

use super::{
    Ledger, LedgerError, SAME_SOFTWARE, WITH_SAMPLES,
    values::{fields, read_outcome},
};
use crate::{
    base::stats::CycleRate,
    kernel::{CacheState, CaseId, CaseOutcome, Cause, Verdict, WithdrawnAttempts},
    profile::COUNTERS,
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredCycleRate {
    pub(crate) attempt: i64,
    pub(crate) case: CaseId,
    pub(crate) collection: i64,
    pub(crate) run: String,
    pub(crate) number: u32,
    pub(crate) device: u32,
    pub(crate) software: Option<String>,
    pub(crate) verdict: Verdict,
    pub(crate) rate: CycleRate,
    /// Mean cycles of all blocks in a launch; `None` without counters.
    pub(crate) cycles: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClockOfRun {
    pub(crate) run: String,
    pub(crate) device: u32,
    /// True for the state of the cache with which it is compared: hot and cold kernels differ in cycles per time.
    pub(crate) is_compared: bool,
}

/// An attempt of the same collection at a case with the same signature, but for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EqualAttempt {
    pub(crate) attempt: i64,
    pub(crate) case: CaseId,
    pub(crate) outcome: CaseOutcome,
    /// Kernel of the case whose launches may be shared.
    pub(crate) kernel: String,
}

impl Ledger {
    pub(crate) fn cycle_rates(&self, cache: CacheState) -> Result<Vec<StoredCycleRate>, LedgerError> {
        self.read_cycle_rates("c.cache = ?1", [cache])
    }

    pub(crate) fn cycle_rates_of_software(
        &self,
        collection: i64,
    ) -> Result<Vec<StoredCycleRate>, LedgerError> {
        self.read_cycle_rates(SAME_SOFTWARE, [collection])
    }

    fn read_cycle_rates(
        &self,
        condition: &str,
        parameters: impl Params,
    ) -> Result<Vec<StoredCycleRate>, LedgerError> {
        let counter = |name: &str| COUNTERS.iter().position(|counter| *counter == name).expect("a counter");
        let (cube, vector) = (counter("aic_total_cycles"), counter("aiv_total_cycles"));
        let sql = format!(
            "SELECT a.attempt, a.case_id, a.collection, c.run, c.number, c.device, c.software, a.verdict, a.cycle_rate,
                    a.cycle_rate_error,
                    iif(json_valid(a.counters), coalesce(json_extract(a.counters, '$[{cube}]'), 0)
                                                + coalesce(json_extract(a.counters, '$[{vector}]'), 0), 0.0)
             FROM attempts a JOIN collections c USING (collection)
             WHERE a.verdict IN ({WITH_SAMPLES}, 'throttled') AND a.cycle_rate IS NOT NULL
                   AND a.cycle_rate_error IS NOT NULL AND {condition} ORDER BY a.collection, a.attempt"
        );
        self.read_rows(&sql, parameters, |row| {
            let cycles: f64 = row.get(10)?;
            Ok(StoredCycleRate {
                attempt: row.get(0)?,
                case: row.get(1)?,
                collection: row.get(2)?,
                run: row.get(3)?,
                number: row.get(4)?,
                device: row.get(5)?,
                software: row.get(6)?,
                verdict: row.get(7)?,
                rate: CycleRate { per_microsecond: row.get(8)?, error: row.get(9)? },
                cycles: Some(cycles).filter(|cycles| *cycles > 0.0),
            })
        })
    }

    /// Returns the runs and devices with cycles per time of the software of a run's last collection that has them.
    pub(crate) fn clocks_of_software(&self, run: &str) -> Result<Vec<ClockOfRun>, LedgerError> {
        const WITH_CYCLES: &str = "EXISTS (SELECT 1 FROM attempts a WHERE a.collection = c.collection AND a.cycle_rate IS NOT NULL)";
        let sql = format!(
            "WITH last AS (SELECT c.software, c.cache FROM collections c WHERE c.run = ?1 AND {WITH_CYCLES}
                           ORDER BY c.collection DESC LIMIT 1)
             SELECT DISTINCT c.run, c.device, c.cache = last.cache
             FROM collections c JOIN last ON c.software IS last.software
             WHERE {WITH_CYCLES} ORDER BY 1, 2, 3"
        );
        self.read_rows(&sql, [run], |row| {
            let (run, device, is_compared) = fields(row)?;
            Ok(ClockOfRun { run, device, is_compared })
        })
    }

    pub(crate) fn count_attempts_with(&self, run: &str, remark: &Cause) -> Result<u32, LedgerError> {
        let sql = "SELECT count(*) FROM attempts a JOIN collections c USING (collection)
                   WHERE c.run = ?1
                   AND EXISTS (SELECT 1 FROM json_each(a.remarks) WHERE value ->> 'cause' = ?2)";
        Ok(self.read_first(sql, [run, remark.name()])?.unwrap_or_default())
    }

    pub(crate) fn withdraw_attempts(&mut self, withdrawn: &[(i64, CaseOutcome)]) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut update = tx.prepare(
                "UPDATE attempts SET verdict = ?2, cause = ?3, remarks = ?4, is_withdrawn = 1 WHERE attempt = ?1",
            )?;
            for (attempt, CaseOutcome { verdict, reason }) in withdrawn {
                let [cause, remarks] = reason.to_json();
                update.execute(params![attempt, verdict, cause, remarks])?;
            }
            Ok(())
        })
    }

    /// Returns the withdrawn attempts of each case, or of one case, that has some in this state of the cache, with the runs of
    /// all its attempts from the first withdrawn one on.
    pub(crate) fn withdrawn_attempts(
        &self,
        cache: CacheState,
        case: Option<&CaseId>,
    ) -> Result<BTreeMap<CaseId, WithdrawnAttempts>, LedgerError> {
        let condition = match case {
            Some(_) => "a.case_id = ?2",
            None => "?2 IS NULL AND a.case_id IN (SELECT case_id FROM attempts WHERE is_withdrawn)",
        };
        let sql = format!(
            "SELECT a.case_id, c.run, a.is_withdrawn, a.verdict, a.cause, a.remarks
             FROM attempts a JOIN collections c USING (collection)
             WHERE c.cache = ?1 AND {condition} ORDER BY a.attempt"
        );
        let mut by_case: BTreeMap<CaseId, WithdrawnAttempts> = BTreeMap::new();
        self.visit_rows(&sql, params![cache, case], |row| {
            let (case, run): (CaseId, String) = (row.get(0)?, row.get(1)?);
            let outcome = if row.get(2)? { Some(read_outcome(row, 3)?) } else { None };
            if let Some(found) = by_case.get_mut(&case) {
                found.runs.insert(run.clone());
                if let Some(outcome) = outcome {
                    (found.last_run, found.outcome) = (run, outcome);
                }
            } else if let Some(outcome) = outcome {
                let runs = BTreeSet::from([run.clone()]);
                by_case.insert(case, WithdrawnAttempts { runs, last_run: run, outcome });
            }
            Ok(())
        })?;
        Ok(by_case)
    }

    /// Returns true if a case has a measurement that counts: its own, or one of the kernel as which it ran.
    pub(crate) fn has_measurement(&self, case: &CaseId, cache: CacheState) -> Result<bool, LedgerError> {
        let sql = format!("SELECT 1 FROM attempts a JOIN collections c USING (collection)
                   WHERE a.case_id = ?1 AND c.cache = ?2 AND a.verdict IN ({WITH_SAMPLES}, 'ran_as_other') LIMIT 1");
        Ok(self.read_first::<i64>(&sql, params![case, cache])?.is_some())
    }

    /// Returns the accepted attempts of the same collection at cases with the signature of an attempt's case, but for
    /// the kernel: those that share its launches, and those that ran as another kernel.
    pub(crate) fn attempts_of_same_signature(&self, attempt: i64) -> Result<Vec<EqualAttempt>, LedgerError> {
        let sql = format!(
            "SELECT other.attempt, other.case_id, other.verdict, other.cause, other.remarks, own_case.kernel
                   FROM attempts own JOIN cases own_case USING (case_id)
                   JOIN attempts other ON other.collection = own.collection AND other.attempt <> own.attempt
                   JOIN cases other_case ON other_case.case_id = other.case_id
                   WHERE own.attempt = ?1
                   AND substr(own_case.signature, length(own_case.kernel) + 1)
                       = substr(other_case.signature, length(other_case.kernel) + 1)
                   AND (other.verdict = 'ran_as_other'
                        OR (other.verdict IN ({WITH_SAMPLES}) AND other.cycle_rate = own.cycle_rate
                            AND other.cycle_rate_error = own.cycle_rate_error))"
        );
        self.read_rows(&sql, [attempt], |row| {
            Ok(EqualAttempt {
                attempt: row.get(0)?,
                case: row.get(1)?,
                outcome: read_outcome(row, 2)?,
                kernel: row.get(5)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_a_software_are_those_of_its_collections() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        let ledger = Ledger::open(&path).expect("created");
        let rows = "INSERT INTO runs VALUES ('r', 'npu', 1, '{}', '{}', 1, NULL, NULL);
                    INSERT INTO software VALUES ('old', '{}'), ('new', '{}');
                    INSERT INTO cases VALUES ('00000000000000aa', 'Add', 's');
                    INSERT INTO collections (collection, run, number, device, started_ns, software, cache) VALUES
                    (1, 'r', 1, 0, 1, 'old', 'hot'), (2, 'r', 2, 0, 1, NULL, 'hot'), (3, 'r', 3, 0, 1, 'new', 'hot'),
                    (4, 'r', 4, 0, 1, 'old', 'hot'), (5, 'r', 5, 0, 1, NULL, 'hot'), (6, 'r', 6, 0, 1, 'old', 'cold');
                    INSERT INTO attempts (collection, case_id, launched, verdict, cause, remarks, counters, cycle_rate, cycle_rate_error)
                    SELECT collection, '00000000000000aa', 1, 'ok', '{}', '[]', '[]', 1700.0, 0.001 FROM collections;";
        rusqlite::Connection::open(&path).and_then(|opened| opened.execute_batch(rows)).expect("rows");
        let collections = |rates: Result<Vec<StoredCycleRate>, LedgerError>| {
            rates.expect("rates").iter().map(|stored| stored.collection).collect::<Vec<_>>()
        };
        assert_eq!(collections(ledger.cycle_rates(CacheState::Hot)), [1, 2, 3, 4, 5]);
        let clock = |is_compared: bool| ClockOfRun { run: "r".to_owned(), device: 0, is_compared };
        assert_eq!(ledger.clocks_of_software("r").expect("clocks"), [clock(false), clock(true)]);
        assert_eq!(ledger.clocks_of_software("other").expect("clocks"), []);
        for (collection, same) in
            [(1, vec![1, 4]), (2, vec![2, 5]), (3, vec![3]), (4, vec![1, 4]), (6, vec![6])]
        {
            assert_eq!(collections(ledger.cycle_rates_of_software(collection)), same);
        }
    }
}
