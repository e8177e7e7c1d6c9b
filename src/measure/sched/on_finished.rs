//! Handles the end of a collection: verdicts, new attempts, bisections, device faults.
//! `Verdict` in `kernel/verdict.rs` has the verdicts that are worth an attempt, and those that end a case of a killed run, whose
//! attempts `measure/run_plan.rs` counts. `engine/dispatch/rounds.rs` repeats cases that ended as `throttled`, and
//! `reopen_cases` of `sched/state.rs` starts their counters again. docs/design/scheduling.md and docs/database.md describe the rules.

use super::{
    CaseQueue, CaseResult, CollectionExit, CollectionFinished, SchedAction, StartCollection,
    bisect::{Bisection, BisectionRequest, BisectionStep},
    state::{QueuedCollection, SchedulerState, StartedCollection},
};
use crate::kernel::{CaseOutcome, Cause, CollectionPurpose, Verdict, cause::BrokenCollection};

const MAX_ATTEMPTS: u32 = 3;
const MAX_SKIPS: u32 = 40;

enum CaseDisposition {
    Final,
    /// It stays open: the collection or the case may be at fault, or the case was not reached.
    Open,
    Alone,
    /// The device may be at fault: the case is measured on another one.
    Elsewhere,
}

struct CollectionAftermath {
    origin: (u32, u32),
    is_alone: bool,
    broke: bool,
    open: Vec<usize>,
}

impl CollectionAftermath {
    fn new(start: &StartCollection, broke: bool, open: Vec<usize>) -> Self {
        let device = start.devices.first().copied().unwrap_or_default();
        Self { origin: (device, start.collection), is_alone: start.cases.len() == 1, broke, open }
    }
}

impl SchedulerState {
    pub(super) fn on_finished(&mut self, ended: &CollectionFinished) {
        let Some(StartedCollection { start, bisection, .. }) = self.running.remove(&ended.collection) else {
            return;
        };
        for device in &start.devices {
            if let Some(device) = self.devices.get_mut(device) {
                device.running = None;
            }
        }
        if ended.exit == CollectionExit::DiskFull {
            self.on_disk_full(&start, bisection, ended);
            return;
        }
        if ended.exit == CollectionExit::Completed && ended.has_readable_profile {
            self.costs.record_collection(&self.jobs, ended, start.purpose, start.predicted);
        }
        self.record_evidence(&start.devices, ended);
        if start.purpose == CollectionPurpose::Control {
            self.on_control_finished(&start.devices, ended);
            return;
        }
        let has_launched = ended.exit != CollectionExit::NothingLaunched;
        let is_suspect = |one: &&CaseResult| matches!(one.outcome.verdict, Verdict::Crashed | Verdict::Hung);
        let named = ended.results.iter().find(is_suspect).map(|result| result.case);
        let is_early = matches!(ended.exit, CollectionExit::Broken | CollectionExit::EndedByCase);
        let broke = is_early || named.is_some();
        if has_launched && start.purpose == CollectionPurpose::Measure {
            // A script that ends by itself loses no records.
            self.costs.record_risk(&ended.results, ended.exit == CollectionExit::Broken);
        }
        self.count_kernels(&start.devices, &ended.results);
        let mut open = self.settle_cases(&start, ended, broke);
        if self.is_stopping {
            return;
        }
        for device in self.take_blamed_devices(&ended.results) {
            let reason = "a case ran as another kernel on it and succeeded elsewhere";
            self.record_device_fault(&[device], reason);
        }
        for device in self.take_failed_devices(&start.devices, &ended.results) {
            let reason = "a call raised an error on it and succeeded elsewhere";
            self.record_device_fault(&[device], reason);
        }
        // If no profile has been read so far, the device is paused instead.
        if has_launched && !broke && self.has_read_profile && is_profile_useless(&ended.results) {
            self.record_device_fault(&start.devices, &ended.message);
        }
        // Exceptions tell which cases failed, and the others were not reached: nothing is to be searched for. The only case of
        // its collection may be the suspect of a bisection.
        let is_told = ended.exit != CollectionExit::Broken && (bisection.is_none() || start.cases.len() > 1);
        if is_told {
            self.repeat_faulty(&start, &ended.results, &mut open);
        }
        let broke = broke && !is_told;
        // A half of a bisection that was not launched as a whole clears none of its cases yet.
        let is_open = |case: &usize| {
            ended.results.iter().any(|one| one.case == *case && one.outcome.verdict == Verdict::NotRun)
        };
        if bisection.is_some() && !broke && open.iter().any(is_open) {
            let (cases, reached) = open.into_iter().partition::<Vec<usize>, _>(is_open);
            reached.into_iter().for_each(|case| self.requeue_case(case));
            self.queued.push_back(QueuedCollection {
                cases,
                purpose: start.purpose,
                avoid: Vec::new(),
                bisection,
            });
            return;
        }
        let left = CollectionAftermath::new(&start, broke, open);
        if let Some(bisection) = bisection.and_then(|id| self.bisections.remove(&id)) {
            self.advance_bisection(bisection, left);
        } else if broke && has_launched {
            self.start_bisection(left, named);
        } else {
            left.open.into_iter().for_each(|case| self.requeue_case(case));
        }
    }

