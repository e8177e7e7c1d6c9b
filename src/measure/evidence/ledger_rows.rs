//! Rows that a ledger determines.

use std::collections::BTreeMap;

use crate::{
    database::ledger::{Ledger, LedgerError, OtherKernelAttempt},
    kernel::{
        AttemptSamples, CacheState, CaseId, CaseMap, Cause, RowResult, SoftwareFingerprint,
        WithdrawnAttempts, cause::SoftwareRelation,
    },
    measure::verify::{EstimateInput, EstimatedCase, JointEstimates, pool_attempts, pooled_sample_count},
};

/// Measurements of all cases of a ledger in one state of the cache, with the estimates from all collections.
#[derive(Debug, Default)]
pub(crate) struct LedgerRows {
    estimates: JointEstimates,
    attempts: CaseMap<Vec<AttemptSamples>>,
    /// Newest attempts that ran as another kernel.
    ran_as_other: BTreeMap<CaseId, OtherKernelAttempt>,
    /// Attempts that do not count any more.
    withdrawn: BTreeMap<CaseId, WithdrawnAttempts>,
}

impl LedgerRows {
    /// Reads all measurements. Fails with [`LedgerError`] if the ledger cannot be read.
    pub(crate) fn read(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        // Most ledgers have no collections with a cold cache, and the queries visit all attempts.
        if !ledger.has_collections(cache)? {
            return Ok(Self::default());
        }
        let mut input = EstimateInput::new(ledger)?;
        let mut attempts: CaseMap<Vec<AttemptSamples>> = CaseMap::default();
        ledger.for_each_attempt(cache, |attempt| {
            input.add(&attempt.measured);
            let of_case = attempts.entry(attempt.measured.case);
            of_case.or_insert_with(|| Vec::with_capacity(1)).push(attempt.samples);
        })?;
        Ok(Self {
            estimates: JointEstimates::from_input(&input, ledger, cache)?,
            attempts,
            ran_as_other: ledger.attempts_as_other(cache, None)?,

            withdrawn: ledger.withdrawn_attempts(cache, None)?,
        })
    }

    pub(crate) const fn estimates(&self) -> &JointEstimates {
        &self.estimates
    }

    /// Returns the row of a case; `None` without a measurement.
    pub(crate) fn row(&self, case: &CaseId) -> Option<RowResult> {
        let attempts = self.attempts.get(case)?;
        let estimated = self.estimates.estimated_case(case);
        let row = pooled_row(case, attempts, estimated, self.ran_as_other.get(case))?;
        let withdrawn_runs = self.withdrawn(case).map(|withdrawn| withdrawn.runs.clone()).unwrap_or_default();
        let outcome = match estimated {
            Some(estimated) => estimated.judge_row(row.outcome),
            None => row.outcome,
        };
        Some(RowResult { outcome, withdrawn_runs, ..row })
    }

    pub(super) fn measured_cases(&self) -> impl Iterator<Item = &CaseId> {
        self.attempts.keys()
    }

    /// Returns true if a case has an attempt that was measured; it can lack accepted samples, see [`Self::has_samples`].
    pub(super) fn is_measured(&self, case: &CaseId) -> bool {
        self.attempts.contains_key(case)
    }

    /// Returns the cases with such an attempt whose launches were all left out.
    pub(super) fn unsampled_cases(&self) -> impl Iterator<Item = &CaseId> {
        self.attempts.keys().filter(|case| !self.has_samples(case))
    }

    pub(super) fn has_samples(&self, case: &CaseId) -> bool {
        self.attempts
            .get(case)
            .is_some_and(|attempts| attempts.iter().any(|attempt| !attempt.samples.is_empty()))
    }

    /// Returns the attempts at a case that do not count any more; `None` without one.
    pub(crate) fn withdrawn(&self, case: &CaseId) -> Option<&WithdrawnAttempts> {
        self.withdrawn.get(case)
    }

    /// Returns true if a row of the case by a run may show numbers that do not count any more.
    pub(super) fn is_withdrawn(&self, case: &CaseId, run: &str) -> bool {
        self.withdrawn(case).is_some_and(|withdrawn| withdrawn.runs.contains(run))
    }

    /// Returns the rows of a case after each of its collections but the last, and after the last without an estimate from
    /// other cases: a run writes them before it ends. Each has the number of collections after it; only rows with so many samples
    /// are computed, because their intervals take long with hundreds of collections.
    pub(super) fn earlier_rows(
        &self,
        case: &CaseId,
        samples: Option<usize>,
    ) -> impl Iterator<Item = (usize, RowResult)> {
        let attempts = self.attempts.get(case).map(Vec::as_slice).unwrap_or_default();
        let last = attempts.len();
        let states = (1..=last).rev().map(move |count| &attempts[..count]);
        let same = states.filter(move |state| samples == Some(pooled_sample_count(state)));
        same.filter_map(move |state| Some((last - state.len(), pool_attempts(case, state, None)?)))
    }
}

