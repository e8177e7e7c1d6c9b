//! Cycles per time of attempts, and attempts that are withdrawn because their clock was low.

use std::collections::BTreeSet;

use rusqlite::params;

use super::{Ledger, LedgerError};
use crate::{
    domain::{CaseId, CaseOutcome, Verdict},
    stats::CycleRate,
};

/// Cycles per time of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredCycleRate {
    /// Key of the attempt.
    pub(crate) attempt: i64,
    pub(crate) case: CaseId,
    /// Key of the collection in the ledger.
    pub(crate) collection: i64,
    pub(crate) run: String,
    /// Number of the collection in its run.
    pub(crate) number: u32,
    pub(crate) device: u32,
    /// Digest of the collection's software; `None` for collections of versions that did not record it.
    pub(crate) software: Option<String>,
    pub(crate) verdict: Verdict,
    pub(crate) rate: CycleRate,
}

impl Ledger {
    /// Returns the cycles per time of all attempts with recorded launches, in the order of collections and launches.
    pub(crate) fn cycle_rates(&self) -> Result<Vec<StoredCycleRate>, LedgerError> {
        let sql =
            "SELECT a.attempt, a.case_id, a.collection, c.run, c.number, c.device, c.software, a.verdict,
                          a.cycle_rate, a.cycle_rate_error
                   FROM attempts a JOIN collections c USING (collection)
                   WHERE a.verdict IN ('ok', 'noisy', 'throttled') AND a.cycle_rate IS NOT NULL
                         AND a.cycle_rate_error IS NOT NULL ORDER BY a.collection, a.attempt";
        self.read_rows(sql, [], |row| {
            Ok(StoredCycleRate {
                attempt: row.get(0)?,
                case: CaseId::from_stored(row.get::<_, String>(1)?),
                collection: row.get(2)?,
                run: row.get(3)?,
                number: row.get(4)?,
                device: row.get(5)?,
                software: row.get(6)?,
                verdict: row.get::<_, String>(7)?.parse().unwrap_or(Verdict::Noisy),
                rate: CycleRate { per_microsecond: row.get(8)?, error: row.get(9)? },
            })
        })
    }

    /// Replaces the outcomes of attempts that were accepted: their samples do not count any more.
    pub(crate) fn withdraw_attempts(&mut self, withdrawn: &[(i64, CaseOutcome)]) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut update = tx.prepare(
                "UPDATE attempts SET verdict = ?2, reason = ?3, is_withdrawn = 1 WHERE attempt = ?1",
            )?;
            for (attempt, CaseOutcome { verdict, reason }) in withdrawn {
                update.execute(params![attempt, verdict.as_str(), reason])?;
            }
            Ok(())
        })
    }

    /// Returns the cases with a withdrawn attempt.
    pub(crate) fn withdrawn_cases(&self) -> Result<BTreeSet<CaseId>, LedgerError> {
        let sql = "SELECT DISTINCT case_id FROM attempts WHERE is_withdrawn";
        self.read_rows(sql, [], |row| Ok(CaseId::from_stored(row.get::<_, String>(0)?)))
    }

    /// Returns true if an attempt at the case was withdrawn, so that its row may show numbers that do not count any more.
    pub(crate) fn has_withdrawn_attempt(&self, case: &CaseId) -> Result<bool, LedgerError> {
        let sql = "SELECT 1 FROM attempts WHERE case_id = ?1 AND is_withdrawn LIMIT 1";
        let found: Vec<i64> = self.read_rows(sql, [case.as_str()], |row| row.get(0))?;
        Ok(!found.is_empty())
    }
}
