//! Cases whose launches ran as another kernel: a device may lack binaries that others have, so that such a case is tried on
//! another one before its verdict.

use std::collections::BTreeMap;

use super::{
    CaseResult,
    state::{QueuedCollection, SchedulerState},
};
use crate::kernel::{CollectionPurpose, Verdict};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelCounts {
    /// Cases whose launches were recorded as their kernel, or as another choice for their call.
    pub(crate) right: u32,
    pub(crate) wrong: u32,
}

impl KernelCounts {
    const fn is_mostly_wrong(self) -> bool {
        self.wrong > self.right
    }
}

impl SchedulerState {
    /// Counts the results of a collection of single devices.
    pub(super) fn count_kernels(&mut self, devices: &[u32], results: &[CaseResult]) {
        let [device] = devices else { return };
        let counts = self.kernels.entry(*device).or_default();
        for CaseResult { outcome, .. } in results {
            let verdict = outcome.verdict;
            counts.right += u32::from(verdict.is_recorded() || verdict == Verdict::RanAsOther);
            counts.wrong += u32::from(verdict == Verdict::WrongKernel);
        }
    }

    fn is_mostly_wrong(&self, device: u32) -> bool {
        self.kernels.get(&device).is_some_and(|counts| counts.is_mostly_wrong())
    }

    /// Returns the usable devices on which the kernel of a case has not been missed.
    fn devices_to_try(&self, case: usize) -> impl Iterator<Item = u32> {
        let missed = &self.progress[case].wrong_on;
        self.usable_devices().filter(move |id| !missed.contains(id))
    }

    /// Returns true if a case whose kernel did not run on `device` is tried on another one: always on a second one, and on a third one
    /// only if the other two run most of their cases as other kernels.
    pub(super) fn may_be_right_elsewhere(&mut self, case: usize, device: &[u32]) -> bool {
        let [device] = device else { return false };
        self.progress[case].wrong_on.push(*device);
        match self.progress[case].wrong_on.as_slice() {
            [_] => self.devices_to_try(case).next().is_some(),
            missed => {
                missed.iter().all(|device| self.is_mostly_wrong(*device))
                    && self.devices_to_try(case).any(|device| !self.is_mostly_wrong(device))
            }
        }
    }

    /// Queues cases for other devices than those on which their kernels did not run, if possible for those that run most cases as they
    /// should.
    pub(super) fn try_elsewhere(&mut self, cases: Vec<usize>) {
        let mut by_avoided: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for case in cases {
            let mut avoid = self.progress[case].wrong_on.clone();
            if self.devices_to_try(case).any(|device| !self.is_mostly_wrong(device)) {
                let wrong = self.kernels.keys().copied().filter(|device| self.is_mostly_wrong(*device));
                avoid.extend(wrong.collect::<Vec<u32>>());
            }
            avoid.sort_unstable();
            avoid.dedup();
            by_avoided.entry(avoid).or_default().push(case);
        }
        for (avoid, cases) in by_avoided {
            let task = QueuedCollection::new(cases, CollectionPurpose::Measure);
            self.queued.push_back(QueuedCollection { avoid, ..task });
        }
    }

    /// Returns the devices on which cases of these results ran as other kernels that ran here as they should, and which run most
    /// cases so; each case names a device once.
    pub(super) fn take_blamed_devices(&mut self, results: &[CaseResult]) -> Vec<u32> {
        let mut blamed = Vec::new();
        for CaseResult { case, .. } in results.iter().filter(|result| result.outcome.verdict.is_recorded()) {
            blamed.append(&mut self.progress[*case].wrong_on);
        }
        blamed.sort_unstable();
        blamed.dedup();
        blamed.retain(|device| {
            self.is_mostly_wrong(*device)
                && !self.devices.get(device).is_none_or(|record| record.needs_control)
        });
        blamed
    }

    /// Returns the devices that ran most of their cases as other kernels, while another one ran most as it should.
    pub(crate) fn wrong_kernel_devices(&self) -> Vec<(u32, KernelCounts)> {
        let is_right = |counts: &KernelCounts| counts.right > counts.wrong;
        if !self.kernels.values().any(is_right) {
            return Vec::new();
        }
        let wrong = self.kernels.iter().filter(|(_, counts)| counts.is_mostly_wrong());
        wrong.map(|(device, counts)| (*device, *counts)).collect()
    }
}
