use serde_json::Value;

use super::*;
use crate::base::stats::SplitMix64;

/// Nights of an independent implementation with numpy and scipy, whose search for the prior was run to convergence.
const REFERENCE: &str = include_str!("reference.json");

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("a list").iter().map(numbers).collect()
}

fn medians_of(night: &Value) -> Vec<CollectionMedian> {
    let index = |number: f64| number as usize;
    let rows = rows(&night["medians"]).into_iter();
    rows.map(|row| CollectionMedian {
        case: index(row[0]),
        collection: index(row[1]),
        log_median: row[2],
        launch_noise: row[3],
    })
    .collect()
}

#[test]
fn estimates_match_an_independent_implementation() {
    let reference: Value = serde_json::from_str(REFERENCE).expect("JSON");
    let nights = reference["nights"].as_array().expect("nights");
    assert_eq!(nights.len(), 3);
    for night in nights {
        let (name, medians, resolutions) = (&night["name"], medians_of(night), numbers(&night["resolution"]));
        for (model, key) in [(EffectModel::Joint, "joint"), (EffectModel::Independent, "independent")] {
            let fit = fit_medians(&medians, &resolutions, model, None);
            let freedom = fit.prior.expect("repeated cases").freedom;
            assert_eq!(Some(freedom), night[&format!("{key}_freedom")].as_f64(), "{name} {key}");
            let expected = rows(&night[key]);
            assert_eq!(fit.estimates.len(), expected.len());
            for (case, (estimate, expected)) in fit.estimates.iter().zip(expected).enumerate() {
                let estimate = estimate.expect("measured");
                let errors = [estimate.log_median - expected[0], estimate.half_width - expected[1]];
                assert!(errors.iter().all(|error| error.abs() < 1e-6), "{name} {key} {case}: {errors:?}");
            }
        }
        let joint = fit_medians(&medians, &resolutions, EffectModel::Joint, None).components;
        let expected = numbers(&night["components"]);
        for (own, expected) in [joint.common, joint.proportional, joint.own].into_iter().zip(expected) {
            assert!((own / expected - 1.0).abs() < 1e-6, "{name}: {joint:?}");
        }
    }
}

#[test]
fn quantiles_match_scipy() {
    let reference: Value = serde_json::from_str(REFERENCE).expect("JSON");
    for row in rows(&reference["quantiles"]) {
        let own = upper_quantile(row[0]);
        // A known variance has the quantile of the normal distribution.
        let tolerance = if row[0] < KNOWN_VARIANCE { 1e-9 } else { 2e-6 };
        assert!((own / row[1] - 1.0).abs() < tolerance, "{row:?}: {own}");
    }
}

/// The expected values are from scipy: `stats.t.interval(0.95, 2, mean, sem)` of the logarithms.
#[test]
fn estimate_of_one_case_is_a_t_interval() {
    let estimate = estimate_median(&[2.0, 2.01, 2.03], 1e-6);
    assert!((estimate.log_median - 2.013_333_333_333).abs() < 1e-9);
    assert!((estimate.half_width - 0.037_946_4).abs() < 1e-6, "{estimate:?}");
    let equal = estimate_median(&[2.0; 3], 0.02);
    assert!((equal.half_width - 4.302_652_73 * 0.02 / 12_f64.sqrt() / 3_f64.sqrt()).abs() < 1e-8);
    assert!(estimate_median(&[2.0], 0.02).half_width.is_infinite());
}

#[test]
fn median_of_samples_has_their_noise() {
    let median = CollectionMedian::from_samples(3, 5, &[1000, 1040, 960, 1000, 1080], 20).expect("samples");
    assert!((median.log_median - 1000_f64.ln()).abs() < 1e-12);
    assert!((median.launch_noise - 1.4826 * 40.0 / 1000.0).abs() < 1e-12);
    let steady = CollectionMedian::from_samples(3, 5, &[1000; 9], 20).expect("samples");
    assert!((steady.launch_noise - 1.4826 * 10.0 / 1000.0).abs() < 1e-12);
    assert_eq!(CollectionMedian::from_samples(3, 5, &[], 20), None);
}

