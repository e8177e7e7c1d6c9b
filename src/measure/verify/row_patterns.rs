//! Patterns of the durations of a row's collections, and the agreement of their medians.

use super::samples::{NOISE_TARGET, TIMER_QUANTUM_NS, pattern_cause};
use crate::{
    base::stats::{
        DurationPattern, find_common_modes, find_common_trend, find_duration_pattern, median_of_sorted,
    },
    kernel::{Cause, cause::CollectionScope},
};

/// Greatest relative standard error of the mean of the medians of a row's collections: two of them are the noise target.
pub(super) const MOST_DISAGREEMENT: f64 = NOISE_TARGET / 2.0;

/// Patterns of the durations of a row's collections.
#[derive(Debug)]
pub(super) struct RowPatterns<'a> {
    /// Pattern of each collection that has one.
    pub(super) of_collections: Vec<DurationPattern>,
    /// Samples of the other collections.
    pub(super) steady: Vec<&'a [i64]>,
    /// Trend or modes that these have together; `None` also if most collections have a pattern of their own.
    pub(super) common: Option<DurationPattern>,
    /// True if so many collections have a pattern that the median is not known.
    pub(super) is_of_most: bool,
}

impl<'a> RowPatterns<'a> {
    /// Finds the patterns of collections, each with its samples in launch order.
    pub(super) fn of_collections(collections: &[&'a [i64]]) -> Self {
        let (mut patterns, mut steady) = (Vec::new(), Vec::new());
        for &samples in collections {
            match find_duration_pattern(samples, TIMER_QUANTUM_NS) {
                Some(pattern) => patterns.push(pattern),
                None => steady.push(samples),
            }
        }
        if is_mostly_patterned(patterns.len(), collections.len()) {
            return Self { of_collections: patterns, steady, common: None, is_of_most: true };
        }
        Self { of_collections: patterns, ..Self::of_steady_collections(steady) }
    }

    /// Finds the patterns that collections without one of their own have together.
    pub(super) fn of_steady_collections(steady: Vec<&'a [i64]>) -> Self {
        let find_common = || {
            find_common_trend(&steady, TIMER_QUANTUM_NS)
                .or_else(|| find_common_modes(&steady, TIMER_QUANTUM_NS))
        };
        let common = if steady.len() < 2 { None } else { find_common() };
        Self { of_collections: Vec::new(), steady, common, is_of_most: false }
    }

    /// Returns the pattern that makes the row noisy: that of at least half of the collections, or the trend or the modes of the others
    /// together; and remarks on the patterns of fewer collections, whose samples count as well: leaving them out would select
    /// by the result.
    pub(super) fn cause_and_remarks(&self) -> (Option<Cause>, Vec<Cause>) {
        let (own, steady) = (self.of_collections.len(), self.steady.len());
        let all = own + steady;
        let last = self.of_collections.last().map(|last| pattern_cause(last).in_collections(own, all));
        if self.is_of_most {
            return (last, Vec::new());
        }
        let common = self.common.map(|common| {
            let of = Some(all).filter(|all| *all != steady);
            pattern_cause(&common).within(steady, of, CollectionScope::Together)
        });
        (common, last.into_iter().collect())
    }

    /// Returns how far the medians of the collections without a pattern agree; `None` with fewer than two of them.
    pub(super) fn agreement(&self) -> Option<MedianAgreement> {
        MedianAgreement::of_collections(&self.steady)
    }

    /// Returns the reason why these medians disagree; `None` if they agree. The joint fit expects the differences of other
    /// cases, so that its interval alone does not show it.
    pub(super) fn disagreement_reason(&self) -> Option<Cause> {
        let agreement = self.agreement().filter(|agreement| agreement.is_poor)?;
        let (difference, error) = (100.0 * agreement.difference, 100.0 * agreement.error);
        Some(Cause::MediansDiffer { percent: difference.into(), error_percent: error.into() })
    }
}

/// Agreement of the medians of a row's collections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MedianAgreement {
    /// Difference of the largest and the smallest, relative to their mean.
    pub(super) difference: f64,
    /// Standard error of their mean.
    pub(super) error: f64,
    /// True if the row is noisy by it.
    pub(super) is_poor: bool,
}

