//! Starts collections on free devices, and limits the number and seconds of their cases (the budget of a collection).

use std::sync::Arc;

use super::{
    CollectionBudget, GangKey, SchedAction, Seconds, StartCollection,
    state::{QueuedCollection, SchedulerState, StartedCollection},
};
use crate::kernel::CollectionPurpose;

/// Time reserved before the deadline for ending a process.
const KILL_GRACE: Seconds = 10.0;

/// Chooses the devices of a gang among the free ones, which are sorted: the first of its groups that is free; if it may have any
/// devices, a block that begins at a multiple of its size,
/// because the dies of one card are such neighbours; without one, the first devices.
fn gang_devices(free: &[u32], size: usize, groups: &[Vec<u32>]) -> Option<Vec<u32>> {
    if !groups.is_empty() {
        return groups.iter().find(|group| group.iter().all(|device| free.contains(device))).cloned();
    }
    let is_block = |block: &&[u32]| {
        let numbers = block.first().copied().unwrap_or_default()..;
        let starts = u32::try_from(size).is_ok_and(|size| block.first().is_some_and(|one| one % size == 0));
        starts && block.iter().zip(numbers).all(|(device, number)| *device == number)
    };
    let block = free.windows(size.max(1)).find(is_block).or_else(|| free.get(..size));
    block.map(<[u32]>::to_vec)
}

impl SchedulerState {
    pub(super) fn fill_devices(&mut self) {
        if self.is_paused || self.is_stopping || self.is_exclusively_used() {
            return;
        }
        let mut free: Vec<u32> =
            self.devices.iter().filter(|(_, device)| device.is_free()).map(|(id, _)| *id).collect();
        self.start_controls(&mut free);
        self.start_queued(&mut free);
        self.start_gangs(&mut free);
        if self.is_exclusively_used() {
            return;
        }
        let usable: Vec<u32> = self.usable_devices().collect();
        while let Some(&device) = free.first() {
            let Some((cases, seconds)) = self.take_cases(device, &free, &usable) else { break };
            free.remove(0);
            if cases.is_empty() {
                continue;
            }
            let (alone, cases) = self.split_oom_risk(cases);
            alone.into_iter().for_each(|case| {
                self.queued.push_back(QueuedCollection::new(vec![case], CollectionPurpose::Alone));
            });
            if cases.is_empty() {
                free.insert(0, device);
                self.start_queued(&mut free);
                continue;
            }
            let task = QueuedCollection::new(cases, CollectionPurpose::Measure);
            self.start_collection(vec![device], task, seconds);
        }
    }

    /// Takes the cases of the next collection of a device: waiting ones, those of a round that were dealt to it, then those
    /// dealt to a device that is busy. No case if none is suitable; `None` if no time is left.
    fn take_cases(&mut self, device: u32, free: &[u32], usable: &[u32]) -> Option<(Vec<usize>, Seconds)> {
        // Collections that were started at this time will not need more cases soon.
        let others = self.running.values().filter(|running| running.since < self.now).count();
        // A case that is measured again runs on a device that it has had least often: on all of them before one has it again.
        let progress = &self.progress;
        let is_suitable = |case: usize| {
            let times = progress[case].times_on(device);
            usable.iter().all(|other| progress[case].times_on(*other) >= times)
        };
        let waiting = self.ready.predicted_seconds(&self.costs);
        let budget = self.collection_budget(waiting, free.len(), others)?;
        let taken = self.ready.take_batch(&self.jobs, &self.costs, budget, is_suitable);
        if !taken.0.is_empty() {
            return Some(taken);
        }
        for (owner, work) in self.dealt_work(device, free) {
            let budget = self.collection_budget(work, 1, usize::from(owner != device))?;
            let Some(queue) = self.dealt.get_mut(&owner) else { continue };
            let is_suitable = |case: usize| owner == device || is_suitable(case);
            let taken = queue.take_batch(&self.jobs, &self.costs, budget, is_suitable);
            if !taken.0.is_empty() {
                return Some(taken);
            }
        }
        Some((Vec::new(), 0.0))
    }

    fn dealt_work(&self, device: u32, free: &[u32]) -> Vec<(u32, Seconds)> {
        let is_candidate = |owner: u32| owner == device || !free.contains(&owner);
        let queues = self.dealt.iter().filter(|(owner, queue)| is_candidate(**owner) && !queue.is_empty());
        let mut work: Vec<(u32, Seconds)> =
            queues.map(|(owner, queue)| (*owner, queue.predicted_seconds(&self.costs))).collect();
        work.sort_by(|a, b| (b.0 == device).cmp(&(a.0 == device)).then(b.1.total_cmp(&a.1)));
        work
    }

