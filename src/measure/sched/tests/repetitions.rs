//! Cases that are measured in several collections.

use super::*;

/// Host on which every case succeeds; records where each was measured, and beside which cases.
#[derive(Default)]
struct RecordingHost {
    devices: BTreeMap<usize, Vec<u32>>,
    neighbours: BTreeMap<usize, Vec<BTreeSet<usize>>>,
    concluded: BTreeMap<usize, u32>,
    verdicts: BTreeMap<usize, Verdict>,
    finishes: u32,
    /// Devices on which every case is `throttled`.
    throttled: BTreeSet<u32>,
}

impl SimulatedHost for RecordingHost {
    fn finish_collection(&mut self, _now: Seconds, start: &StartCollection) -> CollectionFinished {
        let all: BTreeSet<usize> = start.cases.iter().copied().collect();
        for case in &start.cases {
            self.devices.entry(*case).or_default().extend(&start.devices);
            self.neighbours.entry(*case).or_default().push(all.clone());
        }
        let is_throttled = start.devices.iter().any(|device| self.throttled.contains(device));
        let verdict = if is_throttled { Verdict::Throttled } else { Verdict::Ok };
        let result = |&case: &usize| CaseResult {
            case,
            outcome: CaseOutcome::new(verdict, "measured"),
            seconds: Some(0.05),
        };
        CollectionFinished {
            collection: start.collection,
            results: start.cases.iter().map(result).collect(),
            exit: CollectionExit::Completed,
            has_readable_profile: true,
            failed_devices: Vec::new(),
            startup: Some(5.0),
            total: 7.0 + 0.05 * start.cases.len() as f64,
            message: "done".to_owned(),
        }
    }

    fn on_action(&mut self, _now: Seconds, action: &SchedAction) {
        match action {
            SchedAction::Conclude { case, outcome } => {
                *self.concluded.entry(*case).or_default() += 1;
                self.verdicts.insert(*case, outcome.verdict);
            }
            SchedAction::Finish => self.finishes += 1,
            _ => {}
        }
    }
}

fn state(cases: usize, devices: u32) -> SchedulerState {
    let jobs = (0..cases).map(|case| job(case % 7, 0.05)).collect();
    let devices: Vec<u32> = (0..devices).collect();
    SchedulerState::new(jobs, &devices, SchedLimits::default(), 0)
}

#[test]
fn repeated_cases_run_on_other_devices_beside_other_cases() {
    let (mut state, mut host) = (state(400, 4), RecordingHost::default());
    simulate(&mut state, &mut host, Vec::new());
    for round in 2..=4 {
        let all = SchedEvent::MeasureAgain((0..400).collect());
        simulate(&mut state, &mut host, vec![(1000.0, all)]);
        assert_eq!(host.finishes, round);
        assert!(host.concluded.values().all(|count| *count == round), "round {round}");
        let distinct = |devices: &Vec<u32>| devices.iter().collect::<BTreeSet<_>>().len();
        assert!(host.devices.values().all(|devices| distinct(devices) == round as usize), "round {round}");
    }
    // Beside two of three cases of its first collection at most.
    let is_other = |neighbours: &Vec<BTreeSet<usize>>| {
        neighbours[1].intersection(&neighbours[0]).count() * 3 <= neighbours[0].len() * 2
    };
    let others = host.neighbours.values().filter(|neighbours| is_other(neighbours)).count();
    assert!(others > 360, "{others} of 400 cases");
}

/// A single case has each device once before one has it again: the first free device would have it each time.
#[test]
fn repetitions_are_divided_among_the_devices() {
    let (mut state, mut host) = (state(1, 3), RecordingHost::default());
    simulate(&mut state, &mut host, Vec::new());
    for _ in 0..6 {
        simulate(&mut state, &mut host, vec![(1000.0, SchedEvent::MeasureAgain(vec![0]))]);
    }
    let times = [0, 1, 2].map(|device| host.devices[&0].iter().filter(|had| **had == device).count());
    assert_eq!(host.devices[&0].len(), 7);
    assert!(times.iter().all(|count| (2..=3).contains(count)), "{times:?}");
}

#[test]
fn device_is_used_twice_if_there_is_no_other() {
    let (mut state, mut host) = (state(30, 1), RecordingHost::default());
    simulate(&mut state, &mut host, Vec::new());
    simulate(&mut state, &mut host, vec![(100.0, SchedEvent::MeasureAgain(vec![3, 7]))]);
    assert_eq!(host.finishes, 2);
    assert_eq!((&host.devices[&3], &host.devices[&4]), (&vec![0, 0], &vec![0]));
}

