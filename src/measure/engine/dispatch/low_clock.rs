//! Attempts at a low clock, or at a higher one than most devices have, are withdrawn, their cases measured again elsewhere, and
//! devices that keep such a clock excluded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Dispatcher, EngineError};
use crate::{
    kernel::{Attempt, CaseId, CaseOutcome, IdentifiedCase, Verdict},
    measure::{
        engine::assess::is_measurement,
        events::RunEvent,
        sched::SchedEvent,
        verify::{DeviatingDevice, LowClocks, RunningDevices, Withdrawal},
    },
};

impl Dispatcher<'_> {
    /// Withdraws attempts that earlier runs have accepted at a clock that deviates, and attempts of this run if it was
    /// killed before it withdrew them. Cases that this run has measured are measured again, or end as `throttled` if
    /// they are not planned any more.
    pub(super) async fn judge_earlier_clocks(&mut self) -> Result<(), EngineError> {
        let cache = self.context.settings.options.cache;
        let found = self.commit(|ledger| LowClocks::from_ledger(ledger, cache)).await?;
        self.withdraw_attempts(&found).await?;
        let withdrawn = self.commit(|ledger| ledger.withdrawn_attempts(cache, None)).await?;
        let outcomes: BTreeMap<&CaseId, &CaseOutcome> =
            withdrawn.iter().map(|(case, withdrawn)| (case, &withdrawn.outcome)).collect();
        for index in 0..self.store.predecided.len() {
            let (case, outcome) = &self.store.predecided[index];
            let Some(of_withdrawn) = outcomes.get(case.id()) else { continue };
            if is_measurement(outcome.verdict) && !self.has_measurement(&case.id().clone()).await? {
                self.store.predecided[index].1 = (*of_withdrawn).clone();
            }
        }
        self.measure_again(&outcomes).await?;
        self.exclude_deviating_devices(&found).await
    }

    /// Compares the clock of a finished collection, whose key is `collection`, with the clock of all others with its
    /// software. Its attempts at a clock that deviates become `throttled`, so that the scheduler measures their cases
    /// again. Accepted attempts of other collections for which it shows such a clock are withdrawn; cases of the run
    /// without other measurements are measured again.
    pub(super) async fn judge_clocks(
        &mut self,
        collection: i64,
        attempts: &mut [Attempt],
    ) -> Result<(), EngineError> {
        let run = self.context.settings.run.clone();
        let running = RunningDevices { run, devices: self.state.busy_devices() };
        let found = self.commit(|ledger| LowClocks::of_software(ledger, collection, &running)).await?;
        let withdrawn = self.withdraw_attempts(&found).await?;
        let (of_collection, earlier): (Vec<Withdrawal>, Vec<Withdrawal>) =
            withdrawn.into_iter().partition(|withdrawn| withdrawn.collection == collection);
        let outcomes: BTreeMap<&CaseId, &CaseOutcome> =
            of_collection.iter().map(|withdrawn| (&withdrawn.case, &withdrawn.outcome)).collect();
        for attempt in attempts {
            set_outcome(attempt, &outcomes);
        }
        let earlier = earlier.iter().map(|withdrawn| (&withdrawn.case, &withdrawn.outcome)).collect();
        self.measure_again(&earlier).await?;
        self.exclude_deviating_devices(&found).await
    }

    /// Withdraws all accepted attempts at a clock that deviates, with those that share their launches; returns them.
    async fn withdraw_attempts(&mut self, found: &LowClocks) -> Result<Vec<Withdrawal>, EngineError> {
        if found.attempts.is_empty() {
            return Ok(Vec::new());
        }
        let context = Arc::clone(&self.context);
        let catalogue = &context.settings.catalogue;
        let withdrawals = self.commit(|ledger| found.withdrawals(ledger, catalogue)).await?;
        let outcomes: Vec<(i64, CaseOutcome)> =
            withdrawals.iter().map(|withdrawn| (withdrawn.attempt, withdrawn.outcome.clone())).collect();
        self.commit(|ledger| ledger.withdraw_attempts(&outcomes)).await?;
        Ok(withdrawals)
    }

    /// Reopens concluded cases of the run whose only measurements were withdrawn, each with the outcome of its last
    /// attempt.
    async fn measure_again(
        &mut self,
        withdrawn: &BTreeMap<&CaseId, &CaseOutcome>,
    ) -> Result<(), EngineError> {
        let context = Arc::clone(&self.context);
        let mut reopened: Vec<(usize, &IdentifiedCase, &CaseOutcome)> = Vec::new();
        let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
        for (index, planned) in context.cases.iter().enumerate() {
            for case in planned.cases() {
                let Some(&outcome) = withdrawn.get(case.id()) else { continue };
                let Some(earlier) = self.concluded_verdict(index, case.id()) else { continue };
                if is_measurement(earlier) && !self.has_measurement(case.id()).await? {
                    *counts.entry(earlier).or_default() += 1;
                    reopened.push((index, case, outcome));
                }
            }
        }
        let Some((.., first)) = reopened.first() else { return Ok(()) };
        let reason = first.reason.to_string();
        let verdicts = reopened.iter().map(|&(_, case, outcome)| (case.id().clone(), outcome.clone()));
        self.set_verdicts(&verdicts.collect::<Vec<_>>()).await?;
        for &(index, case, outcome) in &reopened {
            self.store.rows.finish_case(&case.kernel, case.id(), outcome);
            self.measured_before.remove(&index);
            if context.cases[index].case.id() == case.id() {
                self.outcomes[index] = Some(outcome.clone());
            } else {
                self.equal_calls.outcomes.insert(case.id().clone(), outcome.clone());
                self.equal_calls.reopened.insert(case.id().clone());
            }
        }
        let case_ids = reopened.iter().map(|(_, case, _)| case.id().clone()).collect();
        let verdicts = counts.into_iter().collect();
        let cases = reopened.len();
        (self.emit)(&RunEvent::MeasurementsWithdrawn { cases, case_ids, verdicts, reason });
        let indices: BTreeSet<usize> = reopened.iter().map(|(index, ..)| *index).collect();
        self.on_event(SchedEvent::MeasurementsWithdrawn(indices.into_iter().collect())).await
    }

    /// Returns the verdict of a planned case or of one of its equal cases; `None` while it is open.
    pub(super) fn concluded_verdict(&self, index: usize, case: &CaseId) -> Option<Verdict> {
        let outcome = self.outcomes[index].as_ref()?;
        let is_planned = self.context.cases[index].case.id() == case;
        let of_equal_call = self.equal_calls.outcomes.get(case).filter(|_| !is_planned);
        Some(of_equal_call.unwrap_or(outcome).verdict)
    }

    async fn has_measurement(&mut self, case: &CaseId) -> Result<bool, EngineError> {
        let cache = self.context.settings.options.cache;
        self.commit(|ledger| ledger.has_measurement(case, cache)).await
    }

    async fn exclude_deviating_devices(&mut self, found: &LowClocks) -> Result<(), EngineError> {
        let run = self.context.settings.run.clone();
        for DeviatingDevice { device, reason, is_undecided } in found.deviating_devices(&run) {
            // If two devices differ, a third device will show which one is right.
            if !is_undecided || self.devices.len() <= 2 {
                self.on_event(SchedEvent::DeviceDeviates { device, reason }).await?;
            }
        }
        Ok(())
    }
}

fn set_outcome(attempt: &mut Attempt, outcomes: &BTreeMap<&CaseId, &CaseOutcome>) {
    if let Some(outcome) = outcomes.get(&attempt.case) {
        attempt.outcome = (*outcome).clone();
    }
    attempt.of_equal_calls.iter_mut().for_each(|other| set_outcome(&mut other.attempt, outcomes));
}
