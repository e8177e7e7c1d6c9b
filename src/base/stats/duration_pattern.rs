//! Patterns of the durations of a collection that make its median depend on when it was measured: a trend, a step, and two
//! modes.
//!
//! The tests find nothing in almost all series of independent samples, whatever their spread: less than two of a
//! thousand series of 10 to 60 normal samples have a pattern (test `independent_samples_have_no_pattern`).

use std::fmt;

pub(crate) const MIN_SAMPLES: usize = 10;
/// Least relative change over a series, and least relative distance of two modes, that matters.
pub(crate) const MIN_CHANGE: f64 = 0.03;
/// Least absolute value of the normal deviate of Kendall's S: a trend by chance in one of 2,000 series.
pub(crate) const MIN_TREND_DEVIATE: f64 = 3.5;
/// Least share of the samples of a series in a mode, and their least number.
const MIN_MODE_SHARE: f64 = 0.2;
const MIN_MODE_SAMPLES: usize = 3;

const MIN_STEP_SAMPLES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DurationPattern {
    Trend {
        /// Change over all samples, relative to the median.
        change: f64,
    },
    Step {
        /// Change relative to the samples before.
        change: f64,
        /// Number of samples before, and of all.
        before: usize,
        samples: usize,
    },
    TwoModes {
        /// Means in nanoseconds.
        low: f64,
        high: f64,
        upper_share: f64,
    },
}

impl fmt::Display for DurationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trend { change } => {
                let direction = if *change > 0.0 { "rose" } else { "fell" };
                write!(f, "the durations {direction} by {:.1} % over the launches", change.abs() * 100.0)
            }
            Self::Step { change, before, samples } => write!(
                f,
                "the durations changed by {:+.1} % after {before} of {samples} launches",
                change * 100.0
            ),
            Self::TwoModes { low, high, upper_share } => write!(
                f,
                "the durations have two modes: {:.3} us, and {:.3} us in {:.0} % of the launches",
                low / 1e3,
                high / 1e3,
                upper_share * 100.0
            ),
        }
    }
}

