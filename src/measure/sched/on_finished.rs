//! Handles the end of a collection: verdicts, new attempts, bisections, device faults.

use super::{
    CaseQueue, CaseResult, CollectionExit, CollectionFinished, SchedAction, Seconds,
    bisect::{Bisection, BisectionRequest, BisectionStep},
    state::{QueuedCollection, RunningCases, SchedulerState},
};
use crate::kernel::{CaseOutcome, Cause, CollectionPurpose, Verdict, cause::BrokenCollection};

/// Maximum number of attempts that are evidence about a case; the last one runs alone.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum number of collections that end before the turn of a case.
const MAX_SKIPS: u32 = 40;

/// Decision about a case after a collection.
enum CaseDisposition {
    /// The result is its verdict.
    Final,
    /// The collection may be at fault: the case is measured again.
    Retry,
    /// The case runs alone in a process of its own.
    Alone,
    /// The device may be at fault: the case is measured on another one.
    Elsewhere,
    /// The case may have broken the collection.
    Suspect,
    /// The collection is no evidence about the case.
    NotReached,
}

/// State after a collection.
struct CollectionAftermath {
    /// First device and number of the collection.
    origin: (u32, u32),
    is_alone: bool,
    broke: bool,
    /// Cases that have no verdict yet.
    open: Vec<usize>,
}

impl SchedulerState {
    pub(super) fn on_finished(
        &mut self,
        now: Seconds,
        ended: &CollectionFinished,
        actions: &mut Vec<SchedAction>,
    ) {
        let Some(running) = self.running.remove(&ended.collection) else { return };
        for device in &running.devices {
            if let Some(device) = self.devices.get_mut(device) {
                device.running = None;
            }
        }
        if ended.exit == CollectionExit::DiskFull {
            self.on_disk_full(now, &running, ended, actions);
            return;
        }
        if ended.exit == CollectionExit::Completed && ended.has_readable_profile {
            self.costs.record_collection(&self.jobs, ended, running.purpose, running.predicted);
        }
        self.record_evidence(now, &running.devices, ended, actions);
        if running.purpose == CollectionPurpose::Control {
            self.on_control_finished(now, &running, ended, actions);
            return;
        }
        let has_launched = ended.exit != CollectionExit::NothingLaunched;
        let named =
            ended.results.iter().find(|result| is_suspect_outcome(&result.outcome)).map(|result| result.case);
        let broke = ended.exit == CollectionExit::Broken || named.is_some();
        self.count_kernels(&running.devices, &ended.results);
        let open = self.settle_cases(&running, ended, broke, actions);
        if self.is_stopping {
            return;
        }
        for device in self.take_blamed_devices(&ended.results) {
            let reason = "a case ran as another kernel on it and succeeded elsewhere";
            self.record_device_fault(now, &[device], reason, actions);
        }
        // Without a profile that was read, the device is paused instead.
        if has_launched && !broke && self.has_read_profile && is_profile_useless(&ended.results) {
            self.record_device_fault(now, &running.devices, &ended.message, actions);
        }
        let place = (running.devices.first().copied().unwrap_or_default(), ended.collection);
        let is_alone = running.cases.len() == 1;
        let left = CollectionAftermath { origin: place, is_alone, broke, open };
        if let Some(bisection) = running.bisection.and_then(|id| self.bisections.remove(&id)) {
            self.advance_bisection(now, bisection, left, actions);
        } else if broke && has_launched {
            self.start_bisection(left, named, actions);
        } else {
            left.open.into_iter().for_each(|case| self.requeue_case(case));
        }
    }

    /// Concludes the cases that have a result although the disk was full, and queues the others as they were.
    fn on_disk_full(
        &mut self,
        now: Seconds,
        running: &RunningCases,
        ended: &CollectionFinished,
        actions: &mut Vec<SchedAction>,
    ) {
        // A control collection is started again, because its device still needs one.
        if running.purpose == CollectionPurpose::Control {
            return;
        }
        let mut open = Vec::new();
        for CaseResult { case, outcome, .. } in &ended.results {
            if outcome.verdict != Verdict::NotRun || self.is_stopping {
                self.finish_case(*case, outcome, true, actions);
            } else {
                open.push(*case);
            }
        }
        let RunningCases { purpose, bisection, .. } = *running;
        if open.is_empty() {
            if let Some(bisection) = bisection.and_then(|id| self.bisections.remove(&id)) {
                let origin = (running.devices.first().copied().unwrap_or_default(), ended.collection);
                let is_alone = running.cases.len() == 1;
                let left = CollectionAftermath { origin, is_alone, broke: false, open };
                self.advance_bisection(now, bisection, left, actions);
            }
        } else if bisection.is_some() || purpose != CollectionPurpose::Measure {
            self.queued.push_back(QueuedCollection { cases: open, purpose, avoid: Vec::new(), bisection });
        } else {
            open.into_iter().for_each(|case| self.requeue_case(case));
        }
    }

