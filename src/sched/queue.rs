//! Cases that wait for a collection: by kernel, the most valuable first, the cheaper of two equals first.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{LearnedCosts, SchedCase, Seconds};

/// Cases of a kernel of a new run are tried a few at a time: a whole collection of them could crash.
const FIRST: usize = 8;
/// So many entries of a kernel are looked at where the first is too long for what is left of the time.
const LOOK_AHEAD: usize = 16;

/// A number that orders as it is; none is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OrderedFloat(f64);

impl Eq for OrderedFloat {}

impl PartialOrd for OrderedFloat {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedFloat {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

type QueueKey = (Reverse<OrderedFloat>, OrderedFloat, usize);

/// One kernel's waiting cases.
#[derive(Clone, Debug)]
struct KernelQueue {
    waiting: BTreeSet<QueueKey>,
    /// How many of its cases a collection may have.
    trusted: usize,
}

/// The waiting cases.
#[derive(Clone, Debug)]
pub(super) struct CaseQueue {
    kernels: Vec<KernelQueue>,
    count: usize,
    /// Prior seconds of all that wait, by kernel: predictions follow by one factor each.
    seconds: Vec<Seconds>,
    launches: Vec<u64>,
}

/// What a collection may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct CollectionBudget {
    /// Seconds of cases.
    pub(super) seconds: Seconds,
    /// Seconds that even the first case may not exceed: what is left of the run.
    pub(super) first: Seconds,
    /// Cases.
    pub(super) cases: usize,
    /// Launches.
    pub(super) launches: u32,
}

fn key(jobs: &[SchedCase], case: usize) -> QueueKey {
    (Reverse(OrderedFloat(jobs[case].value)), OrderedFloat(jobs[case].seconds), case)
}

impl CaseQueue {
    pub(super) fn new(kernels: usize) -> Self {
        let empty = KernelQueue { waiting: BTreeSet::new(), trusted: FIRST };
        Self {
            kernels: vec![empty; kernels],
            count: 0,
            seconds: vec![0.0; kernels],
            launches: vec![0; kernels],
        }
    }

    pub(super) fn add(&mut self, jobs: &[SchedCase], case: usize) {
        let job = &jobs[case];
        if self.kernels[job.kernel].waiting.insert(key(jobs, case)) {
            self.count += 1;
            self.seconds[job.kernel] += job.seconds;
            self.launches[job.kernel] += u64::from(job.launches);
        }
    }

