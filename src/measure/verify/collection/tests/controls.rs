//! Control kernels around the cases of a collection.

use super::*;
use crate::{
    kernel::{
        CollectionEnd, ControlKernel,
        render::{ControlCall, ControlLaunches},
    },
    measure::verify::control_readings,
};

/// Adds the launches of a control kernel with the kernel and the shapes of the first case. Those at the end take longer by
/// a factor, in as many cycles if the clock is the cause.
fn add_controls(collection: &mut Collection, factor: f64, is_clock: bool) {
    let tensors = collection.cases[0].inputs.iter().flatten().map(|tensor| tensor.dims.clone()).collect();
    let call = ControlCall {
        control: ControlKernel::Matmul,
        api: "torch.mm".to_owned(),
        tensors,
        dtype: "float16".to_owned(),
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
            let counters = counters(0.9 * cycles as f64, cycles as f64);
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

/// Durations that last beyond the next start contradict all cases; a control kernel with a launch recorded twice is not read.
#[test]
fn control_launches_that_overlap_contradict_the_collection() {
    let with_last = |change: &dyn Fn(&mut RawRecord, Nanos)| {
        let mut collection = Collection::without_faults();
        add_controls(&mut collection, 1.0, false);
        let last = collection.records.len() - 2;
        let start = collection.records[last - 1].start;
        change(&mut collection.records[last], start);
        (readings(&collection).len(), collection.outcomes())
    };
    let (read, outcomes) = with_last(&|_, _| ());
    assert_eq!(read, 2);
    assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Ok), "{outcomes:?}");
    let (read, outcomes) = with_last(&|record, before| record.start = Nanos(before.0 + 300_000));
    assert_eq!(read, 2);
    for CaseOutcome { verdict, reason } in outcomes {
        assert_eq!(verdict, Verdict::Implausible);
        assert!(
            reason.starts_with("the durations of the collection contradict their starts: launch 7 took"),
            "{reason}"
        );
    }
    let (read, outcomes) = with_last(&|record, before| record.start = before);
    assert_eq!(read, 1);
    assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Ok), "{outcomes:?}");
}

/// The work of the cores is most of a long control kernel, so that a high clock shows in it before it does in short cases.
#[test]
fn control_launches_that_are_shorter_than_the_work_of_their_cores_contradict_the_collection() {
    let with = |factor: f64| {
        let mut collection = Collection::without_faults();
        add_controls(&mut collection, factor, true);
        let outcomes = collection.outcomes();
        assert!(outcomes.iter().all(|outcome| outcome.verdict == outcomes[0].verdict), "{outcomes:?}");
        outcomes[0].clone()
    };
    assert_eq!(with(0.98).verdict, Verdict::Ok);
    let CaseOutcome { verdict, reason } = with(0.85);
    assert_eq!(verdict, Verdict::Implausible);
    assert!(
        reason.starts_with(
            "the durations of the collection contradict the time of the cores: the cores worked 1.059 times"
        ),
        "{reason}"
    );
    assert!(reason.ends_with("above its rating, in the control kernel matmul"), "{reason}");
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
fn controls_of_any_duration_are_compared() {
    let mut collection = Collection::without_faults();
    add_controls(&mut collection, 1.0, false);
    let end = collection.records.len() - 1;
    collection.records[end - 9..end].iter_mut().for_each(|record| record.duration.0 = i64::MAX);
    assert_eq!(readings(&collection)[1], (CollectionEnd::End, i64::MAX));
    assert!(collection.outcomes().iter().all(|outcome| outcome.verdict != Verdict::Ok));
}

#[test]
fn incomplete_controls_are_no_reading_and_no_problem_of_a_case() {
    let mut collection = Collection::without_faults();
    add_controls(&mut collection, 1.5, true);
    collection.records.remove(3);
    assert_eq!(readings(&collection).len(), 1, "one launch at the start is lost");
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

/// Another process makes most kernels at the end wait, for the same cycles; the others show that the clock did not fall.
#[test]
fn fall_of_cycles_in_a_part_of_the_launches_is_none_of_the_clock() {
    let mut collection = Collection::without_faults();
    add_controls(&mut collection, 1.3, true);
    let count = collection.records.len();
    for place in [3, 6] {
        let record = &mut collection.records[count - 1 - place];
        record.duration = Nanos((record.duration.0 as f64 / 1.3) as i64);
    }
    for CaseOutcome { verdict, reason } in collection.outcomes() {
        assert_eq!(verdict, Verdict::Noisy, "{reason}");
        let cause = "and cycles per time fell in a part of its launches: another process may use the device";
        assert!(reason.contains(cause), "{reason}");
    }
}

#[test]
fn change_of_the_device_is_a_remark_where_a_case_has_another_cause() {
    let mut collection = Collection::without_faults();
    let mut number = 0;
    for record in collection.own(0) {
        number += 1;
        record.duration = Nanos(1_000 + 400 * (number % 2));
    }
    let own_cause = collection.outcomes().swap_remove(0);
    assert_eq!(own_cause.verdict, Verdict::Noisy, "{own_cause:?}");
    add_controls(&mut collection, 1.06, false);
    let outcome = collection.outcomes().swap_remove(0);
    let change = "; the control kernel matmul of device 3 took +6.0 % at the end of the collection";
    assert_eq!(outcome.verdict, Verdict::Noisy);
    assert!(outcome.reason.starts_with(&format!("{}{change}", own_cause.reason)), "{outcome:?}");
}

#[test]
fn launches_beside_the_cases_that_fail_are_remarks() {
    let mut collection = Collection::without_faults();
    let error = |message: &str| {
        Some(PythonException { class: "RuntimeError".to_owned(), message: message.to_owned() })
    };
    collection.journal.controls_error =
        error("NPU out of memory. Tried to allocate 64.00 MiB (NPU 0; 60.97 GiB)");
    collection.journal.settling_error = error("no events; see the log");
    for outcome in collection.outcomes() {
        let expected = "every launch recorded; without control kernels: RuntimeError: NPU out of memory. Tried to allocate 64.00 MiB \
                        (NPU 0; 60.97 GiB); the clock was not settled before each case: RuntimeError: no events; see the log";
        assert_eq!(outcome, (Verdict::Ok, expected));
    }
}
