//! Collections that failed while the disk was full: neither their cases nor their devices are at fault.

use std::collections::BTreeMap;

use super::collect::CollectionResult;
use crate::{
    domain::{CaseOutcome, Verdict},
    sched::CollectionExit,
};

/// Number of collections with launches after which a failure of a case counts although the disk was full: the case may
/// fill the disk itself.
const MAX_EXCUSES: u32 = 3;

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
        let failed = cases.iter().zip(&mut result.attempts).filter(|(_, attempt)| {
            let CaseOutcome { verdict, reason } = &attempt.outcome;
            verdict.is_worth_a_retry() || reason.contains("No space left on device")
        });
        let failed: Vec<_> = failed.collect();
        let is_known = |case: &usize| self.0.get(case).is_some_and(|count| *count >= MAX_EXCUSES);
        if failed.is_empty() || (has_launched && failed.iter().any(|(case, _)| is_known(case))) {
            return;
        }
        for (case, attempt) in failed {
            *self.0.entry(*case).or_default() += u32::from(has_launched);
            let reason = format!("the disk was full: {}", attempt.outcome.reason);
            attempt.outcome = CaseOutcome::new(Verdict::NotRun, reason);
            attempt.launches.clear();
            attempt.of_equal_calls.clear();
        }
        result.exit = CollectionExit::DiskFull;
        result.message = format!("the disk was full: {}", result.message);
    }
}
