//! Collections that failed while the disk was full: neither their cases nor their devices are at fault.

use std::collections::BTreeMap;

use super::collect::CollectionResult;
use crate::{
    kernel::{CaseOutcome, Cause, Verdict},
    measure::sched::CollectionExit,
};

/// Number of collections with launches after which a failure of a case counts although the disk was full: the case may
/// fill the disk itself.
const MAX_EXCUSES: u32 = 3;

/// Returns true for an outcome that a full disk may have caused.
fn is_excusable(outcome: &CaseOutcome) -> bool {
    outcome.verdict.is_worth_a_retry() || matches!(outcome.reason.cause, Cause::NoSpace { .. })
}

/// Returns true if an attempt was excused, and its evidence has this outcome, which can be excused.
pub(super) fn stays_excused(stored: &CaseOutcome, assessed: &CaseOutcome) -> bool {
    matches!(stored.reason.cause, Cause::DiskFull { .. }) && is_excusable(assessed)
}

/// Number of launched collections of each case that failed while the disk was full.
#[derive(Debug, Default)]
pub(super) struct DiskFailures(BTreeMap<usize, u32>);

impl DiskFailures {
    /// Makes the failed attempts of a collection, during which the disk was full, attempts that were not run. Results
    /// with all their records stay.
    pub(super) fn excuse(&mut self, cases: &[usize], result: &mut CollectionResult) {
        if result.exit == CollectionExit::Stopped {
            return;
        }
        let has_launched = result.exit != CollectionExit::NothingLaunched;
        let failed =
            cases.iter().zip(&mut result.attempts).filter(|(_, attempt)| is_excusable(&attempt.outcome));
        let failed: Vec<_> = failed.collect();
        let is_known = |case: &usize| self.0.get(case).is_some_and(|count| *count >= MAX_EXCUSES);
        if failed.is_empty() || (has_launched && failed.iter().any(|(case, _)| is_known(case))) {
            return;
        }
        for (case, attempt) in failed {
            *self.0.entry(*case).or_default() += u32::from(has_launched);
            let failure = Box::new(attempt.outcome.reason.clone());
            attempt.outcome = CaseOutcome::new(Verdict::NotRun, Cause::DiskFull { failure });
            attempt.launches.clear();
            attempt.of_equal_calls.clear();
        }
        result.exit = CollectionExit::DiskFull;
        result.message = format!("the disk was full: {}", result.message);
    }
}
