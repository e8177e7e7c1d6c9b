//! Rounds of measurement: how many launches a case has in a collection, and which cases are measured in another one.

use super::CaseEstimate;

/// Collections beyond the limit that a forecast may need and still be tried: the width of an interval is uncertain.
const FORECAST_MARGIN: f64 = 1.15;
/// Launches of a case in a collection.
const LEAST_LAUNCHES: f64 = 8.0;
const MOST_LAUNCHES: f64 = 64.0;
/// Variance of the median of normal samples, in units of the variance of a sample divided by their number: π / 2.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

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

    /// Returns true if another collection of the case can help: its interval is too wide, and the forecast of the number
    /// of collections that it needs is within the limit. Widths shrink with the root of their number.
    pub fn needs_another_collection(self, estimate: &CaseEstimate, resolution: f64) -> bool {
        let ratio = estimate.half_width / self.for_resolution(resolution);
        ratio > 1.0
            && estimate.collections < self.max_collections
            && ratio * ratio * estimate.collections as f64 <= self.max_collections as f64 * FORECAST_MARGIN
    }
}

/// Costs of a case in a collection, in seconds of device time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseCosts {
    /// Without its measured launches: its share of the start and export of the collection, tensors, warm-up.
    pub fixed: f64,
    /// Of a measured launch with its record.
    pub launch: f64,
}

impl CaseCosts {
    /// Returns the number of launches that gives the narrowest interval for a device time: T. Kalibera and R. Jones,
    /// Rigorous benchmarking in reasonable time, ISMM 2013, section 6.1. `offset_ratio` is the standard deviation of the
    /// offset of a collection in units of that of a launch.
    pub fn best_launches(self, offset_ratio: f64) -> u32 {
        let launches = (MEDIAN_VARIANCE * self.fixed / self.launch).sqrt() / offset_ratio;
        launches.clamp(LEAST_LAUNCHES, MOST_LAUNCHES).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIM: PrecisionAim = PrecisionAim { half_width: 0.01, max_collections: 8 };

    fn estimate(half_width: f64, collections: usize) -> CaseEstimate {
        CaseEstimate { log_median: 9.0, half_width, collections, correction: 0.0 }
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
    fn a_step_of_the_timer_is_precise_enough() {
        assert!(!AIM.needs_another_collection(&estimate(0.02, 1), 0.02));
        assert!(AIM.needs_another_collection(&estimate(0.021, 1), 0.02));
    }

    /// By definition: among all numbers of launches, the least variance of a mean over collections for a device time.
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
            let best = (8..=64).min_by(|one, other| variance_rate(*one).total_cmp(&variance_rate(*other)));
            assert!(costs.best_launches(ratio).abs_diff(best.expect("some")) <= 1, "{costs:?}");
        }
    }
}
