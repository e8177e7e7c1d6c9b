//! Collections that failed while the disk was full: neither their cases nor their devices are at fault.

use std::collections::BTreeMap;

use super::collect::CollectionResult;
use crate::{
    kernel::{CaseOutcome, Verdict},
    measure::sched::CollectionExit,
};

/// Number of collections with launches after which a failure of a case counts although the disk was full: the case may
/// fill the disk itself.
const MAX_EXCUSES: u32 = 3;
/// Beginning of the reason of an excused attempt.
const DISK_FULL: &str = "the disk was full: ";

/// Returns true for an outcome that a full disk may have caused.
fn is_excusable(outcome: &CaseOutcome) -> bool {
    outcome.verdict.is_worth_a_retry() || outcome.reason.contains("No space left on device")
}

/// Returns true if an attempt was excused, and its evidence has this outcome, which can be excused.
pub(super) fn stays_excused(stored: &CaseOutcome, assessed: &CaseOutcome) -> bool {
    stored.verdict == Verdict::NotRun && stored.reason.starts_with(DISK_FULL) && is_excusable(assessed)
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
            let reason = format!("{DISK_FULL}{}", attempt.outcome.reason);
            attempt.outcome = CaseOutcome::new(Verdict::NotRun, reason);
            attempt.launches.clear();
            attempt.of_equal_calls.clear();
        }
        result.exit = CollectionExit::DiskFull;
        result.message = format!("{DISK_FULL}{}", result.message);
    }
}
