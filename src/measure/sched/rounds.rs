//! Rounds: concluded cases that are measured again, each on a device that it has had least often and beside random other cases.
//!
//! The effect of a device or of a collection is removed from a case by means of the other cases that share it. Cases
//! that travelled together would share all effects: nothing would separate their durations from the effects of their
//! collections. The cases of a round are therefore dealt to the devices before it starts: those that were last measured
//! on the same device are divided evenly among the others, in random order.

use std::collections::BTreeMap;

use super::{CaseQueue, Seconds, state::SchedulerState};
use crate::base::stats::{hash_numbers, signed_unit_deviate};

/// Number of times that a case whose measurements were withdrawn is measured again. A host whose clock never settles would
/// withdraw each of them.
const MAX_WITHDRAWALS: u32 = 3;

impl SchedulerState {
    /// Reopens concluded cases for a round. After a stop, they stay concluded.
    pub(super) fn start_round(&mut self, cases: Vec<usize>) {
        let reopened = self.reopen_cases(cases);
        let (single, gangs): (Vec<usize>, Vec<usize>) =
            reopened.into_iter().partition(|case| self.jobs[*case].devices <= 1);
        gangs.into_iter().for_each(|case| self.requeue_case(case));
        // Beside cases that wait already, company and device follow from their queue.
        if self.ready.is_empty() {
            self.deal_cases(single);
        } else {
            single.into_iter().for_each(|case| self.requeue_case(case));
        }
    }

    /// Reopens concluded cases whose measurements were withdrawn, unless that was so too often: these keep the verdict that
    /// the withdrawal gave them.
    pub(super) fn reopen_withdrawn(&mut self, mut cases: Vec<usize>) {
        cases.retain(|case| {
            let withdrawals = &mut self.progress[*case].withdrawals;
            *withdrawals += 1;
            *withdrawals <= MAX_WITHDRAWALS
        });
        for case in self.reopen_cases(cases) {
            self.requeue_case(case);
        }
    }

    /// Makes concluded cases open, each with a random value; returns them.
    fn reopen_cases(&mut self, mut cases: Vec<usize>) -> Vec<usize> {
        self.has_ended = false;
        self.repetitions += 1;
        if self.is_stopping {
            return Vec::new();
        }
        cases.retain(|case| std::mem::take(&mut self.progress[*case].is_concluded));
        for &case in &cases {
            let progress = &mut self.progress[case];
            (progress.tries, progress.skipped, progress.last) = (0, 0, None);
            progress.wrong_on.clear();
            self.open += 1;
            // Values order the queue. With the values of the plan, a case would meet the same neighbours in each
            // collection.
            let random = signed_unit_deviate(hash_numbers(&[self.repetitions, case as u64]));
            self.jobs[case].value = random.abs();
        }
        cases
    }

    /// Assigns cases to devices that they have had least often, with equal numbers from each device on which they were measured
    /// last, then with equal predicted times.
    fn deal_cases(&mut self, mut cases: Vec<usize>) {
        let devices: Vec<u32> = self.usable_devices().collect();
        cases.sort_by(|a, b| self.jobs[*b].value.total_cmp(&self.jobs[*a].value));
        let mut from: BTreeMap<(Option<u32>, u32), u32> = BTreeMap::new();
        let mut seconds: BTreeMap<u32, Seconds> = BTreeMap::new();
        for case in cases {
            let progress = &self.progress[case];
            let last = progress.measured_on.last().copied();
            let priority = |device: &u32| {
                let total = seconds.get(device).copied().unwrap_or_default();
                (progress.times_on(*device), from.get(&(last, *device)).copied().unwrap_or_default(), total)
            };
            let compare = |a: &&u32, b: &&u32| {
                let (a, b) = (priority(a), priority(b));
                (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
            };
            let Some(&device) = devices.iter().min_by(compare) else {
                self.requeue_case(case);
                continue;
            };
            *from.entry((last, device)).or_default() += 1;
            *seconds.entry(device).or_default() += self.costs.case_seconds(&self.jobs[case]);
            let kernels = self.costs.kernel_count();
            let queue = self.dealt.entry(device).or_insert_with(|| CaseQueue::of_measured_cases(kernels));
            queue.insert_case(&self.jobs, case);
        }
    }
}
