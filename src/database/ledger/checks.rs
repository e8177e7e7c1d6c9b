//! Results of the vendor's checks of calls.

use std::collections::HashMap;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::{Ledger, LedgerError};
use crate::kernel::{CaseId, CheckOutcome, Nanos};

#[derive(Clone, Debug)]
pub struct NewCheck<'a> {
    pub case: CaseId,
    /// Digest of the rendered call.
    pub digest: &'a str,
    pub outcome: &'a CheckOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheck {
    pub digest: String,
    /// Versions of torch and torch_npu.
    pub software: String,
    #[serde(flatten)]
    pub outcome: CheckOutcome,
}

impl Ledger {
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
                insert.execute(params![case, digest, software, verdict, by, message, at])?;
            }
            Ok(())
        })
    }

    pub fn stored_checks(&self) -> Result<HashMap<CaseId, StoredCheck>, LedgerError> {
        let sql = "SELECT case_id, digest, software, verdict, judge, message FROM checks";
        self.read_rows(sql, [], |row| {
            let outcome = CheckOutcome { verdict: row.get(3)?, by: row.get(4)?, message: row.get(5)? };
            Ok((row.get(0)?, StoredCheck { digest: row.get(1)?, software: row.get(2)?, outcome }))
        })
    }
}
