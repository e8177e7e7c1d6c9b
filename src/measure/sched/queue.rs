//! Priority queue of waiting cases: by kernel, the most valuable first, the cheaper of two equals first.
//!
//! It also holds the limit of cases per kernel and collection: 8 at first, one more per successful case, halved when a
//! case breaks a collection; `costs.rs` limits all kernels together.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{LearnedCosts, SchedCase, Seconds};

const INITIAL_BATCH: usize = 8;
const LOOK_AHEAD: usize = 16;

/// Value and initially predicted seconds of a case as [`order_of`], and its index.
type QueueKey = (Reverse<i64>, i64, usize);

/// Returns a number with the order of [`f64::total_cmp`], whose source has this transformation.
const fn order_of(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

#[derive(Clone, Debug, Default)]
struct KernelQueue {
    waiting: BTreeSet<QueueKey>,
    batch_limit: usize,
    seconds: Seconds,
    records: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CaseQueue {
    kernels: Vec<KernelQueue>,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CollectionBudget {
    pub(super) seconds: Seconds,
    /// Maximum predicted seconds of its first case: the remaining time of the run.
    pub(super) first_case_seconds: Seconds,
    pub(super) cases: usize,
    pub(super) records: u32,
}

fn queue_key(jobs: &[SchedCase], case: usize) -> QueueKey {
    (Reverse(order_of(jobs[case].value)), order_of(jobs[case].seconds), case)
}

impl CaseQueue {
    pub(super) fn new(kernels: usize) -> Self {
        Self::with_batch_limit(kernels, INITIAL_BATCH)
    }

    /// Creates a queue of cases that were measured before: none of their kernels is new, so that their number is not limited.
    pub(super) fn of_measured_cases(kernels: usize) -> Self {
        Self::with_batch_limit(kernels, usize::MAX)
    }

    fn with_batch_limit(kernels: usize, batch_limit: usize) -> Self {
        let empty = KernelQueue { batch_limit, ..KernelQueue::default() };
        Self { kernels: vec![empty; kernels], count: 0 }
    }

    pub(super) fn insert_case(&mut self, jobs: &[SchedCase], case: usize) {
        let (job, queue) = (&jobs[case], &mut self.kernels[jobs[case].kernel]);
        if queue.waiting.insert(queue_key(jobs, case)) {
            self.count += 1;
            queue.seconds += job.seconds;
            queue.records += u64::from(job.records);
        }
    }

    fn remove_case(&mut self, jobs: &[SchedCase], case: usize) {
        let (job, queue) = (&jobs[case], &mut self.kernels[jobs[case].kernel]);
        if queue.waiting.remove(&queue_key(jobs, case)) {
            self.count -= 1;
            queue.seconds = (queue.seconds - job.seconds).max(0.0);
            queue.records -= u64::from(job.records);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn predicted_seconds(&self, costs: &LearnedCosts) -> Seconds {
        let queues = self.kernels.iter().enumerate();
        queues.map(|(kernel, queue)| costs.kernel_seconds(kernel, queue.seconds, queue.records)).sum()
    }

    pub(super) fn take_all(&mut self) -> Vec<usize> {
        let mut cases: Vec<usize> = Vec::with_capacity(self.count);
        for queue in &mut self.kernels {
            cases.extend(std::mem::take(&mut queue.waiting).into_iter().map(|(_, _, case)| case));
            (queue.seconds, queue.records) = (0.0, 0);
        }
        self.count = 0;
        cases.sort_unstable();
        cases
    }

    pub(super) fn in_order(&self) -> Vec<usize> {
        let mut keys: Vec<&QueueKey> = self.kernels.iter().flat_map(|kernel| &kernel.waiting).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, _, case)| *case).collect()
    }

    pub(super) fn take_batch(
        &mut self,
        jobs: &[SchedCase],
        costs: &LearnedCosts,
        budget: CollectionBudget,
        is_suitable: impl Fn(usize) -> bool,
    ) -> (Vec<usize>, Seconds) {
        let mut taken = Vec::new();
        let mut seconds = 0.0;
        let mut records = 0;
        let mut counts = vec![0; self.kernels.len()];
        while taken.len() < budget.cases {
            let fits = |case: usize| {
                let longer = costs.case_seconds(&jobs[case]);
                let is_first = taken.is_empty() && longer <= budget.first_case_seconds;
                (is_first || seconds + longer <= budget.seconds)
                    && is_suitable(case)
                    && (taken.is_empty() || records + jobs[case].records <= budget.records)
            };
            let Some(case) = self.best_case(&counts, fits) else { break };
            self.remove_case(jobs, case);
            counts[jobs[case].kernel] += 1;
            seconds += costs.case_seconds(&jobs[case]);
            records += jobs[case].records;
            taken.push(case);
        }
        taken.sort_unstable();
        (taken, seconds)
    }

    fn best_case(&self, counts: &[usize], fits: impl Fn(usize) -> bool) -> Option<usize> {
        let open = self.kernels.iter().zip(counts).filter(|(kernel, count)| **count < kernel.batch_limit);
        let heads = open.filter_map(|(kernel, _)| {
            kernel.waiting.iter().take(LOOK_AHEAD).find(|(_, _, case)| fits(*case))
        });
        heads.min().map(|(_, _, case)| *case)
    }

    pub(super) fn grow_batch(&mut self, kernel: usize, most: usize) {
        let trusted = &mut self.kernels[kernel].batch_limit;
        *trusted = (*trusted + 1).min(most.max(INITIAL_BATCH));
    }

    pub(super) fn shrink_batch(&mut self, kernel: usize) {
        let trusted = &mut self.kernels[kernel].batch_limit;
        *trusted = (*trusted / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sched::PriorCosts;

    fn job(kernel: usize, value: f64, seconds: Seconds) -> SchedCase {
        SchedCase { kernel, seconds, value, devices: 1, ..SchedCase::default() }
    }

    fn ready(jobs: &[SchedCase]) -> CaseQueue {
        let mut ready = CaseQueue::new(3);
        (0..jobs.len()).for_each(|case| ready.insert_case(jobs, case));
        ready
    }

    fn costs() -> LearnedCosts {
        LearnedCosts::new(3, &PriorCosts::default())
    }

    const BUDGET: CollectionBudget =
        CollectionBudget { seconds: 100.0, first_case_seconds: 100.0, cases: 100, records: 1000 };

    #[test]
    fn most_valuable_cases_are_taken_first_and_the_cheaper_of_equals() {
        let jobs = [job(0, 1.0, 1.0), job(1, 5.0, 9.0), job(0, 1.0, 0.5), job(2, 5.0, 2.0), job(2, 0.0, 0.1)];
        let mut all = ready(&jobs);
        assert_eq!(all.in_order(), [3, 1, 2, 0, 4]);
        let (taken, seconds) =
            all.take_batch(&jobs, &costs(), CollectionBudget { cases: 3, ..BUDGET }, |_| true);
        assert_eq!(taken, [1, 2, 3]);
        assert!((seconds - 11.5).abs() < 1e-9, "{seconds}");
        assert_eq!(all.take_all(), [0, 4]);
        assert!(all.is_empty() && all.predicted_seconds(&costs()).abs() < 1e-9);
    }

    #[test]
    fn case_that_does_not_fit_is_passed_over() {
        let jobs = [job(0, 9.0, 50.0), job(0, 1.0, 3.0), job(1, 1.0, 4.0)];
        let mut all = ready(&jobs);
        let budget = CollectionBudget { seconds: 8.0, first_case_seconds: 8.0, ..BUDGET };
        assert_eq!(all.take_batch(&jobs, &costs(), budget, |_| true).0, [1, 2]);
        // The first case may be longer than the planned length.
        let budget = CollectionBudget { seconds: 8.0, first_case_seconds: 60.0, ..BUDGET };
        assert_eq!(all.take_batch(&jobs, &costs(), budget, |_| true).0, [0]);
    }

    #[test]
    fn batch_limit_of_a_kernel_grows_with_successes_and_halves_after_a_break() {
        let jobs: Vec<SchedCase> = (0..100).map(|_| job(0, 1.0, 0.1)).collect();
        let mut all = ready(&jobs);
        assert_eq!(all.take_batch(&jobs, &costs(), BUDGET, |_| true).0.len(), INITIAL_BATCH);
        (0..24).for_each(|_| all.grow_batch(0, 64));
        assert_eq!(all.take_batch(&jobs, &costs(), BUDGET, |_| true).0.len(), 4 * INITIAL_BATCH);
        all.shrink_batch(0);
        assert_eq!(all.take_batch(&jobs, &costs(), BUDGET, |_| true).0.len(), 2 * INITIAL_BATCH);
    }
}
