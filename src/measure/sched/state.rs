//! State of the scheduler, and its transitions on events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Bisection, CaseQueue, CollectionExit, CollectionFinished, DeviceRecord, GangKey, KernelCounts,
    LearnedCosts, SchedAction, SchedCase, SchedEvent, SchedLimits, Seconds, StartCollection,
};
use crate::{
    base::stats::{hash_numbers, signed_unit_deviate},
    kernel::{CaseOutcome, Cause, CollectionPurpose, Verdict, cause::CollectionFailure},
};

/// Number of collections in a row without evidence on each device, and none with a profile that was read in the run,
/// after which the run gives up: the host is at fault.
const MAX_EMPTY_COLLECTIONS: u32 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct CaseProgress {
    pub(super) tries: u32,
    pub(super) skipped: u32,
    pub(super) broken_on: Vec<(u32, u32)>,
    /// True if a suspect named by the journal was cleared in a bisection with this case: names are ignored from then on.
    pub(super) was_misnamed: bool,
    pub(super) measured_on: Vec<u32>,
    pub(super) tried_on: BTreeSet<u32>,
    pub(super) withdrawals: u32,
    pub(super) wrong_on: Vec<u32>,
    /// Devices on which its call raised an error that may not be its own.
    pub(super) errors_on: Vec<u32>,
    /// Number of such errors of unclear cause.
    pub(super) unclear: u32,
    pub(super) last: Option<CaseOutcome>,
    pub(super) is_concluded: bool,
}

impl CaseProgress {
    pub(super) fn times_on(&self, device: u32) -> usize {
        self.measured_on.iter().filter(|had| **had == device).count()
    }
}

#[derive(Clone, Debug)]
pub(super) struct QueuedCollection {
    pub(super) cases: Vec<usize>,
    pub(super) purpose: CollectionPurpose,
    pub(super) avoid: Vec<u32>,
    pub(super) bisection: Option<u32>,
}

impl QueuedCollection {
    pub(super) const fn new(cases: Vec<usize>, purpose: CollectionPurpose) -> Self {
        Self { cases, purpose, avoid: Vec::new(), bisection: None }
    }
}

#[derive(Clone, Debug)]
pub(super) struct StartedCollection {
    pub(super) start: StartCollection,
    pub(super) bisection: Option<u32>,
    pub(super) since: Seconds,
}

#[derive(Clone, Debug, Default)]
pub struct SchedulerState {
    pub(super) now: Seconds,
    pub(super) actions: Vec<SchedAction>,
    pub(super) jobs: Vec<SchedCase>,
    pub(super) limits: SchedLimits,
    pub(super) costs: LearnedCosts,
    pub(super) progress: Vec<CaseProgress>,
    pub(super) ready: CaseQueue,
    pub(super) dealt: BTreeMap<u32, CaseQueue>,
    pub(super) gangs: BTreeMap<GangKey, CaseQueue>,
    pub(super) queued: VecDeque<QueuedCollection>,
    pub(super) bisections: BTreeMap<u32, Bisection>,
    pub(super) next_bisection: u32,
    pub(super) devices: BTreeMap<u32, DeviceRecord>,
    pub(super) running: BTreeMap<u32, StartedCollection>,
    pub(super) kernels: BTreeMap<u32, KernelCounts>,
    pub(super) collections: u32,
    /// Successful cases for control collections, the cheapest first.
    pub(super) control_cases: Vec<usize>,
    pub(super) smallest_oom: Option<u64>,
    pub(super) largest_ok: u64,
    pub(super) has_read_profile: bool,
    has_started: bool,
    pub(super) is_paused: bool,
    pub(super) is_stopping: bool,
    has_stop_request: bool,
    pub(super) open: usize,
    pub(super) repetitions: u64,
    timer_at: Option<Seconds>,
    pub(super) has_ended: bool,
}

impl SchedulerState {
    /// Creates a scheduler for these cases and devices. `collections` is the number of the last collection of the
    /// interrupted run, or 0.
    pub fn new(jobs: Vec<SchedCase>, devices: &[u32], limits: SchedLimits, collections: u32) -> Self {
        let kernels = jobs.iter().map(|job| job.kernel + 1).max().unwrap_or(0);
        let mut state = Self {
            progress: vec![CaseProgress::default(); jobs.len()],
            open: jobs.len(),
            costs: LearnedCosts::new(kernels, &limits.prior),
            jobs,
            limits,
            ready: CaseQueue::new(kernels),
            devices: devices.iter().map(|device| (*device, DeviceRecord::default())).collect(),
            collections,
            ..Self::default()
        };
        (0..state.jobs.len()).for_each(|case| state.requeue_case(case));
        state
    }