    /// Concludes the cases with a final result; returns the others.
    fn settle_cases(
        &mut self,
        running: &RunningCases,
        ended: &CollectionFinished,
        broke: bool,
        actions: &mut Vec<SchedAction>,
    ) -> Vec<usize> {
        let mut open = Vec::new();
        let mut elsewhere = Vec::new();
        for CaseResult { case, outcome, .. } in &ended.results {
            let case = *case;
            let disposition = self.disposition(case, outcome, running, broke);
            if outcome.verdict.is_recorded() {
                self.progress[case].measured_on.extend(&running.devices);
            }
            self.progress[case].last = Some(outcome.clone());
            match disposition {
                CaseDisposition::Final => self.finish_case(case, outcome, broke, actions),
                _ if self.is_stopping => {
                    let outcome = self.outcome_without_retry(outcome);
                    self.conclude_case(case, outcome, actions);
                }
                CaseDisposition::Alone => self.run_alone(case, &running.devices),
                CaseDisposition::Elsewhere => elsewhere.push(case),
                CaseDisposition::Retry | CaseDisposition::NotReached | CaseDisposition::Suspect => {
                    open.push(case);
                }
            }
        }
        self.try_elsewhere(elsewhere);
        open
    }

    fn disposition(
        &mut self,
        case: usize,
        outcome: &CaseOutcome,
        running: &RunningCases,
        broke: bool,
    ) -> CaseDisposition {
        let is_alone = running.cases.len() == 1;
        let progress = &mut self.progress[case];
        if outcome.verdict != Verdict::NotRun {
            progress.tried_on.extend(&running.devices);
        }
        match outcome.verdict {
            Verdict::Crashed | Verdict::Hung => CaseDisposition::Suspect,
            // A process that ends early leaves no records of its launches.
            verdict if verdict == Verdict::NotRun || (broke && verdict == Verdict::LostRecords) => {
                progress.skipped += 1;
                if progress.skipped > MAX_SKIPS {
                    CaseDisposition::Final
                } else {
                    CaseDisposition::NotReached
                }
            }
            Verdict::Oom if !is_alone => CaseDisposition::Alone,
            Verdict::Oom => {
                let memory = self.jobs[case].memory;
                self.smallest_oom = Some(self.smallest_oom.map_or(memory, |least| least.min(memory)));
                CaseDisposition::Final
            }
            verdict if verdict.is_worth_a_retry() => {
                progress.tries += 1;
                match MAX_ATTEMPTS.saturating_sub(progress.tries) {
                    0 => CaseDisposition::Final,
                    1 if !is_alone => CaseDisposition::Alone,
                    _ => CaseDisposition::Retry,
                }
            }
            Verdict::WrongKernel => {
                progress.tries += 1;
                match progress.tries < MAX_ATTEMPTS && self.may_be_right_elsewhere(case, &running.devices) {
                    true => CaseDisposition::Elsewhere,
                    false => CaseDisposition::Final,
                }
            }
            _ => CaseDisposition::Final,
        }
    }

    fn finish_case(
        &mut self,
        case: usize,
        outcome: &CaseOutcome,
        broke: bool,
        actions: &mut Vec<SchedAction>,
    ) {
        if outcome.verdict.is_done() || outcome.verdict.has_samples() {
            self.add_control_case(case);
            self.largest_ok = self.largest_ok.max(self.jobs[case].memory);
            if !broke {
                self.record_success(case);
            }
        }
        self.conclude_case(case, outcome.clone(), actions);
    }

