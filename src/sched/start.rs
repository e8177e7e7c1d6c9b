//! Which collections begin, and on which devices.

use super::{
    CollectionBudget, SchedAction, Seconds, StartCollection,
    state::{RunningCases, SchedulerState, SoloCases},
};
use crate::domain::CollectionPurpose;

/// Before the deadline, an ended process gets this long to be gone.
const GRACE: Seconds = 10.0;

/// The devices of a gang among those that are free, which are in order: a block that begins at a multiple of its
/// size, for dies of one card are such neighbours; else the first.
fn together(free: &[u32], size: usize) -> Option<Vec<u32>> {
    let is_block = |block: &&[u32]| {
        let numbers = block.first().copied().unwrap_or_default()..;
        let starts =
            u32::try_from(size).is_ok_and(|size| block.first().is_some_and(|first| first % size == 0));
        starts && block.iter().zip(numbers).all(|(device, number)| *device == number)
    };
    let block = free.windows(size.max(1)).find(is_block).or_else(|| free.get(..size));
    block.map(<[u32]>::to_vec)
}

impl SchedulerState {
    /// Begins what can begin on devices that are free: controls, then what is tried by itself, then gangs, then
    /// what waits.
    pub(super) fn fill_devices(&mut self, now: Seconds, actions: &mut Vec<SchedAction>) {
        if self.is_held || self.is_stopping {
            return;
        }
        let mut free: Vec<u32> =
            self.devices.iter().filter(|(_, device)| device.is_free()).map(|(id, _)| *id).collect();
        self.start_controls(now, &mut free, actions);
        self.start_tasks(now, &mut free, actions);
        self.start_gangs(now, &mut free, actions);
        while let Some((device, lanes)) = free.first().map(|device| (*device, free.len())) {
            // Those that have just begun will not come back for more so soon.
            let others = self.running.values().filter(|running| running.since < now).count();
            let room = self.room(now, self.ready.seconds(&self.costs), lanes, others);
            let Some(room) = room else { break };
            let (cases, seconds) = self.ready.take(&self.jobs, &self.costs, room);
            if cases.is_empty() {
                break;
            }
            free.remove(0);
            let (alone, cases) = self.split_oom_risk(cases);
            alone
                .into_iter()
                .for_each(|case| self.tasks.push_back(SoloCases::new(vec![case], CollectionPurpose::Alone)));
            if cases.is_empty() {
                free.insert(0, device);
                self.start_tasks(now, &mut free, actions);
                continue;
            }
            self.start(
                now,
                vec![device],
                SoloCases::new(cases, CollectionPurpose::Measure),
                seconds,
                actions,
            );
        }
    }

    /// Apart from the others: what needs as much memory as a case that ran out of it, and more than any that ended
    /// well.
    fn split_oom_risk(&self, cases: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
        let Some(least) = self.smallest_oom.filter(|_| cases.len() > 1) else { return (Vec::new(), cases) };
        let is_hungry = |case: &usize| {
            let memory = self.jobs[*case].memory;
            memory >= least && memory > self.largest_ok
        };
        cases.into_iter().partition(is_hungry)
    }

    fn start_controls(&mut self, now: Seconds, free: &mut Vec<u32>, actions: &mut Vec<SchedAction>) {
        if self.control_cases.is_empty() {
            return;
        }
        let doubted: Vec<u32> =
            free.iter().copied().filter(|id| self.devices.get(id).is_some_and(|d| d.is_doubted)).collect();
        for device in doubted {
            let seconds = self.seconds(&self.control_cases);
            free.retain(|other| *other != device);
            if self.is_in_time(now, seconds) {
                let task = SoloCases::new(self.control_cases.clone(), CollectionPurpose::Control);
                self.start(now, vec![device], task, seconds, actions);
            }
        }
    }

    fn start_tasks(&mut self, now: Seconds, free: &mut Vec<u32>, actions: &mut Vec<SchedAction>) {
        let mut waiting = std::mem::take(&mut self.tasks);
        while let Some(task) = waiting.pop_front() {
            let seconds = self.seconds(&task.cases);
            let size = task.cases.iter().map(|case| self.jobs[*case].devices).max().unwrap_or(1).max(1);
            match self.place(&task, size, free) {
                Some(devices) if self.is_in_time(now, seconds) => {
                    free.retain(|device| !devices.contains(device));
                    self.start(now, devices, task, seconds, actions);
                }
                _ => self.tasks.push_back(task),
            }
        }
    }

    /// Devices for a task: others than those that it avoids, unless only those are left.
    fn place(&self, task: &SoloCases, size: usize, free: &[u32]) -> Option<Vec<u32>> {
        if size > 1 {
            return together(free, size);
        }
        let fresh = |id: &u32| !task.avoid.contains(id);
        let others = self.devices.iter().any(|(id, device)| device.is_usable() && fresh(id));
        free.iter().copied().find(|id| !others || fresh(id)).map(|device| vec![device])
    }