/// Deviate with mean 0 and standard deviation 1: a sum of twelve uniform numbers.
fn deviate(random: &mut SplitMix64) -> f64 {
    (0..12).map(|_| random.next_below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0
}

/// Medians of a night: every case in each of `rounds` rounds, ten cases in a collection.
fn night(seed: u64, cases: usize, rounds: usize, offset: f64) -> Vec<CollectionMedian> {
    let mut random = SplitMix64::new(seed);
    let mut medians = Vec::new();
    for round in 0..rounds {
        for case in 0..cases {
            // Another order in each round.
            let place = (case * (2 * round + 1)) % cases;
            medians.push(CollectionMedian {
                case,
                collection: round * cases.div_ceil(10) + place / 10,
                log_median: 10.0 + case as f64 + offset * deviate(&mut random),
                launch_noise: 0.01 * (1.0 + 0.2 * deviate(&mut random)).abs().max(0.1),
            });
        }
    }
    medians
}

#[test]
fn unrepeated_cases_have_no_interval_without_an_earlier_prior() {
    let medians = night(1, 50, 1, 0.01);
    let fit = fit_medians(&medians, &[1e-4; 50], EffectModel::Joint, None);
    assert_eq!(fit.prior, None);
    assert!(fit.estimates.iter().flatten().all(|estimate| estimate.half_width.is_infinite()));
    let earlier = fit_medians(&night(2, 50, 3, 0.01), &[1e-4; 50], EffectModel::Joint, None).prior;
    let fit = fit_medians(&medians, &[1e-4; 50], EffectModel::Joint, earlier.as_ref());
    let widths: Vec<f64> = fit.estimates.iter().flatten().map(|estimate| estimate.half_width).collect();
    assert!(widths.iter().all(|width| (0.005..0.1).contains(width)), "{widths:?}");
}

#[test]
fn equal_medians_have_the_interval_of_the_timer() {
    let mut medians = night(1, 40, 2, 0.01);
    for median in &mut medians {
        median.log_median = 10.0 + median.case as f64;
    }
    let fit = fit_medians(&medians, &[1e-3; 40], EffectModel::Joint, None);
    assert_eq!(fit.components, EffectComponents::default());
    for (case, estimate) in fit.estimates.iter().flatten().enumerate() {
        assert_eq!((estimate.log_median, estimate.correction), (10.0 + case as f64, 0.0));
        assert!(estimate.half_width < 2e-3, "{estimate:?}");
    }
}

#[test]
fn common_effects_are_removed_and_stated() {
    let mut medians = night(3, 100, 3, 0.002);
    for median in &mut medians {
        median.log_median += 0.02 * ((median.collection * 7 % 11) as f64 - 5.0);
    }
    let half = |model| {
        let fit = fit_medians(&medians, &[1e-5; 100], model, None);
        let mut widths: Vec<f64> = fit.estimates.iter().flatten().map(|own| own.half_width).collect();
        widths.sort_by(f64::total_cmp);
        (widths[50], fit)
    };
    let ((joint, fit), (independent, _)) = (half(EffectModel::Joint), half(EffectModel::Independent));
    assert!(joint < 0.5 * independent, "{joint} {independent}");
    assert!((0.03..0.12).contains(&fit.components.common), "{:?}", fit.components);
    for (case, estimate) in fit.estimates.iter().enumerate() {
        let estimate = estimate.expect("measured");
        let own = medians.iter().filter(|median| median.case == case);
        let raw = own.map(|median| median.log_median).sum::<f64>() / 3.0;
        assert!((estimate.log_median + estimate.correction - raw).abs() < 1e-12);
    }
}

/// Draws whose truth is known: 95 % of the intervals contain it, in nights of few and of many cases. A fixed seed, so that
/// the figures below are those of one computation.
#[test]
fn intervals_contain_the_truth() {
    for (cases, rounds) in [(100, 2), (50, 3)] {
        let (mut covered, mut all) = (0, 0);
        for seed in 0..6 {
            let fit =
                fit_medians(&night(seed, cases, rounds, 0.01), &vec![1e-5; cases], EffectModel::Joint, None);
            for (case, estimate) in fit.estimates.iter().flatten().enumerate() {
                all += 1;
                covered += u32::from((estimate.log_median - 10.0 - case as f64).abs() <= estimate.half_width);
            }
        }
        let share = f64::from(covered) / f64::from(all);
        assert!((0.92..0.98).contains(&share), "{cases} cases in {rounds} rounds: {share}");
    }
}

/// The numbers of cases and collections are names only.
#[test]
fn result_does_not_depend_on_numbering() {
    for seed in 0..40 {
        let shift = 1 + seed as usize * 7 % 29;
        let medians = night(seed, 30, 2, 0.01);
        let renumbered: Vec<CollectionMedian> = medians
            .iter()
            .map(|median| CollectionMedian {
                case: (median.case + shift) % 30,
                collection: 5 - median.collection,
                ..*median
            })
            .collect();
        let one = fit_medians(&medians, &[1e-4; 30], EffectModel::Joint, None);
        let other = fit_medians(&renumbered, &[1e-4; 30], EffectModel::Joint, None);
        for case in 0..30 {
            let (one, other) =
                (one.estimates[case].expect("fit"), other.estimates[(case + shift) % 30].expect("fit"));
            assert!((one.log_median - other.log_median).abs() < 1e-9, "seed {seed}");
            assert!((one.half_width / other.half_width - 1.0).abs() < 1e-6, "seed {seed}");
        }
    }
}

/// Devices whose levels are drawn with a deviation of 2 %: 95 % of the intervals contain the mean of all devices of that kind, while
/// collections alone promise too much. Without a difference the fit is the same as without devices.
#[test]
fn effects_of_devices_widen_the_intervals() {
    let (mut covered, mut covered_without, mut all) = (0, 0, 0);
    for seed in 0..40 {
        let mut random = SplitMix64::new(1_000 + seed);
        let levels: Vec<f64> = (0..6).map(|_| 0.02 * deviate(&mut random)).collect();
        let mut medians = night(seed, 40, 4, 0.005);
        let devices: Vec<usize> = (0..16).map(|collection| (collection + collection / 6) % 6).collect();
        let without = fit_medians(&medians, &[1e-5; 40], EffectModel::Joint, None);
        let equal = fit_medians(&medians, &[1e-5; 40], EffectModel::JointWithDevices(&devices), None);
        assert_eq!(equal.estimates, without.estimates, "seed {seed}");
        for median in &mut medians {
            median.log_median += levels[devices[median.collection]];
        }
        let fit = fit_medians(&medians, &[1e-5; 40], EffectModel::JointWithDevices(&devices), None);
        let found = fit.devices.as_ref().expect("devices differ");
        let mean = levels.iter().sum::<f64>() / 6.0;
        for (found, level) in found.effects.iter().zip(&levels) {
            assert!((found - (level - mean)).abs() < 0.01, "seed {seed}: {found} {}", level - mean);
        }
        let without = fit_medians(&medians, &[1e-5; 40], EffectModel::Joint, None);
        for (case, (own, without)) in fit.estimates.iter().zip(&without.estimates).enumerate() {
            let contains = |estimate: &Option<CaseEstimate>| {
                let estimate = estimate.expect("measured");
                u32::from((estimate.log_median - 10.0 - case as f64).abs() <= estimate.half_width)
            };
            all += 1;
            covered += contains(own);
            covered_without += contains(without);
        }
    }
    let share = |covered: u32| f64::from(covered) / f64::from(all);
    assert!((0.92..=0.98).contains(&share(covered)), "{}", share(covered));
    assert!(share(covered_without) < 0.9, "{}", share(covered_without));
}
