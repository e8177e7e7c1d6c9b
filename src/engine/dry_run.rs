//! What a run would do: the scheduler in virtual time, on a host where everything takes what it is thought to take
//! and nothing fails.

use std::collections::BTreeSet;

use super::run::{jobs, limits};
use crate::{
    domain::{Finding, Kind, Verdict},
    plan::{Costs, Planned},
    sched::{Action, CaseEnd, End, Ended, Host, Job, Prior, Seconds, Start, State, simulate},
};

/// Where and when a case would be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
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
pub struct Preview {
    /// By case, in the order of the plan: where it would be measured, or why not.
    pub cases: Vec<Result<Place, String>>,
    /// Collections.
    pub collections: u32,
    /// Devices that would be used.
    pub devices: BTreeSet<u32>,
    /// When everything would have ended.
    pub ends: Seconds,
}

/// Plays a plan through. Durations are predictions, and say nothing of what a measurement will show.
#[must_use]
pub fn preview(
    kind: Kind,
    costs: &Costs,
    cases: &[Planned],
    devices: &[u32],
    budget: Option<Seconds>,
) -> Preview {
    let jobs = jobs(costs, cases);
    let limits = limits(kind, budget);
    let mut state = State::new(jobs.clone(), devices, limits, 0);
    let left = Err("it is not reached".to_owned());
    let mut host = Well { jobs, prior: limits.prior, cases: vec![left; cases.len()], ..Well::default() };
    let (ends, _) = simulate(&mut state, &mut host, Vec::new());
    Preview { cases: host.cases, collections: host.collections, devices: host.devices, ends }
}

/// A host on which nothing fails.
#[derive(Default)]
struct Well {
    jobs: Vec<Job>,
    prior: Prior,
    cases: Vec<Result<Place, String>>,
    collections: u32,
    devices: BTreeSet<u32>,
}

impl Host for Well {
    fn end(&mut self, now: Seconds, start: &Start) -> Ended {
        let Prior { start: until_started, export, export_launch, .. } = self.prior;
        let launches: f64 = start.cases.iter().map(|case| f64::from(self.jobs[*case].launches)).sum();
        let seconds: Seconds = start.cases.iter().map(|case| self.jobs[*case].seconds).sum();
        let total = until_started + seconds + export + export_launch * launches;
        self.collections += 1;
        self.devices.extend(&start.devices);
        let device = start.devices.first().copied().unwrap_or_default();
        let place = Place { collection: start.collection, device, begins: now, ends: now + total };
        let results = start.cases.iter().map(|&case| {
            self.cases[case] = Ok(place);
            let finding = Finding::new(Verdict::Ok, "");
            CaseEnd { case, finding, seconds: Some(self.jobs[case].seconds) }
        });
        Ended {
            results: results.collect(),
            collection: start.collection,
            end: End::Clean,
            start: Some(until_started),
            total,
            outcome: String::new(),
        }
    }

    fn watch(&mut self, _now: Seconds, action: &Action) {
        if let Action::Conclude { case, finding } = action
            && finding.verdict != Verdict::Ok
        {
            self.cases[*case] = Err(finding.reason.clone());
        }
    }
}
