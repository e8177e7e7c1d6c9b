//! Devices whose clock is low by the cycles of their kernels.

use super::*;
use crate::{
    base::stats::CycleRate,
    kernel::{
        CacheState, Case, CollectionEnd, ControlKernel, ControlReading, EqualCallAttempt, cause::OtherKernel,
    },
};

/// Result of a collection whose kernels have these cycles per block and microsecond.
fn at_clock(
    context: &LaneContext,
    start: &StartCollection,
    per_microsecond: f64,
) -> Result<CollectionResult, EngineError> {
    let mut result = success(context, start)?;
    for attempt in &mut result.attempts {
        attempt.cycle_rate = Some(CycleRate { per_microsecond, error: 0.001 });
    }
    Ok(result)
}

/// The same with control kernels, as every collection of a run has them.
fn with_controls(
    context: &LaneContext,
    start: &StartCollection,
    per_microsecond: f64,
) -> Result<CollectionResult, EngineError> {
    let mut result = at_clock(context, start, per_microsecond)?;
    let kernels = [ControlKernel::Matmul, ControlKernel::Copy, ControlKernel::Vector];
    result.controls = kernels
        .map(|control| ControlReading {
            control,
            end: CollectionEnd::Begin,
            device: start.devices[0],
            kernel: control.to_string(),
            durations: vec![1_000; 8],
            cycle_rate: Some(CycleRate { per_microsecond, error: 0.001 }),
        })
        .to_vec();
    Ok(result)
}

fn verdicts_on(fixture: &Fixture, device: u32) -> BTreeSet<Verdict> {
    let rates = fixture.database.ledger().expect("a ledger").cycle_rates(CacheState::Hot).expect("rates");
    rates.into_iter().filter(|stored| stored.device == device).map(|stored| stored.verdict).collect()
}

/// Returns the number of collections with an attempt that fulfils a condition.
fn collections_with(fixture: &Fixture, condition: &str) -> i64 {
    let ledger = rusqlite::Connection::open(fixture.database.ledger_path()).expect("a ledger");
    let sql = format!(
        "SELECT count(DISTINCT collection) FROM attempts a JOIN collections c USING (collection) WHERE {condition}"
    );
    ledger.query_row(&sql, [], |row| row.get(0)).expect("a count")
}

const AIM: PrecisionAim = PrecisionAim { half_width: 0.01, max_collections: 8 };

#[test]
fn device_with_another_clock_than_most_measures_no_row_and_is_excluded() {
    for clock in [1_640.0, 1_200.0, 1_890.0] {
        let fixture = Fixture { aim: Some(AIM), ..Fixture::new(25) };
        let observed = fixture.run_all(&[0, 1, 2], &|context, _, start| {
            let rate = if start.devices == [1] { clock } else { 1_700.0 };
            (1.0, with_controls(context, start, rate))
        });
        observed.assert_end(ExitStatus::Done, &[(Verdict::Ok, 25)]);
        assert_eq!(verdicts_on(&fixture, 1), BTreeSet::from([Verdict::Throttled]));
        // The first two of three devices are a tie, in which the higher clock counts until the third one has measured.
        let ok = BTreeSet::from([Verdict::Ok]);
        let others = [0, 2].map(|device| verdicts_on(&fixture, device));
        assert!(others.iter().all(|verdicts| verdicts.is_superset(&ok)), "{others:?}");
        let of_others = "a.verdict <> 'ok' AND c.device <> 1";
        let withdrawn = collections_with(&fixture, of_others);
        assert!(withdrawn <= i64::from(clock > 1_700.0), "{withdrawn} at {clock}");
        let decided =
            collections_with(&fixture, &format!("{of_others} AND a.remarks NOT LIKE '%undecided_clock%'"));
        assert_eq!(decided, 0, "at {clock}");
        let reasons: Vec<&String> = observed
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                RunEvent::DevicePaused { device: 1, reason, retry_in_s: None } => Some(reason),
                _ => None,
            })
            .collect();
        assert!(
            matches!(reasons.as_slice(), [reason] if reason.starts_with("its clock was ")),
            "{reasons:?}"
        );
        let excluded =
            observed.events.iter().find(|(_, event)| matches!(event, RunEvent::DevicePaused { .. }));
        let (at, _) = excluded.expect("it is excluded");
        assert!(!observed.started.iter().any(|(started, start)| started > at && start.devices == [1]));
        assert_eq!(fixture.csv().matches(",ok,").count(), 25, "{}", fixture.csv());
    }
}

