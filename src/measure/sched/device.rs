//! Availability and faults of devices, and devices that run cases as other kernels: a device may lack binaries that others have, so
//! that such a case is tried on another one before its verdict.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CaseResult, Seconds,
    state::{CaseProgress, QueuedCollection, SchedulerState},
};
use crate::kernel::{CollectionPurpose, Verdict};

const FIRST_QUARANTINE: Seconds = 600.0;
const MAX_PAUSE: Seconds = 2400.0;
const MAX_QUARANTINES: u32 = 3;
const MAX_PAUSES: u32 = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct DeviceRecord {
    pub(super) running: Option<u32>,
    pub(super) is_reserved: bool,
    pub(super) needs_control: bool,
    /// End of a quarantine or pause; infinite if the device is excluded for the rest of the run.
    quarantine: Option<Seconds>,
    /// True if it was quarantined and no control has succeeded since.
    was_quarantined: bool,
    quarantines: u32,
    faults: u32,
    pub(super) empty_collections: u32,
}

impl DeviceRecord {
    pub(super) const fn is_free(&self) -> bool {
        self.running.is_none() && !self.is_reserved && self.quarantine.is_none()
    }

    pub(super) const fn is_usable(&self) -> bool {
        !self.is_reserved && self.quarantine.is_none()
    }

    pub(super) fn is_excluded(&self) -> bool {
        self.quarantine == Some(f64::INFINITY)
    }

    pub(super) fn may_be_freed(&self) -> bool {
        !self.is_excluded() && (self.is_reserved || self.quarantine.is_some())
    }

    pub(super) fn quarantine_end(&self) -> Option<Seconds> {
        self.quarantine.filter(|until| until.is_finite())
    }

    pub(super) fn record_fault(&mut self) -> u32 {
        self.needs_control = true;
        self.faults += 1;
        self.faults
    }

    pub(super) fn record_working(&mut self) -> bool {
        self.needs_control = false;
        self.faults = 0;
        std::mem::take(&mut self.was_quarantined)
    }

    pub(super) fn start_quarantine(&mut self, now: Seconds, may_exclude: bool) -> Option<Seconds> {
        self.quarantines += 1;
        let length = FIRST_QUARANTINE * 2_f64.powi(self.quarantines.saturating_sub(1).cast_signed());
        self.needs_control = true;
        self.was_quarantined = true;
        self.set_quarantine(now, length, may_exclude && self.quarantines > MAX_QUARANTINES)
    }

    pub(super) fn start_pause(&mut self, now: Seconds, first: Seconds, may_exclude: bool) -> Option<Seconds> {
        self.empty_collections += 1;
        let length = first * 3_f64.powi(self.empty_collections.saturating_sub(1).cast_signed());
        self.set_quarantine(now, length, may_exclude && self.empty_collections > MAX_PAUSES)
    }

    pub(super) const fn exclude(&mut self) {
        self.quarantine = Some(f64::INFINITY);
    }

    fn set_quarantine(&mut self, now: Seconds, length: Seconds, is_excluded: bool) -> Option<Seconds> {
        // A collection that ends after the device was excluded does not readmit it.
        let is_excluded = is_excluded || self.is_excluded();
        self.quarantine = Some(if is_excluded { f64::INFINITY } else { now + length.min(MAX_PAUSE) });
        self.quarantine_end()
    }

    pub(super) const fn record_evidence(&mut self) -> bool {
        let was_paused = self.empty_collections > 0;
        self.empty_collections = 0;
        was_paused
    }

    pub(super) fn end_quarantine(&mut self, now: Seconds) {
        if self.quarantine_end().is_some_and(|until| until <= now) {
            self.quarantine = None;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelCounts {
    pub(crate) right: u32,
    pub(crate) wrong: u32,
}

impl KernelCounts {
    const fn is_mostly_wrong(self) -> bool {
        self.wrong > self.right
    }
}

impl SchedulerState {
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

    fn devices_to_try(&self, case: usize) -> impl Iterator<Item = u32> {
        let CaseProgress { wrong_on, errors_on, .. } = &self.progress[case];
        self.usable_devices().filter(move |id| !wrong_on.contains(id) && !errors_on.contains(id))
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

    /// Queues cases for devices on which they have not failed, if possible for those that run most cases as they should.
    pub(super) fn try_elsewhere(&mut self, cases: Vec<usize>) {
        let mut by_avoided: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for case in cases {
            let CaseProgress { wrong_on, errors_on, .. } = &self.progress[case];
            let mut avoid = [wrong_on.as_slice(), errors_on].concat();
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

    /// Returns the devices on which calls of these cases raised errors, while they succeeded on others now; each case names a
    /// device once.
    pub(super) fn take_failed_devices(&mut self, succeeded_on: &[u32], results: &[CaseResult]) -> Vec<u32> {
        let mut failed = BTreeSet::new();
        for CaseResult { case, .. } in results.iter().filter(|result| result.outcome.verdict.is_recorded()) {
            failed.extend(std::mem::take(&mut self.progress[*case].errors_on));
        }
        failed.retain(|device| !succeeded_on.contains(device));
        failed.into_iter().collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_excluded_after_three_quarantines() {
        let mut device = DeviceRecord::default();
        let mut now = 0.0;
        for length in [600.0, 1200.0, 2400.0] {
            assert_eq!(device.start_quarantine(now, true), Some(now + length));
            device.end_quarantine(now + length - 1.0);
            assert!(!device.is_usable());
            now += length;
            device.end_quarantine(now);
            assert!(device.is_free() && device.needs_control);
        }
        assert_eq!(device.start_quarantine(now, true), None);
        assert!(device.is_excluded());
        device.end_quarantine(1e9);
        assert!(!device.is_usable());
    }

    #[test]
    fn pauses_grow_until_a_collection_gives_evidence() {
        let mut device = DeviceRecord::default();
        let pauses: Vec<_> = (0..8).filter_map(|_| device.start_pause(0.0, 10.0, true)).collect();
        assert_eq!(pauses, [10.0, 30.0, 90.0, 270.0, 810.0, 2400.0, 2400.0, 2400.0]);
        assert!(device.record_evidence() && !device.record_evidence());
        assert_eq!(device.start_pause(0.0, 10.0, true), Some(10.0));
    }

    #[test]
    fn device_is_tried_again_while_the_run_has_time() {
        let mut device = DeviceRecord::default();
        for _ in 0..20 {
            assert!(device.start_pause(0.0, 10.0, false).is_some());
            assert!(device.start_quarantine(0.0, false).is_some_and(|until| until <= MAX_PAUSE));
        }
    }
}
