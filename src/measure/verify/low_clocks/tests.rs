//! Tests of clocks of attempts, on rates of a ledger.

use super::*;
use crate::kernel::ControlReading;

fn low_clocks(rates: Vec<StoredCycleRate>, controls: &[StoredControl]) -> LowClocks {
    LowClocks::from_rates(rates, controls, &RunningDevices::default())
}

fn stored(case: u32, collection: u32, device: u32, rate: f64, software: &str) -> StoredCycleRate {
    StoredCycleRate {
        attempt: i64::from(collection * 100 + case),
        case: CaseId::from_stored(format!("{case:016x}")),
        collection: i64::from(collection),
        run: "r1".to_owned(),
        number: collection,
        device,
        software: Some(software.to_owned()),
        verdict: Verdict::Ok,
        rate: CycleRate { per_microsecond: rate, error: 0.001 },
        cycles: None,
    }
}

fn collection(collection: u32, device: u32, rate: f64, software: &str) -> Vec<StoredCycleRate> {
    (0..6).map(|case| stored(case, collection, device, rate, software)).collect()
}

/// Reasons of the devices of a run that are excluded.
fn excluded(found: &LowClocks) -> Vec<(u32, String)> {
    found.deviating_devices("r1").into_iter().map(|found| (found.device, found.reason)).collect()
}

#[test]
fn device_with_two_slow_collections_is_named_with_the_range_of_its_deficits() {
    let others = [collection(1, 0, 1_650.0, "8.5"), collection(2, 2, 1_650.0, "8.5")].concat();
    let one = [others, collection(3, 1, 1_600.0, "8.5")].concat();
    let found = low_clocks(one.clone(), &[]);
    assert_eq!(found.attempts.len(), 6);
    let reason = "the clock of device 1 was 3.0 % lower than that of device 2 in collection 2: 1600 instead of 1650 cycles per \
                  block and us";
    assert_eq!(found.attempts[0].outcome, (Verdict::Throttled, reason));
    assert_eq!(excluded(&found), []);
    let again = [one, collection(4, 1, 1_570.0, "8.5")].concat();
    let reason = "its clock was 3.0 to 4.8 % lower than that of other collections, or its kernels waited for another process, in 2 collections";
    assert_eq!(excluded(&low_clocks(again.clone(), &[])), [(1, reason.to_owned())]);
    assert_eq!(low_clocks(again, &[]).deviating_devices("r2"), []);
}

/// Kernels that take 0.9 of the time for the same cycles are wrong as slow ones are.
#[test]
fn device_with_a_higher_clock_than_most_is_withdrawn_and_named() {
    let clocks = [(1, 0, 1_833.0), (2, 1, 1_650.0), (3, 2, 1_650.0), (4, 0, 1_840.0)];
    let rates = clocks.map(|(number, device, rate)| collection(number, device, rate, "8.5")).concat();
    let found = low_clocks(rates, &[]);
    assert_eq!(found.attempts.iter().map(|one| one.attempt.device).collect::<Vec<_>>(), [0; 12]);
    let reason = "the clock of device 0 was 11.1 % higher than that of most devices, such as device 2 in collection 3: 1833 instead \
                  of 1650 cycles per block and us";
    assert_eq!(found.attempts[0].outcome, (Verdict::Throttled, reason));
    let reason = "its clock was 11.1 to 11.5 % higher than that of most devices, in 2 collections";
    assert_eq!(excluded(&found), [(0, reason.to_owned())]);
}

#[test]
fn low_clock_of_one_of_two_devices_is_undecided() {
    let clocks = [(1, 0, 1_833.0), (2, 1, 1_650.0), (3, 1, 1_650.0)];
    let rates = clocks.map(|(number, device, rate)| collection(number, device, rate, "8.5")).concat();
    let found = low_clocks(rates, &[]);
    let reason = "the clock of device 1 was 10.0 % lower than that of device 0 in collection 1: 1650 instead of 1833 cycles per \
                  block and us; undecided: no majority of devices or earlier runs shows which clock is right, the highest counts";
    assert_eq!(found.attempts[0].outcome, (Verdict::Throttled, reason));
    let [device] = found.deviating_devices("r1").try_into().expect("one device");
    assert!(device.is_undecided && device.reason.ends_with("the highest counts"), "{device:?}");
}

/// Case 20 has not been measured on a device with the usual clock.
#[test]
fn clock_that_is_stated_is_the_one_that_was_compared() {
    let of_cases = |cases: &[u32], number: u32, rate: f64| {
        cases.iter().map(|&case| stored(case, number, number, rate, "8.5")).collect::<Vec<_>>()
    };
    let all: Vec<u32> = (0..8).collect();
    let mixed = [&all[..4], &[20], &all[4..]].concat();
    let clocks = [(&all, 1, 1_650.0), (&all, 2, 1_650.0), (&mixed, 3, 1_520.0), (&vec![20], 4, 1_516.0)];
    let rates = clocks.map(|(cases, number, rate)| of_cases(cases, number, rate)).concat();
    let found = low_clocks(rates, &[]);
    let last = found.attempts.last().expect("collection 4");
    let reason = "the clock of device 4 was 8.1 % lower than that of device 3 in collection 3: 1516 instead of 1650 cycles per \
                  block and us, the 1520 of that collection corrected for its own lower clock";
    assert_eq!(last.outcome.reason.cause.to_string(), reason);
}

