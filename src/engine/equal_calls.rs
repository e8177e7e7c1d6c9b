//! Outcomes of cases that share the launches of a planned case: rows of the same call under other names and kernels.

use std::collections::BTreeMap;

use super::write_back::WriteBack;
use crate::{
    domain::{Attempt, CaseId, CaseOutcome, EqualCallAttempt, IdentifiedCase},
    plan::PlannedCase,
};

/// Outcomes of cases that share launches, from the attempts of a run.
#[derive(Debug, Default)]
pub(super) struct EqualCallOutcomes(BTreeMap<CaseId, CaseOutcome>);

impl EqualCallOutcomes {
    /// Adds the results of stored attempts. Cases that are not planned are registered for their rows.
    pub(super) fn add_attempts(&mut self, attempts: &[Attempt], rows: &mut WriteBack) {
        for EqualCallAttempt { case, attempt } in attempts.iter().flat_map(|attempt| &attempt.of_equal_calls)
        {
            self.0.insert(case.id().clone(), attempt.outcome.clone());
            if !rows.is_open(case) {
                rows.add_unplanned(case);
            }
        }
    }

    /// Adds the outcomes of the equal cases of a planned case that an interrupted run has measured.
    pub(super) fn add_outcomes(&mut self, planned: &PlannedCase, outcomes: &BTreeMap<CaseId, CaseOutcome>) {
        let of_case = |case: &IdentifiedCase| Some((case.id().clone(), outcomes.get(case.id())?.clone()));
        self.0.extend(planned.equal_cases.iter().filter_map(of_case));
    }

    /// Returns the outcomes of the equal cases of a planned case. Without a measurement they share its outcome: the call
    /// is the same.
    pub(super) fn outcomes_of(
        &self,
        planned: &PlannedCase,
        outcome: &CaseOutcome,
    ) -> Vec<(IdentifiedCase, CaseOutcome)> {
        let of_case = |case: &CaseId| self.0.get(case).unwrap_or(outcome).clone();
        planned.equal_cases.iter().map(|case| (case.clone(), of_case(case.id()))).collect()
    }
}