/// Returns the row of a case from its own samples in one state of the cache; `None` without a measurement.
pub(crate) fn case_row(
    ledger: &Ledger,
    case: &CaseId,
    cache: CacheState,
) -> Result<Option<RowResult>, LedgerError> {
    let newest_as_other = ledger.attempts_as_other(cache, Some(case))?.remove(case);
    Ok(pooled_row(case, &ledger.attempt_samples(case, cache)?, None, newest_as_other.as_ref()))
}

/// Pools attempts into a row, with a remark if the newest one ran as another kernel: the numbers are those of its own kernel,
/// which the software of the attempt does not choose any more.
fn pooled_row(
    case: &CaseId,
    attempts: &[AttemptSamples],
    estimated: Option<&EstimatedCase>,
    newest_as_other: Option<&OtherKernelAttempt>,
) -> Option<RowResult> {
    let mut row = pool_attempts(case, attempts, estimated)?;
    if let Some(newest) = newest_as_other {
        let measured = row.software.as_deref().map(|software| &software.fingerprint);
        let software = compare_software(newest.software.as_ref(), measured);
        let finding = Box::new(newest.reason.cause.clone());
        row.outcome = row.outcome.with_remark(Cause::LaterAttempt { software, finding });
    }
    Some(row)
}

/// Returns how the software of an attempt relates to the software of the measurement. Software that was not recorded
/// may differ.
fn compare_software(
    attempt: Option<&SoftwareFingerprint>,
    measurement: Option<&SoftwareFingerprint>,
) -> SoftwareRelation {
    match (attempt, measurement) {
        (Some(attempt), Some(measurement)) if attempt == measurement => SoftwareRelation::Same,
        (Some(_), Some(_)) => SoftwareRelation::Other,
        _ => SoftwareRelation::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kernel::{IdentifiedSoftware, Verdict};

    /// With hundreds of collections, the intervals of all states took longer than the run that wrote the rows.
    #[test]
    fn only_states_with_as_many_samples_are_computed() {
        let case = CaseId::from_stored("00000000000000ff");
        let attempt = |samples: usize, cann: &str| AttemptSamples {
            cache: CacheState::Hot,
            run: format!("run of {cann}").into(),
            verdict: Verdict::Ok,
            reason: Arc::new("".into()),
            samples: vec![1000; samples].as_slice().into(),
            outliers: 0,
            counters: Vec::new().into(),
            task: Arc::default(),
            software: Some(Arc::new(IdentifiedSoftware::new(SoftwareFingerprint {
                cann: Some(cann.to_owned()),
                ..Default::default()
            }))),
        };
        // The states have 9, 18, 18 (the newer software alone), 27 and 36 samples.
        let attempts =
            [attempt(9, "8.3"), attempt(9, "8.3"), attempt(18, "8.5"), attempt(9, "8.5"), attempt(9, "8.5")];
        let rows = LedgerRows {
            estimates: JointEstimates::default(),
            attempts: CaseMap::from_iter([(case.clone(), attempts.to_vec())]),
            ran_as_other: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
        };
        let states = |samples: Option<usize>| -> Vec<(usize, usize, String)> {
            let states = rows.earlier_rows(&case, samples);
            let shown = |(later, row): (usize, RowResult)| {
                (later, row.measurement.map_or(0, |measured| measured.samples), row.run)
            };
            states.map(shown).collect()
        };
        let of = |later: usize, samples: usize, cann: &str| (later, samples, format!("run of {cann}"));
        assert_eq!(states(Some(18)), [of(2, 18, "8.5"), of(3, 18, "8.3")]);
        assert_eq!(states(Some(36)), [of(0, 36, "8.5")]);
        assert_eq!((states(Some(10)), states(None)), (vec![], vec![]));
    }

    #[test]
    fn unrecorded_software_is_not_the_same() {
        let [old, new] = ["8.3", "8.5"].map(|version| SoftwareFingerprint {
            cann: Some(version.to_owned()),
            ..SoftwareFingerprint::default()
        });
        assert_eq!(compare_software(Some(&old), Some(&old)), SoftwareRelation::Same);
        assert_eq!(compare_software(Some(&new), Some(&old)), SoftwareRelation::Other);
        for (attempt, measurement) in [(None, None), (None, Some(&old)), (Some(&old), None)] {
            let found = compare_software(attempt, measurement);
            assert_eq!(found, SoftwareRelation::Unknown);
        }
    }
}