/// They are evidence of a slow device, but have their reason already.
#[test]
fn attempts_that_are_throttled_are_not_found_again() {
    let mut rates = [1, 2, 3].map(|number| collection(number, 1, 1_600.0, "8.5")).concat();
    rates.extend(collection(4, 0, 1_650.0, "8.5"));
    rates[..12].iter_mut().for_each(|stored| stored.verdict = Verdict::Throttled);
    let found = low_clocks(rates, &[]);
    let collections = found.attempts.iter().map(|low| low.attempt.collection);
    assert_eq!(collections.collect::<Vec<_>>(), [3; 6]);
    let reason = "its clock was 3.0 to 3.0 % lower than that of other collections, or its kernels waited for another process, in 3 collections";
    assert_eq!(excluded(&found), [(1, format!("{reason}; {}", Cause::UndecidedClock))]);
}

/// Another version of a kernel may wait more.
#[test]
fn collections_of_other_software_are_no_reference() {
    let rates = [collection(1, 0, 1_650.0, "8.3"), collection(2, 1, 1_500.0, "8.5")].concat();
    assert_eq!(low_clocks(rates, &[]), LowClocks::default());
}

fn control(collection: u32, device: u32, rate: f64, software: &str) -> Vec<StoredControl> {
    let reading = |control: ControlKernel, end: CollectionEnd| ControlReading {
        control,
        end,
        device,
        kernel: control.to_string(),
        durations: vec![1_000; 8],
        cycle_rate: Some(CycleRate { per_microsecond: rate, error: 0.001 }),
    };
    let all =
        [ControlKernel::Matmul, ControlKernel::Copy, ControlKernel::Vector].into_iter().flat_map(|control| {
            [CollectionEnd::Begin, CollectionEnd::End].into_iter().map(move |end| StoredControl {
                collection: i64::from(collection),
                run: "r1".to_owned(),
                number: collection,
                software: Some(software.to_owned()),
                reading: reading(control, end),
            })
        });
    all.collect()
}

/// In the first round of a large plan no case is measured twice.
#[test]
fn controls_show_the_clock_of_collections_without_a_common_case() {
    let cases = |first: u32, collection: u32, device: u32, rate: f64| -> Vec<StoredCycleRate> {
        (first..first + 6).map(|case| stored(case, collection, device, rate, "8.5")).collect()
    };
    let rates = [cases(0, 1, 0, 900.0), cases(10, 2, 1, 400.0)].concat();
    let at = |clock: f64| [control(1, 0, 1_650.0, "8.5"), control(2, 1, clock, "8.5")].concat();
    assert_eq!(low_clocks(rates.clone(), &at(1_645.0)), LowClocks::default());
    let found = low_clocks(rates.clone(), &at(1_585.0));
    let collections = found.attempts.iter().map(|low| low.attempt.collection);
    assert_eq!(collections.collect::<Vec<_>>(), [2; 6]);
    let reason = "the clock of device 1 was 3.9 % lower than that of other collections, by the cycles of";
    assert!(found.attempts[0].outcome.reason.starts_with(reason), "{:?}", found.attempts[0].outcome);
    let other = [control(1, 0, 1_650.0, "8.3"), control(2, 1, 1_585.0, "8.5")].concat();
    assert_eq!(low_clocks(rates, &other), LowClocks::default());
}

/// Six readings of control kernels are no three cases.
#[test]
fn collections_of_one_case_are_not_judged_by_their_controls() {
    let cases = |count: u32, collection: u32, device: u32, rate: f64| -> Vec<StoredCycleRate> {
        (0..count).map(|case| stored(collection * 10 + case, collection, device, rate, "8.5")).collect()
    };
    let controls: Vec<StoredControl> = [(1, 0, 1_650.0), (2, 1, 1_585.0), (3, 1, 1_585.0)]
        .into_iter()
        .flat_map(|(collection, device, clock)| control(collection, device, clock, "8.5"))
        .collect();
    let slow = |count: u32| {
        let rates = [cases(6, 1, 0, 900.0), cases(count, 2, 1, 400.0), cases(count, 3, 1, 300.0)].concat();
        low_clocks(rates, &controls).deviating_devices("r1").len()
    };
    assert_eq!([1, 2, 3, 6].map(slow), [0, 0, 1, 1]);
}

/// A slow device of a gang says nothing about the first one.
#[test]
fn controls_of_a_gang_are_those_of_their_own_devices() {
    let cases = |collection: u32, device: u32| -> Vec<StoredCycleRate> {
        (0..4).map(|case| stored(collection * 10 + case, collection, device, 400.0, "8.5")).collect()
    };
    let rates = [cases(1, 0), cases(2, 1)].concat();
    let with_gang = |first: f64, second: f64| {
        let of_gang =
            [control(2, 1, first, "8.5"), control(2, 2, second, "8.5"), control(2, 3, second, "8.5")];
        let controls = [control(1, 0, 1_650.0, "8.5"), of_gang.concat()].concat();
        let found = low_clocks(rates.clone(), &controls);
        found.attempts.iter().map(|low| low.attempt.device).collect::<Vec<_>>()
    };
    assert_eq!(with_gang(1_650.0, 1_500.0), Vec::<u32>::new());
    assert_eq!(with_gang(1_500.0, 1_650.0), [1; 4]);
}