/// A case may have its three attempts on devices with a low clock before these are excluded: it is measured on another one.
#[test]
fn cases_throttled_on_three_devices_are_measured_on_the_others() {
    for slow in [[0, 1, 2, 3], [0, 2, 4, 6], [4, 5, 6, 7]] {
        let fixture = Fixture { aim: Some(AIM), ..Fixture::new(25) };
        let devices: Vec<u32> = (0..8).collect();
        let observed = fixture.run_all(&devices, &|context, _, start| {
            let is_slow = start.devices.iter().any(|device| slow.contains(device));
            (1.0, with_controls(context, start, if is_slow { 1_500.0 } else { 1_700.0 }))
        });
        assert_eq!(observed.verdicts(), BTreeMap::from([(Verdict::Ok, 25)]), "{slow:?}");
        let verdicts = slow.map(|device| verdicts_on(&fixture, device));
        assert!(verdicts.iter().all(|of| !of.contains(&Verdict::Ok)), "{slow:?}: {verdicts:?}");
    }
}

/// Most devices of the earlier run agree, and were slow all alike: the healthy run is not withdrawn. Alone, a device of
/// it shows nothing about the earlier run; several show that it was slow.
#[test]
fn healthy_run_after_a_slow_one_is_not_withdrawn() {
    type Prepare = fn(&LaneContext, &StartCollection, f64) -> Result<CollectionResult, EngineError>;
    let prepared: [Prepare; 2] = [at_clock, with_controls];
    let all =
        [&[0][..], &[0, 1, 2]].into_iter().flat_map(|devices| prepared.map(|prepare| (devices, prepare)));
    for (devices, prepare) in all {
        let fixture = Fixture { aim: Some(AIM), update: UpdateMode::All, ..Fixture::new(25) };
        let at = |clock: f64| {
            move |context: &LaneContext, _, start: &StartCollection| (1.0, prepare(context, start, clock))
        };
        fixture.run_all(&[0, 1, 2], &at(1_640.0));
        let of_run = |run: u32, verdict: &str| {
            count_attempts(&fixture, &format!("c.run = '{RUN}-{run}' AND a.verdict {verdict}"))
        };
        let earlier = of_run(0, "= 'ok'");
        assert!(earlier >= 50, "{earlier}");
        let healthy = fixture.run_all(devices, &at(1_700.0));
        healthy.assert_end(ExitStatus::Done, &[(Verdict::Ok, 25)]);
        let withdrawn = |event: &RunEvent| {
            matches!(event, RunEvent::MeasurementsWithdrawn { .. } | RunEvent::DevicePaused { .. })
        };
        assert!(!healthy.events.iter().any(|(_, event)| withdrawn(event)), "{devices:?}");
        assert_eq!(of_run(1, "<> 'ok'"), 0, "{devices:?}");
        assert_eq!(of_run(0, "= 'throttled'"), if devices.len() == 1 { 0 } else { earlier }, "{devices:?}");
    }
}

