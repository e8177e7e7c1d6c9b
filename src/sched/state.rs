//! What the scheduler knows, and how an event changes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Bisection, CaseQueue, DeviceRecord, LearnedCosts, SchedAction, SchedCase, SchedEvent, SchedLimits,
    Seconds,
};
use crate::domain::{CaseOutcome, CollectionPurpose, Verdict};

/// After so many collections in a row without a single launch, and none before, the host is at fault.
const DEAD_COLLECTIONS: u32 = 3;

/// What is known of a case.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseProgress {
    /// Attempts that say something of the case.
    pub(super) tries: u32,
    /// Collections that ended before its turn.
    pub(super) skipped: u32,
    /// Device and collection of each collection that broke while it was suspected.
    pub(super) broke: Vec<(u32, u32)>,
    /// Whether a search that a name began has cleared the named one: names are not trusted again.
    pub(super) is_doubted: bool,
    /// What was found last.
    pub(super) last: Option<CaseOutcome>,
    /// Whether it has its verdict.
    pub(super) is_concluded: bool,
}

/// Cases to run by themselves.
#[derive(Clone, Debug)]
pub(super) struct SoloCases {
    pub(super) cases: Vec<usize>,
    pub(super) purpose: CollectionPurpose,
    /// Devices that have had their chance.
    pub(super) avoid: Vec<u32>,
    pub(super) inquiry: Option<u32>,
}

impl SoloCases {
    pub(super) const fn new(cases: Vec<usize>, purpose: CollectionPurpose) -> Self {
        Self { cases, purpose, avoid: Vec::new(), inquiry: None }
    }
}

/// A collection that runs.
#[derive(Clone, Debug)]
pub(super) struct RunningCases {
    pub(super) devices: Vec<u32>,
    pub(super) cases: Vec<usize>,
    pub(super) purpose: CollectionPurpose,
    pub(super) inquiry: Option<u32>,
    pub(super) predicted: Seconds,
    pub(super) since: Seconds,
}

/// What the scheduler knows.
#[derive(Clone, Debug)]
pub struct SchedulerState {
    pub(super) jobs: Vec<SchedCase>,
    pub(super) limits: SchedLimits,
    pub(super) costs: LearnedCosts,
    pub(super) progress: Vec<CaseProgress>,
    pub(super) ready: CaseQueue,
    /// Cases that need several devices, by how many.
    pub(super) gangs: BTreeMap<usize, CaseQueue>,
    pub(super) tasks: VecDeque<SoloCases>,
    pub(super) inquiries: BTreeMap<u32, Bisection>,
    pub(super) next_inquiry: u32,
    pub(super) devices: BTreeMap<u32, DeviceRecord>,
    pub(super) running: BTreeMap<u32, RunningCases>,
    /// The last collection's number.
    pub(super) collections: u32,
    /// Cases that ended well, the cheapest first, for controls.
    pub(super) control_cases: Vec<usize>,
    /// Least memory of a case that ran out of it alone.
    pub(super) smallest_oom: Option<u64>,
    /// Greatest memory of a case that ended well.
    pub(super) largest_ok: u64,
    /// Collections in a row that launched nothing.
    pub(super) dead: u32,
    pub(super) has_launched: bool,
    pub(super) is_held: bool,
    pub(super) is_stopping: bool,
    open: usize,
    wakes_at: Option<Seconds>,
    has_ended: bool,
}

impl SchedulerState {
    /// A scheduler for these cases on these devices. The first collection gets the number behind `collections`,
    /// those that an interrupted run has begun before.
    #[must_use]
    pub fn new(jobs: Vec<SchedCase>, devices: &[u32], limits: SchedLimits, collections: u32) -> Self {
        let kernels = jobs.iter().map(|job| job.kernel + 1).max().unwrap_or(0);
        let mut ready = CaseQueue::new(kernels);
        let mut gangs: BTreeMap<usize, CaseQueue> = BTreeMap::new();
        for (case, job) in jobs.iter().enumerate() {
            if job.devices > 1 {
                gangs.entry(job.devices).or_insert_with(|| CaseQueue::new(kernels)).add(&jobs, case);
            } else {
                ready.add(&jobs, case);
            }
        }
        Self {
            progress: vec![CaseProgress::default(); jobs.len()],
            open: jobs.len(),
            costs: LearnedCosts::new(kernels, &limits.prior),
            jobs,
            limits,
            ready,
            gangs,
            tasks: VecDeque::new(),
            inquiries: BTreeMap::new(),
            next_inquiry: 0,
            devices: devices.iter().map(|device| (*device, DeviceRecord::default())).collect(),
            running: BTreeMap::new(),
            collections,
            control_cases: Vec::new(),
            smallest_oom: None,
            largest_ok: 0,
            dead: 0,
            has_launched: false,
            is_held: false,
            is_stopping: false,
            wakes_at: None,
            has_ended: false,
        }
    }

    /// Collections that are running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Devices on which collections run.
    #[must_use]
    pub fn busy_devices(&self) -> BTreeSet<u32> {
        self.running.values().flat_map(|running| running.devices.iter().copied()).collect()
    }

