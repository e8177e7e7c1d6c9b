//! Which samples are accepted, and whether they are steady enough.

use crate::stats::{Fence, Outlier, median_interval, median_of_sorted};

/// A case is `noisy` where half the 95 % interval of its median is wider than this part of it.
pub const NOISE_TARGET: f64 = 0.05;
/// Step of the device's timer: profiles hold multiples of 20 ns.
pub const TIMER_QUANTUM_NS: i64 = 20;

/// Which of the samples are inside the severe outlier fence.
pub(super) fn accepted(samples: &[i64]) -> Vec<bool> {
    Fence::of(samples, TIMER_QUANTUM_NS).map_or_else(
        || vec![true; samples.len()],
        |fence| samples.iter().map(|&sample| fence.label(sample) != Outlier::Severe).collect(),
    )
}

/// Half the 95 % interval of the median relative to the median, where it is wider than the target and
/// than the timer can tell.
pub(super) fn excess_noise(samples: &[i64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let (low, high) = median_interval(&sorted, 0.95)?;
    let median = median_of_sorted(&sorted)?;
    #[expect(clippy::cast_precision_loss, reason = "durations of kernels")]
    let half = (high as f64 - median).max(median - low as f64);
    #[expect(clippy::cast_precision_loss, reason = "20 ns")]
    let quantum = TIMER_QUANTUM_NS as f64;
    (half > quantum && half > NOISE_TARGET * median).then_some(half / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_step_is_not_noise() {
        assert_eq!(excess_noise(&[100, 120, 100, 120, 100, 120, 120, 100]), None);
        let wide = excess_noise(&[1000, 1400, 1010, 1390, 1020, 1380, 1000, 1400]).expect("noise");
        assert!((0.1..0.3).contains(&wide), "{wide}");
    }

    #[test]
    fn only_severe_outliers_are_left_out() {
        let mut samples = vec![1000, 1020, 980, 1000, 1040, 960, 1020, 980, 1000];
        samples.push(9000);
        let kept = accepted(&samples);
        assert_eq!(kept.iter().filter(|kept| !**kept).count(), 1);
        assert!(!kept[9]);
    }
}
