//! Results of the vendor's checks of calls.

use std::collections::HashMap;

use rusqlite::params;

use super::{Ledger, LedgerError};
use crate::domain::{CaseId, CheckOutcome, Nanos};

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
            for NewCheck { case, digest, outcome } in checks {
                let (verdict, by) = (outcome.verdict.as_str(), outcome.by.as_str());
                insert.execute(params![
                    case.as_str(),
                    digest,
                    software,
                    verdict,
                    by,
                    outcome.message,
                    at.0
                ])?;
            }
            Ok(())
        })
    }

    /// Returns all results, by case. Unknown verdicts and methods are skipped.
    pub fn stored_checks(&self) -> Result<HashMap<CaseId, StoredCheck>, LedgerError> {
        let error = self.sqlite_error();
        let read = || -> rusqlite::Result<HashMap<CaseId, StoredCheck>> {
            let mut query = self
                .connection
                .prepare("SELECT case_id, digest, software, verdict, judge, message FROM checks")?;
            let mut rows = query.query([])?;
            let mut checks = HashMap::new();
            while let Some(row) = rows.next()? {
                let (verdict, by): (String, String) = (row.get(3)?, row.get(4)?);
                let (Ok(verdict), Ok(by)) = (verdict.parse(), by.parse()) else { continue };
                let outcome = CheckOutcome { verdict, by, message: row.get(5)? };
                let check = StoredCheck { digest: row.get(1)?, software: row.get(2)?, outcome };
                checks.insert(CaseId::from_stored(row.get::<_, String>(0)?), check);
            }
            Ok(checks)
        };
        read().map_err(error)
    }
}