    fn on_disk_full(&mut self, start: &StartCollection, bisection: Option<u32>, ended: &CollectionFinished) {
        let purpose = start.purpose;
        // A control collection is started again, because its device still needs one.
        if purpose == CollectionPurpose::Control {
            return;
        }
        let mut open = Vec::new();
        for CaseResult { case, outcome, .. } in &ended.results {
            if outcome.verdict != Verdict::NotRun || self.is_stopping {
                self.finish_case(*case, outcome, true);
            } else {
                open.push(*case);
            }
        }
        if open.is_empty() {
            if let Some(bisection) = bisection.and_then(|id| self.bisections.remove(&id)) {
                self.advance_bisection(bisection, CollectionAftermath::new(start, false, open));
            }
        } else if bisection.is_some() || purpose != CollectionPurpose::Measure {
            self.queued.push_back(QueuedCollection { cases: open, purpose, avoid: Vec::new(), bisection });
        } else {
            open.into_iter().for_each(|case| self.requeue_case(case));
        }
    }

    fn settle_cases(&mut self, start: &StartCollection, end: &CollectionFinished, broke: bool) -> Vec<usize> {
        let mut open = Vec::new();
        let mut elsewhere = Vec::new();
        for CaseResult { case, outcome, .. } in &end.results {
            let case = *case;
            let disposition = self.disposition(case, outcome, start, broke);
            if outcome.verdict.is_recorded() {
                self.progress[case].measured_on.extend(&start.devices);
            }
            self.progress[case].last = Some(outcome.clone());
            match disposition {
                CaseDisposition::Final => self.finish_case(case, outcome, broke),
                _ if self.is_stopping => {
                    let outcome = self.outcome_without_retry(outcome);
                    self.conclude_case(case, outcome);
                }
                CaseDisposition::Alone => self.run_alone(case, &start.devices),
                CaseDisposition::Elsewhere => elsewhere.push(case),
                CaseDisposition::Open => open.push(case),
            }
        }
        self.try_elsewhere(elsewhere);
        open
    }

