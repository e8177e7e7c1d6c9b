//! The scheduler on pretended hosts: what must hold whatever happens, and what faults cost.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{
    domain::{CaseOutcome, CollectionPurpose, Verdict},
    stats::SplitMix64,
};

/// What is wrong with a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ill {
    No,
    /// Its process ends while it runs.
    Crashes,
    /// As before, and nobody can say which case ran.
    CrashesUnnamed,
    /// It does not end.
    Hangs,
    /// Memory runs out, alone as well.
    TooLarge,
    /// Memory runs out beside others.
    Crowded,
    /// Its records are lost, the first time.
    LostOnce,
    /// Its records are always lost.
    AlwaysLost,
    /// The call is refused.
    Refused,
}

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sick {
    No,
    /// Nothing can be launched on it from one moment to another.
    Dead(Seconds, Seconds),
    /// The first case of each collection crashes on it.
    Breaks,
}

/// A pretended host, which checks at every step what must hold.
struct World {
    jobs: Vec<SchedCase>,
    ill: Vec<Ill>,
    sick: BTreeMap<u32, Sick>,
    /// How much longer things take than is thought.
    slow: f64,
    /// What a collection takes besides its cases.
    besides: Seconds,
    deadline: Option<Seconds>,
    busy_until: BTreeMap<u32, (u32, Seconds)>,
    attempts: Vec<u32>,
    numbers: BTreeSet<u32>,
    concluded: BTreeMap<usize, CaseOutcome>,
    /// Devices of conclusions, and collections by purpose.
    collections: Vec<(CollectionPurpose, usize)>,
    busy: Seconds,
    set_aside: Vec<u32>,
    taken_back: Vec<u32>,
    last_end: Seconds,
    longest: Seconds,
    has_ended: bool,
}

fn job(kernel: usize, seconds: Seconds) -> SchedCase {
    SchedCase { kernel, seconds, launches: 25, value: 1.0, devices: 1, memory: 1 }
}

impl World {
    fn new(jobs: Vec<SchedCase>, ill: Vec<Ill>) -> Self {
        Self {
            attempts: vec![0; jobs.len()],
            jobs,
            ill,
            sick: BTreeMap::new(),
            slow: 1.0,
            besides: 7.0,
            deadline: None,
            busy_until: BTreeMap::new(),
            numbers: BTreeSet::new(),
            concluded: BTreeMap::new(),
            collections: Vec::new(),
            busy: 0.0,
            set_aside: Vec::new(),
            taken_back: Vec::new(),
            last_end: 0.0,
            longest: 0.0,
            has_ended: false,
        }
    }

    fn healthy(cases: usize) -> Self {
        Self::new((0..cases).map(|case| job(case % 7, 0.05)).collect(), vec![Ill::No; cases])
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
        ended
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.concluded.values().filter(|finding| finding.verdict == verdict).count()
    }

    fn is_dead(&self, device: u32, now: Seconds) -> bool {
        matches!(self.sick.get(&device), Some(Sick::Dead(from, to)) if (*from..*to).contains(&now))
    }