/// A device with a fast timer finishes first: that alone does not withdraw what earlier runs have measured.
#[test]
fn fast_device_that_finishes_first_withdraws_nothing_of_earlier_runs() {
    let fixture = Fixture { aim: Some(AIM), update: UpdateMode::All, ..Fixture::new(25) };
    fixture.run_all(&[0, 1, 2], &|context, _, start| (1.0, at_clock(context, start, 1_700.0)));
    let observed = fixture.run_all(&[0, 1, 2], &|context, _, start| {
        let (seconds, clock) = if start.devices == [0] { (1.0, 1_890.0) } else { (1.5, 1_700.0) };
        (seconds, at_clock(context, start, clock))
    });
    assert_eq!(observed.verdicts(), BTreeMap::from([(Verdict::Ok, 25)]));
    let fast = format!("c.run = '{RUN}-1' AND c.device = 0");
    assert_eq!(count_attempts(&fixture, &format!("{fast} AND a.verdict <> 'throttled'")), 0);
    assert!(count_attempts(&fixture, &fast) > 0);
    assert_eq!(count_attempts(&fixture, &format!("NOT ({fast}) AND a.verdict <> 'ok'")), 0);
}

/// The only collection of a case has no reference, until a later run measures it elsewhere.
#[test]
fn later_run_withdraws_results_of_a_low_clock() {
    let fixture = Fixture { update: UpdateMode::All, ..Fixture::new(8) };
    let first = fixture.run_all(&[1], &|context, _, start| (1.0, at_clock(context, start, 1_500.0)));
    assert_eq!(first.verdicts(), BTreeMap::from([(Verdict::Ok, 8)]));
    let before = fixture.csv();
    let again = fixture.run_all(&[0], &|context, _, start| (1.0, at_clock(context, start, 1_700.0)));
    assert_eq!(again.verdicts(), BTreeMap::from([(Verdict::Ok, 8)]));
    assert_eq!(verdicts_on(&fixture, 1), BTreeSet::from([Verdict::Throttled]));
    // Each row has the samples of one of the two collections.
    assert_eq!(before.matches(",10,1,").count(), 8, "{before}");
    let after = fixture.csv();
    assert_eq!(after.matches(",10,1,").count(), 8, "{after}");
}

/// Measurements of an earlier run at a high clock stay in the rows; those at the low one are not accepted.
#[test]
fn later_run_at_a_low_clock_changes_no_row() {
    let fixture = Fixture { update: UpdateMode::All, ..Fixture::new(8) };
    let fast = fixture.run_all(&[0], &|context, _, start| (1.0, at_clock(context, start, 1_700.0)));
    assert_eq!(fast.exit(), ExitStatus::Done);
    let before = fixture.csv();
    let slow = fixture.run_all(&[1], &|context, _, start| (1.0, at_clock(context, start, 1_500.0)));
    assert_eq!(slow.verdicts(), BTreeMap::from([(Verdict::Throttled, 8)]));
    assert_eq!(fixture.csv(), before);
    assert_eq!(before.matches(",ok,").count(), 8, "{before}");
}

/// Returns the average and the verdict of each row.
fn shown_results(fixture: &Fixture) -> Vec<(String, String)> {
    let kernel = KernelName::new("Add").expect("a name");
    let table = fixture.database.kernel_csv(&kernel).expect("a table");
    let cell = |row, column| table.cell_text(row, column).unwrap_or_default();
    (0..table.len()).map(|row| (cell(row, "Average Duration(us)"), cell(row, "MicroBench Verdict"))).collect()
}

/// The later run measures half of the cases, and shows by them that the whole collection had a low clock. A number that
/// was withdrawn is no result of a row, and the next run measures it.
#[test]
fn rows_whose_only_samples_were_withdrawn_show_no_number() {
    let fixture = Fixture { update: UpdateMode::All, ..Fixture::new(8) };
    fixture.run_all(&[1], &|context, _, start| (1.0, at_clock(context, start, 1_500.0)));
    let mut half = fixture.plan(&BTreeSet::new());
    half.cases.truncate(4);
    let respond =
        |context: &LaneContext, _, start: &StartCollection| (1.0, at_clock(context, start, 1_700.0));
    let later = fixture.run(half, &[0], None, &[], &respond, &|_, _| {});
    assert_eq!(later.verdicts(), BTreeMap::from([(Verdict::Ok, 4)]));
    assert_eq!(verdicts_on(&fixture, 1), BTreeSet::from([Verdict::Throttled]));
    let shown = shown_results(&fixture);
    let [measured, withdrawn] = [("5.000000", "ok"), ("", "throttled")]
        .map(|(average, verdict)| (average.to_owned(), verdict.to_owned()));
    assert_eq!(shown[..4], vec![measured.clone(); 4]);
    assert_eq!(shown[4..], vec![withdrawn; 4]);
    let missing = Fixture { update: UpdateMode::Missing, ..fixture };
    let next = missing.run_all(&[0], &respond);
    assert_eq!(next.verdicts(), BTreeMap::from([(Verdict::Ok, 4)]));
    assert_eq!(shown_results(&missing), vec![measured; 8]);
}

