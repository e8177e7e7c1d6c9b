//! Comparison of two sets of estimates, case by case: which differ, which are equal, and for which neither is shown, with
//! the share of false statements controlled over all cases.
//!
//! The test is that of B. L. Welch, The generalization of "Student's" problem, Biometrika 34 (1947); equality is shown by two
//! one-sided tests (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987); the thresholds over all cases are those of
//! Y. Benjamini and Y. Hochberg, Controlling the false discovery rate, J. R. Stat. Soc. B 57 (1995).

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::CaseEstimate;

/// Greatest expected share of false statements among the cases that are stated to differ, and among those stated to be equal.
pub(crate) const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// Result of the comparison of a case.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::Display,
    strum::EnumIter,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[strum(serialize_all = "UPPERCASE")]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum ComparisonVerdict {
    /// The second is slower, by at least the margin.
    Slow,
    /// The second is faster, by at least the margin.
    Fast,
    /// The difference is smaller than the margin.
    Same,
    /// The intervals are too wide for a statement, or the difference is real and near the margin.
    Ambiguous,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EstimateDifference {
    /// Logarithm of the second median divided by the first.
    pub(crate) log_ratio: f64,
    /// Half width of its 95 % interval, without regard to other cases.
    pub(crate) half_width: f64,
    standard_error: f64,
    freedom: f64,
    /// Step of the timer relative to the median: a difference of one step may come from rounding.
    resolution: f64,
}

impl EstimateDifference {
    /// Compares two estimates. `resolution` is the step of the timer relative to the smaller median. `None` if an interval has no
    /// bounds.
    pub(crate) fn between(first: &CaseEstimate, second: &CaseEstimate, resolution: f64) -> Option<Self> {
        let [one, other] = [first, second].map(CaseEstimate::variance);
        let variance = one + other;
        if !variance.is_finite() {
            return None;
        }
        let freedom = match variance > 0.0 {
            // Welch and Satterthwaite.
            true => variance * variance / (one * one / first.freedom + other * other / second.freedom),
            false => first.freedom.min(second.freedom),
        };
        let standard_error = variance.sqrt();
        let quantile = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975);
        Some(Self {
            log_ratio: second.log_median - first.log_median,
            half_width: quantile * standard_error + resolution,
            standard_error,
            freedom,
            resolution,
        })
    }

    /// Returns the probability of so great a value or a greater one of Student's t distribution; `excess` is in units of the
    /// logarithm.
    fn upper_tail(&self, excess: f64) -> f64 {
        if self.standard_error == 0.0 {
            return if excess > 0.0 { 0.0 } else { 1.0 };
        }
        StudentsT::new(0.0, 1.0, self.freedom).map_or(1.0, |student| student.sf(excess / self.standard_error))
    }

    fn p_of_equality(&self) -> f64 {
        let excess = (self.log_ratio.abs() - self.resolution).max(0.0);
        (2.0 * self.upper_tail(excess)).min(1.0)
    }

    /// Returns the p value of the hypothesis that the medians differ by `margin` or more.
    fn p_of_difference(&self, margin: f64) -> f64 {
        self.upper_tail(margin - self.log_ratio.abs() - self.resolution)
    }
}

/// Returns the verdict of each difference; `margin` is the smallest relative difference that matters. A case without a
/// difference is ambiguous.
pub(crate) fn compare_estimates(
    differences: &[Option<EstimateDifference>],
    margin: f64,
) -> Vec<ComparisonVerdict> {
    let margin = margin.ln_1p();
    let threshold = |p: &dyn Fn(&EstimateDifference) -> f64| {
        rejection_threshold(differences.iter().flatten().map(p).collect(), FALSE_DISCOVERY_RATE)
    };
    let differ = threshold(&EstimateDifference::p_of_equality);
    let equal = threshold(&|difference| difference.p_of_difference(margin));
    let verdict = |difference: &EstimateDifference| {
        if difference.log_ratio.abs() >= margin {
            return match difference.p_of_equality() <= differ {
                true if difference.log_ratio > 0.0 => ComparisonVerdict::Slow,
                true => ComparisonVerdict::Fast,
                false => ComparisonVerdict::Ambiguous,
            };
        }
        match difference.p_of_difference(margin) <= equal {
            true => ComparisonVerdict::Same,
            false => ComparisonVerdict::Ambiguous,
        }
    };
    differences
        .iter()
        .map(|difference| difference.as_ref().map_or(ComparisonVerdict::Ambiguous, verdict))
        .collect()
}

