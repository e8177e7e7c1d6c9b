//! Results of the vendor's checks of calls.

use std::collections::HashMap;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::{Ledger, LedgerError};
use crate::kernel::{CaseId, CheckOutcome, Nanos};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheck {
    pub digest: String,
    /// Versions of torch and torch_npu.
    pub software: String,
    #[serde(flatten)]
    pub outcome: CheckOutcome,
}

impl Ledger {
    /// Stores results, and replaces earlier ones: each has case, software, digest of the call and outcome.
    pub(crate) fn add_checks<'c>(
        &mut self,
        at: Nanos,
        checks: impl IntoIterator<Item = (&'c CaseId, &'c str, &'c str, &'c CheckOutcome)>,
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut insert = tx.prepare(
                "INSERT OR REPLACE INTO checks (case_id, digest, software, verdict, judge, message, at_ns) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            for (case, software, digest, CheckOutcome { verdict, by, message }) in checks {
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