    /// Keeps the cheapest successful cases for control collections.
    fn add_control_case(&mut self, case: usize) {
        const CONTROLS: usize = 2;
        let jobs = &self.jobs;
        if jobs[case].devices > 1 || self.control_cases.contains(&case) {
            return;
        }
        self.control_cases.push(case);
        self.control_cases.sort_by(|a, b| jobs[*a].seconds.total_cmp(&jobs[*b].seconds).then(a.cmp(b)));
        self.control_cases.truncate(CONTROLS);
    }

    fn record_success(&mut self, case: usize) {
        let (kernel, most) = (self.jobs[case].kernel, self.limits.max_cases);
        if let Some(queue) = self.queue_for(case) {
            queue.grow_batch(kernel, most);
        }
    }

    /// Returns the queue of a case: of single devices, or of gangs of its size.
    fn queue_for(&mut self, case: usize) -> Option<&mut CaseQueue> {
        match self.jobs[case].devices {
            0 | 1 => Some(&mut self.ready),
            _ => self.gangs.get_mut(&self.jobs[case].gang_key()),
        }
    }

    /// Queues a case to run alone: on a device that it has not had, else on another one than those on which it failed.
    fn run_alone(&mut self, case: usize, failed_on: &[u32]) {
        let task = QueuedCollection::new(vec![case], CollectionPurpose::Alone);
        let mut avoid = failed_on.to_vec();
        if self.has_untried_device(case) {
            avoid.extend(&self.progress[case].tried_on);
        }
        self.queued.push_back(QueuedCollection { avoid, ..task });
    }

    fn start_bisection(
        &mut self,
        left: CollectionAftermath,
        named: Option<usize>,
        actions: &mut Vec<SchedAction>,
    ) {
        if let Some(case) = named {
            let kernel = self.jobs[case].kernel;
            if let Some(queue) = self.queue_for(case) {
                queue.shrink_batch(kernel);
            }
            self.progress[case].broken_on.push(left.origin);
            // The only case of its collection is the cause.
            if left.is_alone {
                self.assess_suspect(case, actions);
                return;
            }
        }
        let was_misnamed = left.open.iter().any(|case| self.progress[*case].was_misnamed);
        if let Some((bisection, step)) =
            Bisection::start(left.origin, left.open, named.filter(|_| !was_misnamed))
        {
            self.continue_bisection(bisection, step);
        }
    }

    fn advance_bisection(
        &mut self,
        now: Seconds,
        bisection: Bisection,
        left: CollectionAftermath,
        actions: &mut Vec<SchedAction>,
    ) {
        let (broke_on, _) = bisection.broken_on;
        let CollectionAftermath { origin: place, is_alone, broke, open } = left;
        let suspects = if broke { open.clone() } else { Vec::new() };
        if is_alone && broke {
            // A suspect that broke its collection alone is the cause.
            for case in open {
                self.progress[case].broken_on.push(place);
                self.assess_suspect(case, actions);
            }
        } else if !broke {
            open.into_iter().for_each(|case| self.requeue_case(case));
        }
        match bisection.advance(suspects, broke, is_alone) {
            BisectionStep::Continue(bisection, step) => self.continue_bisection(bisection, step),
            BisectionStep::Done { cleared: freed, was_misled } => {
                freed.iter().for_each(|case| self.progress[*case].was_misnamed |= was_misled);
                self.requeue_all(freed);
                if was_misled {
                    let reason = "a case broke a collection on it and succeeded elsewhere";
                    self.record_device_fault(now, &[broke_on], reason, actions);
                }
            }
        }
    }

    /// Requeues cases cleared by a bisection; if no other case waits, they share one collection.
    fn requeue_all(&mut self, cases: Vec<usize>) {
        let is_gang = cases.iter().any(|case| self.jobs[*case].devices > 1);
        if cases.is_empty() || is_gang || !self.ready.is_empty() {
            cases.into_iter().for_each(|case| self.requeue_case(case));
        } else {
            self.queued.push_back(QueuedCollection::new(cases, CollectionPurpose::Measure));
        }
    }

