//! Durations of launches: units, timers, spread, clocks.

use super::*;

/// The cores work for most of each launch at the rated clock; the table, or the clock, shows less time.
#[test]
fn launches_that_are_shorter_than_the_work_of_their_cores_are_implausible() {
    // Cores that work for a part of the duration, at one cycle per nanosecond and block.
    let with = |share: f64, change: fn(usize, &mut RawRecord)| {
        after(|collection| {
            for record in &mut collection.records {
                let working = 0.9 * record.duration.0 as f64;
                (record.blocks, record.counters) = (Some(4), counters(working, 4.0 * working));
            }
            for (number, record) in collection.own(0).enumerate() {
                let working = share * record.duration.0 as f64;
                record.counters = counters(working, 4.0 * working);
                change(number, record);
            }
        })
    };
    assert_eq!(with(1.0, |_, _| ()).0, Verdict::Ok);
    let (verdict, reason) = with(1.125, |_, _| ());
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(
        reason,
        "the cores worked 1.125 times as long as the launches took, at the rated clock, so that the durations are too short or the clock is \
         above its rating"
    );
    // Records without blocks or counters, and of a kernel with twice as many blocks as cores, whose cycles are those of each block.
    assert_eq!(with(1.125, |_, record| record.blocks = None).0, Verdict::Ok);
    assert_eq!(with(1.125, |_, record| record.counters.clear()).0, Verdict::Ok);
    assert_eq!(with(1.125, |_, record| record.blocks = Some(8)).0, Verdict::Ok);
    let one = |number: usize, record: &mut RawRecord| {
        if number != 3 {
            record.counters = counters(900.0, 3_600.0);
        }
    };
    assert_eq!(with(2.0, one).0, Verdict::Ok, "a single launch");
}

/// Durations in whole microseconds: a median of 20 us can be half of one off, one of 200 us is exact enough.
#[test]
fn medians_of_few_steps_of_a_coarse_timer_are_implausible() {
    let with_durations = |nanos: fn(i64) -> i64| {
        let (verdict, reason) = after(|c| {
            for (number, record) in (0..).zip(&mut c.records) {
                let length = if record.kernel == "Neg" { 3 + number % 9 } else { nanos(number) };
                record.duration.0 = length * 1_000;
            }
            (300..).zip(c.own(1)).for_each(|(length, record)| record.duration.0 = length * 1_000);
            c.restamp();
        });
        (verdict, reason)
    };
    let (verdict, reason) = with_durations(|number| 20 + number % 2);
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(
        reason,
        "all times of the collection are multiples of 1.000 us, more than 2 % of the median, 21.000 us"
    );
    assert_eq!(with_durations(|number| 200 + number % 2).0, Verdict::Ok);
    // Few durations that differ show no step, unless the starts have it as well.
    let with_few = |pause: i64| {
        let mut collection = Collection::without_faults();
        collection.records.iter_mut().for_each(|record| record.duration.0 = 2_000);
        collection.restamp();
        (0..).zip(&mut collection.records).for_each(|(number, record)| record.start.0 += pause * number);
        collection.outcomes()[0].verdict
    };
    assert_eq!([20, 1_000].map(with_few), [Verdict::Ok, Verdict::Implausible]);
}

/// Steps of years: fifty of them are more than the type of durations has.
#[test]
fn steps_of_any_size_are_implausible() {
    let verdicts = |duration: fn(i64) -> i64| {
        let mut collection = Collection::without_faults();
        (1..).zip(&mut collection.records).for_each(|(number, record)| record.duration.0 = duration(number));
        collection.outcomes().into_iter().map(|outcome| outcome.verdict).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(|number| i64::MAX / 49 * number), [Verdict::Implausible; 2]);
    assert_eq!(verdicts(|_| i64::MAX), [Verdict::Implausible; 2]);
}

/// Starts may be in the wrong unit as well; then only the host's clock shows it. Simulated durations are independent of
/// the host's clock.
#[test]
fn launches_longer_than_the_case_by_the_hosts_clock_are_implausible() {
    let mut collection = Collection::without_faults();
    for record in &mut collection.records {
        record.duration.0 *= 1000;
        record.start.0 *= 1000;
    }
    for line in collection.journal.lines.values_mut() {
        line.seconds = Some(0.001);
    }
    assert!(collection.outcomes().iter().all(|outcome| outcome.verdict == Verdict::Ok));
    collection.manifest.kind = DataKind::Npu;
    for outcome in collection.outcomes() {
        assert_eq!(outcome.verdict, Verdict::Implausible);
        let reason = "its launches took 0.010180 s, 10.2 times longer than the case by the host's clock";
        assert_eq!(outcome.reason, reason);
    }
    for line in collection.journal.lines.values_mut() {
        line.seconds = Some(0.011);
    }
    assert!(collection.outcomes().iter().all(|outcome| outcome.verdict == Verdict::Ok));
}

#[test]
fn severe_outlier_is_labelled_counted_and_left_out() {
    let mut collection = Collection::without_faults();
    collection.own(0).nth(5).expect("a launch").duration = Nanos(90_000);
    collection.restamp();
    let attempts = collection.attempts();
    assert_eq!(attempts[0].outcome.reason, "every launch recorded; 1 severe outlier left out");
    assert_eq!(attempts[0].launches.iter().filter(|launch| launch.is_accepted).count(), 7);
    assert!(attempts[0].counters[1].expect("a mean") < 2000.0, "counters are of the same launches");
}
