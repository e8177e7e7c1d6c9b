//! Tests of clocks computed from cycles, on models of collections.

use proptest::prelude::*;

use super::*;
use crate::stats::{hash_numbers, normal_deviate};

/// Readings of a case by its cycles per time, typical duration in nanoseconds and 20 launches with the usual deviation.
fn reading(case: usize, collection: usize, nanos: f64, clock: f64, seed: u64) -> CycleReading {
    let sd = LAUNCH_SD + LAUNCH_SD_NS / nanos;
    let launches: Vec<(f64, i64)> = (0..20)
        .map(|launch| {
            let noise = normal_deviate(hash_numbers(&[seed, case as u64, collection as u64, launch]));
            // The duration varies by its own noise; so do the cycles, up to the deviation of the rate.
            let duration = nanos / clock * (1.0 + 0.02 * normal_deviate(hash_numbers(&[seed, launch])));
            let busy = 0.8 + 0.01 * (case % 17) as f64;
            (duration * clock * 1.8 * busy * 24.0 * (sd * noise).exp(), duration.round() as i64)
        })
        .collect();
    let rate = CycleRate::from_launches(&launches, 24).expect("launches");
    CycleReading { case, collection, rate }
}

/// Typical duration of a case: 2 us to 2 ms.
fn nanos(case: usize) -> f64 {
    2_000.0 * 10_f64.powf((case * 7 % 31) as f64 / 10.0)
}

/// Each case in two collections: `collections` of the first round, and as many of the second with other neighbours.
fn crossed(
    cases: usize,
    collections: usize,
    seed: u64,
    clock: impl Fn(usize, usize) -> f64,
) -> Vec<CycleReading> {
    let in_round = |round: usize| {
        (0..cases).map(move |place| {
            let case = if round == 0 { place } else { (place * 11 + 3) % cases };
            (case, round * collections + place * collections / cases, place)
        })
    };
    let all = in_round(0).chain(in_round(1));
    all.map(|(case, collection, place)| {
        reading(case, collection, nanos(case), clock(collection, place), seed)
    })
    .collect()
}

#[test]
fn deficit_is_the_difference_of_the_clocks() {
    let clock = |collection, _| if collection == 1 { 0.9 } else { 1.0 };
    let readings = crossed(101, 4, 7, clock);
    let found = find_clock_deficits(&readings);
    for (reading, found) in readings.iter().zip(&found) {
        assert_eq!(found.is_some(), reading.collection == 1, "{reading:?} {found:?}");
        let Some(found) = found else { continue };
        assert!((found.deficit - 0.1).abs() < 0.05, "{found:?}");
        assert!(found.reference.is_none_or(|reference| readings[reference].case == reading.case));
    }
}

/// The clock falls within a collection; its first cases are not affected.
#[test]
fn only_cases_after_a_fall_of_the_clock_are_slow() {
    let readings =
        crossed(101, 2, 3, |collection, place| if collection == 0 && place >= 25 { 1.0 / 1.4 } else { 1.0 });
    let found = find_clock_deficits(&readings);
    for (place, (reading, found)) in readings.iter().zip(&found).enumerate() {
        let is_slow = reading.collection == 0 && place >= 25;
        let is_boundary = reading.collection == 0 && (25 - 4..25 + 4).contains(&place);
        assert!(is_boundary || found.is_some() == is_slow, "{place} {reading:?} {found:?}");
    }
}

/// Two of four collections are slow, so that some cases were slow both times: the others of their collections show it.
#[test]
fn cases_that_were_slow_in_all_their_collections_are_found() {
    let clock = |collection, _| if matches!(collection, 0 | 4) { 0.93 } else { 1.0 };
    let readings = crossed(101, 4, 5, clock);
    let is_slow = |reading: &CycleReading| matches!(reading.collection, 0 | 4);
    let slow: Vec<usize> =
        readings.iter().filter(|reading| is_slow(reading)).map(|reading| reading.case).collect();
    assert!(slow.iter().any(|case| slow.iter().filter(|other| *other == case).count() == 2));
    let found = find_clock_deficits(&readings);
    assert!(
        readings.iter().zip(&found).all(|(reading, found)| found.is_some() == is_slow(reading)),
        "{found:?}"
    );
}

#[test]
fn one_collection_has_no_reference() {
    let readings: Vec<CycleReading> = (0..50).map(|case| reading(case, 0, nanos(case), 0.7, 1)).collect();
    assert!(find_clock_deficits(&readings).iter().all(Option::is_none));
    assert!(find_clock_deficits(&[]).is_empty());
    assert_eq!(CycleRate::from_launches(&[(0.0, 100), (5.0, 0), (f64::NAN, 9)], 1), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// At equal clocks nothing is accused; with one slow collection, its cases and no others.
    #[test]
    fn slow_collections_are_found_and_healthy_ones_are_not(
        seed: u64, cases in 40_usize..160, slowdown in 1.035_f64..1.6, slow in 0_usize..6,
    ) {
        let cases = cases - cases % 11 + 1;
        let healthy = find_clock_deficits(&crossed(cases, 3, seed, |_, _| 1.0));
        prop_assert!(healthy.iter().all(Option::is_none));
        let clock = |collection, _| if collection == slow { 1.0 / slowdown } else { 1.0 };
        let readings = crossed(cases, 3, seed, clock);
        let found = find_clock_deficits(&readings);
        let wrong = readings.iter().zip(&found).filter(|(reading, found)| found.is_some() && reading.collection != slow);
        prop_assert_eq!(wrong.count(), 0);
        let of_slow = readings.iter().zip(&found).filter(|(reading, _)| reading.collection == slow);
        let missed = of_slow.filter(|(_, found)| found.is_none()).count();
        prop_assert_eq!(missed, 0, "{} cases", cases);
    }
}