    /// What becomes of the cases of a collection, and how long it takes.
    fn launch(
        &mut self,
        start: &StartCollection,
        breaks: bool,
    ) -> (Vec<CaseResult>, CollectionExit, Seconds) {
        let not_run = || CaseOutcome::new(Verdict::NotRun, "the collection ended before its turn");
        let mut results: Vec<CaseResult> = Vec::new();
        let (mut end, mut gone) = (CollectionExit::Clean, 0.0);
        let unnamed = start.cases.iter().any(|case| self.ill[*case] == Ill::CrashesUnnamed);
        for (place, &case) in start.cases.iter().enumerate() {
            let result = |verdict, seconds| CaseResult {
                case,
                finding: CaseOutcome::new(verdict, "said the host"),
                seconds,
            };
            if end != CollectionExit::Clean {
                results.push(CaseResult { case, finding: not_run(), seconds: None });
                continue;
            }
            let seconds = self.jobs[case].seconds * self.slow;
            gone += seconds;
            self.attempts[case] += 1;
            let is_first_try = self.attempts[case] == 1;
            let ill = if start.purpose == CollectionPurpose::Control { Ill::No } else { self.ill[case] };
            let verdict = match ill {
                _ if breaks && place == 0 => Verdict::Crashed,
                _ if unnamed => Verdict::LostRecords,
                Ill::Crashes => Verdict::Crashed,
                Ill::Hangs => {
                    gone = start.limit;
                    Verdict::Hung
                }
                Ill::TooLarge => Verdict::Oom,
                Ill::Crowded if start.cases.len() > 1 => Verdict::Oom,
                Ill::LostOnce if is_first_try => Verdict::LostRecords,
                Ill::AlwaysLost => Verdict::LostRecords,
                Ill::Refused => Verdict::InvalidArgs,
                _ => Verdict::Ok,
            };
            if matches!(verdict, Verdict::Crashed | Verdict::Hung) {
                end = CollectionExit::Broken;
            }
            let ended = !matches!(verdict, Verdict::Crashed | Verdict::Hung);
            results.push(result(verdict, ended.then_some(seconds)));
        }
        if unnamed {
            end = CollectionExit::Broken;
        }
        (results, end, gone)
    }
}