    fn continue_bisection(&mut self, bisection: Bisection, step: BisectionRequest) {
        let BisectionRequest { cases: run, is_eliminated } = step;
        let (device, _) = bisection.broken_on;
        let mut avoid = vec![device];
        if let (true, [case]) = (is_eliminated, run.as_slice()) {
            self.progress[*case].broken_on.push(bisection.broken_on);
        }
        let purpose = if let [case] = run.as_slice() {
            avoid.extend(self.progress[*case].broken_on.iter().map(|(device, _)| *device));
            CollectionPurpose::Alone
        } else {
            CollectionPurpose::Search
        };
        let id = self.next_bisection;
        self.next_bisection += 1;
        self.bisections.insert(id, bisection);
        self.queued.push_back(QueuedCollection { cases: run, purpose, avoid, bisection: Some(id) });
    }

    /// Concludes a case as quarantined once it broke two collections; before that, it runs alone again.
    fn assess_suspect(&mut self, case: usize, actions: &mut Vec<SchedAction>) {
        let progress = &self.progress[case];
        let avoid: Vec<u32> = progress.broken_on.iter().map(|(device, _)| *device).collect();
        if avoid.len() < 2 {
            self.run_alone(case, &avoid);
            return;
        }
        let outcome = quarantine_outcome(&progress.broken_on, progress.last.as_ref());
        self.conclude_case(case, outcome, actions);
    }

    /// Records a device fault that no case explains. The device then needs a successful control collection.
    pub(super) fn record_device_fault(
        &mut self,
        now: Seconds,
        devices: &[u32],
        outcome: &str,
        actions: &mut Vec<SchedAction>,
    ) {
        let may_exclude = self.may_exclude();
        for id in devices {
            let has_controls = !self.control_cases.is_empty();
            let others = self.devices.values().filter(|device| device.is_usable()).count() > 1;
            let Some(device) = self.devices.get_mut(id) else { continue };
            // Without a control case, a faulty device is quarantined if another one is usable.
            if device.record_fault() > 1 && !has_controls && others && device.is_usable() {
                let until = device.start_quarantine(now, may_exclude);
                actions.push(SchedAction::Pause { device: *id, reason: outcome.to_owned(), until });
            }
        }
    }

    fn on_control_finished(
        &mut self,
        now: Seconds,
        running: &RunningCases,
        ended: &CollectionFinished,
        actions: &mut Vec<SchedAction>,
    ) {
        if ended.exit == CollectionExit::NothingLaunched {
            return;
        }
        let may_exclude = self.may_exclude();
        let succeeded = |result: &CaseResult| {
            let verdict = result.outcome.verdict;
            verdict.is_recorded() || verdict.is_done()
        };
        let works = ended.results.iter().any(succeeded);
        for id in &running.devices {
            let Some(device) = self.devices.get_mut(id) else { continue };
            if works {
                if device.record_working() {
                    actions.push(SchedAction::Readmit { device: *id });
                }
                continue;
            }
            let until = device.start_quarantine(now, may_exclude);
            let message = match ended.results.first() {
                Some(first) => first.outcome.reason.to_string(),
                None => ended.message.clone(),
            };
            let reason = format!("cases that succeeded elsewhere fail on it: {message}");
            actions.push(SchedAction::Pause { device: *id, reason, until });
        }
    }
}

const fn is_suspect_outcome(outcome: &CaseOutcome) -> bool {
    matches!(outcome.verdict, Verdict::Crashed | Verdict::Hung)
}

/// Returns true if the profile of several cases is useless for all of them, which no single case explains.
fn is_profile_useless(results: &[CaseResult]) -> bool {
    let useless =
        |result: &CaseResult| matches!(result.outcome.verdict, Verdict::LostRecords | Verdict::Implausible);
    results.len() > 1 && results.iter().all(useless)
}

/// Builds the verdict of a case that broke several collections: first the cause, which several cases may share, then their devices and
/// numbers.
fn quarantine_outcome(broke: &[(u32, u32)], last: Option<&CaseOutcome>) -> CaseOutcome {
    let broken = |&(device, collection): &(u32, u32)| BrokenCollection { device, collection };
    let collections = broke.iter().map(broken).collect();
    let (verdict, last) = match last {
        Some(last) if last.verdict == Verdict::Hung => (Verdict::Hung, last.reason.clone()),
        Some(last) => (Verdict::Crashed, last.reason.clone()),
        None => (Verdict::Crashed, Cause::ProcessEnded.into()),
    };
    CaseOutcome::new(Verdict::Quarantined, Cause::Quarantined { verdict, last: Box::new(last), collections })
}