    /// Separates cases that need as much memory as one that ran out of it, and more than any successful one.
    fn split_oom_risk(&self, cases: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
        let Some(least) = self.smallest_oom.filter(|_| cases.len() > 1) else { return (Vec::new(), cases) };
        let is_at_risk = |case: &usize| {
            let memory = self.jobs[*case].memory;
            memory >= least && memory > self.largest_ok
        };
        cases.into_iter().partition(is_at_risk)
    }

    /// Collectives share links with whatever runs beside them, so that nothing does.
    fn is_exclusively_used(&self) -> bool {
        let mut cases = self.running.values().flat_map(|running| &running.start.cases);
        cases.any(|case| self.is_exclusive(*case))
    }

    fn is_exclusive(&self, case: usize) -> bool {
        !self.jobs[case].device_groups.is_empty()
    }

    fn may_start(&self, is_exclusive: bool) -> bool {
        !self.is_exclusively_used() && (!is_exclusive || self.running.is_empty())
    }

    fn start_controls(&mut self, free: &mut Vec<u32>) {
        if self.control_cases.is_empty() {
            return;
        }
        let suspects: Vec<u32> =
            free.iter().copied().filter(|id| self.devices.get(id).is_some_and(|d| d.needs_control)).collect();
        for device in suspects {
            let seconds = self.predicted_seconds(&self.control_cases);
            free.retain(|other| *other != device);
            if self.is_in_time(seconds) {
                let task = QueuedCollection::new(self.control_cases.clone(), CollectionPurpose::Control);
                self.start_collection(vec![device], task, seconds);
            }
        }
    }

    fn start_queued(&mut self, free: &mut Vec<u32>) {
        let mut waiting = std::mem::take(&mut self.queued);
        while let Some(task) = waiting.pop_front() {
            let seconds = self.predicted_seconds(&task.cases);
            let size = task.cases.iter().map(|case| self.jobs[*case].devices).max().unwrap_or(1).max(1);
            let is_exclusive = task.cases.first().is_some_and(|case| self.is_exclusive(*case));
            match self.choose_devices(&task, size, free) {
                Some(devices) if self.is_in_time(seconds) && self.may_start(is_exclusive) => {
                    free.retain(|device| !devices.contains(device));
                    self.start_collection(devices, task, seconds);
                }
                _ => self.queued.push_back(task),
            }
        }
    }

    fn choose_devices(&self, task: &QueuedCollection, size: usize, free: &[u32]) -> Option<Vec<u32>> {
        if size > 1 {
            let groups = task.cases.first().map(|case| Arc::clone(&self.jobs[*case].device_groups));
            let (groups, usable) = (groups.unwrap_or_default(), self.usable_devices().collect::<Vec<u32>>());
            let untried = |ids: &[u32]| -> Vec<u32> {
                ids.iter().copied().filter(|id| !task.avoid.contains(id)).collect()
            };
            return match gang_devices(&untried(&usable), size, &groups) {
                Some(_) => gang_devices(&untried(free), size, &groups),
                None => gang_devices(free, size, &groups),
            };
        }
        let is_untried = |id: &u32| !task.avoid.contains(id);
        let others = self.usable_devices().any(|id| is_untried(&id));
        free.iter().copied().find(|id| !others || is_untried(id)).map(|device| vec![device])
    }

    /// While a gang waits, free devices stay idle: otherwise it would never find enough of them free.
    fn start_gangs(&mut self, free: &mut Vec<u32>) {
        let gangs: Vec<GangKey> = self.gangs.keys().rev().cloned().collect();
        for gang in gangs {
            let (size, groups) = &gang;
            while let Some(queue) = self.gangs.get(&gang).filter(|queue| !queue.is_empty()) {
                let usable: Vec<u32> = self.usable_devices().collect();
                if gang_devices(&usable, *size, groups).is_none() {
                    break;
                }
                if !self.may_start(!groups.is_empty()) {
                    free.clear();
                    return;
                }
                let Some(budget) = self.collection_budget(queue.predicted_seconds(&self.costs), 1, 0) else {
                    return;
                };
                let Some(devices) = gang_devices(free, *size, groups) else {
                    free.clear();
                    return;
                };
                let Some(queue) = self.gangs.get_mut(&gang) else { break };
                let (cases, seconds) = queue.take_batch(&self.jobs, &self.costs, budget, |_| true);
                if cases.is_empty() {
                    break;
                }
                free.retain(|device| !devices.contains(device));
                let task = QueuedCollection::new(cases, CollectionPurpose::Measure);
                self.start_collection(devices, task, seconds);
            }
        }
    }