/// Cases that the run has measured are measured again if they are still planned; others are not accepted any more.
#[test]
fn attempts_that_a_killed_run_did_not_withdraw_are_withdrawn_when_it_is_resumed() {
    for is_planned in [false, true] {
        let mut fixture = Fixture { update: UpdateMode::All, ..Fixture::new(8) };
        let slow =
            |context: &LaneContext, _, start: &StartCollection| (1.0, at_clock(context, start, 1_500.0));
        fixture.run_all(&[1], &slow);
        let mut half = fixture.plan(&BTreeSet::new());
        let rest = half.cases.split_off(4);
        fixture.run(half, &[0], None, &[], &slow, &|_, _| {});
        // The state is the same as if the second run had been killed after it had stored its collection, which had a
        // higher clock.
        let ledger = rusqlite::Connection::open(fixture.database.ledger_path()).expect("a ledger");
        let sql = "UPDATE attempts SET cycle_rate = 1700.0
                   WHERE collection IN (SELECT collection FROM collections WHERE device = 0)";
        assert_eq!(ledger.execute(sql, []), Ok(4));
        let result = CaseOutcome::new(Verdict::Ok, "every launch recorded, steady");
        let mut plan = RunPlan::default();
        if is_planned {
            let ids = rest.iter().map(|planned| planned.case.id().clone());
            fixture.measured_before = ids.map(|case| (case, result.clone())).collect();
            plan.cases = rest;
        } else {
            let cases = rest.into_iter().map(|planned| planned.case);
            fixture.predecided = cases.map(|case| (case, result.clone())).collect();
        }
        let fast =
            |context: &LaneContext, _, start: &StartCollection| (1.0, at_clock(context, start, 1_700.0));
        let resumed = fixture.run(plan, &[0], None, &[], &fast, &|_, _| {});
        let (verdict, average, shown) = match is_planned {
            true => (Verdict::Ok, "5.000000", "ok"),
            false => (Verdict::Throttled, "", "throttled"),
        };
        assert_eq!(resumed.verdicts(), BTreeMap::from([(verdict, 4)]));
        assert_eq!(resumed.started.len(), usize::from(is_planned));
        assert_eq!(verdicts_on(&fixture, 1), BTreeSet::from([Verdict::Throttled]));
        assert_eq!(shown_results(&fixture)[4..], vec![(average.to_owned(), shown.to_owned()); 4]);
    }
}

/// Returns the case of the same call under another kernel.
fn equal_case(case: &IdentifiedCase) -> IdentifiedCase {
    let kernel = KernelName::new("OtherAdd").expect("a name");
    IdentifiedCase::new(Case { kernel, ..Case::clone(case) })
}

/// Result of a collection whose launches are also those of [`equal_case`]; the planned cases have none if `is_other`.
fn shared_at_clock(
    context: &LaneContext,
    start: &StartCollection,
    per_microsecond: f64,
    is_other: bool,
) -> Result<CollectionResult, EngineError> {
    let mut result = at_clock(context, start, per_microsecond)?;
    for (attempt, &index) in result.attempts.iter_mut().zip(&start.cases) {
        let case = equal_case(&context.cases[index].case);
        let measured = Attempt { case: case.id().clone(), ..attempt.clone() };
        if is_other {
            let outcome = CaseOutcome::new(
                Verdict::RanAsOther,
                Cause::MeasuredAs(OtherKernel { kernel: "OtherAdd".to_owned(), result: None }),
            );
            *attempt = Attempt::without_launches(attempt.case.clone(), 10, outcome);
        }
        attempt.of_equal_calls = vec![EqualCallAttempt { case, attempt: measured }];
    }
    Ok(result)
}

