//! Queries of runs, for reports and for resumed runs.
//!
//! The ids of cases are digests, so that their order in an index visits pages at random. The queries of all cases of a run select
//! row ids first, then read the rows in the order of the pages.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rusqlite::params;
use serde::Serialize;

use super::{
    Ledger, LedgerError, WITH_SAMPLES,
    launch_lists::read_samples,
    values::{fields, read_devices, read_outcome},
};
use crate::{
    base::{stats::SampleSummary, suggest::truncate_for_message},
    kernel::{CacheState, CaseId, CaseOutcome, CollectionPurpose, KernelName, Nanos, Verdict, is_run_id},
};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRecord {
    pub run: String,
    /// `npu` or `rehearsal`.
    pub kind: String,
    pub seed: u64,
    #[serde(skip)]
    pub options: String,
    #[serde(rename = "started_ns")]
    pub started: Nanos,
    /// End time; `None` if it is running or was killed.
    #[serde(rename = "ended_ns")]
    pub ended: Option<Nanos>,
    pub exit: Option<i64>,
    pub planned: usize,
    pub verdicts: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CollectionRecord {
    pub number: u32,
    pub devices: Vec<u32>,
    pub purpose: CollectionPurpose,
    /// Predicted duration in seconds.
    pub predicted: Option<f64>,
    pub started: Nanos,
    pub ended: Option<Nanos>,
    pub outcome: Option<String>,
    pub cases: Vec<CaseId>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CaseRecord {
    pub case: CaseId,
    pub kernel: KernelName,
    pub signature: String,
    pub outcome: Option<CaseOutcome>,
    pub concluded: Option<Nanos>,
    pub attempts: Vec<AttemptRecord>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    pub collection: u32,
    /// Device of the collection; for a gang, its first device.
    pub device: u32,
    pub outcome: CaseOutcome,
}

impl Ledger {
    pub(crate) fn measuring_devices(
        &self,
        cache: CacheState,
    ) -> Result<BTreeMap<CaseId, Vec<u32>>, LedgerError> {
        let sql = format!(
            "SELECT a.case_id, c.device FROM attempts a JOIN collections c USING (collection)
                   WHERE c.cache = ?1 AND a.verdict IN ({WITH_SAMPLES}) ORDER BY a.attempt"
        );
        let mut devices: BTreeMap<CaseId, Vec<u32>> = BTreeMap::new();
        self.visit_rows(&sql, [cache], |row| {
            devices.entry(row.get(0)?).or_default().push(row.get(1)?);
            Ok(())
        })?;
        Ok(devices)
    }

    pub(super) fn check_run_ids(self) -> Result<Self, LedgerError> {
        let runs: Vec<String> =
            self.read_column("SELECT run FROM runs UNION SELECT run FROM collections", [])?;
        match runs.into_iter().find(|run| !is_run_id(run)) {
            Some(run) => Err(LedgerError::InvalidRunId { path: self.path, run: truncate_for_message(&run) }),
            None => Ok(self),
        }
    }

    pub fn list_runs(&self) -> Result<Vec<RunRecord>, LedgerError> {
        let sql = "SELECT r.run, r.kind, r.seed, r.options, r.started_ns, r.ended_ns, r.exit_code,
                          (SELECT count(*) FROM planned p WHERE p.run = r.run)
                   FROM runs r ORDER BY r.started_ns, r.run";
        let mut runs: Vec<RunRecord> = self.read_rows(sql, [], |row| {
            let (run, kind, seed, options, started, ended, exit, planned) = fields(row)?;
            let (seed, verdicts) = (i64::cast_unsigned(seed), BTreeMap::new());
            let planned: u32 = planned;
            let planned = planned as usize;
            Ok(RunRecord { run, kind, seed, options, started, ended, exit, planned, verdicts })
        })?;
        let sql = "SELECT verdict, count(*) FROM verdicts
                   WHERE rowid IN (SELECT rowid FROM verdicts WHERE run = ?1) GROUP BY verdict";
        for run in &mut runs {
            run.verdicts =
                self.read_rows(sql, [&run.run], |row| Ok((row.get(0)?, row.get::<_, u32>(1)? as usize)))?;
        }
        Ok(runs)
    }

    pub(crate) fn newest_measured_run(&self, cache: CacheState) -> Result<Option<String>, LedgerError> {
        let sql = format!(
            "SELECT c.run FROM attempts a JOIN collections c USING (collection) JOIN runs r USING (run)
             WHERE c.cache = ?1 AND a.verdict IN ({WITH_SAMPLES})
             ORDER BY r.started_ns DESC, r.run DESC LIMIT 1"
        );
        self.read_first(&sql, [cache])
    }

    pub(crate) fn collection_runs(&self) -> Result<BTreeMap<i64, String>, LedgerError> {
        self.read_rows("SELECT collection, run FROM collections", [], fields)
    }

    pub(crate) fn run_hosts(&self) -> Result<BTreeMap<String, String>, LedgerError> {
        self.read_rows("SELECT run, host ->> 'host' FROM runs WHERE host ->> 'host' IS NOT NULL", [], fields)
    }

    /// Returns the name of the host of each collection. It is empty for all where each run has another one: containers have a
    /// name of their own in each run, so that hosts cannot be separated from runs.
    pub(crate) fn collection_hosts(&self) -> Result<BTreeMap<i64, String>, LedgerError> {
        let (runs, hosts) = (self.collection_runs()?, self.run_hosts()?);
        let used: BTreeSet<&String> = runs.values().collect();
        let names: BTreeSet<&str> =
            used.iter().map(|run| hosts.get(*run).map_or("", String::as_str)).collect();
        let is_separable = names.len() < used.len();
        let host = |run: &String| hosts.get(run).filter(|_| is_separable).cloned().unwrap_or_default();
        Ok(runs.iter().map(|(collection, run)| (*collection, host(run))).collect())
    }

    pub fn run_collections(&self, run: &str) -> Result<Vec<CollectionRecord>, LedgerError> {
        let sql =
            "SELECT number, device, gang, purpose, predicted_s, started_ns, ended_ns, outcome, collection
                   FROM collections WHERE run = ?1 ORDER BY number";
        let mut collections: Vec<(i64, CollectionRecord)> = self.read_rows(sql, [run], |row| {
            let collection = CollectionRecord {
                number: row.get(0)?,
                devices: read_devices(row, 1)?,
                purpose: row.get(3)?,
                predicted: row.get(4)?,
                started: row.get(5)?,
                ended: row.get(6)?,
                outcome: row.get(7)?,
                cases: Vec::new(),
            };
            Ok((row.get(8)?, collection))
        })?;
        let sql = "SELECT case_id FROM attempts WHERE collection = ?1 ORDER BY attempt";
        for (key, collection) in &mut collections {
            collection.cases = self.read_column(sql, [*key])?;
        }
        Ok(collections.into_iter().map(|(_, collection)| collection).collect())
    }

    pub fn run_cases(&self, run: &str) -> Result<Vec<CaseRecord>, LedgerError> {
        let mut attempts = self.run_attempts(run)?;
        let sql = "SELECT case_id, verdict, cause, remarks, at_ns FROM verdicts
                   WHERE rowid IN (SELECT rowid FROM verdicts WHERE run = ?1)";
        let mut verdicts: HashMap<CaseId, (Nanos, CaseOutcome)> =
            self.read_rows(sql, [run], |row| Ok((row.get(0)?, (row.get(4)?, read_outcome(row, 1)?))))?;
        let sql = "SELECT case_id, kernel, signature FROM cases WHERE rowid IN
                       (SELECT c.rowid FROM planned p JOIN cases c USING (case_id) WHERE p.run = ?1)";
        let mut cases: Vec<CaseRecord> = self.read_rows(sql, [run], |row| {
            let (case, kernel, signature): (CaseId, _, _) = fields(row)?;
            let (concluded, outcome) = verdicts.remove(&case).unzip();
            let attempts = attempts.remove(&case).unwrap_or_default();
            Ok(CaseRecord { case, kernel, signature, outcome, concluded, attempts })
        })?;
        let sql = "SELECT case_id, ordinal FROM planned
                   WHERE rowid IN (SELECT rowid FROM planned WHERE run = ?1)";
        let ordinals: HashMap<CaseId, i64> = self.read_rows(sql, [run], fields)?;
        cases.sort_by_key(|case| ordinals.get(&case.case).copied());
        Ok(cases)
    }

    /// Returns the mean and the median of the samples of some cases in the collections of one run, in microseconds.
    pub(crate) fn run_durations(
        &self,
        run: &str,
        cases: &HashSet<&CaseId>,
    ) -> Result<HashMap<CaseId, [f64; 2]>, LedgerError> {
        let sql = format!(
            "SELECT a.case_id, l.states, l.durations_ns FROM attempts a JOIN collections c USING (collection)
             JOIN launch_lists l USING (attempt)
             WHERE c.run = ?1 AND a.verdict IN ({WITH_SAMPLES}) ORDER BY a.attempt"
        );
        let mut samples: HashMap<CaseId, Vec<i64>> = HashMap::new();
        self.visit_rows(&sql, [run], |row| {
            let case: CaseId = row.get(0)?;
            if cases.contains(&case) {
                samples.entry(case).or_default().extend(read_samples(row, 1)?.0);
            }
            Ok(())
        })?;
        let summarised = samples.into_iter().filter_map(|(case, mut samples)| {
            let summary = SampleSummary::from_samples(&mut samples)?;
            Some((case, [summary.mean / 1e3, summary.median / 1e3]))
        });
        Ok(summarised.collect())
    }

    /// Returns the verdicts of a run's newest attempts at cases of the kernels as which its planned calls ran.
    pub(crate) fn unplanned_verdicts(&self, run: &str) -> Result<BTreeSet<Verdict>, LedgerError> {
        let sql = "SELECT DISTINCT a.verdict FROM attempts a JOIN collections c USING (collection)
                   WHERE c.run = ?1 AND a.case_id NOT IN (SELECT case_id FROM planned WHERE run = ?1)
                   AND a.attempt IN (SELECT max(attempt) FROM attempts JOIN collections USING (collection)
                                     WHERE run = ?1 GROUP BY case_id)";
        self.read_column(sql, [run])
    }

    /// Returns the numbers of planned cases by their newest verdict over all runs. A case that was not run in a later one keeps its verdict.
    pub(crate) fn newest_verdict_counts(&self) -> Result<BTreeMap<Verdict, usize>, LedgerError> {
        let sql = "SELECT verdict, count(*) FROM (
                       SELECT verdict, row_number() OVER (
                           PARTITION BY case_id ORDER BY verdict = 'not_run', at_ns DESC) AS place
                       FROM verdicts JOIN planned USING (run, case_id))
                   WHERE place = 1 GROUP BY verdict";
        self.read_rows(sql, [], |row| Ok((row.get(0)?, row.get::<_, u32>(1)? as usize)))
    }

    fn run_attempts(&self, run: &str) -> Result<HashMap<CaseId, Vec<AttemptRecord>>, LedgerError> {
        let sql = "SELECT a.case_id, c.number, c.device, a.verdict, a.cause, a.remarks FROM attempts a
                   JOIN collections c USING (collection)
                   WHERE a.attempt IN (SELECT attempt FROM attempts JOIN collections USING (collection) WHERE run = ?1)";
        let mut attempts: HashMap<CaseId, Vec<AttemptRecord>> = HashMap::new();
        self.visit_rows(sql, [run], |row| {
            let (collection, device, outcome) = (row.get(1)?, row.get(2)?, read_outcome(row, 3)?);
            attempts.entry(row.get(0)?).or_default().push(AttemptRecord { collection, device, outcome });
            Ok(())
        })?;
        attempts.values_mut().for_each(|attempts| attempts.sort_by_key(|attempt| attempt.collection));
        Ok(attempts)
    }

    /// Reopens a run that ended early: interrupted collections are closed, and verdicts `not_run` are removed.
    pub fn resume_run(&mut self, run: &str, now: Nanos) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            tx.execute("UPDATE runs SET ended_ns = NULL, exit_code = NULL WHERE run = ?1", [run])?;
            tx.execute(
                "UPDATE collections SET ended_ns = ?2, outcome = 'interrupted'
                 WHERE run = ?1 AND ended_ns IS NULL",
                params![run, now],
            )?;
            tx.execute("DELETE FROM verdicts WHERE run = ?1 AND verdict = 'not_run'", [run])
        })?;
        Ok(())
    }
}