    pub(crate) fn set_measured_on(&mut self, case: usize, devices: &[u32]) {
        self.progress[case].measured_on = devices.to_vec();
    }

    /// Concludes cases that an interrupted run has measured, before the start; [`SchedEvent::MeasureAgain`] reopens them.
    pub(crate) fn set_concluded(&mut self, cases: &BTreeSet<usize>) {
        for case in self.take_waiting() {
            if cases.contains(&case) {
                self.progress[case].is_concluded = true;
                self.open -= 1;
            } else {
                self.requeue_case(case);
            }
        }
    }

    /// Returns true if no further collection starts, such as for lack of time.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub fn running_collections(&self) -> usize {
        self.running.len()
    }

    pub fn busy_devices(&self) -> BTreeSet<u32> {
        self.running.values().flat_map(|running| running.start.devices.iter().copied()).collect()
    }

    /// Returns true if collections gave no evidence and no profile was ever read: the host cannot measure.
    pub fn gave_up(&self) -> bool {
        !self.has_read_profile && self.devices.values().any(|device| device.empty_collections > 0)
    }

    pub fn on_event(&mut self, now: Seconds, event: SchedEvent) -> Vec<SchedAction> {
        self.now = now;
        match event {
            SchedEvent::Started => self.has_started = true,
            SchedEvent::Finished(ended) => self.on_finished(&ended),
            SchedEvent::StopRequested => {
                self.has_stop_request = true;
                self.stop_new_work(&Cause::RunStopped);
            }
            SchedEvent::MeasureAgain(cases) => self.start_round(cases),
            SchedEvent::MeasurementsWithdrawn(cases) => self.reopen_withdrawn(cases),
            SchedEvent::DeviceDeviates { device, reason } => {
                let is_left =
                    |(other, record): (&u32, &DeviceRecord)| *other != device && !record.is_excluded();
                if self.devices.iter().any(is_left) {
                    self.exclude_device(device, reason);
                }
            }
            SchedEvent::DeviceLost { device, reason } if self.may_exclude() => {
                self.exclude_device(device, reason);
            }
            SchedEvent::TimerFired | SchedEvent::DeviceLost { .. } => {}
            SchedEvent::NewWorkPaused => self.is_paused = true,
            SchedEvent::NewWorkResumed => self.is_paused = false,
            SchedEvent::ReservationsChanged { reserved, released } => {
                for (id, device) in &mut self.devices {
                    device.is_reserved |= reserved.contains(id);
                    device.is_reserved &= !released.contains(id);
                }
            }
        }
        if self.has_started {
            self.decide_actions();
        }
        std::mem::take(&mut self.actions)
    }

    fn decide_actions(&mut self) {
        let now = self.now;
        for device in self.devices.values_mut() {
            device.end_quarantine(now);
        }
        if self.limits.deadline.is_some_and(|deadline| now >= deadline) {
            self.stop_new_work(&Cause::DeadlineReached);
        }
        self.fill_devices();
        self.give_up_what_cannot_run();
        self.set_timer();
        if self.open == 0 && self.running.is_empty() && !self.has_ended {
            self.has_ended = true;
            self.actions.push(SchedAction::Finish);
        }
    }

    fn exclude_device(&mut self, device: u32, reason: String) {
        if let Some(record) = self.devices.get_mut(&device).filter(|record| !record.is_excluded()) {
            record.exclude();
            self.actions.push(SchedAction::Pause { device, reason, until: None });
        }
    }

    pub(super) fn has_untried_device(&self, case: usize) -> bool {
        let tried = &self.progress[case].tried_on;
        self.usable_devices().any(|id| !tried.contains(&id))
    }

    pub(super) fn usable_devices(&self) -> impl Iterator<Item = u32> {
        self.devices.iter().filter(|(_, device)| device.is_usable()).map(|(id, _)| *id)
    }

    pub(super) fn stop_new_work(&mut self, cause: &Cause) {
        self.is_stopping = true;
        for case in self.take_waiting() {
            let last = self.progress[case].last.take().filter(|last| last.verdict != Verdict::NotRun);
            let outcome = last.map_or_else(
                || CaseOutcome::new(Verdict::NotRun, cause.clone()),
                |last| self.outcome_without_retry(&last),
            );
            self.conclude_case(case, outcome);
        }
    }

    /// Returns the outcome of a case that a stop keeps from being tried again. After a stop request it was not run, so that `resume`
    /// tries it again: a signal to all processes of a job, such as that of `scancel`, ends the collections as well.
    pub(super) fn outcome_without_retry(&self, last: &CaseOutcome) -> CaseOutcome {
        let verdict = last.verdict;
        if !self.has_stop_request || !last.is_worth_a_retry() || verdict == Verdict::NotRun {
            return last.clone();
        }
        let last = Box::new(last.reason.clone());
        CaseOutcome::new(Verdict::NotRun, Cause::StoppedBeforeRetry { verdict, last })
    }

    fn take_waiting(&mut self) -> Vec<usize> {
        let mut cases = self.ready.take_all();
        cases.extend(self.dealt.values_mut().flat_map(CaseQueue::take_all));
        cases.extend(self.gangs.values_mut().flat_map(CaseQueue::take_all));
        cases.extend(self.queued.drain(..).flat_map(|task| task.cases));
        cases.extend(std::mem::take(&mut self.bisections).into_values().flat_map(Bisection::into_waiting));
        cases.sort_unstable();
        cases
    }

    pub(super) fn conclude_case(&mut self, case: usize, outcome: CaseOutcome) {
        if !std::mem::replace(&mut self.progress[case].is_concluded, true) {
            self.open -= 1;
            self.actions.push(SchedAction::Conclude { case, outcome });
        }
    }

    pub(super) fn requeue_case(&mut self, case: usize) {
        match self.jobs[case].devices {
            0 | 1 => self.ready.insert_case(&self.jobs, case),
            _ => {
                let kernels = self.costs.kernel_count();
                self.gangs
                    .entry(self.jobs[case].gang_key())
                    .or_insert_with(|| CaseQueue::new(kernels))
                    .insert_case(&self.jobs, case);
            }
        }
    }

    /// Stops if no collection runs and no event can free a device: the remaining cases cannot run.
    fn give_up_what_cannot_run(&mut self) {
        let may_change = self.is_paused
            || !self.running.is_empty()
            || self.devices.values().any(DeviceRecord::may_be_freed);
        if may_change || self.open == 0 {
            return;
        }
        let all_excluded = self.devices.values().all(DeviceRecord::is_excluded);
        let cause = if all_excluded {
            Cause::NoWorkingDevice
        } else if self.limits.deadline.is_some() {
            Cause::TooLateForDeadline
        } else {
            Cause::MoreDevicesThanRun
        };
        self.stop_new_work(&cause);
    }

    fn set_timer(&mut self) {
        let quarantines = self.devices.values().filter_map(DeviceRecord::quarantine_end);
        let deadline = self.limits.deadline.filter(|_| self.open > 0);
        let next = quarantines.chain(deadline).min_by(f64::total_cmp).filter(|_| !self.is_stopping);
        if next != self.timer_at {
            self.timer_at = next;
            self.actions.extend(next.map(SchedAction::SetTimer));
        }
    }

    /// Returns true if devices may be excluded. A run with a deadline tries them again until then.
    pub(super) const fn may_exclude(&self) -> bool {
        self.limits.deadline.is_none()
    }

    /// Pauses the devices of a collection without evidence, or those of its failed ranks; gives up if no device ever gives any.
    pub(super) fn record_evidence(&mut self, devices: &[u32], ended: &CollectionFinished) {
        self.has_read_profile |= ended.has_readable_profile;
        let has_evidence = match ended.exit {
            CollectionExit::NothingLaunched => false,
            // Once a profile of the run was read, an unreadable one is a fault of its device.
            CollectionExit::Completed => self.has_read_profile,
            _ => true,
        };
        let may_exclude = self.may_exclude();
        let is_failed = |one: &u32| ended.failed_devices.is_empty() || ended.failed_devices.contains(one);
        for id in devices.iter().filter(|device| has_evidence || is_failed(device)) {
            let Some(device) = self.devices.get_mut(id) else { continue };
            if has_evidence {
                self.actions.extend(device.record_evidence().then_some(SchedAction::Readmit { device: *id }));
            } else {
                let until = device.start_pause(self.now, self.limits.first_pause, may_exclude);
                self.actions.push(SchedAction::Pause { device: *id, reason: ended.message.clone(), until });
            }
        }
        let is_hopeless =
            |device: &DeviceRecord| !device.is_reserved && device.empty_collections >= MAX_EMPTY_COLLECTIONS;
        if !self.has_read_profile && self.running.is_empty() && self.devices.values().all(is_hopeless) {
            let failure = match ended.exit {
                CollectionExit::NothingLaunched => CollectionFailure::NothingLaunched,
                _ => CollectionFailure::NoReadableProfile,
            };
            let (collections, message) = (MAX_EMPTY_COLLECTIONS, ended.message.clone());
            self.stop_new_work(&Cause::CollectionsFailed { collections, failure, message });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunForecast {
    /// Number of cases without a verdict, running ones and those with the same call included.
    pub open: usize,
    /// Number of these cases that are predicted to have a verdict before the deadline.
    pub in_time: usize,
    /// Seconds until the last of the cases in `in_time` has a verdict.
    pub seconds: Seconds,
}

impl SchedulerState {
    pub fn forecast(&self, now: Seconds) -> RunForecast {
        let lanes = self.devices.values().filter(|device| device.is_usable()).count().max(1);
        let (lanes, most) = (lanes as f64, self.limits.max_cases.max(1) as f64);
        let running: Seconds = self
            .running
            .values()
            .map(|running| (running.start.predicted - (now - running.since)).max(0.0))
            .sum();
        let time = self.limits.deadline.map_or(f64::INFINITY, |deadline| (deadline - now).max(0.0));
        let mut work = running;
        let running_jobs = self.running.values().flat_map(|running| &running.start.cases);
        let mut open: usize = running_jobs.map(|case| 1 + self.jobs[*case].equal_cases).sum();
        let mut in_time = open;
        // The overhead of a collection is divided among its cases.
        let longest = (self.limits.longest_collection - self.costs.overhead_seconds()).max(1.0);
        let gangs = self.gangs.values().flat_map(CaseQueue::in_order);
        let dealt = self.dealt.values().flat_map(CaseQueue::in_order);
        let tasks = self.queued.iter().flat_map(|task| task.cases.iter().copied());
        for case in gangs.chain(tasks).chain(dealt).chain(self.ready.in_order()) {
            let job = &self.jobs[case];
            let seconds = self.costs.case_seconds(job);
            let overhead = self.costs.overhead_seconds() * (seconds / longest).max(1.0 / most);
            let more = (seconds + overhead) * job.devices.max(1) as f64;
            open += 1 + job.equal_cases;
            if (work + more) / lanes <= time {
                work += more;
                in_time += 1 + job.equal_cases;
            }
        }
        RunForecast { open, in_time, seconds: work / lanes }
    }
}

// Rounds: concluded cases are measured again, each on a device that it has had least often and beside random other cases. The
// effect of a device or of a collection is removed from a case by means of the other cases that share it. Cases that travelled
// together would share all effects: nothing would separate their durations from the effects of their collections. The cases of a
// round are therefore dealt to the devices before it starts: those that were last measured on the same device are divided evenly
// among the others, in random order.

/// Withdrawals after which a case is not measured again: a host whose clock never settles would withdraw each of them.
const MAX_WITHDRAWALS: u32 = 3;

impl SchedulerState {
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

    /// Reopens concluded cases whose measurements were withdrawn, unless that was so too often.
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

    fn reopen_cases(&mut self, mut cases: Vec<usize>) -> Vec<usize> {
        self.has_ended = false;
        self.repetitions += 1;
        if self.is_stopping {
            return Vec::new();
        }
        cases.retain(|case| std::mem::take(&mut self.progress[*case].is_concluded));
        for &case in &cases {
            let progress = &mut self.progress[case];
            (progress.tries, progress.skipped, progress.unclear, progress.last) = (0, 0, 0, None);
            progress.wrong_on.clear();
            progress.errors_on.clear();
            self.open += 1;
            // With the values of the plan, a case would meet the same neighbours in each collection.
            let random = signed_unit_deviate(hash_numbers(&[self.repetitions, case as u64]));
            self.jobs[case].value = random.abs();
        }
        cases
    }

    /// Assigns cases to devices that they have had least often, evenly from each device that measured them last, then by time.
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
