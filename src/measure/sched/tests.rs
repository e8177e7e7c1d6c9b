//! Tests of the scheduler on simulated hosts: invariants under random faults, and the cost of faults in collections.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    base::stats::SplitMix64,
    kernel::{CaseOutcome, Cause, CollectionPurpose, Verdict},
};

mod case_faults;
mod device_faults;
mod random_faults;
mod repetitions;

/// Fault of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CaseFault {
    No,
    /// The process of the case ends while the case runs.
    Crashes,
    /// Its process ends while it runs, and the journal names no case.
    CrashesUnnamed,
    /// It does not end.
    Hangs,
    /// It runs out of memory, also alone.
    TooLarge,
    /// It runs out of memory in a collection with other cases.
    Crowded,
    /// The records of the case are lost in the first attempt.
    LostOnce,
    /// The records of the case are always lost.
    AlwaysLost,
    /// The call raises an error.
    Refused,
    /// The call raises an error of unclear cause, always or in the first attempt.
    Unclear,
    UnclearOnce,
    /// The same in the first attempt, after which the device cannot be used.
    UnclearLate,
    /// The call raises a fault of the device in the first attempt, after which the device cannot be used.
    FaultOnce,
    /// The call launches another kernel.
    OtherKernel,
}

/// Fault of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DeviceFault {
    No,
    /// No case can be launched on it between these times.
    Dead(Seconds, Seconds),
    /// The first case of each collection crashes on it.
    Breaks,
    /// Collections that start on it between these times find a full disk: only every third case keeps its results.
    DiskFull(Seconds, Seconds),
    /// The profiles of collections that start on it between these times cannot be read.
    UnreadableProfiles(Seconds, Seconds),
    /// All calls launch other kernels.
    OtherKernels,
}

/// Simulated host with faults, which asserts the invariants at every action.
#[derive(Default)]
struct FaultyHost {
    jobs: Vec<SchedCase>,
    case_faults: Vec<CaseFault>,
    device_faults: BTreeMap<u32, DeviceFault>,
    /// Ratio of actual to predicted times.
    slowdown: f64,
    /// The same of the times of cases, in addition.
    case_slowdown: f64,
    /// Seconds of a collection without its cases.
    overhead: Seconds,
    deadline: Option<Seconds>,
    busy_until: BTreeMap<u32, (u32, Seconds)>,
    attempts: Vec<u32>,
    numbers: BTreeSet<u32>,
    concluded: BTreeMap<usize, CaseOutcome>,
    /// Purpose and number of cases of each collection.
    collections: Vec<(CollectionPurpose, usize)>,
    busy: Seconds,
    quarantined: Vec<u32>,
    readmitted: Vec<u32>,
    wrong_kernel_devices: Vec<u32>,
    last_end: Seconds,
    longest: Seconds,
    /// Collections that were ended at their time limit or the deadline although no case was at fault.
    ended_by_limit: u32,
    has_ended: bool,
}

/// Part of the overhead of a collection before its first case.
const STARTUP: Seconds = 4.0;

fn job(kernel: usize, seconds: Seconds) -> SchedCase {
    SchedCase { kernel, seconds, records: 25, value: 1.0, devices: 1, memory: 1, ..SchedCase::default() }
}

impl FaultyHost {
    fn new(jobs: Vec<SchedCase>, case_faults: Vec<CaseFault>) -> Self {
        Self {
            attempts: vec![0; jobs.len()],
            jobs,
            case_faults,
            slowdown: 1.0,
            case_slowdown: 1.0,
            overhead: 7.0,
            ..Self::default()
        }
    }

    fn healthy(cases: usize) -> Self {
        Self::new((0..cases).map(|case| job(case % 7, 0.05)).collect(), vec![CaseFault::No; cases])
    }

    fn run(&mut self, devices: u32) -> Seconds {
        self.run_with(devices, Vec::new())
    }

    fn run_with(&mut self, devices: u32, others: Vec<(Seconds, SchedEvent)>) -> Seconds {
        let devices: Vec<u32> = (0..devices).collect();
        let limits = SchedLimits { deadline: self.deadline, ..SchedLimits::default() };
        let mut state = SchedulerState::new(self.jobs.clone(), &devices, limits, 0);
        let (ended, _) = simulate(&mut state, self, others);
        assert!(self.has_ended, "the run ends");
        assert_eq!(self.concluded.len(), self.jobs.len(), "every case has its verdict");
        self.wrong_kernel_devices =
            state.wrong_kernel_devices().into_iter().map(|(device, _)| device).collect();
        ended
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.concluded.values().filter(|outcome| outcome.verdict == verdict).count()
    }

