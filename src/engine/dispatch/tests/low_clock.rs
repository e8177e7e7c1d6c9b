//! Devices whose clock is low by the cycles of their kernels.

use super::*;
use crate::stats::CycleRate;

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

/// Verdicts of all attempts on a device.
fn verdicts_on(fixture: &Fixture, device: u32) -> BTreeSet<Verdict> {
    let rates = fixture.database.ledger().expect("a ledger").cycle_rates().expect("rates");
    rates.into_iter().filter(|stored| stored.device == device).map(|stored| stored.verdict).collect()
}

const AIM: PrecisionAim = PrecisionAim { half_width: 0.01, max_collections: 8 };

#[test]
fn device_with_a_low_clock_measures_no_row_and_is_excluded() {
    for clock in [1_640.0, 1_200.0] {
        let fixture = Fixture { aim: Some(AIM), ..Fixture::new(25) };
        let observed = fixture.run_all(&[0, 1, 2], &|context, _, start| {
            let rate = if start.devices == [1] { clock } else { 1_700.0 };
            (1.0, at_clock(context, start, rate))
        });
        assert_eq!(
            (observed.exit(), observed.verdicts()),
            (ExitStatus::Done, BTreeMap::from([(Verdict::Ok, 25)]))
        );
        assert_eq!(verdicts_on(&fixture, 1), BTreeSet::from([Verdict::Throttled]));
        for device in [0, 2] {
            assert_eq!(verdicts_on(&fixture, device), BTreeSet::from([Verdict::Ok]));
        }
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
    // Of two collections, each row has the samples of one.
    assert_eq!(before.matches(",10,1,").count(), 8, "{before}");
    let after = fixture.csv();
    assert_eq!(after.matches(",10,1,").count(), 8, "{after}");
}

/// Without another device the result is `throttled`, whatever the row showed before.
#[test]
fn row_of_a_case_that_is_only_measured_at_a_low_clock_is_throttled() {
    let fixture = Fixture { update: UpdateMode::All, ..Fixture::new(8) };
    let fast = fixture.run_all(&[0], &|context, _, start| (1.0, at_clock(context, start, 1_700.0)));
    assert_eq!(fast.exit(), ExitStatus::Done);
    let slow = fixture.run_all(&[1], &|context, _, start| (1.0, at_clock(context, start, 1_500.0)));
    assert_eq!(slow.verdicts(), BTreeMap::from([(Verdict::Throttled, 8)]));
    let csv = fixture.csv();
    assert_eq!(csv.matches(",ok,").count(), 8, "rows keep what the other device measured: {csv}");
}
