//! Preview of a run: the scheduler in virtual time, on a host without faults where every case takes its predicted time.

use std::collections::BTreeSet;

use super::scheduler_input::{scheduler_cases, scheduler_limits};
use crate::{
    cases::plan::{InitialCosts, PlannedCase},
    kernel::{CaseOutcome, Cause, DataKind, Verdict},
    measure::sched::{
        CaseResult, CollectionExit, CollectionFinished, PriorCosts, SchedAction, SchedCase, SchedulerState,
        Seconds, SimulatedHost, StartCollection, simulate,
    },
};

/// Predicted device and time of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScheduledSlot {
    pub collection: u32,
    /// Device of the collection, the first of a gang.
    pub device: u32,
    /// Start of the collection, in seconds from now.
    pub starts_at: Seconds,
    /// End of the collection, in seconds from now.
    pub ends_at: Seconds,
}

#[derive(Clone, Debug)]
pub(crate) struct PlanPreview {
    /// Slot of each case in the order of the plan, or the reason why it would not be measured.
    pub cases: Vec<Result<ScheduledSlot, Cause>>,
    pub collections: u32,
    pub devices: BTreeSet<u32>,
    /// Seconds from now to the end of the run.
    pub duration: Seconds,
}

/// Simulates a plan. All durations are predictions, not measurements.
pub(crate) fn dry_run(
    kind: DataKind,
    costs: &InitialCosts,
    cases: &[PlannedCase],
    devices: &[u32],
    budget: Option<Seconds>,
) -> PlanPreview {
    let jobs = scheduler_cases(costs, cases);
    let limits = scheduler_limits(kind, budget);
    let mut state = SchedulerState::new(jobs.clone(), devices, limits, 0);
    let unreached = Err(Cause::NotReached);
    let mut host =
        IdealHost { jobs, prior: limits.prior, cases: vec![unreached; cases.len()], ..IdealHost::default() };
    let (ends, _) = simulate(&mut state, &mut host, Vec::new());
    PlanPreview { cases: host.cases, collections: host.collections, devices: host.devices, duration: ends }
}

/// A host without faults.
#[derive(Default)]
struct IdealHost {
    jobs: Vec<SchedCase>,
    prior: PriorCosts,
    cases: Vec<Result<ScheduledSlot, Cause>>,
    collections: u32,
    devices: BTreeSet<u32>,
}

impl SimulatedHost for IdealHost {
    fn finish_collection(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished {
        let PriorCosts { startup, export, export_record, .. } = self.prior;
        let records: f64 = start.cases.iter().map(|case| f64::from(self.jobs[*case].records)).sum();
        let seconds: Seconds = start.cases.iter().map(|case| self.jobs[*case].seconds).sum();
        let total = startup + seconds + export + export_record * records;
        self.collections += 1;
        self.devices.extend(&start.devices);
        let device = start.devices.first().copied().unwrap_or_default();
        let slot =
            ScheduledSlot { collection: start.collection, device, starts_at: now, ends_at: now + total };
        let results = start.cases.iter().map(|&case| {
            self.cases[case] = Ok(slot);
            let outcome = CaseOutcome::new(Verdict::Ok, Cause::EveryLaunchRecorded);
            CaseResult { case, outcome, seconds: Some(self.jobs[case].seconds) }
        });
        CollectionFinished {
            results: results.collect(),
            collection: start.collection,
            exit: CollectionExit::Completed,
            has_readable_profile: true,
            startup: Some(startup),
            total,
            failed_devices: Vec::new(),
            message: String::new(),
        }
    }

    fn on_action(&mut self, _now: Seconds, action: &SchedAction) {
        if let SchedAction::Conclude { case, outcome } = action
            && outcome.verdict != Verdict::Ok
        {
            self.cases[*case] = Err(outcome.reason.cause.clone());
        }
    }
}
