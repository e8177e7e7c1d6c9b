//! Tests of clocks computed from cycles, on models of collections.

use super::*;
use crate::base::stats::{hash_numbers, normal_deviate};

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
    CycleReading {
        case,
        collection,
        run: 0,
        device: collection as u32,
        rate,
        cycles: None,
        is_control: false,
    }
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
    let found = find_clock_deficits(&readings, &[]);
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
    let found = find_clock_deficits(&readings, &[]);
    for (place, (reading, found)) in readings.iter().zip(&found).enumerate() {
        let is_slow = reading.collection == 0 && place >= 25;
        let is_boundary = reading.collection == 0 && (25 - 4..25 + 4).contains(&place);
        assert!(is_boundary || found.is_some() == is_slow, "{place} {reading:?} {found:?}");
    }
}

/// The clock falls within short collections, on all devices at once: no case is slow by more than the fall, although the others
/// of its collection are slow.
#[test]
fn common_fall_of_the_clock_is_not_exaggerated() {
    for seed in 0..40 {
        let readings = crossed(20, 4, seed, |_, place| if place % 5 >= 2 { 1.0 / 1.4 } else { 1.0 });
        let found = find_clock_deficits(&readings, &[]);
        for (reading, found) in readings.iter().zip(&found) {
            let Some(found) = found else { continue };
            let chance = 4.0 * reading.rate.error;
            assert!(found.deficit < 0.3 + chance, "{seed} {reading:?} {found:?}");
        }
    }
}