/// Returns the pattern of samples in nanoseconds, in the order of their launches; `step` is the step of the timer.
/// `None` for steady samples and for fewer than ten.
pub(crate) fn find_duration_pattern(samples: &[i64], step: i64) -> Option<DurationPattern> {
    if samples.len() < MIN_SAMPLES {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    if sorted[0] <= 0 || sorted[0] == sorted[sorted.len() - 1] {
        return None;
    }
    two_modes(&sorted, step)
        .or_else(|| find_common_trend(&[samples], step))
        .or_else(|| level_change(samples, step))
}

/// Returns the trend that the samples of several collections have together, each in the order of its launches. A trend of a
/// few launch deviations shows in some of the collections only. The sum of Kendall's S is then too far from 0 for independent
/// samples (H. B. Mann, Econometrica 13, 1945; its sum over series: R. M. Hirsch, J. R. Slack and R. A. Smith, Water Resour.
/// Res. 18, 1982); the slope is the median of all pairs' (H. Theil, 1950; P. K. Sen, 1968), relative to the median of their
/// series. `None` for fewer than ten samples, and if a collection is empty.
pub(crate) fn find_common_trend(collections: &[&[i64]], step: i64) -> Option<DurationPattern> {
    let samples: usize = collections.iter().map(|samples| samples.len()).sum();
    let is_valid = collections.iter().all(|samples| samples.iter().all(|sample| *sample > 0));
    if samples < MIN_SAMPLES || !is_valid {
        return None;
    }
    let (mut concordance, mut variance, mut launches, mut level) = (0_i64, 0.0, 0.0, 0.0);
    let mut medians = Vec::with_capacity(collections.len());
    for samples in collections {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let median = *sorted.get(sorted.len() / 2)? as f64;
        concordance += concordance_of(samples);
        variance += concordance_variance(&sorted);
        level += median / collections.len() as f64;
        launches += (samples.len() - 1) as f64 / collections.len() as f64;
        medians.push(median);
    }
    let deviate = (concordance.abs() - 1).max(0) as f64 / variance.sqrt();
    // Slopes take most of the time, and almost no series needs them. A deviate of 0/0 is none.
    if deviate.is_nan() || deviate < MIN_TREND_DEVIATE {
        return None;
    }
    let mut slopes = Vec::new();
    for (samples, median) in collections.iter().zip(medians) {
        for (first, one) in samples.iter().enumerate() {
            let later = (1_u32..).zip(&samples[first + 1..]);
            slopes.extend(later.map(|(distance, other)| (other - one) as f64 / f64::from(distance) / median));
        }
    }
    let middle = slopes.len() / 2;
    if middle == 0 {
        return None;
    }
    let (_, slope, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
    let change = *slope * launches;
    let is_large = change.abs() >= MIN_CHANGE && change.abs() * level > step as f64;
    is_large.then_some(DurationPattern::Trend { change })
}

/// Returns the two modes that the samples of several collections have together, each sample relative to the mean of its
/// collection: collections differ for other reasons. A few samples of a collection do not show modes beside their spread. `None`
/// for fewer than ten samples.
pub(crate) fn find_common_modes(collections: &[&[i64]], step: i64) -> Option<DurationPattern> {
    let count: usize = collections.iter().map(|samples| samples.len()).sum();
    let mean =
        |samples: &[i64]| samples.iter().map(|&sample| sample as f64).sum::<f64>() / samples.len() as f64;
    let means: Vec<f64> = collections.iter().map(|samples| mean(samples)).collect();
    if count < MIN_SAMPLES || means.iter().any(|mean| mean.is_nan() || *mean <= 0.0) {
        return None;
    }
    let level = means.iter().sum::<f64>() / means.len() as f64;
    let of_collection = |(samples, mean): (&&[i64], &f64)| {
        let scale = level / mean;
        samples.iter().map(move |&sample| (sample as f64 * scale).round() as i64).collect::<Vec<_>>()
    };
    let mut sorted: Vec<i64> = collections.iter().zip(&means).flat_map(of_collection).collect();
    sorted.sort_unstable();
    two_modes(&sorted, step)
}

/// Returns Kendall's S of a series: the number of pairs that rise less the number of those that fall.
fn concordance_of(samples: &[i64]) -> i64 {
    let pairs = samples.iter().enumerate();
    pairs.map(|(at, one)| samples[at + 1..].iter().map(|other| (other - one).signum()).sum::<i64>()).sum()
}

/// Returns the variance of Kendall's S of independent samples in ascending order, with ties (M. G. Kendall, Rank correlation
/// methods, 1970).
fn concordance_variance(sorted: &[i64]) -> f64 {
    let term = |count: usize| {
        let count = count as f64;
        count * (count - 1.0) * (2.0 * count + 5.0)
    };
    let ties: f64 = sorted.chunk_by(|one, other| one == other).map(|equal| term(equal.len())).sum();
    (term(sorted.len()) - ties) / 18.0
}

/// Returns the least value of Student's t between the samples before and after a step. One of 2,000 series of normal
/// samples has a greater one at its best division, by simulation: 7.2 of 10 samples, 5.4 of 20, 4.7 of 60.
fn least_step_statistic(count: usize) -> f64 {
    4.2 + 25.0 / count as f64
}

/// Returns the division of a series whose parts differ most by Student's t, if they differ too much for one level.
fn level_change(samples: &[i64], step: i64) -> Option<DurationPattern> {
    let count = samples.len();
    let rounding = (step * step) as f64 / 12.0;
    let mean = samples.iter().map(|&sample| sample as f64).sum::<f64>() / count as f64;
    let squares: f64 = samples.iter().map(|&sample| (sample as f64 - mean).powi(2)).sum();
    let mut sum = 0.0;
    let mut best = (0.0, 0, 0.0, 0.0);
    for (before, &sample) in (1..=count).zip(samples) {
        sum += sample as f64 - mean;
        let after = count - before;
        if before < MIN_STEP_SAMPLES || after < MIN_STEP_SAMPLES {
            continue;
        }
        // Sums of deviations from the common mean: the sums of both parts have opposite signs.
        let (low, high) = (sum / before as f64, -sum / after as f64);
        let within = squares - low * low * before as f64 - high * high * after as f64;
        let variance = within.max(0.0) / (count - 2) as f64 + rounding;
        let statistic = (high - low).abs() / (variance * (1.0 / before as f64 + 1.0 / after as f64)).sqrt();
        if statistic > best.0 {
            best = (statistic, before, mean + low, mean + high);
        }
    }
    let (statistic, before, low, high) = best;
    let change = high / low - 1.0;
    let is_large = change.abs() >= MIN_CHANGE && (high - low).abs() > step as f64;
    (statistic >= least_step_statistic(count) && is_large).then_some(DurationPattern::Step {
        change,
        before,
        samples: count,
    })
}

/// Returns the least distance of two modes in units of their spread, the D of K. M. Ashman, C. M. Bird and S. E. Zepf, Astron.
/// J. 108 (1994). One of 2,000 series of normal samples has a greater one at its best division, by simulation: 8.1 of 10 samples,
/// 5.6 of 20, 4.0 of 60.
fn least_mode_distance(count: usize) -> f64 {
    3.0 + 52.0 / count as f64
}

/// Returns the two groups of sorted samples whose distance is greatest in units of their spread, if it is too great for one
/// group.
fn two_modes(sorted: &[i64], step: i64) -> Option<DurationPattern> {
    let count = sorted.len();
    let least = ((count as f64 * MIN_MODE_SHARE).ceil() as usize).max(MIN_MODE_SAMPLES);
    let rounding = (step * step) as f64 / 12.0;
    let offset = |sample: &i64| (sample - sorted[0]) as f64;
    let add = |(sum, squares): (f64, f64), sample: &i64| {
        (sum + offset(sample), squares + offset(sample) * offset(sample))
    };
    let moments = |sum: f64, squares: f64, count: usize| {
        let count = count as f64;
        let mean = sum / count;
        (mean, (squares - sum * mean).max(0.0) / (count - 1.0) + rounding)
    };
    let (all, all_squares) = sorted.iter().fold((0.0, 0.0), add);
    let sums = sorted.iter().scan((0.0, 0.0), |sums, sample| {
        *sums = add(*sums, sample);
        Some(*sums)
    });
    let divided = (1..=count - least).zip(sums).skip(least - 1).map(|(below, (sum, squares))| {
        let (low, low_variance) = moments(sum, squares, below);
        let (high, high_variance) = moments(all - sum, all_squares - squares, count - below);
        let squared_distance = 2.0 * (high - low).powi(2) / (low_variance + high_variance);
        (squared_distance, low, high, count - below)
    });
    let (squared_distance, low, high, above) = divided.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let (low, high) = (low + sorted[0] as f64, high + sorted[0] as f64);
    // Rounding divides samples of neighbouring steps.
    let is_large = high - low > low * MIN_CHANGE && high - low > 2.0 * step as f64;
    let upper_share = above as f64 / count as f64;
    (squared_distance >= least_mode_distance(count).powi(2) && is_large)
        .then_some(DurationPattern::TwoModes { low, high, upper_share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::{hash_numbers, normal_deviate};

    const STEP: i64 = 20;

    fn sorted<const N: usize>(mut values: [i64; N]) -> [i64; N] {
        values.sort_unstable();
        values
    }

    /// Samples around 50 us with relative noise, each times a factor of its number, in steps of the timer.
    fn series(seed: u64, count: u64, noise: f64, factor: impl Fn(u64) -> f64) -> Vec<i64> {
        let sample = |number: u64| {
            let deviate = normal_deviate(hash_numbers(&[seed, number]));
            ((50_000.0 * (1.0 + noise * deviate) * factor(number)) as i64) / STEP * STEP
        };
        (0..count).map(sample).collect()
    }

    fn found(noise: f64, factor: impl Fn(u64) -> f64 + Copy) -> (usize, usize) {
        let patterns =
            (0..500).filter_map(|seed| find_duration_pattern(&series(seed, 20, noise, factor), STEP));
        patterns.fold((0, 0), |(trends, modes), pattern| match pattern {
            DurationPattern::Trend { .. } | DurationPattern::Step { .. } => (trends + 1, modes),
            DurationPattern::TwoModes { .. } => (trends, modes + 1),
        })
    }

    #[test]
    fn independent_samples_have_no_pattern() {
        let mut found = 0;
        for noise in [0.002, 0.01, 0.02, 0.05, 0.1] {
            for count in [10, 20, 30, 60] {
                let of_series = |seed| find_duration_pattern(&series(seed, count, noise, |_| 1.0), STEP);
                found += (0..1_000).filter_map(|seed| of_series(seed * 100 + count)).count();
            }
        }
        assert!(found <= 40, "{found} of 20,000");
        assert_eq!(find_duration_pattern(&[1_000; 20], STEP), None);
        // Two neighbouring values of the timer are rounding.
        let rounded: Vec<i64> = (0..20).map(|number| 1_000 + STEP * (number % 2)).collect();
        assert_eq!(find_duration_pattern(&rounded, STEP), None);
        assert_eq!(find_duration_pattern(&[1_000, 2_000, 1_000, 2_000], STEP), None, "too few");
        assert_eq!(find_duration_pattern(&[], STEP), None);
    }

    /// Four collections with offsets of their own, of 15 samples with 3 % noise.
    #[test]
    fn modes_of_collections_together_are_found() {
        let modes_of = |seed: u64, high: f64, offset: f64| {
            let collections: Vec<Vec<i64>> = (0..4)
                .map(|collection| {
                    let level = (offset * normal_deviate(hash_numbers(&[seed, collection, 77]))).exp();
                    let mode = |number| hash_numbers(&[seed, collection, number, 5]) % 10 < 6;
                    let shape = move |number| level * if mode(number) { high } else { 1.0 };
                    series(seed * 31 + collection, 15, 0.03, shape)
                })
                .collect();
            let collections: Vec<&[i64]> = collections.iter().map(Vec::as_slice).collect();
            find_common_modes(&collections, STEP)
        };
        let count = |high, offset| (0..500).filter(|&seed| modes_of(seed, high, offset).is_some()).count();
        assert!(count(1.0, 0.0) <= 2, "{}", count(1.0, 0.0));
        assert!(count(1.0, 0.04) <= 2, "{}", count(1.0, 0.04));
        assert!(count(1.15, 0.005) >= 350, "{}", count(1.15, 0.005));
        assert!(count(1.2, 0.03) >= 440, "{}", count(1.2, 0.03));
        assert_eq!(find_common_modes(&[&[1_000; 20], &[]], STEP), None);
    }

    #[test]
    fn changes_of_a_series_are_found() {
        let drift = |change: f64| move |number: u64| 1.0 + change * number as f64 / 19.0;
        assert!(found(0.01, drift(0.08)).0 >= 495, "{:?}", found(0.01, drift(0.08)));
        assert!(found(0.02, drift(-0.2)).0 >= 495, "{:?}", found(0.02, drift(-0.2)));
        let step = |number: u64| if number < 10 { 1.0 } else { 1.04 };
        let (trends, modes) = found(0.005, step);
        assert!(trends + modes >= 495, "{trends} {modes}");
        // After 10 of 58 samples, in launch noise of a quarter of the step.
        let early = |number: u64| if number < 10 { 1.0 } else { 1.04 };
        let patterns =
            (0..500).filter_map(|seed| find_duration_pattern(&series(seed, 58, 0.01, early), STEP));
        let places = patterns.map(|pattern| match pattern {
            DurationPattern::Step { before, .. } => before,
            _ => 10,
        });
        let places: Vec<usize> = places.collect();
        assert!(places.len() >= 495, "{}", places.len());
        assert!(places.iter().all(|before| before.abs_diff(10) <= 3), "{places:?}");
        let modes = |number: u64| if hash_numbers(&[number]).is_multiple_of(2) { 1.0 } else { 1.06 };
        assert!(found(0.005, modes).1 >= 495, "{:?}", found(0.005, modes));
        let burst = |number: u64| if (4..16).contains(&number) { 1.1 } else { 1.0 };
        assert!(found(0.01, burst).1 >= 495, "{:?}", found(0.01, burst));
    }

    /// Every series of three values of eight: the statistic and its variance by their definitions, over all orders.
    #[test]
    fn variance_of_concordance_is_that_of_all_orders() {
        fn orders(values: &[i64]) -> Vec<Vec<i64>> {
            let [_, ..] = values else { return vec![Vec::new()] };
            let with = |index: usize| {
                let mut rest = values.to_vec();
                let first = rest.remove(index);
                orders(&rest).into_iter().map(move |order| [vec![first], order].concat())
            };
            (0..values.len()).flat_map(with).collect()
        }
        for values in [[1, 2, 3, 4, 5], [1, 1, 2, 3, 4], [1, 1, 2, 2, 2], [5, 5, 5, 5, 1]] {
            let all = orders(&values);
            let square = |order: &Vec<i64>| {
                let pairs = (0..5).flat_map(|one| (one + 1..5).map(move |other| (one, other)));
                let sum: i64 = pairs.map(|(one, other)| (order[other] - order[one]).signum()).sum();
                (sum * sum) as f64
            };
            let variance = all.iter().map(square).sum::<f64>() / all.len() as f64;
            assert!((concordance_variance(&sorted(values)) - variance).abs() < 1e-9, "{values:?}");
        }
    }

    /// 15 samples with a trend of 4.8 % in noise of 1 %: two collections show it together, one in half of the draws.
    #[test]
    fn collections_have_a_common_trend() {
        let drift = |number: u64| 1.0 + 0.048 * number as f64 / 15.0;
        let flat = |_: u64| 1.0;
        let trends = |count: u64, noise: f64, collections: u64, factor: &dyn Fn(u64) -> f64| {
            let of_case = |seed: u64| {
                let all: Vec<Vec<i64>> =
                    (0..collections).map(|number| series(seed * 8 + number, count, noise, factor)).collect();
                find_common_trend(&all.iter().map(Vec::as_slice).collect::<Vec<_>>(), STEP)
            };
            (0..500).filter_map(of_case).count()
        };
        let [one, two, three] = [1, 2, 3].map(|collections| trends(15, 0.01, collections, &drift));
        assert!(one < 300 && two >= 470 && three >= 495, "{one} {two} {three}");
        // The eight samples of one collection are too few; the samples of three collections are not.
        let steep = |number: u64| 1.0 + 0.01 * number as f64;
        assert_eq!(trends(8, 0.01, 1, &steep), 0);
        assert!(trends(8, 0.01, 3, &steep) >= 495, "{}", trends(8, 0.01, 3, &steep));
        let by_chance: usize = [0.002, 0.01, 0.05, 0.1]
            .map(|noise| trends(15, noise, 2, &flat) + trends(8, noise, 3, &flat))
            .iter()
            .sum();
        assert!(by_chance <= 8, "{by_chance} of 4,000");
        assert_eq!(find_common_trend(&[], STEP), None);
        assert_eq!(find_common_trend(&[&[5; 20], &[]], STEP), None);
        assert_eq!(find_common_trend(&[&[0; 20], &[7; 20]], STEP), None);
    }

    #[test]
    fn patterns_state_their_size() {
        let trend =
            find_duration_pattern(&(0..20).map(|number| 10_000 + 100 * number).collect::<Vec<_>>(), STEP);
        assert_eq!(
            trend.map(|pattern| pattern.to_string()).as_deref(),
            Some("the durations rose by 17.3 % over the launches")
        );
        let step: Vec<i64> =
            (0..20).map(|number| if number < 3 { 10_000 + 20 * (number % 3) } else { 10_400 }).collect();
        assert_eq!(
            find_duration_pattern(&step, STEP).map(|pattern| pattern.to_string()).as_deref(),
            Some("the durations changed by +3.8 % after 3 of 20 launches")
        );
        let modes: Vec<i64> = (0..20).map(|number| if number % 4 == 0 { 12_000 } else { 10_000 }).collect();
        assert_eq!(
            find_duration_pattern(&modes, STEP).map(|pattern| pattern.to_string()).as_deref(),
            Some("the durations have two modes: 10.000 us, and 12.000 us in 25 % of the launches")
        );
    }
}