#[test]
fn nothing_is_repeated_after_a_stop() {
    let (mut state, mut host) = (state(30, 2), RecordingHost::default());
    simulate(&mut state, &mut host, Vec::new());
    let events = vec![(50.0, SchedEvent::StopRequested), (60.0, SchedEvent::MeasureAgain(vec![1]))];
    simulate(&mut state, &mut host, events);
    assert_eq!((host.finishes, host.concluded[&1]), (2, 1));
}

/// Cases that were measured together are divided evenly among the other devices: those that stayed together would share all
/// effects of devices and collections.
#[test]
fn cases_of_a_collection_are_separated_in_the_next_round() {
    for (cases, devices) in [(20, 4), (30, 4), (200, 8), (400, 16), (21, 3)] {
        let (mut state, mut host) = (state(cases, devices), RecordingHost::default());
        simulate(&mut state, &mut host, Vec::new());
        let all = SchedEvent::MeasureAgain((0..cases).collect());
        simulate(&mut state, &mut host, vec![(1000.0, all)]);
        let mut from: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for devices in host.devices.values() {
            *from.entry((devices[0], devices[1])).or_default() += 1;
        }
        for ((first, second), count) in from {
            let of_first = host.devices.values().filter(|had| had[0] == first).count();
            let others = devices as usize - 1;
            assert_ne!(first, second);
            assert!(count <= of_first.div_ceil(others), "{count} of {of_first} from {first} to {second}");
        }
        // No collection of a few cases beside full ones: each device has one.
        let of_round: BTreeSet<&BTreeSet<usize>> =
            host.neighbours.values().map(|of_case| &of_case[1]).collect();
        assert!(of_round.len() <= devices as usize, "{} collections of {cases} cases", of_round.len());
    }
}

/// A device that leaves the run leaves its dealt cases to the others.
#[test]
fn dealt_cases_of_an_excluded_device_run_on_others() {
    let (mut state, mut host) = (state(40, 4), RecordingHost::default());
    simulate(&mut state, &mut host, Vec::new());
    let reason = "its clock is low".to_owned();
    let events = vec![
        (999.0, SchedEvent::ReservationsChanged { reserved: vec![1], released: Vec::new() }),
        (1000.0, SchedEvent::MeasureAgain((0..40).collect())),
        (1001.0, SchedEvent::DeviceDeviates { device: 2, reason }),
    ];
    simulate(&mut state, &mut host, events);
    assert!(host.concluded.values().all(|count| *count == 2), "{:?}", host.concluded);
    assert!(host.devices.values().all(|had| had.len() == 2 && had[1] != 1), "{:?}", host.devices);
}

/// On a host whose clock never settles, each measurement would be withdrawn by the next.
#[test]
fn withdrawn_cases_are_measured_again_three_times() {
    let (mut state, mut host) = (state(3, 2), RecordingHost::default());
    simulate(&mut state, &mut host, Vec::new());
    for _ in 0..6 {
        let withdrawn = SchedEvent::MeasurementsWithdrawn(vec![1]);
        simulate(&mut state, &mut host, vec![(1000.0, withdrawn)]);
    }
    assert_eq!([0, 1].map(|case| host.concluded[&case]), [1, 4]);
    assert_eq!(host.finishes, 7, "a run whose cases stay concluded ends");
}

/// Three attempts are on three devices, also the last one, in which a case runs alone.
#[test]
fn throttled_cases_are_tried_on_as_many_devices_as_they_have_attempts() {
    for (devices, throttled) in [(4, [0, 1]), (4, [1, 3]), (3, [0, 1]), (3, [1, 2])] {
        let mut host = RecordingHost { throttled: throttled.into(), ..RecordingHost::default() };
        simulate(&mut state(20, devices), &mut host, Vec::new());
        let is_ok = |verdict: &Verdict| *verdict == Verdict::Ok;
        assert!(host.verdicts.values().all(is_ok), "{throttled:?} of {devices}: {:?}", host.devices);
    }
    let mut host = RecordingHost { throttled: BTreeSet::from([0, 1]), ..RecordingHost::default() };
    simulate(&mut state(3, 2), &mut host, Vec::new());
    assert_eq!(host.devices.values().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3]);
    assert!(host.verdicts.values().all(|verdict| *verdict == Verdict::Throttled));
}