    fn is_dead(&self, device: u32, now: Seconds) -> bool {
        matches!(self.device_faults.get(&device), Some(DeviceFault::Dead(from, to)) if (*from..*to).contains(&now))
    }

    fn is_profile_unreadable(&self, device: u32, now: Seconds) -> bool {
        matches!(self.device_faults.get(&device), Some(DeviceFault::UnreadableProfiles(from, to)) if (*from..*to).contains(&now))
    }

    fn is_disk_full(&self, device: u32, now: Seconds) -> bool {
        matches!(self.device_faults.get(&device), Some(DeviceFault::DiskFull(from, to)) if (*from..*to).contains(&now))
    }

    /// Returns the results of a collection, its exit and its seconds.
    fn launch(
        &mut self,
        start: &StartCollection,
        breaks: bool,
    ) -> (Vec<CaseResult>, CollectionExit, Seconds) {
        let not_run = || CaseOutcome::new(Verdict::NotRun, "the collection ended before its turn");
        let mut results: Vec<CaseResult> = Vec::new();
        let (mut end, mut elapsed) = (CollectionExit::Completed, 0.0);
        let ends_at = start.cut_off.map_or(start.limit, |cut_off| cut_off.min(start.limit));
        let launches_until = ends_at - start.export_reserve - STARTUP * self.slowdown;
        let unnamed = start.cases.iter().any(|case| self.case_faults[*case] == CaseFault::CrashesUnnamed);
        for (place, &case) in start.cases.iter().enumerate() {
            let is_unclear = matches!(
                self.case_faults[case],
                CaseFault::Unclear | CaseFault::UnclearOnce | CaseFault::UnclearLate
            );
            let result = |verdict, seconds| {
                let (class, message) = (String::new(), "simulated".to_owned());
                let cause = match verdict {
                    Verdict::Rejected if is_unclear => Cause::Unclear { class, message },
                    _ => "simulated".into(),
                };
                CaseResult { case, outcome: CaseOutcome::new(verdict, cause), seconds }
            };
            // A case is expected to take as long as those before it.
            let expected = elapsed / place.max(1) as f64;
            if end != CollectionExit::Completed || elapsed + expected >= launches_until {
                results.push(CaseResult { case, outcome: not_run(), seconds: None });
                continue;
            }
            let seconds = self.jobs[case].seconds * self.slowdown * self.case_slowdown;
            elapsed += seconds;
            self.attempts[case] += 1;
            let is_first_try = self.attempts[case] == 1;
            let fault = if start.purpose == CollectionPurpose::Control {
                CaseFault::No
            } else {
                self.case_faults[case]
            };
            let verdict = match fault {
                _ if breaks && place == 0 => Verdict::Crashed,
                _ if unnamed => Verdict::LostRecords,
                CaseFault::Crashes => Verdict::Crashed,
                CaseFault::Hangs => {
                    elapsed = start.limit;
                    Verdict::Hung
                }
                CaseFault::TooLarge => Verdict::Oom,
                CaseFault::Crowded if start.cases.len() > 1 => Verdict::Oom,
                CaseFault::LostOnce if is_first_try => Verdict::LostRecords,
                CaseFault::AlwaysLost => Verdict::LostRecords,
                CaseFault::Refused | CaseFault::Unclear => Verdict::Rejected,
                CaseFault::UnclearOnce if is_first_try => Verdict::Rejected,
                CaseFault::UnclearLate if is_first_try => {
                    end = CollectionExit::EndedByCase;
                    Verdict::Rejected
                }
                CaseFault::FaultOnce if is_first_try => {
                    end = CollectionExit::EndedByCase;
                    Verdict::Crashed
                }
                CaseFault::OtherKernel => Verdict::WrongKernel,
                _ => Verdict::Ok,
            };
            if end == CollectionExit::Completed && matches!(verdict, Verdict::Crashed | Verdict::Hung) {
                end = CollectionExit::Broken;
            }
            let ended = !matches!(verdict, Verdict::Crashed | Verdict::Hung);
            results.push(result(verdict, ended.then_some(seconds)));
        }
        if unnamed {
            end = CollectionExit::Broken;
        }
        if end == CollectionExit::Broken {
            let lost = CaseOutcome::new(Verdict::LostRecords, "the records of the process are lost");
            let complete = results.iter_mut().filter(|result| result.outcome.verdict == Verdict::Ok);
            complete.for_each(|result| result.outcome = lost.clone());
        }
        (results, end, elapsed)
    }
}

