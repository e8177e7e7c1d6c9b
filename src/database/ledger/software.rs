//! Software of collections, and the generations of evidence that follow from it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rusqlite::{Transaction, params};

use super::{
    Ledger, LedgerError, WITH_SAMPLES,
    values::{Json, fields, read_reason},
};
use crate::kernel::{CacheState, CaseId, CaseMap, KernelName, Reason, SoftwareFingerprint, Verdict};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SoftwareGeneration {
    pub(crate) software: Option<SoftwareFingerprint>,
    pub(crate) cases: BTreeSet<CaseId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherKernelAttempt {
    pub(crate) reason: Reason,
    /// `None` for collections of versions that did not record it.
    pub(crate) software: Option<SoftwareFingerprint>,
}

/// Stores a fingerprint and returns its digest; an unknown one is not stored.
pub(super) fn store_software(
    tx: &Transaction<'_>,
    software: &SoftwareFingerprint,
) -> rusqlite::Result<Option<String>> {
    if software.is_unknown() {
        return Ok(None);
    }
    let digest = software.digest();
    let sql = "INSERT INTO software (digest, fingerprint) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    tx.execute(sql, params![digest, Json(software)])?;
    Ok(Some(digest))
}

impl Ledger {
    pub(crate) fn lacks_software(&self, collection: i64) -> Result<bool, LedgerError> {
        let sql = "SELECT software IS NULL FROM collections WHERE collection = ?1";
        Ok(self.read_first(sql, [collection])?.unwrap_or_default())
    }

    pub(crate) fn set_software(
        &mut self,
        collection: i64,
        software: &SoftwareFingerprint,
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let digest = store_software(tx, software)?;
            let sql = "UPDATE collections SET software = ?2 WHERE collection = ?1";
            tx.execute(sql, params![collection, digest]).map(|_| ())
        })
    }

    /// Returns the cases with an accepted result in one state of the cache, by the software of their newest measurement. A
    /// case whose newest measurement is noisy is not among them unless an earlier one of the same software was accepted. A
    /// call that ran as another kernel counts as the newest measurement: its kernel does not run any more.
    pub(crate) fn measured_generations(
        &self,
        cache: CacheState,
    ) -> Result<Vec<SoftwareGeneration>, LedgerError> {
        let sql = format!(
            "SELECT a.case_id, a.verdict, c.software FROM attempts a JOIN collections c USING (collection)
                   WHERE c.cache = ?1 AND a.verdict IN ({WITH_SAMPLES}, 'ran_as_other') ORDER BY a.attempt"
        );
        let mut newest: CaseMap<Option<String>> = CaseMap::default();
        let mut accepted: HashSet<(Option<String>, CaseId)> = HashSet::new();
        self.visit_rows(&sql, [cache], |row| {
            let (case, verdict, software): (CaseId, Verdict, Option<String>) = fields(row)?;
            if matches!(verdict, Verdict::Ok | Verdict::Suspicious) {
                accepted.insert((software.clone(), case.clone()));
            }
            newest.insert(case, software);
            Ok(())
        })?;
        let mut cases: BTreeMap<Option<String>, BTreeSet<CaseId>> = BTreeMap::new();
        for (software, case) in accepted {
            if newest.get(&case) == Some(&software) {
                cases.entry(software).or_default().insert(case);
            }
        }
        let mut known: BTreeMap<String, Json<SoftwareFingerprint>> =
            self.read_rows("SELECT digest, fingerprint FROM software", [], fields)?;
        let generation = |(software, cases): (Option<String>, _)| {
            let software = software.and_then(|digest| known.remove(&digest)).map(|Json(software)| software);
            SoftwareGeneration { software, cases }
        };
        Ok(cases.into_iter().map(generation).collect())
    }

    pub(crate) fn run_software(&self, run: &str) -> Result<Option<SoftwareFingerprint>, LedgerError> {
        let sql = "SELECT s.fingerprint FROM collections c JOIN software s ON s.digest = c.software
                   WHERE c.run = ?1 AND c.outcome = 'done' ORDER BY c.collection DESC LIMIT 1";
        Ok(self.read_first(sql, [run])?.map(|Json(software)| software))
    }

    /// Returns the kernels, without those of a list, that have cases which are done, accepted or run as another kernel, and the
    /// number of these cases.
    pub(crate) fn measured_kernels_without(
        &self,
        known: &[KernelName],
    ) -> Result<BTreeMap<String, u32>, LedgerError> {
        let sql =
            "SELECT c.kernel, count(DISTINCT c.case_id) FROM cases c CROSS JOIN attempts a USING (case_id)
                   WHERE c.kernel NOT IN (SELECT value FROM json_each(?1))
                   AND a.verdict IN ('ok', 'suspicious', 'ran_as_other') GROUP BY c.kernel";
        self.read_rows(sql, [Json(known)], fields)
    }

    /// Returns the newest attempts in one state of the cache of all cases, or of one, that ran as another kernel, as a case of
    /// which they were measured.
    pub(crate) fn attempts_as_other(
        &self,
        cache: CacheState,
        case: Option<&CaseId>,
    ) -> Result<BTreeMap<CaseId, OtherKernelAttempt>, LedgerError> {
        let condition = match case {
            Some(_) => "a.case_id = ?2",
            None => {
                "?2 IS NULL AND a.case_id IN (SELECT case_id FROM attempts NOT INDEXED WHERE verdict = 'ran_as_other')"
            }
        };
        let sql = format!(
            "SELECT a.case_id, a.cause, a.remarks, s.fingerprint FROM attempts a JOIN collections c USING (collection)
             LEFT JOIN software s ON s.digest = c.software JOIN
               (SELECT max(a.attempt) AS attempt FROM attempts a JOIN collections c USING (collection)
                WHERE c.cache = ?1 AND {condition} GROUP BY a.case_id) USING (attempt)
             WHERE a.verdict = 'ran_as_other'"
        );
        self.read_rows(&sql, params![cache, case], |row| {
            let software = row.get::<_, Option<Json<_>>>(3)?.map(|Json(software)| software);
            Ok((row.get(0)?, OtherKernelAttempt { reason: read_reason(row, 1)?, software }))
        })
    }

    pub(crate) fn cases_with_samples(&self, cache: CacheState) -> Result<BTreeSet<CaseId>, LedgerError> {
        let sql = format!(
            "SELECT a.case_id FROM attempts a NOT INDEXED CROSS JOIN collections c USING (collection)
                   WHERE c.cache = ?1 AND a.verdict IN ({WITH_SAMPLES})"
        );
        self.read_column(&sql, [cache])
    }

    pub(crate) fn measured_cases(&self, cache: CacheState) -> Result<BTreeSet<CaseId>, LedgerError> {
        Ok(self.measured_generations(cache)?.into_iter().flat_map(|generation| generation.cases).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        database::ledger::{NewCollection, NewRun, tests::case},
        kernel::{Attempt, CaseOutcome, CollectionPurpose, DataKind, IdentifiedCase, Nanos},
    };

    fn cann(version: &str) -> SoftwareFingerprint {
        SoftwareFingerprint { cann: Some(version.to_owned()), ..SoftwareFingerprint::default() }
    }

    /// Stores a collection with one attempt.
    fn collect(
        ledger: &mut Ledger,
        number: u32,
        case: &IdentifiedCase,
        verdict: Verdict,
        software: &SoftwareFingerprint,
    ) {
        let (devices, purpose) = (&[0], CollectionPurpose::Measure);
        let new = NewCollection {
            run: "r",
            number,
            devices,
            purpose,
            cache: CacheState::Hot,
            predicted: 1.0,
            started: Nanos(1),
        };
        let key = ledger.begin_collection(&new).expect("started");
        let outcome = CaseOutcome::new(verdict, "because");
        let attempt = Attempt::without_launches(case.id().clone(), 1, outcome);
        ledger.finish_collection(key, Nanos(2), "done", software, &[attempt]).expect("finished");
    }

    #[test]
    fn measured_cases_are_those_of_the_newest_software() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(&folder.path().join("ledger.db")).expect("created");
        let run = NewRun {
            run: "r",
            kind: DataKind::Rehearsal,
            seed: 1,
            options: "{}",
            host: "{}",
            started: Nanos(1),
        };
        let (steady, noisy, unknown) = (case(1), case(2), case(3));
        let plan = [steady.clone(), noisy.clone(), unknown.clone(), case(4), case(5)];
        ledger.begin_run(&run, &plan).expect("started");
        assert_eq!(ledger.run_software("r").expect("read"), None);
        collect(&mut ledger, 1, &steady, Verdict::Ok, &cann("8.3"));
        collect(&mut ledger, 2, &noisy, Verdict::Ok, &cann("8.3"));
        collect(&mut ledger, 3, &unknown, Verdict::Ok, &SoftwareFingerprint::default());
        // A case whose kernel does not run any more with newer software is of none; the same software changes nothing.
        let (replaced, mixed) = (case(4), case(5));
        for (number, case) in [(7, &replaced), (8, &mixed)] {
            collect(&mut ledger, number, case, Verdict::Ok, &cann("8.3"));
        }
        collect(&mut ledger, 9, &replaced, Verdict::RanAsOther, &cann("8.6"));
        collect(&mut ledger, 10, &mixed, Verdict::RanAsOther, &cann("8.3"));
        // A noisy result of the same software does not exclude a case, one of newer software does.
        collect(&mut ledger, 4, &steady, Verdict::Noisy, &cann("8.3"));
        collect(&mut ledger, 5, &noisy, Verdict::Noisy, &cann("8.5"));
        collect(&mut ledger, 6, &noisy, Verdict::LostRecords, &cann("8.6"));
        let generation = |software, case: &IdentifiedCase| SoftwareGeneration {
            software,
            cases: BTreeSet::from([case.id().clone()]),
        };
        let mut of_83 = generation(Some(cann("8.3")), &steady);
        of_83.cases.insert(mixed.id().clone());
        assert_eq!(
            ledger.measured_generations(CacheState::Hot).expect("read"),
            [generation(None, &unknown), of_83]
        );
        assert_eq!(ledger.measured_cases(CacheState::Hot).expect("read").len(), 3);
        let newest = |case: &IdentifiedCase| {
            ledger.attempts_as_other(CacheState::Hot, Some(case.id())).expect("read").remove(case.id())
        };
        let attempt = OtherKernelAttempt { reason: "because".into(), software: Some(cann("8.6")) };
        assert_eq!((newest(&replaced), newest(&steady)), (Some(attempt), None));
        assert_eq!(ledger.run_software("r").expect("read"), Some(cann("8.6")));
    }
}
