//! Control kernels around the cases of a collection.

use super::*;
use crate::{
    domain::{CollectionEnd, ControlKernel},
    render::{ControlCall, ControlLaunches},
};

/// Adds the launches of a control kernel with the kernel and the shapes of the first case. Those at the end take longer by
/// a factor, in as many cycles if the clock is the cause.
fn add_controls(collection: &mut Collection, factor: f64, is_clock: bool) {
    let tensors = collection.cases[0].inputs.iter().flatten().map(|tensor| tensor.dims.clone()).collect();
    let call = ControlCall {
        control: ControlKernel::Matmul,
        api: "torch.mm".to_owned(),
        tensors,
        dtype: "bfloat16".to_owned(),
    };
    collection.manifest.controls =
        Some(ControlLaunches { warm_up: 1, measured: 8, kernels: vec![call], settling: None });
    let launches = |end: CollectionEnd, factor: f64| {
        let ordinal = collection.manifest.control_ordinal(end, 0);
        let lengths = &collection.manifest.sentinels;
        let own = (0..9_i64).map(|launch| {
            let duration = 500_000 + 500 * (launch % 3);
            let stretched = (duration as f64 * factor) as i64;
            let cycles = if is_clock { duration } else { stretched };
            let counters = vec![Some(cycles as f64); COUNTERS.len()];
            let launched = record("AddAiCore", &collection.cases[0], stretched);
            RawRecord { counters, blocks: Some(1), ..launched }
        });
        let own: Vec<RawRecord> = own.collect();
        [vec![sentinel(lengths.opening(ordinal))], own, vec![sentinel(lengths.closing_length(ordinal))]]
            .concat()
    };
    let (begin, end) = (launches(CollectionEnd::Begin, 1.0), launches(CollectionEnd::End, factor));
    collection.records.splice(0..0, begin);
    collection.records.extend(end);
    collection.restamp();
}

fn readings(collection: &Collection) -> Vec<(CollectionEnd, i64)> {
    let journals = std::slice::from_ref(&collection.journal);
    let found = control_readings(&collection.manifest, journals, &collection.records);
    found.iter().map(|reading| (reading.end, reading.durations[0])).collect()
}

#[test]
fn controls_with_kernel_and_shapes_of_a_case_are_not_among_its_launches() {
    let mut collection = Collection::without_faults();
    let before = collection.attempts();
    add_controls(&mut collection, 1.0, false);
    let attempts = collection.attempts();
    assert_eq!(readings(&collection), [(CollectionEnd::Begin, 500_500), (CollectionEnd::End, 500_500)]);
    for (before, after) in before.iter().zip(&attempts) {
        assert_eq!(after.outcome, before.outcome);
        let durations = |attempt: &Attempt| -> Vec<i64> {
            attempt.launches.iter().map(|launch| launch.duration.0).collect()
        };
        assert_eq!(durations(after), durations(before));
    }
}

#[test]
fn incomplete_controls_are_no_reading_and_no_problem_of_a_case() {
    let mut collection = Collection::without_faults();
    add_controls(&mut collection, 1.5, true);
    collection.records.remove(3);
    assert_eq!(readings(&collection).len(), 1, "one launch at the begin is lost");
    assert!(collection.outcomes().iter().all(|outcome| outcome.verdict == Verdict::Ok));
    collection.records.truncate(collection.records.len() - 1);
    assert_eq!(readings(&collection), [], "the closing sentinel at the end is lost");
}

#[test]
fn a_device_that_changes_within_a_collection_makes_its_cases_noisy_or_throttled() {
    for (factor, is_clock, expected) in [
        (1.01, true, Verdict::Ok),
        (1.06, false, Verdict::Noisy),
        (1.06, true, Verdict::Throttled),
        (0.94, true, Verdict::Noisy),
    ] {
        let mut collection = Collection::without_faults();
        add_controls(&mut collection, factor, is_clock);
        for outcome in collection.outcomes() {
            assert_eq!(outcome.verdict, expected, "{factor} {is_clock}: {outcome:?}");
            let is_named = outcome.reason.starts_with("the control kernel matmul of device 3 took");
            assert_eq!(is_named, expected != Verdict::Ok, "{outcome:?}");
        }
    }
}
