//! Rounds of measurement: how many launches a case has in a collection, and which cases are measured in another one.

use super::{CaseEstimate, MIN_REPEATED_CASES, MIN_SAMPLES};

/// Collections of a case from which its own medians give an interval.
pub const MIN_OWN_COLLECTIONS: usize = 3;
/// Collections beyond the limit that a forecast may need and still be tried: the width of an interval is uncertain.
const FORECAST_MARGIN: f64 = 1.15;
/// Number of cases below which all of them are measured twice.
const SMALL_PLAN: usize = 400;
/// One of so many cases of a larger plan is measured twice.
const REPEATED_PART: usize = 5;
/// Launches of a case in a collection; with fewer, patterns of the durations are not found.
const MIN_LAUNCHES: f64 = MIN_SAMPLES as f64;
const MAX_LAUNCHES: f64 = 64.0;
/// Variance of the median of normal samples, in units of the variance of a sample divided by their number: π / 2.
pub(super) const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// Precision that a run aims at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrecisionAim {
    /// Relative half width of the 95 % interval.
    pub half_width: f64,
    /// Maximum number of collections of a case.
    pub max_collections: usize,
}

impl PrecisionAim {
    /// Returns the aim for a case: no less than a step of the timer, relative to the median.
    fn for_resolution(self, resolution: f64) -> f64 {
        self.half_width.max(resolution)
    }

    /// Returns true if the interval of the case is as narrow as demanded.
    pub fn is_reached(self, estimate: &CaseEstimate, resolution: f64) -> bool {
        estimate.half_width <= self.for_resolution(resolution)
    }

    /// Returns true if another collection of the case can help: its interval is too wide, and the forecast of the number
    /// of collections that it needs is within the limit. Widths shrink with the root of their number.
    pub fn needs_another_collection(self, estimate: &CaseEstimate, resolution: f64) -> bool {
        let ratio = estimate.half_width / self.for_resolution(resolution);
        ratio > 1.0
            && estimate.collections < self.max_collections
            && ratio * ratio * estimate.collections as f64 <= self.max_collections as f64 * FORECAST_MARGIN
    }
}

/// Returns the number of cases of a plan that are measured at least twice, so that the variance between collections is known.
pub fn repeated_cases(cases: usize) -> usize {
    if cases < SMALL_PLAN { cases } else { cases.div_ceil(REPEATED_PART) }
}

/// Returns the least number of measurements after the first of each case: too few cases for a joint fit need
/// [`MIN_OWN_COLLECTIONS`] each.
pub fn least_repeats(cases: usize, max_collections: usize) -> usize {
    let further = if cases < MIN_REPEATED_CASES { MIN_OWN_COLLECTIONS - 1 } else { 1 };
    repeated_cases(cases) * further.min(max_collections.saturating_sub(1))
}

/// Costs of a case in a collection, in seconds of device time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseCosts {
    /// Cost without the measured launches: the case's share of the start and export of the collection, tensors,
    /// warm-up.
    pub fixed: f64,
    /// Cost of a measured launch with its record.
    pub launch: f64,
}

impl CaseCosts {
    /// Returns the number of launches that gives the narrowest interval for a device time: T. Kalibera and R. Jones,
    /// Rigorous benchmarking in reasonable time, ISMM 2013, section 6.1. `offset_ratio` is the standard deviation of
    /// the offset of a collection divided by the standard deviation of a launch.
    pub fn best_launches(self, offset_ratio: f64) -> u32 {
        let launches = (MEDIAN_VARIANCE * self.fixed / self.launch).sqrt() / offset_ratio;
        launches.clamp(MIN_LAUNCHES, MAX_LAUNCHES).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIM: PrecisionAim = PrecisionAim { half_width: 0.01, max_collections: 8 };

    fn estimate(half_width: f64, collections: usize) -> CaseEstimate {
        CaseEstimate { log_median: 9.0, half_width, freedom: 4.0, collections, correction: 0.0 }
    }

    #[test]
    fn only_cases_that_can_reach_the_aim_are_measured_again() {
        assert!(AIM.needs_another_collection(&estimate(0.02, 2), 0.0), "8 collections are forecast");
        assert!(!AIM.needs_another_collection(&estimate(0.03, 2), 0.0), "18 collections are forecast");
        assert!(!AIM.needs_another_collection(&estimate(0.01, 1), 0.0), "reached");
        assert!(!AIM.needs_another_collection(&estimate(0.0101, 8), 0.0), "no collection is left");
        assert!(!AIM.needs_another_collection(&estimate(f64::INFINITY, 1), 0.0), "no forecast");
    }

    #[test]
    fn all_cases_of_a_small_plan_are_repeated_and_a_fifth_of_a_large_one() {
        let least = [5, 19, 20, 399, 400, 3201].map(|cases| least_repeats(cases, 8));
        assert_eq!(least, [10, 38, 20, 399, 80, 641]);
        assert_eq!([5, 20].map(|cases| least_repeats(cases, 2)), [5, 20]);
        assert_eq!(least_repeats(5, 1), 0);
    }

    #[test]
    fn a_step_of_the_timer_is_precise_enough() {
        assert!(!AIM.needs_another_collection(&estimate(0.02, 1), 0.02));
        assert!(AIM.needs_another_collection(&estimate(0.021, 1), 0.02));
    }

    /// The best number is defined as follows: among all numbers of launches, the least variance of a mean over
    /// collections for a device time.
    #[test]
    fn launches_give_the_least_variance_for_a_time() {
        for (fixed, launch, ratio) in
            [(0.33, 1e-3, 1.0), (0.1, 2e-4, 0.5), (0.5, 2e-2, 1.0), (0.02, 1e-2, 0.2)]
        {
            let costs = CaseCosts { fixed, launch };
            let variance_rate = |launches: u32| {
                let seconds = fixed + f64::from(launches) * launch;
                seconds * (ratio * ratio + MEDIAN_VARIANCE / f64::from(launches))
            };
            let best = (10..=64).min_by(|one, other| variance_rate(*one).total_cmp(&variance_rate(*other)));
            assert!(costs.best_launches(ratio).abs_diff(best.expect("some")) <= 1, "{costs:?}");
        }
    }
}
