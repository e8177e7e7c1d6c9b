//! Queries of the measurements behind rows.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Row, params, types::ValueRef};

use super::{
    DeviceReading, Ledger, LedgerError, WITH_SAMPLES,
    launch_lists::read_launches,
    values::{Json, fields, read_cycle_rate, read_devices, read_outcome},
};
use crate::{
    base::stats::CycleRate,
    kernel::{CacheState, CaseId, CaseOutcome, Launch, Nanos, RecordedTask, SoftwareFingerprint, Verdict},
};

/// State of the cache of a run `r`, by its options: a run measures one.
const RUN_CACHE: &str =
    "CASE WHEN json_valid(r.options) THEN coalesce(json_extract(r.options, '$.cache'), 'hot') ELSE 'hot' END";

pub(super) const READINGS_DURING: &str =
    "SELECT device, at_ns, health, temperature_c, power_w, memory_used_mb FROM device_readings
     WHERE run = ?1 AND device = ?2 AND at_ns <= ?4 AND at_ns >= coalesce((SELECT max(at_ns)
     FROM device_readings WHERE run = ?1 AND device = ?2 AND at_ns <= ?3), ?3) ORDER BY at_ns";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownCase {
    pub(crate) case: CaseId,
    pub(crate) kernel: String,
    pub(crate) signature: String,
}

