//! Runs with a demanded precision.

use super::*;

const AIM: PrecisionAim = PrecisionAim { half_width: 0.01, max_collections: 8 };

/// Number of cases of each round after the first.
fn repeated_cases(observed: &Observed) -> Vec<usize> {
    let cases = |event: &RunEvent| match event {
        RunEvent::MeasurementRepeated { cases, .. } => Some(*cases),
        _ => None,
    };
    observed.events.iter().filter_map(|(_, event)| cases(event)).collect()
}

/// Measured cases, those with the demanded precision, and those that need further collections, at the end of a run.
fn precision(observed: &Observed) -> Option<(usize, usize, usize)> {
    let counts = |event: &RunEvent| match event {
        RunEvent::PrecisionReached { measured, precise, open, .. } => Some((*measured, *precise, *open)),
        _ => None,
    };
    observed.events.iter().find_map(|(_, event)| counts(event))
}

/// Durations of all collections are equal, so that the timer alone bounds the intervals.
#[test]
fn few_cases_have_three_collections_and_more_have_two() {
    for (cases, expected) in [(5, vec![5, 5]), (25, vec![25])] {
        let fixture = Fixture { aim: Some(AIM), ..Fixture::new(cases) };
        let observed = fixture.run_all(&[0, 1, 2], &|context, _, start| (1.0, success(context, start)));
        assert_eq!((observed.exit(), repeated_cases(&observed)), (ExitStatus::Done, expected.clone()));
        let csv = fixture.csv();
        let method = if cases < 20 { ",collections," } else { ",joint fit," };
        assert_eq!(csv.matches(method).count(), cases, "{csv}");
        let finished =
            observed.events.iter().filter(|(_, event)| matches!(event, RunEvent::CaseFinished { .. }));
        assert_eq!(finished.count(), cases, "one verdict for each case");
        let ledger = fixture.database.ledger().expect("a ledger");
        let measured = ledger.measured_cases(CacheState::Hot).expect("cases");
        let attempts = |case| ledger.attempt_samples(case, CacheState::Hot).expect("attempts").len();
        assert!(measured.iter().all(|case| attempts(case) == expected.len() + 1));
    }
}

#[test]
fn failure_in_a_later_round_changes_no_verdict() {
    let fixture = Fixture { aim: Some(AIM), ..Fixture::new(25) };
    let measured = RefCell::new(BTreeSet::new());
    let observed = fixture.run_all(&[0, 1], &|context, _, start| {
        let is_first = start.cases.iter().all(|case| measured.borrow_mut().insert(*case));
        let verdict = if is_first { Verdict::Ok } else { Verdict::Rejected };
        (1.0, Ok(collection_result(context, start, verdict, CollectionExit::Completed)))
    });
    assert_eq!(observed.verdicts(), BTreeMap::from([(Verdict::Ok, 25)]));
    assert_eq!(observed.exit(), ExitStatus::Done);
    assert_eq!(fixture.csv().matches(",ok,").count(), 25);
    assert_eq!(repeated_cases(&observed), [25], "no case is tried a third time");
}

/// A stop in the second round: running collections end, no other is started, and the verdicts of the first round stay.
#[test]
fn stop_request_ends_the_rounds() {
    let respond =
        |context: &LaneContext, _: Seconds, start: &StartCollection| (10.0, success(context, start));
    let run = |stops: &[Seconds]| {
        let fixture = Fixture { aim: Some(AIM), ..Fixture::new(5) };
        fixture.run(fixture.plan(&BTreeSet::new()), &[0], None, stops, &respond, &|_, _| {})
    };
    let complete = run(&[]);
    assert_eq!(repeated_cases(&complete), [5, 5]);
    let is_repeated =
        |(_, event): &&(Seconds, RunEvent)| matches!(event, RunEvent::MeasurementRepeated { .. });
    let second_round = complete.events.iter().find(is_repeated).expect("a second round").0;
    let stopped = run(&[second_round + 1.0]);
    assert_eq!(repeated_cases(&stopped), [5], "no third round");
    assert!(stopped.started.iter().all(|(at, _)| *at <= second_round + 1.0), "{:?}", stopped.started);
    assert_eq!(stopped.verdicts(), BTreeMap::from([(Verdict::Ok, 5)]));
    assert_eq!((complete.exit(), precision(&complete)), (ExitStatus::Done, Some((5, 5, 0))));
    assert_eq!((stopped.exit(), precision(&stopped)), (ExitStatus::Interrupted, Some((5, 0, 5))));
}

/// A second stop request ends the collections of a later round: the verdicts stay, and the run is resumed.
#[test]
fn two_stop_requests_in_a_later_round_interrupt_the_run() {
    for cases in [5, 25] {
        let fixture = Fixture { aim: Some(AIM), ..Fixture::new(cases) };
        let measured = RefCell::new(BTreeSet::new());
        let respond = |context: &LaneContext, _, start: &StartCollection| {
            let is_first = start.cases.iter().all(|case| measured.borrow_mut().insert(*case));
            match is_first {
                true => (1.0, success(context, start)),
                false => {
                    (100.0, Ok(collection_result(context, start, Verdict::NotRun, CollectionExit::Stopped)))
                }
            }
        };
        let plan = fixture.plan(&BTreeSet::new());
        let observed = fixture.run(plan, &[0], None, &[50.0, 51.0], &respond, &|_, _| {});
        assert_eq!(repeated_cases(&observed), [cases]);
        assert_eq!(observed.verdicts(), BTreeMap::from([(Verdict::Ok, cases)]));
        assert_eq!(observed.exit(), ExitStatus::Interrupted);
    }
}

#[test]
fn without_a_demanded_precision_each_case_has_one_collection() {
    let fixture = Fixture::new(25);
    let observed = fixture.run_all(&[0, 1], &|context, _, start| (1.0, success(context, start)));
    assert_eq!(repeated_cases(&observed), Vec::<usize>::new());
    assert_eq!(fixture.csv().matches(",launches,").count(), 25);
}
