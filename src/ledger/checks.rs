//! What the vendor's code said of calls.

use std::collections::HashMap;

use rusqlite::params;

use super::{Ledger, LedgerError};
use crate::domain::{CaseId, CheckOutcome, Nanos};

/// An outcome on its way into the ledger.
#[derive(Clone, Debug)]
pub struct NewCheck<'a> {
    /// The case.
    pub case: CaseId,
    /// Which call it was.
    pub digest: &'a str,
    /// What was said.
    pub outcome: &'a CheckOutcome,
}

/// What the ledger knows of one case's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheck {
    /// Which call it was.
    pub digest: String,
    /// Versions of torch and torch_npu.
    pub software: String,
    /// What was said.
    pub outcome: CheckOutcome,
}

impl Ledger {
    /// Writes down outcomes, in place of earlier ones.
    ///
    /// # Errors
    /// [`LedgerError::Sqlite`].
    pub fn add_checks(
        &mut self,
        software: &str,
        at: Nanos,
        checks: &[NewCheck<'_>],
    ) -> Result<(), LedgerError> {
        self.transaction(|tx| {
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

    /// Every outcome there is, by case. Words that this npubench does not know are passed over.
    ///
    /// # Errors
    /// [`LedgerError::Sqlite`].
    pub fn checks(&self) -> Result<HashMap<CaseId, StoredCheck>, LedgerError> {
        let error = self.error();
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
