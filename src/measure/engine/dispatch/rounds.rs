//! Cases that are measured again: in the rounds of a run with a demanded precision, those whose intervals are too wide; and those
//! whose attempts were at a low clock, or at a higher one than most devices have. Such attempts are withdrawn, and devices that
//! keep such a clock excluded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Dispatcher, Result, verdicts_of};
use crate::{
    base::stats::PrecisionAim,
    kernel::{Attempt, CaseId, CaseOutcome, IdentifiedCase, KernelName, Verdict},
    measure::{
        engine::{assess::is_measurement, write_back::find_in_rows},
        events::RunEvent,
        evidence::LedgerComparison,
        sched::SchedEvent,
        verify::{DeviatingDevice, JointEstimates, LowClocks, RunningDevices, Withdrawal},
    },
};

impl Dispatcher<'_> {
    pub(in crate::measure::engine) async fn resume_measured(
        &mut self,
        indices: &BTreeSet<usize>,
        outcomes: &BTreeMap<CaseId, CaseOutcome>,
    ) -> Result<()> {
        let context = Arc::clone(&self.context);
        let mut measured = Vec::new();
        for &index in indices {
            let planned = &context.cases[index];
            self.outcomes[index] = outcomes.get(planned.case.id()).cloned();
            let outcome = |case: &IdentifiedCase| Some((case.clone(), outcomes.get(case.id())?.clone()));
            let cases: Vec<_> = planned.cases().filter_map(outcome).collect();
            self.equal_calls.outcomes.extend(verdicts_of(&cases));
            measured.extend(cases);
        }
        self.measured_before.extend(indices);
        self.finish_without_launch(&measured).await
    }

    pub(super) async fn start_next_round(&mut self) -> Result<()> {
        let cases = self.cases_to_repeat().await?;
        if cases.is_empty() {
            self.is_finished = true;
            return Ok(());
        }
        self.round += 1;
        (self.emit)(&RunEvent::MeasurementRepeated { cases: cases.len(), round: self.round });
        self.on_event(SchedEvent::MeasureAgain(cases)).await
    }

    async fn cases_to_repeat(&mut self) -> Result<Vec<usize>> {
        let context = Arc::clone(&self.context);
        if self.inbox.stops.has_any() || self.state.is_stopping() {
            return Ok(Vec::new());
        }
        let throttled = self.throttled_cases();
        let Some(aim) =
            context.settings.options.precision_aim().filter(|aim| self.round as usize <= aim.max_collections)
        else {
            return Ok(throttled);
        };
        let cache = context.settings.options.cache;
        let estimates = self.commit(|ledger| JointEstimates::from_ledger(ledger, cache)).await?;
        let mut cases = throttled;
        cases.extend(self.imprecise_cases(&estimates, aim));
        if aim.max_collections > 1 {
            cases.extend(self.unconfirmed_cases(&estimates));
        }
        cases.sort_unstable();
        cases.dedup();
        Ok(cases)
    }

    /// Cases that ended as `throttled`, once in a run: their attempts may have been on devices that are excluded now, or judged before
    /// a majority of devices showed the right clock. Without a single case at such a clock, the host is at fault.
    fn throttled_cases(&mut self) -> Vec<usize> {
        let verdict = |case: usize| self.outcomes[case].as_ref().map(|outcome| outcome.verdict);
        let cases = 0..self.outcomes.len();
        if !cases.clone().filter_map(verdict).any(Verdict::has_samples) {
            return Vec::new();
        }
        let mut throttled: Vec<usize> =
            cases.filter(|case| verdict(*case) == Some(Verdict::Throttled)).collect();
        throttled.retain(|case| self.throttled_again.insert(*case));
        throttled
    }

    fn unconfirmed_cases(&self, estimates: &JointEstimates) -> Vec<usize> {
        let mut cases = self.repeatable_cases();
        cases.retain(|index| {
            let planned = &self.context.cases[*index];
            let outcome = self.outcomes[*index].as_ref();
            let is_contradicted = outcome.is_some_and(|outcome| outcome.verdict == Verdict::Suspicious)
                && estimates.collection_count(planned.case.id()) == 1;
            let production = |case: &CaseId| self.store.production.get(case).copied();
            let mut cases = planned.cases().map(IdentifiedCase::id);
            is_contradicted || cases.any(|case| estimates.needs_confirmation(case, production(case)))
        });
        cases
    }

    /// Stores the verdict of the row of each case that the run has measured as the verdict of the case, and reports suspicious
    /// cases: collections that are each steady may differ, or contradict other durations. Returns the stored outcomes.
    pub(super) async fn settle_row_verdicts(
        &mut self,
        ledger: &LedgerComparison,
    ) -> Result<BTreeMap<CaseId, CaseOutcome>> {
        let context = Arc::clone(&self.context);
        let planned = context.cases.iter().enumerate();
        let measured = planned.flat_map(|(index, planned)| planned.cases().map(move |case| (index, case)));
        let measured: BTreeMap<&CaseId, (&IdentifiedCase, Verdict)> = measured
            .filter_map(|(index, case)| {
                let verdict = self.concluded_verdict(index, case.id())?;
                verdict.has_samples().then_some((case.id(), (case, verdict)))
            })
            .collect();
        let kernels: BTreeSet<&KernelName> = measured.values().map(|(case, _)| &case.kernel).collect();
        let settled: BTreeMap<CaseId, CaseOutcome> = kernels
            .into_iter()
            .flat_map(|kernel| {
                find_in_rows(self.store.database, kernel, |row, case| {
                    let (_, concluded) = measured.get(&case)?;
                    let judged = ledger.judged_row(&case, row.parsed.production)?.outcome;
                    let is_new = *concluded != judged.verdict || judged.verdict == Verdict::Suspicious;
                    (judged.verdict.has_samples() && is_new).then_some((case, judged))
                })
            })
            .collect();
        if settled.is_empty() {
            return Ok(settled);
        }
        self.set_verdicts(&settled.clone().into_iter().collect::<Vec<_>>()).await?;
        let mut suspicious = settled.iter().filter(|(_, outcome)| outcome.verdict == Verdict::Suspicious);
        let count = suspicious.clone().count();
        if let Some((first, outcome)) = suspicious.next() {
            let (case, _) = measured[first];
            (self.emit)(&RunEvent::ResultsSuspicious {
                cases: count,
                kernel: case.kernel.clone(),
                shapes: case.shapes(),
                outcome: outcome.clone(),
            });
        }
        Ok(settled)
    }

    fn repeatable_cases(&self) -> Vec<usize> {
        let is_measured =
            |case: &usize| self.outcomes[*case].as_ref().is_some_and(|outcome| outcome.verdict.is_recorded());
        let cases = 0..self.context.cases.len();
        cases.filter(|case| is_measured(case) && !self.failed_again.contains(case)).collect()
    }

    fn imprecise_cases(&self, estimates: &JointEstimates, aim: PrecisionAim) -> Vec<usize> {
        let indices = self.repeatable_cases();
        let cases: Vec<&CaseId> = indices.iter().map(|&index| self.context.cases[index].case.id()).collect();
        estimates.cases_to_repeat(&cases, aim).into_iter().map(|case| indices[case]).collect()
    }

    /// Reports how many cases have the demanded precision; returns the number of those that further collections can bring to it.
    pub(super) fn report_precision(&mut self, estimates: &JointEstimates) -> usize {
        let indices = self.repeatable_cases();
        let id = |index: &usize| self.context.cases[*index].case.id();
        let devices = estimates.unequal_devices(&indices.iter().map(id).collect::<Vec<_>>());
        if !devices.is_empty() {
            (self.emit)(&RunEvent::DevicesDiffer { devices: devices.to_vec() });
        }
        let Some(aim) = self.context.settings.options.precision_aim() else { return 0 };
        let open = self.imprecise_cases(estimates, aim).len();
        let has_samples = |case: &&usize| {
            self.outcomes[**case].as_ref().is_some_and(|outcome| outcome.verdict.has_samples())
        };
        let cases: Vec<&CaseId> = indices.iter().filter(has_samples).map(id).collect();
        let measured = cases.iter().filter(|case| estimates.collection_count(case) > 0).count();
        if measured > 0 {
            let precise = estimates.count_precise(&cases, aim);
            (self.emit)(&RunEvent::PrecisionReached {
                percent: aim.half_width * 100.0,
                max_collections: aim.max_collections,
                measured,
                precise,
                open,
            });
        }
        open
    }

    /// Returns true if a case that is measured again keeps its earlier verdict. A case that fails is not repeated any more.
    pub(super) fn keeps_verdict(&mut self, case: usize, outcome: &CaseOutcome) -> bool {
        let Some(earlier) = &self.outcomes[case] else { return false };
        if outcome.verdict.has_samples() {
            self.failed_again.remove(&case);
        } else if outcome.verdict == Verdict::NotRun && self.inbox.stops.has_any() {
            self.stopped_again.insert(case);
        } else {
            self.failed_again.insert(case);
        }
        // A measurement as another kernel is better than none at the rated clock.
        let is_measured_at_last =
            (earlier.verdict, outcome.verdict) == (Verdict::Throttled, Verdict::RanAsOther);
        earlier.verdict <= outcome.verdict && !is_measured_at_last
    }

    /// Withdraws attempts that earlier runs have accepted at a clock that deviates, and attempts of this run if it was
    /// killed before it withdrew them. Cases that this run has measured are measured again, or end as `throttled` if
    /// they are not planned any more.
    pub(super) async fn judge_earlier_clocks(&mut self) -> Result<()> {
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
    pub(super) async fn judge_clocks(&mut self, collection: i64, attempts: &mut [Attempt]) -> Result<()> {
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

    async fn withdraw_attempts(&mut self, found: &LowClocks) -> Result<Vec<Withdrawal>> {
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

    async fn measure_again(&mut self, withdrawn: &BTreeMap<&CaseId, &CaseOutcome>) -> Result<()> {
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

    async fn has_measurement(&mut self, case: &CaseId) -> Result<bool> {
        let cache = self.context.settings.options.cache;
        self.commit(|ledger| ledger.has_measurement(case, cache)).await
    }

    async fn exclude_deviating_devices(&mut self, found: &LowClocks) -> Result<()> {
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