    fn remove(&mut self, jobs: &[SchedCase], case: usize) {
        let job = &jobs[case];
        if self.kernels[job.kernel].waiting.remove(&key(jobs, case)) {
            self.count -= 1;
            self.seconds[job.kernel] = (self.seconds[job.kernel] - job.seconds).max(0.0);
            self.launches[job.kernel] -= u64::from(job.launches);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Predicted seconds of all that wait.
    pub(super) fn seconds(&self, costs: &LearnedCosts) -> Seconds {
        let kernels = self.seconds.iter().zip(&self.launches).enumerate();
        kernels.map(|(kernel, (seconds, launches))| costs.sum(kernel, *seconds, *launches)).sum()
    }

    /// Takes all that wait, in the order of their indices.
    pub(super) fn drain(&mut self) -> Vec<usize> {
        let mut cases: Vec<usize> = Vec::with_capacity(self.count);
        for (kernel, waiting) in self.kernels.iter_mut().enumerate() {
            cases.extend(std::mem::take(&mut waiting.waiting).into_iter().map(|(_, _, case)| case));
            (self.seconds[kernel], self.launches[kernel]) = (0.0, 0);
        }
        self.count = 0;
        cases.sort_unstable();
        cases
    }

    /// All that wait in the order in which they would be taken if each kernel's costs were as they were thought.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let mut keys: Vec<&QueueKey> = self.kernels.iter().flat_map(|kernel| &kernel.waiting).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, _, case)| *case).collect()
    }

    /// Takes the cases of a collection, the best first, and what they are predicted to take.
    pub(super) fn take(
        &mut self,
        jobs: &[SchedCase],
        costs: &LearnedCosts,
        room: CollectionBudget,
    ) -> (Vec<usize>, Seconds) {
        let mut taken = Vec::new();
        let mut seconds = 0.0;
        let mut launches = 0;
        let mut counts = vec![0; self.kernels.len()];
        while taken.len() < room.cases {
            let fits = |case: usize| {
                let longer = costs.case(&jobs[case]);
                let is_first = taken.is_empty() && longer <= room.first;
                (is_first || seconds + longer <= room.seconds)
                    && (taken.is_empty() || launches + jobs[case].launches <= room.launches)
            };
            let Some(case) = self.best(&counts, fits) else { break };
            self.remove(jobs, case);
            counts[jobs[case].kernel] += 1;
            seconds += costs.case(&jobs[case]);
            launches += jobs[case].launches;
            taken.push(case);
        }
        // They are launched in the order of the plan.
        taken.sort_unstable();
        (taken, seconds)
    }

    fn best(&self, counts: &[usize], fits: impl Fn(usize) -> bool) -> Option<usize> {
        let open = self.kernels.iter().zip(counts).filter(|(kernel, count)| **count < kernel.trusted);
        let heads = open.filter_map(|(kernel, _)| {
            kernel.waiting.iter().take(LOOK_AHEAD).find(|(_, _, case)| fits(*case))
        });
        heads.min().map(|(_, _, case)| *case)
    }

    /// A case of a kernel ended well: more of them may share a collection, twice as many once as many as may now
    /// have ended well.
    pub(super) fn grow_batch(&mut self, kernel: usize, most: usize) {
        let trusted = &mut self.kernels[kernel].trusted;
        *trusted = (*trusted + 1).min(most.max(FIRST));
    }

    /// One of a kernel's cases broke a collection: fewer of them may share the next.
    pub(super) fn shrink_batch(&mut self, kernel: usize) {
        let trusted = &mut self.kernels[kernel].trusted;
        *trusted = (*trusted / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::PriorCosts;

    fn job(kernel: usize, value: f64, seconds: Seconds) -> SchedCase {
        SchedCase { kernel, seconds, launches: 0, value, devices: 1, memory: 0 }
    }

    fn ready(jobs: &[SchedCase]) -> CaseQueue {
        let mut ready = CaseQueue::new(3);
        (0..jobs.len()).for_each(|case| ready.add(jobs, case));
        ready
    }

    const ROOM: CollectionBudget =
        CollectionBudget { seconds: 100.0, first: 100.0, cases: 100, launches: 1000 };

    #[test]
    fn the_most_valuable_are_taken_first_and_the_cheaper_of_equals() {
        let jobs = [job(0, 1.0, 1.0), job(1, 5.0, 9.0), job(0, 1.0, 0.5), job(2, 5.0, 2.0), job(2, 0.0, 0.1)];
        let mut all = ready(&jobs);
        assert_eq!(all.in_order(), [3, 1, 2, 0, 4]);
        let (taken, seconds) = all.take(
            &jobs,
            &LearnedCosts::new(3, &PriorCosts::default()),
            CollectionBudget { cases: 3, ..ROOM },
        );
        assert_eq!(taken, [1, 2, 3]);
        assert!((seconds - 11.5).abs() < 1e-9, "{seconds}");
        assert_eq!(all.drain(), [0, 4]);
        assert!(all.is_empty() && all.seconds(&LearnedCosts::new(3, &PriorCosts::default())).abs() < 1e-9);
    }

    #[test]
    fn what_does_not_fit_is_left_and_what_fits_is_found_behind_it() {
        let jobs = [job(0, 9.0, 50.0), job(0, 1.0, 3.0), job(1, 1.0, 4.0)];
        let mut all = ready(&jobs);
        let room = CollectionBudget { seconds: 8.0, first: 8.0, ..ROOM };
        assert_eq!(all.take(&jobs, &LearnedCosts::new(3, &PriorCosts::default()), room).0, [1, 2]);
        // A single case may be longer than collections should be.
        let room = CollectionBudget { seconds: 8.0, first: 60.0, ..ROOM };
        assert_eq!(all.take(&jobs, &LearnedCosts::new(3, &PriorCosts::default()), room).0, [0]);
    }

    #[test]
    fn few_cases_of_a_new_kernel_share_a_collection_until_they_ended_well() {
        let jobs: Vec<SchedCase> = (0..100).map(|_| job(0, 1.0, 0.1)).collect();
        let mut all = ready(&jobs);
        assert_eq!(all.take(&jobs, &LearnedCosts::new(3, &PriorCosts::default()), ROOM).0.len(), FIRST);
        (0..24).for_each(|_| all.grow_batch(0, 64));
        assert_eq!(all.take(&jobs, &LearnedCosts::new(3, &PriorCosts::default()), ROOM).0.len(), 4 * FIRST);
        all.shrink_batch(0);
        assert_eq!(all.take(&jobs, &LearnedCosts::new(3, &PriorCosts::default()), ROOM).0.len(), 2 * FIRST);
    }
}