impl SimulatedHost for FaultyHost {
    fn finish_collection(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished {
        assert!(!self.has_ended, "a collection starts after the end");
        assert!(self.numbers.insert(start.collection), "collection {} twice", start.collection);
        assert!(!start.cases.is_empty(), "no collection is empty");
        self.collections.push((start.purpose, start.cases.len()));
        let size = start.cases.iter().map(|case| self.jobs[*case].devices).max().unwrap_or(1).max(1);
        assert_eq!(start.devices.len(), size, "a gang has all its devices, and no more");
        for case in &start.cases {
            let is_control = start.purpose == CollectionPurpose::Control;
            assert_eq!(self.concluded.contains_key(case), is_control, "case {case} runs after its verdict");
        }
        let device = start.devices[0];
        let overhead = self.overhead * self.slowdown;
        let (results, end, total) = if self.is_dead(device, now) {
            let outcome = CaseOutcome::new(Verdict::NotRun, "the script could not use its device");
            let results =
                start.cases.iter().map(|&case| CaseResult { case, outcome: outcome.clone(), seconds: None });
            (results.collect(), CollectionExit::NothingLaunched, 2.0)
        } else {
            let breaks = self.device_faults.get(&device) == Some(&DeviceFault::Breaks);
            let (mut results, mut end, elapsed) = self.launch(start, breaks);
            if self.device_faults.get(&device) == Some(&DeviceFault::OtherKernels) {
                let wrong = CaseOutcome::new(Verdict::WrongKernel, "simulated");
                let launched = results.iter_mut().filter(|result| result.seconds.is_some());
                launched.for_each(|result| result.outcome = wrong.clone());
            }
            if self.is_disk_full(device, now) {
                end = CollectionExit::DiskFull;
                let lost = |result: &&mut CaseResult| {
                    result.outcome.verdict != Verdict::Ok || !result.case.is_multiple_of(3)
                };
                results.iter_mut().filter(lost).for_each(|result| {
                    result.outcome = CaseOutcome::new(Verdict::NotRun, "the disk was full");
                });
            }
            (results, end, overhead + elapsed)
        };
        // A collection longer than its limit is ended, and its records are lost.
        let (mut results, mut end, mut total) = (results, end, total);
        if total > start.limit && end == CollectionExit::Completed {
            self.ended_by_limit += 1;
            end = CollectionExit::Broken;
            let lost = CaseOutcome::new(Verdict::NotRun, "ended before its records were exported");
            results.iter_mut().for_each(|result| result.outcome = lost.clone());
        }
        total = total.min(start.limit);
        let has_readable_profile =
            end != CollectionExit::NothingLaunched && !self.is_profile_unreadable(device, now);
        if end == CollectionExit::Completed && !has_readable_profile {
            let lost = CaseOutcome::new(Verdict::LostRecords, "the profile cannot be read");
            results.iter_mut().for_each(|result| result.outcome = lost.clone());
        }
        if start.cut_off.is_some_and(|cut_off| total >= cut_off) {
            let cut = CaseOutcome::new(Verdict::NotRun, "the run was stopped while it ran");
            results = start
                .cases
                .iter()
                .map(|&case| CaseResult { case, outcome: cut.clone(), seconds: None })
                .collect();
            (end, total) = (CollectionExit::Stopped, start.limit);
        }
        for id in &start.devices {
            if let Some((other, until)) = self.busy_until.get(id) {
                assert!(
                    *until <= now + 1e-6,
                    "device {id} holds collections {other} and {}",
                    start.collection
                );
            }
            self.busy_until.insert(*id, (start.collection, now + total));
            self.busy += total;
        }
        self.last_end = self.last_end.max(now + total);
        self.longest = self.longest.max(total);
        if let Some(deadline) = self.deadline {
            assert!(now + total <= deadline, "ends {} s too late", now + total - deadline);
        }
        CollectionFinished {
            collection: start.collection,
            results,
            exit: end,
            has_readable_profile,
            startup: (end != CollectionExit::NothingLaunched).then_some(STARTUP * self.slowdown),
            total,
            failed_devices: Vec::new(),
            message: "simulated".to_owned(),
        }
    }

    fn on_action(&mut self, _now: Seconds, action: &SchedAction) {
        assert!(!self.has_ended, "action after the end: {action:?}");
        match action {
            SchedAction::Conclude { case, outcome } => {
                let before = self.concluded.insert(*case, outcome.clone());
                assert_eq!(before, None, "case {case} has two verdicts");
            }
            SchedAction::Pause { device, .. } => self.quarantined.push(*device),
            SchedAction::Readmit { device } => self.readmitted.push(*device),
            SchedAction::Finish => self.has_ended = true,
            _ => {}
        }
    }
}

#[test]
fn faultless_cases_are_measured_once_and_all_devices_end_together() {
    let mut host = FaultyHost::healthy(5000);
    let ended = host.run(8);
    assert_eq!(host.count(Verdict::Ok), 5000);
    assert!(host.attempts.iter().all(|attempts| *attempts == 1));
    let share = host.busy / (8.0 * ended);
    assert!(share > 0.9, "devices are busy {share} of the time");
}

#[test]
fn few_cases_are_divided_among_all_devices() {
    let mut host = FaultyHost::healthy(32);
    host.run(16);
    assert_eq!(host.collections.len(), 16, "{:?}", host.collections);
}

#[test]
fn no_collection_starts_on_devices_that_are_reserved_at_the_start() {
    let jobs = vec![job(0, 1.0); 10];
    let mut state = SchedulerState::new(jobs, &[0, 1, 2], SchedLimits::default(), 0);
    let reserved = SchedEvent::ReservationsChanged { reserved: vec![0, 1, 2], released: Vec::new() };
    assert_eq!(state.on_event(0.0, reserved), []);
    assert_eq!(state.on_event(0.0, SchedEvent::Started), []);
    let released = SchedEvent::ReservationsChanged { reserved: Vec::new(), released: vec![1] };
    let started = state.on_event(1.0, released);
    assert!(matches!(started.as_slice(), [SchedAction::Start(start)] if start.devices == [1]), "{started:?}");
}

#[test]
fn gangs_get_all_their_devices_and_single_cases_are_measured_too() {
    let mut host = FaultyHost::healthy(300);
    for case in 0..12 {
        host.jobs[case].devices = 4;
    }
    host.jobs[20].devices = 16;
    host.run(8);
    assert_eq!(host.count(Verdict::Ok), 299);
    assert_eq!(host.concluded[&20].reason, "it needs more devices than the run has");
}

#[test]
fn reserved_device_is_not_used_until_its_release() {
    let mut host = FaultyHost::healthy(4000);
    let others = vec![
        (10.0, SchedEvent::ReservationsChanged { reserved: vec![0], released: Vec::new() }),
        (500.0, SchedEvent::ReservationsChanged { reserved: Vec::new(), released: vec![0] }),
    ];
    host.run_with(1, others);
    assert_eq!(host.count(Verdict::Ok), 4000);
    assert!(host.last_end > 500.0);
}

/// Both devices are lost. With a deadline the run waits, and continues when one is listed again.
#[test]
fn run_whose_devices_are_all_lost_ends_unless_it_has_a_deadline() {
    let events = || {
        let lost = |device| SchedEvent::DeviceLost { device, reason: "not listed".to_owned() };
        let reserved = SchedEvent::ReservationsChanged { reserved: vec![0, 1], released: Vec::new() };
        vec![(10.0, reserved), (1810.0, lost(0)), (1811.0, lost(1))]
    };
    let mut host = FaultyHost::healthy(4000);
    host.run_with(2, events());
    let left = host.count(Verdict::NotRun);
    assert!(left > 1000 && host.count(Verdict::Ok) == 4000 - left, "{left} of 4000 are left");
    let is_left = |outcome: &&CaseOutcome| outcome.verdict == Verdict::NotRun;
    assert!(
        host.concluded.values().filter(is_left).all(|outcome| outcome.reason.cause == Cause::NoWorkingDevice)
    );

    let mut host = FaultyHost::healthy(4000);
    host.deadline = Some(9000.0);
    let released = SchedEvent::ReservationsChanged { reserved: Vec::new(), released: vec![1] };
    host.run_with(2, [events(), vec![(2000.0, released)]].concat());
    assert_eq!(host.count(Verdict::Ok), 4000);
}

#[test]
fn no_collection_starts_while_new_work_is_paused() {
    let mut host = FaultyHost::healthy(2000);
    host.run_with(2, vec![(5.0, SchedEvent::NewWorkPaused), (1000.0, SchedEvent::NewWorkResumed)]);
    assert_eq!(host.count(Verdict::Ok), 2000);
    assert!(host.last_end > 1000.0);
}

#[test]
fn most_valuable_cases_are_measured_before_the_deadline() {
    let mut host = FaultyHost::healthy(20_000);
    host.slowdown = 3.0;
    host.deadline = Some(600.0);
    for case in 0..20_000 {
        host.jobs[case].value = if case % 10 == 3 { 5.0 } else { 1.0 };
    }
    host.run(4);
    let done = |case: &usize| host.concluded[case].verdict == Verdict::Ok;
    assert!((0..20_000).filter(|case| case % 10 == 3).all(|case| done(&case)), "a heavy case was left");
    assert!(host.count(Verdict::NotRun) > 1000, "not all can be measured");
    assert!(host.last_end > 600.0 - host.longest, "idle after {}", host.last_end);
}

#[test]
fn forecast_is_within_30_percent_of_the_run() {
    let mut host = FaultyHost::healthy(8000);
    host.overhead = 15.0;
    let devices: Vec<u32> = (0..4).collect();
    let limits = SchedLimits::default();
    let mut state = SchedulerState::new(host.jobs.clone(), &devices, limits, 0);
    state.on_event(0.0, SchedEvent::NewWorkPaused);
    let forecast = state.forecast(0.0);
    assert_eq!((forecast.open, forecast.in_time), (8000, 8000));
    let (took, _) = simulate(&mut state, &mut host, vec![(0.0, SchedEvent::NewWorkResumed)]);
    assert!(
        (0.7..1.3).contains(&(forecast.seconds / took)),
        "{} s predicted, {took} s taken",
        forecast.seconds
    );
}

/// 16 devices, ten hours, 100,000 cases, 2 of 100 with a fault.
#[test]
fn run_of_ten_hours_keeps_all_devices_busy_and_ends_before_the_deadline() {
    let mut random = SplitMix64::new(7);
    let mut draw = |bound: u64| random.next_below(bound);
    let cases = 100_000;
    // 600 device hours of work for 160 device hours.
    let jobs: Vec<SchedCase> = (0..cases)
        .map(|_| SchedCase {
            seconds: 0.5 * f64::from(1 + u32::try_from(draw(40)).unwrap_or(0)),
            value: f64::from(u32::try_from(draw(100)).unwrap_or(0)),
            ..job(usize::try_from(draw(60)).unwrap_or(0), 0.0)
        })
        .collect();
    let faults = [
        CaseFault::Crashes,
        CaseFault::Hangs,
        CaseFault::TooLarge,
        CaseFault::Crowded,
        CaseFault::LostOnce,
        CaseFault::Refused,
    ];
    let case_faults: Vec<CaseFault> = (0..cases)
        .map(|_| if draw(50) == 0 { faults[usize::try_from(draw(6)).unwrap_or(0)] } else { CaseFault::No })
        .collect();
    let mut host = FaultyHost::new(jobs, case_faults);
    host.slowdown = 1.6;
    host.deadline = Some(36_000.0);
    host.run(16);
    let share = host.busy / (16.0 * 36_000.0);
    assert!(share >= 0.97, "devices are busy {share} of the time");
    assert!(host.last_end <= 36_000.0 && host.last_end >= 36_000.0 - host.longest);
    // Cases that were left are worth no more than the least of the measured ones, except for suspects.
    let values = |verdict: Verdict| {
        let with = host.concluded.iter().filter(move |(_, outcome)| outcome.verdict == verdict);
        with.map(|(case, _)| host.jobs[*case].value).collect::<Vec<f64>>()
    };
    let (left, mut done) = (values(Verdict::NotRun), values(Verdict::Ok));
    assert!(!left.is_empty() && done.len() > 10_000);
    done.sort_by(f64::total_cmp);
    // Short cases of less value fill the last minutes.
    let least = done[done.len() / 50];
    let heavier = left.iter().filter(|value| **value > least).count();
    assert!(heavier * 100 < left.len(), "{heavier} of {} left are worth more than {least}", left.len());
}
