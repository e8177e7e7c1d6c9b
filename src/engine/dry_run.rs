//! What a run would do: the scheduler in virtual time, on a host where everything takes what it is thought to take
//! and nothing fails.

use std::collections::BTreeSet;

use super::run::{jobs, limits};
use crate::{
    domain::{CaseOutcome, DataKind, Verdict},
    plan::{InitialCosts, PlannedCase},
    sched::{
        CaseResult, CollectionExit, CollectionFinished, PriorCosts, SchedAction, SchedCase, SchedulerState,
        Seconds, SimulatedHost, StartCollection, simulate,
    },
};

/// Where and when a case would be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduledSlot {
    /// The collection.
    pub collection: u32,
    /// Its device, the first of a gang.
    pub device: u32,
    /// When the collection would begin, in seconds from now on.
    pub begins: Seconds,
    /// When it would end.
    pub ends: Seconds,
}

/// What a run would do.
#[derive(Clone, Debug)]
pub struct PlanPreview {
    /// By case, in the order of the plan: where it would be measured, or why not.
    pub cases: Vec<Result<ScheduledSlot, String>>,
    /// Collections.
    pub collections: u32,
    /// Devices that would be used.
    pub devices: BTreeSet<u32>,
    /// When everything would have ended.
    pub ends: Seconds,
}

/// Plays a plan through. Durations are predictions, and say nothing of what a measurement will show.
#[must_use]
pub fn dry_run(
    kind: DataKind,
    costs: &InitialCosts,
    cases: &[PlannedCase],
    devices: &[u32],
    budget: Option<Seconds>,
) -> PlanPreview {
    let jobs = jobs(costs, cases);
    let limits = limits(kind, budget);
    let mut state = SchedulerState::new(jobs.clone(), devices, limits, 0);
    let left = Err("it is not reached".to_owned());
    let mut host =
        IdealHost { jobs, prior: limits.prior, cases: vec![left; cases.len()], ..IdealHost::default() };
    let (ends, _) = simulate(&mut state, &mut host, Vec::new());
    PlanPreview { cases: host.cases, collections: host.collections, devices: host.devices, ends }
}

/// A host on which nothing fails.
#[derive(Default)]
struct IdealHost {
    jobs: Vec<SchedCase>,
    prior: PriorCosts,
    cases: Vec<Result<ScheduledSlot, String>>,
    collections: u32,
    devices: BTreeSet<u32>,
}

impl SimulatedHost for IdealHost {
    fn end(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished {
        let PriorCosts { start: until_started, export, export_launch, .. } = self.prior;
        let launches: f64 = start.cases.iter().map(|case| f64::from(self.jobs[*case].launches)).sum();
        let seconds: Seconds = start.cases.iter().map(|case| self.jobs[*case].seconds).sum();
        let total = until_started + seconds + export + export_launch * launches;
        self.collections += 1;
        self.devices.extend(&start.devices);
        let device = start.devices.first().copied().unwrap_or_default();
        let place = ScheduledSlot { collection: start.collection, device, begins: now, ends: now + total };
        let results = start.cases.iter().map(|&case| {
            self.cases[case] = Ok(place);
            let finding = CaseOutcome::new(Verdict::Ok, "");
            CaseResult { case, finding, seconds: Some(self.jobs[case].seconds) }
        });
        CollectionFinished {
            results: results.collect(),
            collection: start.collection,
            end: CollectionExit::Clean,
            start: Some(until_started),
            total,
            outcome: String::new(),
        }
    }

    fn watch(&mut self, _now: Seconds, action: &SchedAction) {
        if let SchedAction::Conclude { case, finding } = action
            && finding.verdict != Verdict::Ok
        {
            self.cases[*case] = Err(finding.reason.clone());
        }
    }
}
