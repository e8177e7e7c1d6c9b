//! Forecast of the cases that end before the deadline.

use super::{Seconds, state::SchedulerState};

/// Forecast of the rest of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunForecast {
    /// Number of cases without a verdict, running ones and those with the same call included.
    pub open: usize,
    /// Of these, the cases that are predicted to have one before the deadline.
    pub in_time: usize,
    /// Seconds until the last of those.
    pub seconds: Seconds,
}

impl SchedulerState {
    /// Predicts which cases end in time: running ones, then waiting ones in their order, on the usable devices.
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
        let gangs = self.gangs.values().flat_map(super::CaseQueue::in_order);
        let dealt = self.dealt.values().flat_map(super::CaseQueue::in_order);
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