#[derive(Clone, Debug)]
pub(crate) struct CaseAttempt {
    pub(crate) run: String,
    pub(crate) collection: u32,
    pub(crate) devices: Vec<u32>,
    pub(crate) cache: CacheState,
    pub(crate) started: Nanos,
    pub(crate) ended: Option<Nanos>,
    pub(crate) outcome: CaseOutcome,
    pub(crate) launched: u32,
    /// Cycles per block and microsecond of the accepted launches.
    pub(crate) cycle_rate: Option<CycleRate>,
    pub(crate) software: Option<SoftwareFingerprint>,
    pub(crate) task: RecordedTask,
    pub(crate) archive: Option<String>,
    pub(crate) launches: Vec<Launch>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedVerdict {
    pub(crate) run: String,
    pub(crate) cache: CacheState,
    pub(crate) started: Nanos,
    /// `None` while the case is open, and in a run that was killed.
    pub(crate) outcome: Option<CaseOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedAttempt {
    pub(crate) outcome: CaseOutcome,
    pub(crate) is_withdrawn: bool,
}

impl Ledger {
    pub(crate) fn run_ids(&self) -> Result<BTreeSet<String>, LedgerError> {
        self.read_column("SELECT run FROM runs", [])
    }

    pub(crate) fn has_collections(&self, cache: CacheState) -> Result<bool, LedgerError> {
        Ok(self.read_first::<i64>("SELECT 1 FROM collections WHERE cache = ?1 LIMIT 1", [cache])?.is_some())
    }

    /// Returns true if the run of the newest collection has not ended, so that rows may lack results of the ledger.
    pub(crate) fn has_unfinished_run(&self) -> Result<bool, LedgerError> {
        let sql = "SELECT r.ended_ns IS NULL FROM collections c JOIN runs r USING (run)
                   ORDER BY c.collection DESC LIMIT 1";
        Ok(self.read_first(sql, [])?.unwrap_or_default())
    }

    /// Returns run, case and verdict of the cases without accepted samples in one state of the cache: of the case in the run, and
    /// of its attempts. `unsampled` are the cases without accepted samples that have attempts with a measurement; of other cases,
    /// a verdict with samples is left out.
    pub(crate) fn verdicts_without_samples<'c>(
        &self,
        cache: CacheState,
        has_samples: impl Fn(&CaseId) -> bool,
        unsampled: impl Iterator<Item = &'c CaseId>,
    ) -> Result<BTreeSet<(String, CaseId, String)>, LedgerError> {
        let unsampled = Json(unsampled.collect::<Vec<_>>());
        let condition =
            format!("(verdict NOT IN ({WITH_SAMPLES}) OR case_id IN (SELECT value FROM json_each(?2)))");
        let of_runs = format!(
            "SELECT run, case_id, verdict FROM verdicts
             WHERE run IN (SELECT run FROM runs r WHERE {RUN_CACHE} = ?1) AND {condition}"
        );
        let of_attempts = format!(
            "SELECT c.run, case_id, verdict FROM attempts a NOT INDEXED CROSS JOIN collections c USING (collection)
             WHERE c.cache = ?1 AND {condition}"
        );
        let mut found = BTreeSet::new();
        for sql in [of_runs, of_attempts] {
            self.visit_rows(&sql, params![cache, unsampled], |row| {
                let case = row.get(1)?;
                if !has_samples(&case) {
                    found.insert((row.get(0)?, case, row.get(2)?));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Returns the newest launched attempt without an accepted result of each case, in one run or in all.
    pub(crate) fn newest_failures(
        &self,
        run: Option<&str>,
        cache: CacheState,
    ) -> Result<BTreeMap<CaseId, FailedAttempt>, LedgerError> {
        let sql = format!(
            "SELECT a.case_id, a.verdict, a.cause, a.remarks, a.is_withdrawn
                   FROM attempts a JOIN collections c USING (collection)
                   WHERE c.cache = ?1 AND (?2 IS NULL OR c.run = ?2) AND a.launched > 0
                   AND a.verdict NOT IN ({WITH_SAMPLES}, '{ran_as_other}') ORDER BY a.attempt",
            ran_as_other = Verdict::RanAsOther
        );
        self.read_rows(&sql, params![cache, run], |row| {
            let attempt = FailedAttempt { outcome: read_outcome(row, 1)?, is_withdrawn: row.get(4)? };
            Ok((row.get(0)?, attempt))
        })
    }

    pub(crate) fn cases_with_prefix(&self, prefix: &str) -> Result<Vec<KnownCase>, LedgerError> {
        let sql = "SELECT case_id, kernel, signature FROM cases NOT INDEXED WHERE substr(case_id, 1, length(?1)) = ?1
                   ORDER BY case_id";
        self.read_rows(sql, [prefix], |row| {
            let (case, kernel, signature) = fields(row)?;
            Ok(KnownCase { case, kernel, signature })
        })
    }

    /// Visits case, kernel and signature of all cases: the texts of 100,000 cases need 20 MB.
    pub(crate) fn for_each_case(&self, mut visit: impl FnMut(CaseId, &str, &str)) -> Result<(), LedgerError> {
        self.visit_rows("SELECT case_id, kernel, signature FROM cases NOT INDEXED", [], |row| {
            visit(row.get(0)?, row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
            Ok(())
        })
    }

    pub(crate) fn attempt_cases(&self) -> Result<Vec<(CaseId, bool)>, LedgerError> {
        let sql = format!("SELECT case_id, verdict IN ({WITH_SAMPLES}) FROM attempts NOT INDEXED");
        self.read_rows(&sql, [], fields)
    }

    pub(crate) fn case_attempts(&self, case: &CaseId) -> Result<Vec<CaseAttempt>, LedgerError> {
        let sql =
            "SELECT c.run, c.number, c.device, c.gang, c.cache, c.started_ns, c.ended_ns, a.verdict, a.cause, a.remarks,
                    a.launched, a.cycle_rate, a.cycle_rate_error, s.fingerprint, a.op_state, a.core, a.operator, c.archive,
                    l.states, l.start_ns, l.offsets_ns, l.durations_ns
             FROM attempts a JOIN collections c USING (collection) LEFT JOIN software s ON s.digest = c.software
             LEFT JOIN launch_lists l USING (attempt) WHERE a.case_id = ?1 ORDER BY a.attempt";
        self.read_rows(sql, [case], |row| {
            Ok(CaseAttempt {
                run: row.get(0)?,
                collection: row.get(1)?,
                devices: read_devices(row, 2)?,
                cache: row.get(4)?,
                started: row.get(5)?,
                ended: row.get(6)?,
                outcome: read_outcome(row, 7)?,
                launched: row.get(10)?,
                cycle_rate: read_cycle_rate(row, 11)?,
                software: row.get::<_, Option<Json<_>>>(13)?.map(|Json(software)| software),
                task: RecordedTask { state: row.get(14)?, core: row.get(15)?, operator: row.get(16)? },
                archive: row.get(17)?,
                launches: read_launches(row, 18)?,
            })
        })
    }

    pub(crate) fn planned_verdicts(&self, case: &CaseId) -> Result<Vec<PlannedVerdict>, LedgerError> {
        let sql = format!(
            "SELECT r.run, {RUN_CACHE}, r.started_ns, v.verdict, v.cause, v.remarks FROM planned p JOIN runs r USING (run)
             LEFT JOIN verdicts v ON v.run = p.run AND v.case_id = p.case_id
             WHERE p.case_id = ?1 ORDER BY r.started_ns, r.run"
        );
        self.read_rows(&sql, [case], |row| {
            let has_verdict = row.get_ref(3)? != ValueRef::Null;
            let outcome = has_verdict.then(|| read_outcome(row, 3)).transpose()?;
            Ok(PlannedVerdict { run: row.get(0)?, cache: row.get(1)?, started: row.get(2)?, outcome })
        })
    }

    /// Returns the newest verdict of each planned case that its row shows without a measurement, with its run.
    pub(crate) fn newest_row_verdicts(
        &self,
        cache: CacheState,
    ) -> Result<BTreeMap<CaseId, (String, CaseOutcome)>, LedgerError> {
        let sql = format!(
            "SELECT v.case_id, r.run, v.verdict, v.cause, v.remarks FROM verdicts v JOIN runs r USING (run)
             JOIN planned p ON p.run = v.run AND p.case_id = v.case_id
             WHERE {RUN_CACHE} = ?1 ORDER BY r.started_ns, r.run"
        );
        let mut newest = BTreeMap::new();
        self.visit_rows(&sql, [cache], |row| {
            let outcome = read_outcome(row, 2)?;
            if !outcome.verdict.keeps_the_row() {
                newest.insert(row.get::<_, CaseId>(0)?, (row.get(1)?, outcome));
            }
            Ok(())
        })?;
        Ok(newest)
    }

    pub(crate) fn run_readings(&self, run: &str) -> Result<Vec<DeviceReading>, LedgerError> {
        let sql = "SELECT device, at_ns, health, temperature_c, power_w, memory_used_mb FROM device_readings
                   WHERE run = ?1 ORDER BY at_ns";
        self.read_rows(sql, [run], read_reading)
    }

    /// Returns the readings of devices from some time before a collection to its end; the last one before it counts, because
    /// sensors are read every few seconds.
    pub(crate) fn readings_during(
        &self,
        run: &str,
        devices: &[u32],
        start: Nanos,
        end: Nanos,
    ) -> Result<Vec<DeviceReading>, LedgerError> {
        let mut readings = Vec::new();
        for device in devices {
            let parameters = params![run, device, start, end];
            readings.extend(self.read_rows::<_, Vec<_>>(READINGS_DURING, parameters, read_reading)?);
        }
        Ok(readings)
    }
}

fn read_reading(row: &Row<'_>) -> rusqlite::Result<DeviceReading> {
    let (device, at, health, temperature, power, memory) = fields(row)?;
    let memory_used_mb = Option::map(memory, i64::cast_unsigned);
    Ok(DeviceReading { device, at, health, temperature, power, memory_used_mb })
}