impl MedianAgreement {
    fn of_collections(collections: &[&[i64]]) -> Option<Self> {
        let medians = collections.iter().filter_map(|samples| {
            let mut sorted = samples.to_vec();
            sorted.sort_unstable();
            median_of_sorted(&sorted)
        });
        Self::of_medians(&medians.collect::<Vec<_>>())
    }

    /// Compares medians of collections in nanoseconds; `None` for fewer than two.
    pub(super) fn of_medians(medians: &[f64]) -> Option<Self> {
        if medians.len() < 2 {
            return None;
        }
        let count = medians.len() as f64;
        let mean = medians.iter().sum::<f64>() / count;
        let squares: f64 = medians.iter().map(|median| (median / mean - 1.0).powi(2)).sum();
        let (least, most) = medians
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(least, most), median| (least.min(*median), most.max(*median)));
        let error = (squares / (count - 1.0) / count).sqrt();
        let is_poor = error > MOST_DISAGREEMENT && most - least > 2.0 * TIMER_QUANTUM_NS as f64;
        Some(Self { difference: (most - least) / mean, error, is_poor })
    }
}

/// Returns true if so many of a case's collections have a pattern that its median is not known.
pub(super) const fn is_mostly_patterned(patterned: usize, collections: usize) -> bool {
    patterned > 0 && patterned * 2 >= collections
}

#[cfg(test)]
mod tests {
    use super::{super::samples::pattern_reason, *};

    #[test]
    fn medians_far_apart_are_noise() {
        let around = |middle: i64| (0..20).map(|step| middle + 20 * (step * 7 % 5)).collect::<Vec<_>>();
        let reason = |medians: &[i64]| {
            let collections: Vec<Vec<i64>> = medians.iter().map(|median| around(*median)).collect();
            let collections: Vec<&[i64]> = collections.iter().map(Vec::as_slice).collect();
            RowPatterns::of_collections(&collections).disagreement_reason().map(|cause| cause.to_string())
        };
        assert_eq!(reason(&[300_000]), None);
        assert_eq!(reason(&[300_000, 310_000]), None);
        let far = "the medians differ by 9.5 %, so that the error of their mean is 4.8 %";
        assert_eq!(reason(&[302_300, 332_500]).as_deref(), Some(far));
        // Two nights with other clocks.
        assert!(reason(&[332_700, 328_000, 299_800, 301_300]).is_some());
        // One of eight is far off, which noise can cause.
        assert_eq!(reason(&[300_000, 301_000, 299_000, 300_500, 299_500, 302_000, 298_000, 330_000]), None);
        // Two steps of the timer.
        assert_eq!(reason(&[500, 540]), None);
    }

    /// Two of three collections have no pattern of their own.
    #[test]
    fn trend_of_all_collections_is_a_pattern() {
        let rising = |scatter: i64| -> Vec<i64> {
            (0..15).map(|number| 100_000 + 300 * number + scatter * (number * 7 % 5 - 2)).collect()
        };
        let (steady, all) = (rising(1_000), [rising(300), rising(1_000), rising(1_000)]);
        assert!(pattern_reason(&all[0]).is_some() && pattern_reason(&steady).is_none());
        let by_collection: Vec<&[i64]> = all.iter().map(Vec::as_slice).collect();
        let pooled = |collections: &[&[i64]]| {
            let (cause, remarks) = RowPatterns::of_collections(collections).cause_and_remarks();
            let texts: Vec<String> = remarks.iter().map(ToString::to_string).collect();
            (cause.map(|cause| cause.to_string()), texts)
        };
        let (pattern, remarks) = pooled(&by_collection);
        assert_eq!(
            pattern.as_deref(),
            Some("the durations rose by 4.1 % over the launches, in 2 of 3 collections together")
        );
        assert_eq!(remarks, ["the durations rose by 4.1 % over the launches, in 1 of 3 collections"]);
        assert_eq!(pooled(&by_collection[1..2]), (None, Vec::new()));
        let (pattern, _) = pooled(&by_collection[1..]);
        assert!(pattern.is_some_and(|pattern| pattern.ends_with("in 2 collections together")));
        // The trend of one collection is not that of the others.
        let flat: Vec<i64> = (0..15).map(|number| 100_000 + 1_000 * (number * 7 % 5 - 2)).collect();
        let (pattern, remarks) = pooled(&[&all[0], &flat, &flat]);
        assert_eq!((pattern, remarks.len()), (None, 1));
        assert_eq!(pooled(&[]), (None, Vec::new()));
    }
}