    /// Returns the limits of the next collection: an equal share of half of the waiting work, so that all devices end
    /// together, and no more than can end before the deadline. `lanes` devices are free, `others` are busy.
    fn collection_budget(&self, waiting: Seconds, lanes: usize, others: usize) -> Option<CollectionBudget> {
        let overhead = self.costs.overhead_seconds();
        let share = waiting / (lanes + others).max(1) as f64;
        let wanted = if share > 2.0 * overhead { (share / 2.0).max(2.0 * overhead) } else { share };
        // Work shorter than the overhead of a collection is not divided with busy devices.
        let wanted = if others > 0 { wanted.max(overhead.min(waiting)) } else { wanted };
        let longest = (self.limits.longest_collection - overhead).max(0.0);
        let left = match self.limits.deadline {
            Some(deadline) => (deadline - self.now - KILL_GRACE) / self.costs.safety_factor() - overhead,
            None => f64::INFINITY,
        };
        (left > 0.0).then(|| CollectionBudget {
            // Rounding must not leave a remainder that needs a collection of its own.
            seconds: (wanted * 1.001).min(longest).min(left),
            first_case_seconds: left,
            cases: self.costs.max_cases(self.limits.max_cases),
            records: self.limits.max_records,
        })
    }

    fn is_in_time(&self, seconds: Seconds) -> bool {
        let needed = (self.costs.overhead_seconds() + seconds) * self.costs.safety_factor() + KILL_GRACE;
        self.limits.deadline.is_none_or(|deadline| self.now + needed <= deadline)
    }

    fn start_collection(&mut self, devices: Vec<u32>, task: QueuedCollection, seconds: Seconds) {
        self.collections += 1;
        let collection = self.collections;
        for device in &devices {
            if let Some(device) = self.devices.get_mut(device) {
                device.running = Some(collection);
            }
        }
        let QueuedCollection { cases, purpose, bisection, .. } = task;
        let predicted = self.costs.overhead_seconds() + seconds;
        let hang_limit = self.costs.time_limit(predicted);
        let cut_off = self.limits.deadline.map(|deadline| (deadline - self.now - KILL_GRACE).max(1.0));
        let limit = cut_off.map_or(hang_limit, |cut_off| cut_off.min(hang_limit));
        let records = cases.iter().map(|case| u64::from(self.jobs[*case].records)).sum();
        let export_reserve = self.costs.export_seconds(records) * self.costs.safety_factor();
        let start = StartCollection {
            collection,
            devices,
            cases,
            purpose,
            predicted,
            limit,
            cut_off,
            export_reserve,
        };
        let running = StartedCollection { start: start.clone(), bisection, since: self.now };
        self.running.insert(collection, running);
        self.actions.push(SchedAction::Start(start));
    }

    fn predicted_seconds(&self, cases: &[usize]) -> Seconds {
        cases.iter().map(|case| self.costs.case_seconds(&self.jobs[*case])).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gang_prefers_a_block_of_adjacent_devices() {
        let gang = |free: &[u32], size| gang_devices(free, size, &[]).unwrap_or_default();
        assert_eq!(gang(&[0, 1, 2, 3], 2), [0, 1]);
        assert_eq!(gang(&[1, 2, 3, 5], 2), [2, 3]);
        assert_eq!(gang(&[1, 4, 5, 6, 7, 9], 4), [4, 5, 6, 7]);
        assert_eq!(gang(&[1, 2, 5, 8], 3), [1, 2, 5], "without a free block, the first devices");
        assert_eq!(gang(&[1, 3], 2), [1, 3]);
        assert_eq!(gang(&[2], 2), Vec::<u32>::new());
        let groups = [vec![0, 1], vec![4, 5]];
        assert_eq!(gang_devices(&[1, 2, 3, 4, 5], 2, &groups), Some(vec![4, 5]));
        assert_eq!(gang_devices(&[1, 2, 3, 4], 2, &groups), None, "none of its groups is free");
    }
}