impl SimulatedHost for World {
    fn end(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished {
        assert!(!self.has_ended, "nothing begins behind the end");
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
        let besides = self.besides * self.slow;
        let (results, end, total) = if self.is_dead(device, now) {
            let finding = CaseOutcome::new(Verdict::NotRun, "the script could not use its device");
            let results =
                start.cases.iter().map(|&case| CaseResult { case, finding: finding.clone(), seconds: None });
            (results.collect(), CollectionExit::NothingLaunched, 2.0)
        } else {
            let breaks = self.sick.get(&device) == Some(&Sick::Breaks);
            let (results, end, gone) = self.launch(start, breaks);
            (results, end, besides + gone)
        };
        // What takes longer than its limit is ended.
        let (mut results, mut end, mut total) = (results, end, total.min(start.limit));
        if start.cut_off.is_some_and(|cut_off| total >= cut_off) {
            let cut = CaseOutcome::new(Verdict::NotRun, "the run was stopped while it ran");
            results = start
                .cases
                .iter()
                .map(|&case| CaseResult { case, finding: cut.clone(), seconds: None })
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
            end,
            start: (end != CollectionExit::NothingLaunched).then_some(4.0 * self.slow),
            total,
            outcome: "said the host".to_owned(),
        }
    }

    fn watch(&mut self, _now: Seconds, action: &SchedAction) {
        assert!(!self.has_ended, "nothing comes behind the end: {action:?}");
        match action {
            SchedAction::Conclude { case, finding } => {
                let before = self.concluded.insert(*case, finding.clone());
                assert_eq!(before, None, "case {case} has two verdicts");
            }
            SchedAction::Quarantine { device, .. } => self.set_aside.push(*device),
            SchedAction::Readmit { device } => self.taken_back.push(*device),
            SchedAction::End => self.has_ended = true,
            _ => {}
        }
    }
}

#[test]
fn healthy_cases_are_measured_once_and_all_devices_end_together() {
    let mut world = World::healthy(5000);
    let ended = world.run(8);
    assert_eq!(world.count(Verdict::Ok), 5000);
    assert!(world.attempts.iter().all(|attempts| *attempts == 1));
    let share = world.busy / (8.0 * ended);
    assert!(share > 0.9, "devices are busy {share} of the time");
}

#[test]
fn few_cases_are_divided_among_all_devices() {
    let mut world = World::healthy(32);
    world.run(16);
    assert_eq!(world.collections.len(), 16, "{:?}", world.collections);
}

/// The same run with one case ill and with none: what the ill one costs in collections.
fn extra_collections(ill: Ill, at: usize, cases: usize) -> (World, usize) {
    let jobs: Vec<SchedCase> = (0..cases).map(|_| job(0, 0.05)).collect();
    let run = |ill: Vec<Ill>| {
        let mut world = World::new(jobs.clone(), ill);
        world.run(2);
        world
    };
    let healthy = run(vec![Ill::No; cases]).collections.len();
    let mut one = vec![Ill::No; cases];
    one[at] = ill;
    let world = run(one);
    let collections = world.collections.len();
    (world, collections.saturating_sub(healthy))
}

#[test]
fn one_poison_case_among_500_costs_no_more_than_a_search() {
    // Chunks hold up to 256 cases; a search in one takes log2 of that, and two more.
    for (ill, verdict, most) in [
        (Ill::Crashes, Verdict::Quarantined, 4),
        (Ill::Hangs, Verdict::Quarantined, 4),
        (Ill::CrashesUnnamed, Verdict::Quarantined, 10),
        (Ill::TooLarge, Verdict::Oom, 2),
        (Ill::AlwaysLost, Verdict::LostRecords, 3),
    ] {
        for at in [0, 3, 100, 250, 499] {
            let (world, extra) = extra_collections(ill, at, 500);
            assert_eq!(world.concluded[&at].verdict, verdict, "{ill:?} at {at}");
            assert_eq!(world.count(Verdict::Ok), 499, "{ill:?} at {at}");
            assert!(extra <= most, "{ill:?} at {at} cost {extra} collections more: {:?}", world.collections);
        }
    }
}

#[test]
fn a_quarantined_case_says_where_it_broke() {
    let (world, _) = extra_collections(Ill::Crashes, 7, 20);
    let reason = &world.concluded[&7].reason;
    assert!(reason.starts_with("crashed on device ") && reason.contains(" and device "), "{reason}");
}

#[test]
fn memory_that_ran_out_beside_others_is_tried_alone() {
    let mut world = World::healthy(40);
    world.ill[5] = Ill::Crowded;
    world.run(1);
    assert_eq!((world.count(Verdict::Ok), world.attempts[5]), (40, 2));
}

#[test]
fn what_needs_as_much_memory_as_ran_out_is_tried_alone_until_one_fits() {
    let mut world = World::healthy(400);
    world.ill[0] = Ill::TooLarge;
    world.jobs[0].value = 9.0;
    for case in [0, 100, 200, 300] {
        world.jobs[case].memory = 1 << 35;
    }
    world.run(1);
    assert_eq!((world.count(Verdict::Ok), world.count(Verdict::Oom)), (399, 1));
    let alone = world.collections.iter().filter(|(purpose, _)| *purpose == CollectionPurpose::Alone).count();
    // The second one ended well alone: the others are no larger.
    assert_eq!(alone, 2, "{:?}", world.collections);
}

#[test]
fn a_device_that_dies_is_set_aside_and_taken_back_when_it_works_again() {
    let mut world = World::new((0..20_000).map(|case| job(case % 7, 0.4)).collect(), vec![Ill::No; 20_000]);
    world.sick.insert(2, Sick::Dead(60.0, 500.0));
    world.run(4);
    assert_eq!(world.count(Verdict::Ok), 20_000);
    assert_eq!((world.set_aside.as_slice(), world.taken_back.as_slice()), ([2].as_slice(), [2].as_slice()));
}

#[test]
fn a_device_that_breaks_good_cases_leaves_and_no_case_is_blamed() {
    let mut world = World::healthy(3000);
    world.sick.insert(1, Sick::Breaks);
    world.run(4);
    assert_eq!(world.count(Verdict::Ok), 3000);
    assert!(!world.set_aside.is_empty() && world.set_aside.iter().all(|device| *device == 1));
}

#[test]
fn a_host_on_which_nothing_can_be_launched_is_given_up() {
    let mut world = World::healthy(100);
    for device in 0..4 {
        world.sick.insert(device, Sick::Dead(0.0, f64::INFINITY));
    }
    let ended = world.run(4);
    assert_eq!(world.count(Verdict::NotRun), 100);
    assert!(ended < 60.0, "after {ended} s");
}

#[test]
fn gangs_begin_together_and_the_others_are_measured_too() {
    let mut world = World::healthy(300);
    for case in 0..12 {
        world.jobs[case].devices = 4;
    }
    world.jobs[20].devices = 16;
    world.run(8);
    assert_eq!(world.count(Verdict::Ok), 299);
    assert_eq!(world.concluded[&20].reason, "it needs more devices than the run has");
}

#[test]
fn a_lent_device_is_left_alone_until_it_is_returned() {
    let mut world = World::healthy(4000);
    let others = vec![
        (10.0, SchedEvent::DeviceReserved { device: 0 }),
        (500.0, SchedEvent::DeviceReleased { device: 0 }),
    ];
    world.run_with(1, others);
    assert_eq!(world.count(Verdict::Ok), 4000);
    assert!(world.last_end > 500.0);
}

#[test]
fn a_full_disk_holds_everything_back() {
    let mut world = World::healthy(2000);
    world.run_with(2, vec![(5.0, SchedEvent::NewWorkPaused), (1000.0, SchedEvent::Released)]);
    assert_eq!(world.count(Verdict::Ok), 2000);
    assert!(world.last_end > 1000.0);
}

#[test]
fn the_most_valuable_cases_are_done_when_the_deadline_comes() {
    let mut world = World::healthy(20_000);
    world.slow = 3.0;
    world.deadline = Some(600.0);
    for case in 0..20_000 {
        world.jobs[case].value = if case % 10 == 3 { 5.0 } else { 1.0 };
    }
    world.run(4);
    let done = |case: &usize| world.concluded[case].verdict == Verdict::Ok;
    assert!((0..20_000).filter(|case| case % 10 == 3).all(|case| done(&case)), "a heavy case was left");
    assert!(world.count(Verdict::NotRun) > 1000, "there is not time for all");
    assert!(world.last_end > 600.0 - world.longest, "idle from {} on", world.last_end);
}

#[test]
fn forecasts_come_true() {
    let mut world = World::healthy(8000);
    world.besides = 15.0;
    let devices: Vec<u32> = (0..4).collect();
    let limits = SchedLimits::default();
    let mut state = SchedulerState::new(world.jobs.clone(), &devices, limits, 0);
    state.on_event(0.0, SchedEvent::NewWorkPaused);
    let thought = state.forecast(0.0);
    assert_eq!((thought.open, thought.in_time), (8000, 8000));
    let (took, _) = simulate(&mut state, &mut world, vec![(0.0, SchedEvent::Released)]);
    assert!((0.7..1.3).contains(&(thought.seconds / took)), "{} s thought, {took} s taken", thought.seconds);
}

/// A night of a host: 16 devices, ten hours, 100,000 cases, 2 of 100 with a fault.
#[test]
fn a_night_keeps_all_devices_busy_and_ends_in_time() {
    let mut random = SplitMix64::new(7);
    let mut draw = |bound: u64| random.below(bound);
    let cases = 100_000;
    // 600 device hours for 160 there are: not all can be done.
    let jobs: Vec<SchedCase> = (0..cases)
        .map(|_| SchedCase {
            seconds: 0.5 * f64::from(1 + u32::try_from(draw(40)).unwrap_or(0)),
            value: f64::from(u32::try_from(draw(100)).unwrap_or(0)),
            ..job(usize::try_from(draw(60)).unwrap_or(0), 0.0)
        })
        .collect();
    let faults = [Ill::Crashes, Ill::Hangs, Ill::TooLarge, Ill::Crowded, Ill::LostOnce, Ill::Refused];
    let ill: Vec<Ill> = (0..cases)
        .map(|_| if draw(50) == 0 { faults[usize::try_from(draw(6)).unwrap_or(0)] } else { Ill::No })
        .collect();
    let mut world = World::new(jobs, ill);
    world.slow = 1.6;
    world.deadline = Some(36_000.0);
    world.run(16);
    let share = world.busy / (16.0 * 36_000.0);
    assert!(share >= 0.97, "devices are busy {share} of the time");
    assert!(world.last_end <= 36_000.0 && world.last_end >= 36_000.0 - world.longest);
    // What was left is worth no more than the least of what was done, but for what was still under suspicion.
    let values = |verdict: Verdict| {
        let with = world.concluded.iter().filter(move |(_, finding)| finding.verdict == verdict);
        with.map(|(case, _)| world.jobs[*case].value).collect::<Vec<f64>>()
    };
    let (left, mut done) = (values(Verdict::NotRun), values(Verdict::Ok));
    assert!(!left.is_empty() && done.len() > 10_000);
    done.sort_by(f64::total_cmp);
    // Short cases of less value fill the last minutes.
    let least = done[done.len() / 50];
    let heavier = left.iter().filter(|value| **value > least).count();
    assert!(heavier * 100 < left.len(), "{heavier} of {} left are worth more than {least}", left.len());
}

fn ill() -> impl Strategy<Value = Ill> {
    prop_oneof![
        20 => Just(Ill::No),
        1 => Just(Ill::Crashes),
        1 => Just(Ill::CrashesUnnamed),
        1 => Just(Ill::Hangs),
        1 => Just(Ill::TooLarge),
        1 => Just(Ill::Crowded),
        1 => Just(Ill::LostOnce),
        1 => Just(Ill::AlwaysLost),
        1 => Just(Ill::Refused),
    ]
}

fn sick() -> impl Strategy<Value = Sick> {
    prop_oneof![
        6 => Just(Sick::No),
        1 => (0.0..500.0_f64, 0.0..3000.0_f64).prop_map(|(from, long)| Sick::Dead(from, from + long)),
        1 => Just(Sick::Breaks),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens: each case has one verdict, no device holds two collections, gangs are whole (the host
    /// asserts these), and only ill cases are blamed while a device works.
    #[test]
    fn every_case_ends(
        ills in prop::collection::vec((ill(), 0_usize..5, prop::sample::select(vec![1_usize, 1, 1, 1, 2, 4])), 1..300),
        sicks in prop::collection::vec(sick(), 1..6),
        lent in prop::collection::vec((0.0..2000.0_f64, 0_u32..6, 0.0..2000.0_f64), 0..3),
        deadline in prop::option::of(50.0..4000.0_f64),
        stop in prop::option::of(0.0..500.0_f64),
        slow in 0.3..4.0_f64,
    ) {
        let jobs: Vec<SchedCase> = ills.iter().map(|(_, kernel, devices)| SchedCase { devices: *devices, ..job(*kernel, 0.2) }).collect();
        let mut world = World::new(jobs, ills.iter().map(|(ill, ..)| *ill).collect());
        world.slow = slow;
        world.deadline = deadline;
        let devices = u32::try_from(sicks.len()).unwrap_or(1);
        world.sick = (0..).zip(sicks.iter().copied()).collect();
        let mut others = Vec::new();
        for (at, device, long) in lent {
            others.push((at, SchedEvent::DeviceReserved { device }));
            others.push((at + long, SchedEvent::DeviceReleased { device }));
        }
        others.extend(stop.map(|at| (at, SchedEvent::StopRequested)));
        let is_well = sicks.iter().all(|sick| *sick == Sick::No) && stop.is_none() && deadline.is_none();
        world.run_with(devices, others);
        for (case, finding) in &world.concluded {
            let ill = world.ill[*case];
            if finding.verdict == Verdict::Quarantined && is_well {
                prop_assert!(matches!(ill, Ill::Crashes | Ill::CrashesUnnamed | Ill::Hangs), "{ill:?}: {finding:?}");
            }
            if is_well && matches!(ill, Ill::No | Ill::Crowded) && world.jobs[*case].devices <= sicks.len() {
                prop_assert_eq!(finding.verdict, Verdict::Ok, "{:?} {}", ill, finding.reason);
            }
        }
    }

    /// The same events give the same actions.
    #[test]
    fn nothing_is_left_to_chance(ills in prop::collection::vec(ill(), 1..200), devices in 1_u32..6) {
        let run = || {
            let jobs: Vec<SchedCase> = (0..ills.len()).map(|case| job(case % 3, 0.2)).collect();
            let mut world = World::new(jobs, ills.clone());
            world.run(devices);
            (world.collections, world.concluded)
        };
        prop_assert_eq!(run(), run());
    }
}
