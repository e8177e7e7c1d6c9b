//! What will be finished in time, as far as is known now.

use super::{Seconds, state::SchedulerState};

/// A forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunForecast {
    /// Cases that have no verdict yet, running ones included.
    pub open: usize,
    /// Of these, the cases that will have one in time.
    pub in_time: usize,
    /// Seconds until all of those have ended.
    pub seconds: Seconds,
}

impl SchedulerState {
    /// What will be finished in time: what runs now, then what waits in its order, on the devices that are used.
    #[must_use]
    pub fn forecast(&self, now: Seconds) -> RunForecast {
        let lanes = self.devices.values().filter(|device| device.is_usable()).count().max(1);
        #[expect(clippy::cast_precision_loss, reason = "counts")]
        let (lanes, most) = (lanes as f64, self.limits.most_cases.max(1) as f64);
        let running: Seconds =
            self.running.values().map(|running| (running.predicted - (now - running.since)).max(0.0)).sum();
        let time = self.limits.deadline.map_or(f64::INFINITY, |deadline| (deadline - now).max(0.0));
        let mut work = running;
        let mut open: usize = self.running.values().map(|running| running.cases.len()).sum();
        let mut in_time = open;
        // What a collection costs besides its cases is shared by them.
        let longest = (self.limits.longest - self.costs.collection()).max(1.0);
        let gangs = self.gangs.values().flat_map(super::CaseQueue::in_order);
        let tasks = self.tasks.iter().flat_map(|task| task.cases.iter().copied());
        for case in gangs.chain(tasks).chain(self.ready.in_order()) {
            let job = &self.jobs[case];
            let seconds = self.costs.case(job);
            let besides = self.costs.collection() * (seconds / longest).max(1.0 / most);
            #[expect(clippy::cast_precision_loss, reason = "a count of devices")]
            let more = (seconds + besides) * job.devices.max(1) as f64;
            open += 1;
            if (work + more) / lanes <= time {
                work += more;
                in_time += 1;
            }
        }
        RunForecast { open, in_time, seconds: work / lanes }
    }
}