    fn disposition(
        &mut self,
        case: usize,
        outcome: &CaseOutcome,
        start: &StartCollection,
        broke: bool,
    ) -> CaseDisposition {
        let is_alone = start.cases.len() == 1;
        let progress = &mut self.progress[case];
        if outcome.verdict != Verdict::NotRun {
            progress.tried_on.extend(&start.devices);
        }
        match outcome.verdict {
            Verdict::Crashed | Verdict::Hung => CaseDisposition::Open,
            // A process that ends early leaves no records of its launches.
            verdict if verdict == Verdict::NotRun || (broke && verdict == Verdict::LostRecords) => {
                progress.skipped += 1;
                if progress.skipped > MAX_SKIPS { CaseDisposition::Final } else { CaseDisposition::Open }
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
                    _ => CaseDisposition::Open,
                }
            }
            Verdict::WrongKernel => {
                progress.tries += 1;
                match progress.tries < MAX_ATTEMPTS && self.may_be_right_elsewhere(case, &start.devices) {
                    true => CaseDisposition::Elsewhere,
                    false => CaseDisposition::Final,
                }
            }
            _ if outcome.reason.cause.is_unclear() => {
                progress.unclear += 1;
                progress.errors_on.extend(&start.devices);
                match (progress.unclear, start.devices.len()) {
                    (1, 1) => CaseDisposition::Elsewhere,
                    // A gang shares no collection with cases of other sizes.
                    (1, _) => CaseDisposition::Alone,
                    _ => CaseDisposition::Final,
                }
            }
            _ => CaseDisposition::Final,
        }
    }

    fn finish_case(&mut self, case: usize, outcome: &CaseOutcome, broke: bool) {
        if outcome.verdict.is_done() || outcome.verdict.has_samples() {
            self.add_control_case(case);
            self.largest_ok = self.largest_ok.max(self.jobs[case].memory);
            let (kernel, max_cases) = (self.jobs[case].kernel, self.limits.max_cases);
            if let Some(queue) = self.queue_for(case).filter(|_| !broke) {
                queue.grow_batch(kernel, max_cases);
            }
        }
        self.conclude_case(case, outcome.clone());
    }

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

    fn queue_for(&mut self, case: usize) -> Option<&mut CaseQueue> {
        match self.jobs[case].devices {
            0 | 1 => Some(&mut self.ready),
            _ => self.gangs.get_mut(&self.jobs[case].gang_key()),
        }
    }

    /// Queues a case to run alone: on a device that it has not had, else on another one than those on which it failed.
    fn run_alone(&mut self, case: usize, failed_on: &[u32]) {
        let mut avoid = failed_on.to_vec();
        if self.has_untried_device(case) {
            avoid.extend(&self.progress[case].tried_on);
        }
        let task = QueuedCollection::new(vec![case], CollectionPurpose::Alone);
        self.queued.push_back(QueuedCollection { avoid, ..task });
    }

    /// Measures the cases that raised a fault of the device or of a link again, each alone and elsewhere.
    fn repeat_faulty(&mut self, start: &StartCollection, results: &[CaseResult], open: &mut Vec<usize>) {
        let Some(&device) = start.devices.first() else { return };
        for result in results.iter().filter(|result| result.outcome.verdict == Verdict::Crashed) {
            open.retain(|case| *case != result.case);
            let progress = &mut self.progress[result.case];
            progress.errors_on.extend(&start.devices);
            progress.broken_on.push((device, start.collection));
            self.assess_suspect(result.case);
        }
    }

    fn start_bisection(&mut self, left: CollectionAftermath, named: Option<usize>) {
        if let Some(case) = named {
            let kernel = self.jobs[case].kernel;
            if let Some(queue) = self.queue_for(case) {
                queue.shrink_batch(kernel);
            }
            self.progress[case].broken_on.push(left.origin);
            // The only case of its collection is the cause.
            if left.is_alone {
                self.assess_suspect(case);
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

    fn advance_bisection(&mut self, bisection: Bisection, left: CollectionAftermath) {
        let (broke_on, _) = bisection.broken_on;
        let CollectionAftermath { origin, is_alone, broke, open } = left;
        let suspects = if broke { open.clone() } else { Vec::new() };
        if is_alone && broke {
            // A suspect that broke its collection alone is the cause.
            for case in open {
                self.progress[case].broken_on.push(origin);
                self.assess_suspect(case);
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
                    self.record_device_fault(&[broke_on], reason);
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
    fn assess_suspect(&mut self, case: usize) {
        let progress = &self.progress[case];
        let avoid: Vec<u32> = progress.broken_on.iter().map(|(device, _)| *device).collect();
        if avoid.len() < 2 {
            self.run_alone(case, &avoid);
            return;
        }
        let outcome = quarantine_outcome(&progress.broken_on, progress.last.as_ref());
        self.conclude_case(case, outcome);
    }

    pub(super) fn record_device_fault(&mut self, devices: &[u32], outcome: &str) {
        let may_exclude = self.may_exclude();
        for id in devices {
            let has_controls = !self.control_cases.is_empty();
            let others = self.devices.values().filter(|device| device.is_usable()).count() > 1;
            let Some(device) = self.devices.get_mut(id) else { continue };
            // If there is no control case, a faulty device is quarantined if another device is usable.
            if device.record_fault() > 1 && !has_controls && others && device.is_usable() {
                let until = device.start_quarantine(self.now, may_exclude);
                self.actions.push(SchedAction::Pause { device: *id, reason: outcome.to_owned(), until });
            }
        }
    }

    fn on_control_finished(&mut self, devices: &[u32], ended: &CollectionFinished) {
        if ended.exit == CollectionExit::NothingLaunched {
            return;
        }
        let may_exclude = self.may_exclude();
        let succeeded = |result: &CaseResult| {
            let verdict = result.outcome.verdict;
            verdict.is_recorded() || verdict.is_done()
        };
        let works = ended.results.iter().any(succeeded);
        for id in devices {
            let Some(device) = self.devices.get_mut(id) else { continue };
            if works {
                if device.record_working() {
                    self.actions.push(SchedAction::Readmit { device: *id });
                }
                continue;
            }
            let until = device.start_quarantine(self.now, may_exclude);
            let message = match ended.results.first() {
                Some(first) => first.outcome.reason.to_string(),
                None => ended.message.clone(),
            };
            let reason = format!("cases that succeeded elsewhere fail on it: {message}");
            self.actions.push(SchedAction::Pause { device: *id, reason, until });
        }
    }
}

fn is_profile_useless(results: &[CaseResult]) -> bool {
    let useless =
        |result: &CaseResult| matches!(result.outcome.verdict, Verdict::LostRecords | Verdict::Implausible);
    results.len() > 1 && results.iter().all(useless)
}

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