/// Returns the greatest p value at which a hypothesis is rejected, by the procedure of Benjamini and Hochberg; negative if none
/// is.
fn rejection_threshold(mut p_values: Vec<f64>, rate: f64) -> f64 {
    p_values.sort_unstable_by(f64::total_cmp);
    let count = p_values.len() as f64;
    let ranked = (1_u32..).zip(&p_values);
    let rejected = ranked.filter(|(rank, p)| **p <= rate * f64::from(*rank) / count);
    rejected.last().map_or(-1.0, |(_, p)| *p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::{SplitMix64, estimate_median, hash_numbers, normal_deviate};

    /// Medians 100 ns and 100 ns times the exponentials of given logarithms.
    fn estimate(logarithms: &[f64]) -> CaseEstimate {
        let medians: Vec<f64> = logarithms.iter().map(|log| 100_f64.ln() + log).collect();
        estimate_median(&medians, 0.0)
    }

    /// scipy.stats.ttest_ind(a, b, equal_var=False) with scipy 1.17: p and the interval of the difference.
    #[test]
    fn difference_is_that_of_welch() {
        let first = estimate(&[0.010, 0.012, 0.009, 0.013]);
        let second = estimate(&[0.031, 0.025, 0.038]);
        let difference = EstimateDifference::between(&first, &second, 0.0).expect("bounded");
        assert!((difference.log_ratio - 0.020_333_333_333_333_33).abs() < 1e-12);
        assert!((difference.p_of_equality() - 0.026_844_098_859_429_83).abs() < 1e-9);
        assert!((difference.half_width - 0.015_048_036_451_106_635).abs() < 1e-9);
        assert!((difference.p_of_difference(0.05) - 0.005_966_968_787_445_515).abs() < 1e-9);
        // A step of the timer is added to the interval and subtracted from the difference.
        let coarse = EstimateDifference::between(&first, &second, 0.01).expect("bounded");
        assert!((coarse.half_width - difference.half_width - 0.01).abs() < 1e-12);
        assert!(coarse.p_of_equality() > difference.p_of_equality());
        assert!(coarse.p_of_difference(0.05) > difference.p_of_difference(0.05));
    }

    #[test]
    fn unbounded_interval_gives_no_difference() {
        let single = estimate(&[0.01]);
        assert_eq!(EstimateDifference::between(&single, &estimate(&[0.01, 0.02, 0.03]), 0.0), None);
        assert_eq!(compare_estimates(&[None], 0.02), [ComparisonVerdict::Ambiguous]);
    }

    /// The definition: the largest rank whose p value is at most rate x rank / count, over all subsets of a small grid.
    #[test]
    fn rejections_are_those_of_the_step_up_procedure() {
        let mut random = SplitMix64::new(3);
        for _ in 0..2_000 {
            let count = 1 + (random.next_u64() % 6) as usize;
            let p_values: Vec<f64> = (0..count).map(|_| (random.next_u64() % 21) as f64 / 200.0).collect();
            let threshold = rejection_threshold(p_values.clone(), 0.05);
            let rejected = |p: f64| p <= threshold;
            let is_allowed = |rank: usize| {
                let below = p_values.iter().filter(|p| **p <= 0.05 * rank as f64 / count as f64).count();
                below >= rank
            };
            let expected = (1..=count).rev().find(|rank| is_allowed(*rank)).unwrap_or(0);
            let found = p_values.iter().filter(|p| rejected(**p)).count();
            let bound = 0.05 * expected as f64 / count as f64;
            let expected = p_values.iter().filter(|p| expected > 0 && **p <= bound).count();
            assert_eq!(found, expected, "{p_values:?}");
        }
    }

    /// 300 comparisons of 200 cases with three collections on each side: a tenth is 4 % slower, a tenth is 4 % faster, the others
    /// are equal. The expected share of false statements is at most 5 %, of either kind.
    #[test]
    fn false_statements_are_rare_over_many_cases() {
        let (mut differing, mut false_differing, mut equal, mut false_equal, mut missed) = (0, 0, 0, 0, 0);
        let mut shares = (0.0, 0.0);
        let comparisons = 300;
        for comparison in 0..comparisons {
            let shift = |case: u64| match case % 10 {
                0 => 0.04,
                1 => -0.04,
                _ => 0.0,
            };
            let noise = |case: u64| 0.002 + 0.001 * (case % 7) as f64;
            let draw = |case: u64, side: u64| {
                let medians: Vec<f64> = (0..4)
                    .map(|collection| {
                        let key = [comparison, case, side, collection];
                        (side as f64).mul_add(shift(case), noise(case) * normal_deviate(hash_numbers(&key)))
                    })
                    .collect();
                estimate(&medians)
            };
            let differences: Vec<_> = (0..200)
                .map(|case| EstimateDifference::between(&draw(case, 0), &draw(case, 1), 0.0))
                .collect();
            let verdicts = compare_estimates(&differences, 0.02);
            let mut counts = [0_usize; 4];
            for (case, verdict) in (0_u64..).zip(verdicts) {
                let truth = shift(case);
                match verdict {
                    ComparisonVerdict::Slow | ComparisonVerdict::Fast => {
                        counts[0] += 1;
                        let is_slow = verdict == ComparisonVerdict::Slow;
                        counts[1] += usize::from(truth == 0.0 || is_slow != (truth > 0.0));
                    }
                    ComparisonVerdict::Same => {
                        counts[2] += 1;
                        counts[3] += usize::from(truth != 0.0);
                    }
                    ComparisonVerdict::Ambiguous => missed += usize::from(truth != 0.0),
                }
            }
            differing += counts[0];
            false_differing += counts[1];
            equal += counts[2];
            false_equal += counts[3];
            shares.0 += counts[1] as f64 / counts[0].max(1) as f64;
            shares.1 += counts[3] as f64 / counts[2].max(1) as f64;
        }
        let counts = format!("{differing} {false_differing} {equal} {false_equal} {missed}");
        assert!(shares.0 / (comparisons as f64) <= FALSE_DISCOVERY_RATE, "{counts}");
        assert!(shares.1 / (comparisons as f64) <= FALSE_DISCOVERY_RATE, "{counts}");
        // Power: most of the 12,000 differences and of the 48,000 equal cases are found.
        assert!(differing > 10_000 && equal > 36_000, "{counts}");
    }
}
