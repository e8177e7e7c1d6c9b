//! Results of the vendor's checks of calls.

use std::collections::HashMap;

use rusqlite::params;

use super::{Ledger, LedgerError};
use crate::kernel::{CaseId, CheckOutcome, Nanos};

/// Result to store.
#[derive(Clone, Debug)]
pub struct NewCheck<'a> {
    pub case: CaseId,
    /// Digest of the rendered call.
    pub digest: &'a str,
    pub outcome: &'a CheckOutcome,
}

/// Stored result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheck {
    /// Digest of the rendered call.
    pub digest: String,
    /// Versions of torch and torch_npu.
    pub software: String,
    pub outcome: CheckOutcome,
}

impl Ledger {
    /// Stores results and replaces earlier ones.
    pub fn add_checks(
        &mut self,
        software: &str,
        at: Nanos,
        checks: &[NewCheck<'_>],
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut insert = tx.prepare(
                "INSERT OR REPLACE INTO checks (case_id, digest, software, verdict, judge, message, at_ns) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            for NewCheck { case, digest, outcome: CheckOutcome { verdict, by, message } } in checks {
                let (verdict, by) = (verdict.as_str(), by.as_str());
                insert.execute(params![case.as_str(), digest, software, verdict, by, message, at.0])?;
            }
            Ok(())
        })
    }

    /// Returns all results, by case. Unknown verdicts and methods are skipped.
    pub fn stored_checks(&self) -> Result<HashMap<CaseId, StoredCheck>, LedgerError> {
        let sql = "SELECT case_id, digest, software, verdict, judge, message FROM checks";
        let rows: Vec<_> = self.read_rows(sql, [], |row| {
            let (verdict, by): (String, String) = (row.get(3)?, row.get(4)?);
            let (Ok(verdict), Ok(by)) = (verdict.parse(), by.parse()) else { return Ok(None) };
            let outcome = CheckOutcome { verdict, by, message: row.get(5)? };
            let check = StoredCheck { digest: row.get(1)?, software: row.get(2)?, outcome };
            Ok(Some((row.get(0)?, check)))
        })?;
        Ok(rows.into_iter().flatten().collect())
    }
}