    /// Whether nothing could be launched, or not any more.
    #[must_use]
    pub const fn gave_up(&self) -> bool {
        self.dead >= DEAD_COLLECTIONS || (self.dead > 0 && !self.has_launched)
    }

    /// Takes note of an event and says what to do, in order.
    pub fn on_event(&mut self, now: Seconds, event: SchedEvent) -> Vec<SchedAction> {
        let mut actions = Vec::new();
        match event {
            SchedEvent::Started | SchedEvent::Woke => {}
            SchedEvent::Finished(ended) => self.on_finished(now, &ended, &mut actions),
            SchedEvent::StopRequested => self.stop("the run was stopped before its turn", &mut actions),
            SchedEvent::NewWorkPaused => self.is_held = true,
            SchedEvent::Released => self.is_held = false,
            SchedEvent::DeviceReserved { device } => self.set_lent(device, true),
            SchedEvent::DeviceReleased { device } => self.set_lent(device, false),
        }
        for device in self.devices.values_mut() {
            device.wake(now);
        }
        if self.limits.deadline.is_some_and(|deadline| now >= deadline) {
            self.stop("the deadline came before its turn", &mut actions);
        }
        self.fill_devices(now, &mut actions);
        self.give_up_what_cannot_run(&mut actions);
        self.ask_to_be_woken(&mut actions);
        if self.open == 0 && self.running.is_empty() && !self.has_ended {
            self.has_ended = true;
            actions.push(SchedAction::End);
        }
        actions
    }

    fn set_lent(&mut self, device: u32, is_lent: bool) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.is_lent = is_lent;
        }
    }

    /// Nothing new begins; what waits has its verdict.
    pub(super) fn stop(&mut self, reason: &str, actions: &mut Vec<SchedAction>) {
        self.is_stopping = true;
        for case in self.take_waiting() {
            let last = self.progress[case].last.take().filter(|last| last.verdict != Verdict::NotRun);
            let finding = last.unwrap_or_else(|| CaseOutcome::new(Verdict::NotRun, reason));
            self.conclude(case, finding, actions);
        }
    }

    /// Everything that waits, each case once, in the order of their indices.
    fn take_waiting(&mut self) -> Vec<usize> {
        let mut cases = self.ready.drain();
        cases.extend(self.gangs.values_mut().flat_map(CaseQueue::drain));
        cases.extend(self.tasks.drain(..).flat_map(|task| task.cases));
        cases.extend(std::mem::take(&mut self.inquiries).into_values().flat_map(Bisection::into_waiting));
        cases.sort_unstable();
        cases
    }

    pub(super) fn conclude(&mut self, case: usize, finding: CaseOutcome, actions: &mut Vec<SchedAction>) {
        if !std::mem::replace(&mut self.progress[case].is_concluded, true) {
            self.open -= 1;
            actions.push(SchedAction::Conclude { case, finding });
        }
    }

    /// Puts a case back to those that wait.
    pub(super) fn requeue(&mut self, case: usize) {
        match self.jobs[case].devices {
            0 | 1 => self.ready.add(&self.jobs, case),
            devices => {
                let kernels = self.costs.kernels();
                self.gangs.entry(devices).or_insert_with(|| CaseQueue::new(kernels)).add(&self.jobs, case);
            }
        }
    }

    /// Where nothing runs and nothing will change by waiting, what is left has no chance.
    fn give_up_what_cannot_run(&mut self, actions: &mut Vec<SchedAction>) {
        let may_change = self.is_held
            || !self.running.is_empty()
            || self.devices.values().any(|device| device.is_lent || device.wakes_at().is_some());
        if may_change || self.open == 0 {
            return;
        }
        let all_gone = self.devices.values().all(DeviceRecord::is_gone);
        let reason = if all_gone {
            "no device was left that works"
        } else if self.limits.deadline.is_some() {
            "it would not have ended before the deadline"
        } else {
            "it needs more devices than the run has"
        };
        self.stop(reason, actions);
    }

    fn ask_to_be_woken(&mut self, actions: &mut Vec<SchedAction>) {
        let rests = self.devices.values().filter_map(DeviceRecord::wakes_at);
        let deadline = self.limits.deadline.filter(|_| self.open > 0);
        let next = rests.chain(deadline).min_by(f64::total_cmp).filter(|_| !self.is_stopping);
        if next != self.wakes_at {
            self.wakes_at = next;
            actions.extend(next.map(SchedAction::WakeAt));
        }
    }

    /// The host is at fault where nothing is ever launched.
    pub(super) fn note_launch(&mut self, launched: bool, outcome: &str, actions: &mut Vec<SchedAction>) {
        self.has_launched |= launched;
        self.dead = if launched { 0 } else { self.dead + 1 };
        if self.dead >= DEAD_COLLECTIONS && !self.has_launched {
            let count = self.dead;
            self.stop(&format!("{count} collections in a row launched nothing: {outcome}"), actions);
        }
    }
}
