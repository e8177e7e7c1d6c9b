//! Change between two sets of launches of the same kernel.

use super::{median_of_floats, median_of_sorted};

pub(crate) const MIN_CONTROL_CHANGE: f64 = 0.03;
/// Change in standard errors from which it is not chance.
pub(crate) const CONTROL_CHANGE_ERRORS: f64 = 5.0;
/// Assumed relative standard deviation of single launches: a constant part, and one of the timer and of the start of a kernel, in
/// nanoseconds.
const LAUNCH_SD: f64 = 0.01;
const LAUNCH_SD_NS: f64 = 200.0;
/// Ratio of the standard error of the median to the standard error of the mean, for normal samples.
const MEDIAN_ERROR: f64 = 1.2533;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ControlChange {
    pub(crate) log_change: f64,
    pub(crate) error: f64,
}

impl ControlChange {
    /// Compares two sets of durations in nanoseconds. The deviation of the launches is the observed one, but not less
    /// than an assumed one, because the spread of a few launches is uncertain. `None` without positive durations in
    /// both.
    pub(crate) fn between(before: &[i64], after: &[i64]) -> Option<Self> {
        let (before, before_error) = log_median(before)?;
        let (after, after_error) = log_median(after)?;
        Some(Self { log_change: after - before, error: before_error.hypot(after_error) })
    }

    pub(crate) fn is_significant(&self) -> bool {
        self.log_change.exp_m1().abs() >= MIN_CONTROL_CHANGE
            && self.log_change.abs() > CONTROL_CHANGE_ERRORS * self.error
    }
}

fn log_median(durations: &[i64]) -> Option<(f64, f64)> {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let median = median_of_sorted(&sorted).filter(|_| sorted[0] > 0)?;
    let mut deviations: Vec<f64> = sorted.iter().map(|duration| (*duration as f64 - median).abs()).collect();
    let observed = 1.4826 * median_of_floats(&mut deviations)? / median;
    let deviation = observed.max(LAUNCH_SD + LAUNCH_SD_NS / median);
    Some((median.ln(), MEDIAN_ERROR * deviation / (sorted.len() as f64).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::normal_deviate;

    /// Launches of a kernel of 0.5 ms with noise of 1 %.
    fn launches(series: u64, factor: f64) -> Vec<i64> {
        (0..8).map(|n| (500_000.0 * factor * (1.0 + 0.01 * normal_deviate(series * 8 + n))) as i64).collect()
    }

    #[test]
    fn durations_of_any_size_are_compared() {
        let longest = [i64::MAX; 8];
        let change = ControlChange::between(&longest, &longest).expect("launches");
        assert!(change.log_change == 0.0 && !change.is_significant());
        let change = ControlChange::between(&[i64::MAX, i64::MAX - 9, 1], &[1; 3]).expect("launches");
        assert!(change.log_change < -40.0 && change.error.is_finite(), "{change:?}");
    }

    #[test]
    fn chance_is_no_change_and_a_change_of_six_percent_is_found() {
        let is_found = |series: u64, factor: f64| {
            let change =
                ControlChange::between(&launches(2 * series, 1.0), &launches(2 * series + 1, factor));
            change.expect("launches").is_significant()
        };
        let found = |factor: f64| (0..10_000).filter(|&series| is_found(series, factor)).count();
        assert!(found(1.0) <= 2, "{}", found(1.0));
        assert!(found(1.06) > 9_900 && found(1.0 / 1.06) > 9_900, "{} {}", found(1.06), found(1.0 / 1.06));
    }

    #[test]
    fn short_kernels_show_no_change_of_a_timer_step() {
        let change = ControlChange::between(&[2_000; 8], &[2_080; 8]).expect("launches");
        assert!(!change.is_significant(), "{change:?}");
        assert_eq!(ControlChange::between(&[], &[1]), None);
        assert_eq!(ControlChange::between(&[0, 1, 2], &[1]), None);
    }
}
