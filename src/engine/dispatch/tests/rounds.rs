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
        let measured = ledger.measured_cases().expect("cases");
        let attempts = |case| ledger.attempt_samples(case).expect("attempts").len();
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

#[test]
fn stop_request_ends_the_rounds() {
    let fixture = Fixture { aim: Some(AIM), ..Fixture::new(25) };
    let respond =
        |context: &LaneContext, _: Seconds, start: &StartCollection| (10.0, success(context, start));
    let plan = fixture.plan(&BTreeSet::new());
    let observed = fixture.run(plan, &[0], None, &[25.0], &respond, &|_, _| {});
    assert_eq!(observed.verdicts().values().sum::<usize>(), 25);
    assert!(repeated_cases(&observed).len() <= 1);
}

#[test]
fn without_a_demanded_precision_each_case_has_one_collection() {
    let fixture = Fixture::new(25);
    let observed = fixture.run_all(&[0, 1], &|context, _, start| (1.0, success(context, start)));
    assert_eq!(repeated_cases(&observed), Vec::<usize>::new());
    assert_eq!(fixture.csv().matches(",launches,").count(), 25);
}