    /// Gangs begin with all their devices or not at all. While one waits for devices, those that are free wait
    /// with it: it would never find them all free else.
    fn start_gangs(&mut self, now: Seconds, free: &mut Vec<u32>, actions: &mut Vec<SchedAction>) {
        let sizes: Vec<usize> = self.gangs.keys().rev().copied().collect();
        for size in sizes {
            while let Some(queue) = self.gangs.get(&size).filter(|queue| !queue.is_empty()) {
                let usable = self.devices.values().filter(|device| device.is_usable()).count();
                if usable < size {
                    break;
                }
                let Some(room) = self.room(now, queue.seconds(&self.costs), 1, 0) else { return };
                let Some(devices) = together(free, size) else {
                    free.clear();
                    return;
                };
                let Some(queue) = self.gangs.get_mut(&size) else { break };
                let (cases, seconds) = queue.take(&self.jobs, &self.costs, room);
                if cases.is_empty() {
                    break;
                }
                free.retain(|device| !devices.contains(device));
                self.start(now, devices, SoloCases::new(cases, CollectionPurpose::Measure), seconds, actions);
            }
        }
    }

    /// How much a collection may hold: an equal share of a half of what waits, so that all devices end together,
    /// and no more than can end in time. `lanes` devices are free, and `others` will come back for more.
    fn room(&self, now: Seconds, waiting: Seconds, lanes: usize, others: usize) -> Option<CollectionBudget> {
        let besides = self.costs.collection();
        #[expect(clippy::cast_precision_loss, reason = "a count of devices")]
        let share = waiting / (lanes + others).max(1) as f64;
        let wanted = if share > 2.0 * besides { (share / 2.0).max(2.0 * besides) } else { share };
        // What takes less than a collection costs besides is not worth dividing with a device that is busy.
        let wanted = if others > 0 { wanted.max(besides.min(waiting)) } else { wanted };
        let longest = (self.limits.longest - besides).max(0.0);
        let left = match self.limits.deadline {
            Some(deadline) => (deadline - now - GRACE) / self.costs.caution() - besides,
            None => f64::INFINITY,
        };
        (left > 0.0).then(|| CollectionBudget {
            // What remains of dividing is not worth a collection of its own.
            seconds: (wanted * 1.001).min(longest).min(left),
            first: left,
            cases: self.costs.cases(self.limits.most_cases),
            launches: self.limits.most_launches,
        })
    }

    fn is_in_time(&self, now: Seconds, seconds: Seconds) -> bool {
        let needed = (self.costs.collection() + seconds) * self.costs.caution() + GRACE;
        self.limits.deadline.is_none_or(|deadline| now + needed <= deadline)
    }

    fn start(
        &mut self,
        now: Seconds,
        devices: Vec<u32>,
        task: SoloCases,
        seconds: Seconds,
        actions: &mut Vec<SchedAction>,
    ) {
        self.collections += 1;
        let collection = self.collections;
        for device in &devices {
            if let Some(device) = self.devices.get_mut(device) {
                device.running = Some(collection);
            }
        }
        let SoloCases { cases, purpose, inquiry, .. } = task;
        let predicted = self.costs.collection() + seconds;
        let running = RunningCases {
            devices: devices.clone(),
            cases: cases.clone(),
            purpose,
            inquiry,
            predicted,
            since: now,
        };
        self.running.insert(collection, running);
        let patience = self.costs.limit(predicted);
        let cut_off = self.limits.deadline.map(|deadline| (deadline - now - GRACE).max(1.0));
        let limit = cut_off.map_or(patience, |cut_off| cut_off.min(patience));
        actions.push(SchedAction::Start(StartCollection {
            collection,
            devices,
            cases,
            purpose,
            predicted,
            limit,
            cut_off,
        }));
    }

    fn seconds(&self, cases: &[usize]) -> Seconds {
        cases.iter().map(|case| self.costs.case(&self.jobs[*case])).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gang_has_neighbours_where_it_can() {
        let gang = |free: &[u32], size| together(free, size).unwrap_or_default();
        assert_eq!(gang(&[0, 1, 2, 3], 2), [0, 1]);
        assert_eq!(gang(&[1, 2, 3, 5], 2), [2, 3]);
        assert_eq!(gang(&[1, 4, 5, 6, 7, 9], 4), [4, 5, 6, 7]);
        assert_eq!(gang(&[1, 2, 5, 8], 3), [1, 2, 5], "no block is free: any devices do");
        assert_eq!(gang(&[1, 3], 2), [1, 3]);
        assert_eq!(gang(&[2], 2), Vec::<u32>::new());
    }
}
