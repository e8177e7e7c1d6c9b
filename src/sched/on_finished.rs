//! What follows from the end of a collection: verdicts, new attempts, searches, doubts about a device.

use super::{
    CaseQueue, CaseResult, CollectionExit, CollectionFinished, SchedAction, Seconds,
    bisect::{Bisection, BisectionRequest, BisectionStep},
    state::{RunningCases, SchedulerState, SoloCases},
};
use crate::domain::{CaseOutcome, CollectionPurpose, Verdict};

/// An attempt that says something of its case is made this often, the last time alone.
const TRIES: u32 = 3;
/// A case whose turn never came gets this many collections.
const SKIPS: u32 = 40;

/// What is to become of a case after a collection.
enum CaseDisposition {
    /// This is its verdict.
    Final,
    /// The fault may lie in the collection: it is measured again.
    Again,
    /// It is tried alone, on a clean process.
    Alone,
    /// It may have broken the collection.
    Suspect,
    /// Nothing was learned of it.
    Untouched,
}

/// What a collection left behind.
struct CollectionAftermath {
    /// Its first device, and its number.
    place: (u32, u32),
    is_alone: bool,
    broke: bool,
    /// Cases without a verdict.
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
        if ended.end == CollectionExit::Clean {
            self.costs.learn(&self.jobs, ended, running.purpose, running.predicted);
        }
        if running.purpose == CollectionPurpose::Control {
            self.after_control(now, &running, ended, actions);
            return;
        }
        let has_launched = ended.end != CollectionExit::NothingLaunched;
        self.note_launch(has_launched, &ended.outcome, actions);
        let named = ended.results.iter().find(|result| is_suspect(&result.finding)).map(|result| result.case);
        let broke = ended.end == CollectionExit::Broken || named.is_some();
        let open = self.settle_cases(&running, ended, broke, actions);
        if self.is_stopping {
            return;
        }
        if !has_launched || (!broke && is_lost(&ended.results)) {
            self.record_device_fault(now, &running.devices, &ended.outcome, actions);
        }
        let place = (running.devices.first().copied().unwrap_or_default(), ended.collection);
        let is_alone = running.cases.len() == 1;
        let left = CollectionAftermath { place, is_alone, broke, open };
        if let Some(inquiry) = running.inquiry.and_then(|id| self.inquiries.remove(&id)) {
            self.go_on_searching(now, inquiry, left, actions);
        } else if broke && has_launched {
            self.begin_to_search(left, named, actions);
        } else {
            left.open.into_iter().for_each(|case| self.requeue(case));
        }
    }

    /// Gives verdicts where there is one; gives back the cases that need more.
    fn settle_cases(
        &mut self,
        running: &RunningCases,
        ended: &CollectionFinished,
        broke: bool,
        actions: &mut Vec<SchedAction>,
    ) -> Vec<usize> {
        let mut open = Vec::new();
        for CaseResult { case, finding, .. } in &ended.results {
            let case = *case;
            let fate = self.fate(case, finding, running, broke);
            self.progress[case].last = Some(finding.clone());
            match fate {
                CaseDisposition::Final => self.settle(case, finding, broke, actions),
                _ if self.is_stopping => self.conclude(case, finding.clone(), actions),
                CaseDisposition::Alone => self.run_alone(case, &running.devices),
                CaseDisposition::Again | CaseDisposition::Untouched | CaseDisposition::Suspect => {
                    open.push(case);
                }
            }
        }
        open
    }

    fn fate(
        &mut self,
        case: usize,
        finding: &CaseOutcome,
        running: &RunningCases,
        broke: bool,
    ) -> CaseDisposition {
        let is_alone = running.cases.len() == 1;
        let progress = &mut self.progress[case];
        match finding.verdict {
            Verdict::Crashed | Verdict::Hung => CaseDisposition::Suspect,
            Verdict::NotRun => {
                progress.skipped += 1;
                if progress.skipped > SKIPS { CaseDisposition::Final } else { CaseDisposition::Untouched }
            }
            // A process that ends early leaves no records of what it launched.
            Verdict::LostRecords if broke => {
                progress.skipped += 1;
                if progress.skipped > SKIPS { CaseDisposition::Final } else { CaseDisposition::Untouched }
            }
            Verdict::Oom if !is_alone => CaseDisposition::Alone,
            Verdict::Oom => {
                let memory = self.jobs[case].memory;
                self.smallest_oom = Some(self.smallest_oom.map_or(memory, |least| least.min(memory)));
                CaseDisposition::Final
            }
            verdict if verdict.is_worth_a_retry() => {
                progress.tries += 1;
                match TRIES.saturating_sub(progress.tries) {
                    0 => CaseDisposition::Final,
                    1 if !is_alone => CaseDisposition::Alone,
                    _ => CaseDisposition::Again,
                }
            }
            _ => CaseDisposition::Final,
        }
    }

    fn settle(&mut self, case: usize, finding: &CaseOutcome, broke: bool, actions: &mut Vec<SchedAction>) {
        if matches!(finding.verdict, Verdict::Ok | Verdict::Noisy) {
            self.record_success(case);
            self.largest_ok = self.largest_ok.max(self.jobs[case].memory);
            if !broke {
                self.mark_control_case(case);
            }
        }
        self.conclude(case, finding.clone(), actions);
    }

    /// Remembers the cheapest of the cases that ended well.
    fn record_success(&mut self, case: usize) {
        const CONTROLS: usize = 2;
        let jobs = &self.jobs;
        if jobs[case].devices > 1 {
            return;
        }
        self.control_cases.push(case);
        self.control_cases.sort_by(|a, b| jobs[*a].seconds.total_cmp(&jobs[*b].seconds).then(a.cmp(b)));
        self.control_cases.truncate(CONTROLS);
    }

    fn mark_control_case(&mut self, case: usize) {
        let (kernel, most) = (self.jobs[case].kernel, self.limits.most_cases);
        if let Some(queue) = self.queue_of(case) {
            queue.grow_batch(kernel, most);
        }
    }

    /// Where a case waits: with those of one device, or with the gangs of its size.
    fn queue_of(&mut self, case: usize) -> Option<&mut CaseQueue> {
        match self.jobs[case].devices {
            0 | 1 => Some(&mut self.ready),
            devices => self.gangs.get_mut(&devices),
        }
    }

    /// Tries a case alone, on another device than the one on which it has just failed.
    fn run_alone(&mut self, case: usize, failed_on: &[u32]) {
        let task =
            SoloCases { avoid: failed_on.to_vec(), ..SoloCases::new(vec![case], CollectionPurpose::Alone) };
        self.tasks.push_back(task);
    }

    fn begin_to_search(
        &mut self,
        left: CollectionAftermath,
        named: Option<usize>,
        actions: &mut Vec<SchedAction>,
    ) {
        if let Some(case) = named {
            let kernel = self.jobs[case].kernel;
            if let Some(queue) = self.queue_of(case) {
                queue.shrink_batch(kernel);
            }
            self.progress[case].broke.push(left.place);
            // It was alone: nobody else can be meant.
            if left.is_alone {
                self.judge_suspect(case, actions);
                return;
            }
        }
        let misled = left.open.iter().any(|case| self.progress[*case].is_doubted);
        if let Some((inquiry, step)) = Bisection::begin(left.place, left.open, named.filter(|_| !misled)) {
            self.continue_bisection(inquiry, step);
        }
    }

    fn go_on_searching(
        &mut self,
        now: Seconds,
        inquiry: Bisection,
        left: CollectionAftermath,
        actions: &mut Vec<SchedAction>,
    ) {
        let (broke_on, _) = inquiry.broke;
        let CollectionAftermath { place, is_alone, broke, open } = left;
        let suspects = if broke { open.clone() } else { Vec::new() };
        if is_alone && broke {
            // A suspect that is alone answers for itself.
            for case in open {
                self.progress[case].broke.push(place);
                self.judge_suspect(case, actions);
            }
        } else if !broke {
            open.into_iter().for_each(|case| self.requeue(case));
        }
        match inquiry.after(suspects, broke, is_alone) {
            BisectionStep::Goes(inquiry, step) => self.continue_bisection(inquiry, step),
            BisectionStep::Ends { freed, was_misled } => {
                freed.iter().for_each(|case| self.progress[*case].is_doubted |= was_misled);
                self.requeue_all(freed);
                if was_misled {
                    let reason = "a case broke a collection on it and ended well elsewhere";
                    self.record_device_fault(now, &[broke_on], reason, actions);
                }
            }
        }
    }

    /// Cases that need not wait for a search any longer share collections with those that wait; where none does,
    /// they share one.
    fn requeue_all(&mut self, cases: Vec<usize>) {
        let is_gang = cases.iter().any(|case| self.jobs[*case].devices > 1);
        if cases.is_empty() || is_gang || !self.ready.is_empty() {
            cases.into_iter().for_each(|case| self.requeue(case));
        } else {
            self.tasks.push_back(SoloCases::new(cases, CollectionPurpose::Measure));
        }
    }

    fn continue_bisection(&mut self, inquiry: Bisection, step: BisectionRequest) {
        let BisectionRequest { run, is_eliminated } = step;
        let (device, _) = inquiry.broke;
        let mut avoid = vec![device];
        if let (true, [case]) = (is_eliminated, run.as_slice()) {
            self.progress[*case].broke.push(inquiry.broke);
        }
        let purpose = if let [case] = run.as_slice() {
            avoid.extend(self.progress[*case].broke.iter().map(|(device, _)| *device));
            CollectionPurpose::Alone
        } else {
            CollectionPurpose::Search
        };
        let id = self.next_inquiry;
        self.next_inquiry += 1;
        self.inquiries.insert(id, inquiry);
        self.tasks.push_back(SoloCases { cases: run, purpose, avoid, inquiry: Some(id) });
    }

    /// A case that broke a collection alone: it is quarantined once two collections have broken on it.
    fn judge_suspect(&mut self, case: usize, actions: &mut Vec<SchedAction>) {
        let progress = &self.progress[case];
        let avoid: Vec<u32> = progress.broke.iter().map(|(device, _)| *device).collect();
        if avoid.len() < 2 {
            self.tasks.push_back(SoloCases { avoid, ..SoloCases::new(vec![case], CollectionPurpose::Alone) });
            return;
        }
        let finding = quarantined(&progress.broke, progress.last.as_ref());
        self.conclude(case, finding, actions);
    }

    /// A fault that no case explains. The device has to show that it works, on cases that are known to.
    pub(super) fn record_device_fault(
        &mut self,
        now: Seconds,
        devices: &[u32],
        outcome: &str,
        actions: &mut Vec<SchedAction>,
    ) {
        for id in devices {
            let has_controls = !self.control_cases.is_empty();
            let others = self.devices.values().filter(|device| device.is_usable()).count() > 1;
            let Some(device) = self.devices.get_mut(id) else { continue };
            // Where nothing is known to work, another device may do better; the only one goes on.
            if device.strike() > 1 && !has_controls && others && device.is_usable() {
                let until = device.set_aside(now);
                actions.push(SchedAction::Quarantine { device: *id, reason: outcome.to_owned(), until });
            }
        }
    }

    fn after_control(
        &mut self,
        now: Seconds,
        running: &RunningCases,
        ended: &CollectionFinished,
        actions: &mut Vec<SchedAction>,
    ) {
        let is_good = |result: &CaseResult| matches!(result.finding.verdict, Verdict::Ok | Verdict::Noisy);
        let works = ended.results.iter().any(is_good);
        for id in &running.devices {
            let Some(device) = self.devices.get_mut(id) else { continue };
            if works {
                if device.clear() {
                    actions.push(SchedAction::Readmit { device: *id });
                }
                continue;
            }
            let until = device.set_aside(now);
            let said = ended.results.first().map_or(ended.outcome.as_str(), |first| &first.finding.reason);
            let reason = format!("cases that ended well elsewhere fail on it: {said}");
            actions.push(SchedAction::Quarantine { device: *id, reason, until });
        }
    }
}

const fn is_suspect(finding: &CaseOutcome) -> bool {
    matches!(finding.verdict, Verdict::Crashed | Verdict::Hung)
}

/// Whether the profile of several cases is of no use for any of them: no case explains that.
fn is_lost(results: &[CaseResult]) -> bool {
    let useless =
        |result: &CaseResult| matches!(result.finding.verdict, Verdict::LostRecords | Verdict::Implausible);
    results.len() > 1 && results.iter().all(useless)
}

/// The verdict of a case on which several collections broke, with where and how.
fn quarantined(broke: &[(u32, u32)], last: Option<&CaseOutcome>) -> CaseOutcome {
    let places: Vec<String> = broke
        .iter()
        .map(|(device, collection)| format!("device {device} (collection {collection})"))
        .collect();
    let (what, why) = match last {
        Some(last) if last.verdict == Verdict::Hung => ("hung", last.reason.as_str()),
        Some(last) => ("crashed", last.reason.as_str()),
        None => ("crashed", "the process ended while it ran"),
    };
    CaseOutcome::new(Verdict::Quarantined, format!("{what} on {}: {why}", places.join(" and ")))
}
