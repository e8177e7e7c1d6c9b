//! Cases that are measured in several collections.

use super::*;

/// Host on which every case succeeds; records where each was measured, and beside which cases.
#[derive(Default)]
struct RecordingHost {
    devices: BTreeMap<usize, Vec<u32>>,
    neighbours: BTreeMap<usize, Vec<BTreeSet<usize>>>,
    concluded: BTreeMap<usize, u32>,
    finishes: u32,
}

impl SimulatedHost for RecordingHost {
    fn finish_collection(&mut self, _now: Seconds, start: &StartCollection) -> CollectionFinished {
        let all: BTreeSet<usize> = start.cases.iter().copied().collect();
        for case in &start.cases {
            self.devices.entry(*case).or_default().extend(&start.devices);
            self.neighbours.entry(*case).or_default().push(all.clone());
        }
        let result = |&case: &usize| CaseResult {
            case,
            outcome: CaseOutcome::new(Verdict::Ok, "measured"),
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
            SchedAction::Conclude { case, .. } => *self.concluded.entry(*case).or_default() += 1,
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
