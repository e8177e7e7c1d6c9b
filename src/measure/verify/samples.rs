//! Acceptance of samples, the published interval, and the limit of its width.

use crate::base::stats::{
    DurationPattern, OutlierFence, OutlierKind, find_duration_pattern, median_interval,
    median_interval_of_collections, median_of_sorted,
};
use crate::kernel::{Cause, IntervalMethod};

/// Limit of the relative half width of the 95 % interval of the median; a wider case is `noisy`.
pub(super) const NOISE_TARGET: f64 = 0.05;
/// Limit where devices differ in all cases: launches and collections do not average such a difference out.
pub(super) const DEVICE_TARGET: f64 = 0.03;
/// Step of the device's timer: profiles hold multiples of 20 ns.
pub(crate) const TIMER_QUANTUM_NS: i64 = 20;
/// Maximum fraction of severe outliers; more of them are a second mode of the distribution.
pub(super) const MOST_OUTLIERS: f64 = 0.1;

/// Returns for each sample whether it is inside the severe outlier fence.
pub(super) fn accepted_samples(samples: &[i64]) -> Vec<bool> {
    OutlierFence::from_samples(samples, TIMER_QUANTUM_NS).map_or_else(
        || vec![true; samples.len()],
        |fence| samples.iter().map(|&sample| fence.label_sample(sample) != OutlierKind::Severe).collect(),
    )
}

/// Returns the published 95 % interval of the median: by ranks for one collection, by the hierarchical bootstrap for
/// several; widened by half a step of the timer at both ends, because each duration is rounded to a step.
pub(super) fn published_interval(collections: &[Vec<i64>], seed: u64) -> Option<(f64, f64)> {
    let (low, high) = sample_interval(collections, seed)?;
    let half_step = TIMER_QUANTUM_NS as f64 / 2.0;
    Some(((low - half_step).max(0.0), high + half_step))
}

/// Returns the interval whose ends are samples, or medians of resamples.
fn sample_interval(collections: &[Vec<i64>], seed: u64) -> Option<(f64, f64)> {
    let [one] = collections else {
        let count: usize = collections.iter().map(Vec::len).sum();
        return if count < 6 { None } else { median_interval_of_collections(collections, seed) };
    };
    let mut sorted = one.clone();
    sorted.sort_unstable();
    median_interval(&sorted, 0.95).map(|(low, high)| (low as f64, high as f64))
}

/// Returns the limit of the relative half width of an interval; `None` stands for that of one collection.
pub(super) fn widest_interval(method: Option<IntervalMethod>) -> f64 {
    match method {
        Some(IntervalMethod::JointFitOfUnequalDevices) => DEVICE_TARGET,
        _ => NOISE_TARGET,
    }
}

/// Returns the reason why samples with this published interval are too noisy; `None` if they are not. `outliers` samples
/// were left out.
pub(super) fn noise_reason(
    samples: &[i64],
    interval: Option<(f64, f64)>,
    method: Option<IntervalMethod>,
    outliers: usize,
) -> Option<Cause> {
    let mut pooled: Vec<i64> = samples.to_vec();
    pooled.sort_unstable();
    let Some((low, high)) = interval else {
        return Some(Cause::FewSamples { samples: pooled.len() });
    };
    let left_out = outliers as f64 / (outliers + pooled.len()) as f64;
    if outliers > 1 && left_out > MOST_OUTLIERS {
        return Some(Cause::ManyOutliers { percent: (left_out * 100.0).into() });
    }
    let median = median_of_sorted(&pooled)?;
    let half = (high - median).max(median - low);
    let quantum = TIMER_QUANTUM_NS as f64;
    let (known, target) = (half / median * 100.0, widest_interval(method) * 100.0);
    (half > quantum && known > target).then(|| Cause::WideInterval {
        percent: known.into(),
        target_percent: target.into(),
        devices_differ: method == Some(IntervalMethod::JointFitOfUnequalDevices),
    })
}

/// Returns the pattern of the durations of one collection, in launch order: a trend or two modes.
pub(super) fn pattern_reason(durations: &[i64]) -> Option<Cause> {
    find_duration_pattern(durations, TIMER_QUANTUM_NS).map(|pattern| pattern_cause(&pattern))
}

pub(super) fn pattern_cause(pattern: &DurationPattern) -> Cause {
    match *pattern {
        DurationPattern::Trend { change } => Cause::Trend { percent: (change * 100.0).into() },
        DurationPattern::Step { change, before, samples } => {
            Cause::Step { percent: (change * 100.0).into(), before, samples }
        }
        DurationPattern::TwoModes { low, high, upper_share } => Cause::TwoModes {
            low_us: (low / 1e3).into(),
            high_us: (high / 1e3).into(),
            upper_percent: (upper_share * 100.0).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise_of(collections: &[Vec<i64>], outliers: usize, seed: u64) -> Option<String> {
        noise_reason(&collections.concat(), published_interval(collections, seed), None, outliers)
            .map(|cause| cause.to_string())
    }

    /// All samples may be rounded to the same step: the median lies within half a step of it, not exactly at it.
    #[test]
    fn interval_includes_the_rounding_of_the_timer() {
        assert_eq!(published_interval(&[vec![1300; 20]], 1), Some((1290.0, 1310.0)));
        assert_eq!(published_interval(&[vec![1300; 20], vec![1300; 20]], 1), Some((1290.0, 1310.0)));
        assert_eq!(published_interval(&[vec![1300; 5]], 1), None);
    }

    #[test]
    fn timer_step_is_not_noise() {
        assert_eq!(noise_of(&[vec![100, 120, 100, 120, 100, 120, 120, 100]], 0, 1), None);
        let wide = noise_of(&[vec![1000, 1400, 1010, 1390, 1020, 1380, 1000, 1400]], 0, 1).expect("noise");
        assert!(wide.starts_with("median known to 1") || wide.starts_with("median known to 2"), "{wide}");
    }

    #[test]
    fn differing_collections_are_noisy() {
        let around = |middle: i64| (0..20).map(|step| middle + step * 2).collect::<Vec<_>>();
        assert_eq!(noise_of(&[around(10_000)], 0, 1), None);
        assert_eq!(noise_of(&[around(10_000), around(10_010)], 0, 1), None);
        assert!(noise_of(&[around(10_000), around(13_000)], 0, 1).is_some());
    }

    #[test]
    fn second_mode_is_noise() {
        let samples: Vec<i64> = std::iter::repeat_n(1000, 12).chain(std::iter::repeat_n(2000, 8)).collect();
        let kept = accepted_samples(&samples).iter().filter(|kept| **kept).count();
        assert_eq!(
            noise_of(&[vec![1000; kept]], 20 - kept, 1).as_deref(),
            Some("40 % of the samples are severe outliers")
        );
        assert_eq!(
            noise_of(&[vec![1000; 5]], 0, 1).as_deref(),
            Some("5 samples are too few for an interval")
        );
    }

    #[test]
    fn only_severe_outliers_are_left_out() {
        let mut samples = vec![1000, 1020, 980, 1000, 1040, 960, 1020, 980, 1000];
        samples.push(9000);
        let kept = accepted_samples(&samples);
        assert_eq!(kept.iter().filter(|kept| !**kept).count(), 1);
        assert!(!kept[9]);
    }
}