fn count_attempts(fixture: &Fixture, condition: &str) -> i64 {
    let ledger = rusqlite::Connection::open(fixture.database.ledger_path()).expect("a ledger");
    let sql = format!(
        "SELECT count(*) FROM attempts a JOIN collections c USING (collection) JOIN cases USING (case_id) WHERE {condition}"
    );
    ledger.query_row(&sql, [], |row| row.get(0)).expect("a count")
}

/// Device 2 has measured four of the eight cases of the first collection of device 1. Its clock becomes higher after
/// that collection, as if another had shown it, so that all eight are withdrawn. Those of device 2 have other samples.
#[test]
fn cases_of_the_same_call_are_withdrawn_and_measured_again_together() {
    for is_other in [false, true] {
        let fixture = Fixture { update: UpdateMode::All, ..Fixture::new(24) };
        let plan = || {
            let mut plan = fixture.plan(&BTreeSet::new());
            let share = |planned: &mut PlannedCase| planned.equal_cases = vec![equal_case(&planned.case)];
            plan.cases.iter_mut().for_each(share);
            plan
        };
        let respond = |context: &LaneContext, _, start: &StartCollection| {
            let [seconds, clock] = if start.devices == [0] { [5.0, 1_700.0] } else { [1.0, 1_500.0] };
            (seconds, shared_at_clock(context, start, clock, is_other))
        };
        let part = RunPlan { cases: plan().cases.drain(8..12).collect(), ..RunPlan::default() };
        fixture.run(part, &[2], None, &[], &respond, &|_, _| {});
        let raise_clock = |_: &LaneContext, event: &RunEvent| {
            if matches!(event, RunEvent::CollectionFinished { devices, .. } if *devices == [1]) {
                let ledger = rusqlite::Connection::open(fixture.database.ledger_path()).expect("a ledger");
                let sql =
                    "UPDATE attempts SET cycle_rate = 1700.0 WHERE cycle_rate IS NOT NULL AND collection IN
                           (SELECT collection FROM collections WHERE device = 2)";
                assert!(ledger.execute(sql, []).expect("an update") > 0);
            }
        };
        let observed = fixture.run(plan(), &[0, 1], None, &[], &respond, &raise_clock);
        let first = observed.started.iter().find(|(_, start)| start.devices == [1]);
        let (_, first) = first.expect("a collection of device 1");
        assert_eq!(first.cases, (8..16).collect::<Vec<_>>());
        let withdrawn = observed.events.iter().filter_map(|(_, event)| match event {
            RunEvent::MeasurementsWithdrawn { cases, .. } => Some(*cases),
            _ => None,
        });
        assert_eq!(withdrawn.collect::<Vec<_>>(), [8], "{is_other}");
        let expected = match is_other {
            true => BTreeMap::from([(Verdict::Ok, 24), (Verdict::RanAsOther, 24)]),
            false => BTreeMap::from([(Verdict::Ok, 48)]),
        };
        assert_eq!(observed.verdicts(), expected);
        let finished =
            observed.events.iter().filter(|(_, event)| matches!(event, RunEvent::CaseFinished { .. }));
        assert_eq!(finished.count(), 48 + 8);
        let of_first = format!("c.number = {} AND c.device = 1", first.collection);
        assert_eq!(count_attempts(&fixture, &of_first), 16);
        assert_eq!(count_attempts(&fixture, &format!("{of_first} AND a.verdict <> 'throttled'")), 0);
        for kernel in ["Add", "OtherAdd"] {
            let accepted = format!("kernel = '{kernel}' AND a.verdict IN ('ok', 'ran_as_other')");
            assert_eq!(count_attempts(&fixture, &accepted), 24, "{kernel} {is_other}");
        }
    }
}
