//! Attempts at a low clock are withdrawn, their cases measured again elsewhere, and devices that stay slow excluded.

use std::{collections::BTreeMap, sync::Arc};

use super::{Dispatcher, EngineError, unix_time};
use crate::{
    domain::{Attempt, CaseId, CaseOutcome, Verdict},
    events::RunEvent,
    sched::SchedEvent,
    verify::{LowClockAttempt, LowClocks},
};

impl Dispatcher<'_> {
    /// Compares the clock of a finished collection, whose key is `collection`, with that of all others. Its attempts at a low clock
    /// become `throttled`, so that the scheduler measures their cases again. So do accepted attempts of cases of the run for which
    /// the collection shows it; cases without other samples are measured again.
    pub(super) async fn judge_clocks(
        &mut self,
        collection: i64,
        attempts: &mut [Attempt],
    ) -> Result<(), EngineError> {
        let found = self.commit(|ledger| LowClocks::from_ledger(ledger)).await?;
        let context = Arc::clone(&self.context);
        let planned: BTreeMap<&CaseId, usize> = context
            .cases
            .iter()
            .enumerate()
            .flat_map(|(index, case)| case.cases().map(move |case| (case.id(), index)))
            .collect();
        let is_accepted = |found: &&LowClockAttempt| found.attempt.verdict != Verdict::Throttled;
        let is_of_run = |found: &&LowClockAttempt| {
            found.attempt.collection == collection || planned.contains_key(&found.attempt.case)
        };
        let low: Vec<&LowClockAttempt> =
            found.attempts.iter().filter(is_accepted).filter(is_of_run).collect();
        if low.is_empty() {
            return self.exclude_slow_devices(&found).await;
        }
        let withdrawn: Vec<(i64, CaseOutcome)> =
            low.iter().map(|low| (low.attempt.attempt, low.outcome.clone())).collect();
        self.commit(|ledger| ledger.withdraw_attempts(&withdrawn)).await?;
        let (of_collection, earlier): (Vec<_>, Vec<_>) =
            low.into_iter().partition(|low| low.attempt.collection == collection);
        let outcomes: BTreeMap<&CaseId, &CaseOutcome> =
            of_collection.into_iter().map(|low| (&low.attempt.case, &low.outcome)).collect();
        for attempt in attempts {
            set_outcome(attempt, &outcomes);
        }
        let mut again = BTreeMap::new();
        for low in earlier {
            if let Some(&case) = planned.get(&low.attempt.case) {
                again.insert(case, low.outcome.clone());
            }
        }
        self.measure_again(again).await?;
        self.exclude_slow_devices(&found).await
    }

    /// Reopens concluded cases whose only samples were withdrawn, each with the outcome of its last attempt.
    async fn measure_again(&mut self, cases: BTreeMap<usize, CaseOutcome>) -> Result<(), EngineError> {
        let context = Arc::clone(&self.context);
        let mut reopened = Vec::new();
        for (index, outcome) in cases {
            let case = context.cases[index].case.id();
            let verdict = self.outcomes[index].as_ref().map(|outcome| outcome.verdict);
            let measured = verdict.filter(|verdict| matches!(verdict, Verdict::Ok | Verdict::Noisy));
            if let Some(earlier) = measured
                && self.commit(|ledger| ledger.attempt_samples(case)).await?.is_empty()
            {
                reopened.push((index, earlier, outcome));
            }
        }
        if reopened.is_empty() {
            return Ok(());
        }
        let verdicts: Vec<(CaseId, CaseOutcome)> = reopened
            .iter()
            .map(|(index, _, outcome)| (context.cases[*index].case.id().clone(), outcome.clone()))
            .collect();
        self.commit(|ledger| ledger.set_verdicts(&context.settings.run, unix_time(), &verdicts)).await?;
        let indices: Vec<usize> = reopened.iter().map(|(index, ..)| *index).collect();
        let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
        let reason = reopened.first().map(|(.., outcome)| outcome.reason.clone()).unwrap_or_default();
        for (index, earlier, outcome) in reopened {
            *counts.entry(earlier).or_default() += 1;
            let case = &context.cases[index].case;
            self.store.rows.finish_case(&case.kernel, case.id(), &outcome);
            self.outcomes[index] = Some(outcome);
        }
        let (cases, verdicts) = (indices.len(), counts.into_iter().collect());
        (self.emit)(&RunEvent::MeasurementsWithdrawn { cases, verdicts, reason });
        self.on_event(SchedEvent::MeasureAgain(indices)).await
    }

    async fn exclude_slow_devices(&mut self, found: &LowClocks) -> Result<(), EngineError> {
        let run = self.context.settings.run.clone();
        for (device, reason) in found.slow_devices(&run) {
            self.on_event(SchedEvent::DeviceTooSlow { device, reason }).await?;
        }
        Ok(())
    }
}

/// Replaces the outcomes of an attempt and of those that share its launches.
fn set_outcome(attempt: &mut Attempt, outcomes: &BTreeMap<&CaseId, &CaseOutcome>) {
    if let Some(outcome) = outcomes.get(&attempt.case) {
        attempt.outcome = (*outcome).clone();
    }
    attempt.of_equal_calls.iter_mut().for_each(|other| set_outcome(&mut other.attempt, outcomes));
}
