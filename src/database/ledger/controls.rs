//! Readings of the control kernels of collections.

use rusqlite::{Params, params};

use super::{
    Ledger, LedgerError, SAME_SOFTWARE,
    values::{Json, read_cycle_rate},
};
use crate::kernel::{CacheState, ControlReading};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredControl {
    pub(crate) collection: i64,
    pub(crate) run: String,
    pub(crate) number: u32,
    pub(crate) software: Option<String>,
    pub(crate) reading: ControlReading,
}

impl Ledger {
    pub(crate) fn set_controls(
        &mut self,
        collection: i64,
        readings: &[ControlReading],
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            tx.prepare_cached("DELETE FROM controls WHERE collection = ?1")?.execute([collection])?;
            let mut insert = tx.prepare_cached(
                "INSERT INTO controls (collection, device, control, position, kernel, durations_ns, cycle_rate, cycle_rate_error)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?;
            for ControlReading { control, end, device, kernel, durations, cycle_rate } in readings {
                let rate = cycle_rate.map(|rate| rate.per_microsecond);
                let error = cycle_rate.map(|rate| rate.error);
                let durations = Json(durations);
                insert.execute(params![collection, device, control, end, kernel, durations, rate, error])?;
            }
            Ok(())
        })
    }

    pub(crate) fn controls(&self, collection: i64) -> Result<Vec<ControlReading>, LedgerError> {
        let stored = self.read_controls("o.collection = ?1", [collection])?;
        Ok(stored.into_iter().map(|stored| stored.reading).collect())
    }

    pub(crate) fn all_controls(&self, cache: CacheState) -> Result<Vec<StoredControl>, LedgerError> {
        self.read_controls("c.cache = ?1", [cache])
    }

    pub(crate) fn controls_of_software(&self, collection: i64) -> Result<Vec<StoredControl>, LedgerError> {
        self.read_controls(SAME_SOFTWARE, [collection])
    }

    fn read_controls(
        &self,
        condition: &str,
        parameters: impl Params,
    ) -> Result<Vec<StoredControl>, LedgerError> {
        let sql = format!(
            "SELECT o.collection, c.run, c.number, c.software, o.control, o.position, o.device, o.kernel, o.durations_ns,
                    o.cycle_rate, o.cycle_rate_error
             FROM controls o JOIN collections c USING (collection) WHERE {condition}
             ORDER BY o.collection, o.device, o.control, o.position"
        );
        self.read_rows(&sql, parameters, |row| {
            let Json(durations) = row.get(8)?;
            let reading = ControlReading {
                control: row.get(4)?,
                end: row.get(5)?,
                device: row.get(6)?,
                kernel: row.get(7)?,
                durations,
                cycle_rate: read_cycle_rate(row, 9)?,
            };
            let (collection, run, number, software) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(StoredControl { collection, run, number, software, reading })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::stats::CycleRate,
        kernel::{CollectionEnd, ControlKernel},
    };

    #[test]
    fn readings_of_a_collection_are_stored_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        let rows = "INSERT INTO runs VALUES ('r', 'npu', 1, '{}', '{}', 1, NULL, NULL);
                    INSERT INTO collections (collection, run, number, device, started_ns) VALUES (1, 'r', 1, 5, 1);";
        let mut ledger = Ledger::open(&path).expect("created");
        ledger.connection.execute_batch(rows).expect("rows");
        let reading = |end, duration: i64| ControlReading {
            control: ControlKernel::Matmul,
            end,
            device: 5,
            kernel: "MatMulV2".to_owned(),
            durations: vec![duration; 3],
            cycle_rate: Some(CycleRate { per_microsecond: 1650.0, error: 0.001 }),
        };
        let first = [reading(CollectionEnd::Begin, 500), reading(CollectionEnd::End, 510)];
        ledger.set_controls(1, &first).expect("stored");
        assert_eq!(ledger.controls(1).expect("read"), first);
        ledger.set_controls(1, &first[..1]).expect("replaced");
        let all = ledger.all_controls(CacheState::Hot).expect("read");
        assert_eq!(all.iter().map(|stored| &stored.reading).collect::<Vec<_>>(), [&first[0]]);
        assert_eq!((all[0].run.as_str(), all[0].number, &all[0].software), ("r", 1, &None));
        assert_eq!(ledger.controls_of_software(1).expect("read"), all);
        let rows = "INSERT INTO software VALUES ('new', '{}');
                    INSERT INTO collections (collection, run, number, device, started_ns, software, cache)
                    VALUES (2, 'r', 2, 5, 1, NULL, 'cold'), (3, 'r', 3, 5, 1, 'new', 'hot'), (4, 'r', 4, 5, 1, NULL, 'hot');";
        ledger.connection.execute_batch(rows).expect("rows");
        for collection in [2, 3, 4] {
            ledger.set_controls(collection, &first).expect("stored");
        }
        let collections = |collection: i64| {
            let read = ledger.controls_of_software(collection).expect("read");
            read.iter().map(|stored| stored.collection).collect::<Vec<_>>()
        };
        assert_eq!(collections(1), [1, 4, 4]);
        assert_eq!(collections(2), [2; 2]);
        assert_eq!(collections(3), [3; 2]);
    }
}
