//! Labels of samples far from the median. No sample is removed here; the caller decides.

use std::iter;

use super::summary::{median_of_sorted, twice_median_of_sorted};

/// Ratio of the standard deviation of a normal distribution to its median absolute deviation.
const MAD_TO_SIGMA: f64 = 1.4826;
/// Modified z-score beyond which a sample is a mild outlier (Iglewicz and Hoaglin).
const MILD: f64 = 3.5;
/// Modified z-score beyond which a sample is a severe outlier (hyperfine's level).
const SEVERE: f64 = 10.0;

/// Label of a sample by its distance from the median.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum OutlierKind {
    /// No outlier.
    None,
    /// Modified z-score above 3.5.
    Mild,
    /// Modified z-score above 10.
    Severe,
}

/// Fence beyond which samples are outliers, on both sides of the median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OutlierFence {
    /// Median of the samples, nanoseconds.
    pub median: f64,
    /// Robust standard deviation in nanoseconds: 1.4826 · max(MAD, half a timer step). With a MAD of 0, the next step
    /// of the timer would otherwise be an outlier.
    pub sigma: f64,
}

impl OutlierFence {
    /// Computes the fence of samples in any order; `None` without samples.
    ///
    /// `quantum_ns` is the step of the timer; below 1 it counts as 1, the unit of the samples.
    pub(crate) fn from_samples(samples: &[i64], quantum_ns: i64) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let twice = twice_median_of_sorted(&sorted)?;
        let mad = twice_median_of_sorted(&sorted_deviations(&sorted, twice))? as f64 / 4.0;
        let floor = quantum_ns.max(1) as f64 / 2.0;
        Some(Self { median: median_of_sorted(&sorted)?, sigma: MAD_TO_SIGMA * mad.max(floor) })
    }

    pub(crate) fn label_sample(&self, sample: i64) -> OutlierKind {
        let distance = (sample as f64 - self.median).abs();
        if distance > SEVERE * self.sigma {
            OutlierKind::Severe
        } else if distance > MILD * self.sigma {
            OutlierKind::Mild
        } else {
            OutlierKind::None
        }
    }
}

/// Returns the absolute deviations from a median, in ascending order. They are doubled like the median, so that one between two
/// samples stays whole. Deviations grow with the distance from the middle of the samples, so that two runs are merged.
fn sorted_deviations(sorted: &[i64], twice_median: i128) -> Vec<i128> {
    let deviation = |sample: &i64| (2 * i128::from(*sample) - twice_median).abs();
    let (below, above) = sorted.split_at(sorted.len() / 2);
    let mut below = below.iter().rev().map(deviation).peekable();
    let mut above = above.iter().map(deviation).peekable();
    let next = move || match (below.peek(), above.peek()) {
        (Some(low), Some(high)) if low <= high => below.next(),
        (Some(_), None) => below.next(),
        _ => above.next(),
    };
    let mut deviations = Vec::with_capacity(sorted.len());
    deviations.extend(iter::from_fn(next));
    deviations
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label_samples(samples: &[i64], quantum_ns: i64) -> Vec<OutlierKind> {
        let fence = OutlierFence::from_samples(samples, quantum_ns);
        fence
            .map_or_else(Vec::new, |fence| samples.iter().map(|&sample| fence.label_sample(sample)).collect())
    }

    /// The median by sorting floats, written without the functions under test.
    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
    }

    #[test]
    fn the_fences_stand_where_they_should() {
        // Median 10000 and MAD 1000, whatever the last sample: mild from 5189.1, severe from 14826.
        let last = |distance: i64| {
            [1, -1].map(|side| {
                let samples = [10_000 + side * distance, 10_000 - side * 2000, 9000, 10_000, 11_000];
                label_samples(&samples, 20)[0]
            })
        };
        assert_eq!(last(5189), [OutlierKind::None; 2]);
        assert_eq!(last(5190), [OutlierKind::Mild; 2]);
        assert_eq!(last(14_825), [OutlierKind::Mild; 2]);
        assert_eq!(last(14_827), [OutlierKind::Severe; 2]);
    }

    #[test]
    fn a_timer_that_repeats_itself_makes_no_outliers_of_its_steps() {
        // Half a step is 10, so sigma is 14.826: three steps are mild, eight are severe.
        let samples = [5000, 5000, 5000, 5000, 5000, 5000, 5020, 5040, 5060, 5160];
        let labels = label_samples(&samples, 20);
        assert_eq!(&labels[..8], [OutlierKind::None; 8]);
        assert_eq!(&labels[8..], [OutlierKind::Mild, OutlierKind::Severe]);
        for quantum in [i64::MIN, 0, 1] {
            assert_eq!(label_samples(&[5, 5, 5, 5, 7], quantum)[4], OutlierKind::None, "{quantum}");
            assert_eq!(label_samples(&[5, 5, 5, 5, 13], quantum)[4], OutlierKind::Severe, "{quantum}");
        }
    }

    #[test]
    fn empty_and_extreme_samples_have_labels() {
        assert_eq!(OutlierFence::from_samples(&[], 20), None);
        assert_eq!(label_samples(&[], 20), []);
        assert_eq!(label_samples(&[42], 20), [OutlierKind::None]);
        assert_eq!(label_samples(&[i64::MIN, i64::MAX], 20), [OutlierKind::None; 2]);
        assert_eq!(label_samples(&[0, 0, 0, i64::MAX, i64::MIN], i64::MAX), [OutlierKind::None; 5]);
    }

    proptest! {
        #[test]
        fn labels_follow_the_modified_z_score(samples in proptest::collection::vec(0_i64..3000, 1..30), quantum in 1_i64..200) {
            let centre = median(samples.iter().map(|&x| x as f64).collect());
            let mad = median(samples.iter().map(|&x| (x as f64 - centre).abs()).collect());
            for (&sample, label) in samples.iter().zip(label_samples(&samples, quantum)) {
                let z = (sample as f64 - centre).abs() / (1.4826 * mad.max(quantum as f64 / 2.0));
                // On the fence itself rounding decides.
                if (z - 3.5).abs() > 1e-9 && (z - 10.0).abs() > 1e-9 {
                    prop_assert_eq!(label, if z > 10.0 { OutlierKind::Severe } else if z > 3.5 { OutlierKind::Mild } else { OutlierKind::None });
                }
            }
        }
    }
}
