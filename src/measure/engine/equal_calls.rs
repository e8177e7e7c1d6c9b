//! Outcomes of cases that share the launches of a planned case: rows of the same call under other names and kernels.

use std::collections::{BTreeMap, BTreeSet};

use super::write_back::WriteBack;
use crate::{
    cases::plan::PlannedCase,
    kernel::{Attempt, CaseId, CaseOutcome, EqualCallAttempt, IdentifiedCase},
};

/// Outcomes of cases that share launches, from the attempts of a run.
#[derive(Debug, Default)]
pub(super) struct EqualCallOutcomes {
    outcomes: BTreeMap<CaseId, CaseOutcome>,
    /// Cases whose measurements were withdrawn, until their planned cases have been measured again.
    reopened: BTreeSet<CaseId>,
}

impl EqualCallOutcomes {
    /// Adds the results of stored attempts. Cases that are not planned are registered for their rows.
    pub(super) fn add_attempts(&mut self, attempts: &[Attempt], rows: &mut WriteBack) {
        for EqualCallAttempt { case, attempt } in attempts.iter().flat_map(|attempt| &attempt.of_equal_calls)
        {
            self.outcomes.insert(case.id().clone(), attempt.outcome.clone());
            if !rows.is_open(case) {
                rows.add_unplanned(case);
            }
        }
    }

    /// Adds the outcomes of the equal cases of a planned case that an interrupted run has measured.
    pub(super) fn add_outcomes(&mut self, planned: &PlannedCase, outcomes: &BTreeMap<CaseId, CaseOutcome>) {
        let of_case = |case: &IdentifiedCase| Some((case.id().clone(), outcomes.get(case.id())?.clone()));
        self.outcomes.extend(planned.equal_cases.iter().filter_map(of_case));
    }

    /// Returns the newest outcome of a case.
    pub(super) fn outcome(&self, case: &CaseId) -> Option<&CaseOutcome> {
        self.outcomes.get(case)
    }

    /// Registers a case whose measurement was withdrawn, with the outcome of the withdrawn attempt.
    pub(super) fn reopen(&mut self, case: &CaseId, outcome: CaseOutcome) {
        self.outcomes.insert(case.clone(), outcome);
        self.reopened.insert(case.clone());
    }

    /// Returns true from [`Self::reopen`] to [`Self::close`].
    pub(super) fn is_reopened(&self, case: &CaseId) -> bool {
        self.reopened.contains(case)
    }

    /// Registers that a case has its verdict.
    pub(super) fn close(&mut self, case: &CaseId) {
        self.reopened.remove(case);
    }

    /// Returns the outcomes of the equal cases of a planned case. Without a measurement they share its outcome: the call
    /// is the same.
    pub(super) fn outcomes_of(
        &self,
        planned: &PlannedCase,
        outcome: &CaseOutcome,
    ) -> Vec<(IdentifiedCase, CaseOutcome)> {
        let of_case = |case: &CaseId| self.outcome(case).unwrap_or(outcome).clone();
        planned.equal_cases.iter().map(|case| (case.clone(), of_case(case.id()))).collect()
    }
}