/// Another program makes most launches of two of four devices wait, over eight rounds of short collections: healthy collections stay
/// the reference, and corrected levels of the others are none.
#[test]
fn corrected_levels_are_no_reference_beside_observed_ones() {
    for seed in 0..20 {
        let waits = |collection: usize| matches!(collection % 4, 0 | 1);
        let mut readings = Vec::new();
        for round in 0..8_usize {
            for place in 0..20 {
                let (case, collection) = ((place * 7 + round * 3) % 20, round * 4 + place / 5);
                // Cycles of a launch that waits vary more than those at another clock.
                let wait = 0.952
                    * (0.008 * normal_deviate(hash_numbers(&[seed, collection as u64, case as u64, 9])))
                        .exp();
                let clock = if waits(collection) { wait } else { 1.0 };
                let of_device = reading(case, collection, nanos(case), clock, seed);
                readings.push(CycleReading { device: collection as u32 % 4, ..of_device });
            }
        }
        let found = find_clock_deficits(&readings, &[]);
        let healthy = readings.iter().zip(&found).filter(|(reading, _)| !waits(reading.collection));
        let wrong: Vec<_> = healthy.filter(|(_, found)| found.is_some()).collect();
        assert!(wrong.len() <= 1, "{seed}: {} of 80, {:?}", wrong.len(), wrong.first());
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
    let found = find_clock_deficits(&readings, &[]);
    assert!(
        readings.iter().zip(&found).all(|(reading, found)| found.is_some() == is_slow(reading)),
        "{found:?}"
    );
}

#[test]
fn one_collection_has_no_reference() {
    let readings: Vec<CycleReading> = (0..50).map(|case| reading(case, 0, nanos(case), 0.7, 1)).collect();
    assert!(find_clock_deficits(&readings, &[]).iter().all(Option::is_none));
    assert!(find_clock_deficits(&[], &[]).is_empty());
    assert_eq!(CycleRate::from_launches(&[(0.0, 100), (5.0, 0), (f64::NAN, 9)], 1), None);
}

/// Shares of wrong statements over nights with fixed seeds. One in 5,000 is accepted, as the spread of 20 launches is an
/// estimate, so that their median is more than five standard errors off now and then. Bounds are three standard
/// deviations above it.
#[test]
fn slow_collections_are_found_and_healthy_ones_are_not() {
    let (mut healthy, mut accused) = (Share::default(), Share::default());
    let mut missed = Share::default();
    for seed in 0..120_u64 {
        let cases = [34, 67, 100, 155][seed as usize % 4];
        let slowdown = [1.035, 1.05, 1.1, 1.25, 1.6][seed as usize % 5];
        let slow = seed as usize % 6;
        healthy
            .add(find_clock_deficits(&crossed(cases, 3, seed, |_, _| 1.0), &[]).iter().map(Option::is_some));
        let clock = |collection, _| if collection == slow { 1.0 / slowdown } else { 1.0 };
        let readings = crossed(cases, 3, seed, clock);
        for (reading, found) in readings.iter().zip(find_clock_deficits(&readings, &[])) {
            if reading.collection == slow {
                missed.add([found.is_none()]);
            } else {
                accused.add([found.is_some()]);
            }
        }
    }
    for (what, share) in
        [("healthy, accused", healthy), ("beside a slow one, accused", accused), ("missed", missed)]
    {
        let expected = share.of as f64 / 5_000.0;
        let bound = expected + 3.0 * expected.sqrt();
        assert!(share.of > 3_000 && share.count as f64 <= bound, "{what}: {share:?}");
    }
}

/// A case of 2 us, the first of its collection, that measured 8 % faster than expected: two standard errors of such a
/// case do not prove that it was not slow as its neighbours were.
#[test]
fn inexact_case_is_judged_by_its_neighbours() {
    let clock = |collection, _| if collection == 0 { 1.0 / 1.035 } else { 1.0 };
    let readings = crossed(34, 3, 2_378_322_272_759_701_969, clock);
    let found = find_clock_deficits(&readings, &[]);
    let of_slow = readings.iter().zip(&found).filter(|(reading, _)| reading.collection == 0);
    assert!(of_slow.clone().all(|(_, found)| found.is_some()), "{:?}", of_slow.collect::<Vec<_>>());
}

/// Number of wrong statements among all.
#[derive(Debug, Default)]
struct Share {
    count: usize,
    of: usize,
}

impl Share {
    fn add(&mut self, statements: impl IntoIterator<Item = bool>) {
        for is_wrong in statements {
            self.count += usize::from(is_wrong);
            self.of += 1;
        }
    }
}

/// A device on which all kernels need 1.3 times the cycles has more of them per time as well, because the start of a kernel is a
/// smaller part of its duration. Its launches are longer, which those at a higher clock are not.
#[test]
fn kernels_with_more_cycles_are_at_no_higher_clock() {
    let of_device = |device: u32, rate: f64, cycles: Option<f64>| {
        (0..8).map(move |case| CycleReading {
            case,
            collection: device as usize,
            run: 0,
            device,
            rate: CycleRate { per_microsecond: rate, error: 0.001 },
            cycles: cycles.map(|cycles| cycles * (1.0 + case as f64)),
            is_control: false,
        })
    };
    let found = |slow: (f64, Option<f64>), usual: Option<f64>| -> Vec<Option<f64>> {
        let others = (1..4).flat_map(|device| of_device(device, 1_650.0, usual));
        let readings: Vec<CycleReading> = of_device(0, slow.0, slow.1).chain(others).collect();
        let deficits = find_clock_deficits(&readings, &[]);
        deficits.chunks(8).map(|of_device| of_device[0].map(|found| found.deficit)).collect()
    };
    assert_eq!(found((1_720.0, Some(1.3e6)), Some(1e6)), [None; 4]);
    // If the cycles are unknown, or the same as on the other devices, the clock is the cause.
    for (slow, usual) in [((1_720.0, None), None), ((1_720.0, Some(1e6)), Some(1e6))] {
        let deficits = found(slow, usual);
        assert!(deficits[0].is_some_and(|deficit| deficit < -0.03), "{deficits:?}");
    }
    // A lower clock: the same cycles take longer, or a kernel bound by memory has fewer cycles in the same time.
    for cycles in [1e6, 1e6 / 1.1] {
        let deficits = found((1_500.0, Some(cycles)), Some(1e6));
        assert!(deficits[0].is_some_and(|deficit| deficit > 0.08), "{deficits:?}");
        assert_eq!(deficits[1..], [None; 3]);
    }
}

/// One collection was measured before the clock of all devices fell, with cases that no other has. The control kernels, which all
/// have, show that the others were slow: their cases agree with each other.
#[test]
fn control_kernels_show_a_clock_at_which_all_collections_of_a_case_were() {
    let of_collection = |collection: usize, clock: f64, cases: std::ops::Range<usize>| {
        let controls = |from: usize| (from..from + 3).map(|control| (control, true));
        let all = controls(0).chain(cases.map(|case| (case, false))).chain(controls(0));
        all.map(move |(case, is_control)| CycleReading {
            case,
            collection,
            run: 0,
            device: collection as u32 % 4,
            rate: CycleRate { per_microsecond: clock, error: 0.001 },
            cycles: None,
            is_control,
        })
    };
    let found = |clock: f64| -> Vec<Option<f64>> {
        let fast = of_collection(2, 1_650.0, 10..14);
        let slow =
            [0, 1, 3, 4, 5, 6].into_iter().flat_map(|collection| of_collection(collection, clock, 20..34));
        let readings: Vec<CycleReading> = fast.chain(slow).collect();
        let deficits = find_clock_deficits(&readings, &[]);
        let cases = readings.iter().zip(&deficits).filter(|(reading, _)| !reading.is_control);
        cases.map(|(_, found)| found.map(|found| found.deficit)).collect()
    };
    // The device of the fast collection was slow later: its clock fell.
    let deficits = found(1_556.0);
    assert_eq!(deficits[..4], [None; 4]);
    assert!(
        deficits[4..].iter().all(|found| found.is_some_and(|found| (0.05..0.07).contains(&found))),
        "{deficits:?}"
    );
    assert!(found(1_640.0).iter().all(Option::is_none));
}
