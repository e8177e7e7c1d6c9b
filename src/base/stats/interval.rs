//! Confidence intervals of the median by ranks: no assumption about the distribution.
//!
//! They are valid for independent samples. Launches of one collection share its offset, for which the interval is too
//! narrow; `bootstrap` is for several collections.

/// Relative excess over the limit at which a tail still counts as equal to it. Otherwise rounding would decide about a
/// tail that equals the limit exactly (confidences such as 1 - 2/64).
const SLACK: f64 = 1e-12;

/// Returns the ranks, from 1, between which the median lies at this confidence: the largest `l` with
/// P(B < l) ≤ (1 - confidence) / 2 for B from Binomial(count, 1/2), and `count - l + 1`.
///
/// `None` if the extremes do not reach the confidence (at 95 %: below 6 samples), or the confidence is not between 0
/// and 1.
pub(super) fn rank_interval(count: usize, confidence: f64) -> Option<(usize, usize)> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    // Weights proportional to P(B = k), from the centre down to the smallest normal float: about 19·√count terms of
    // one multiplication and one division each. The incomplete beta function of a library would use logarithms that
    // differ between platforms.
    let middle = count / 2;
    let next = |&(rank, weight): &(usize, f64)| {
        let below: usize = rank.checked_sub(1)?;
        let smaller = weight * rank as f64 / (count - below) as f64;
        smaller.is_normal().then_some((below, smaller))
    };
    let weights: Vec<(usize, f64)> = std::iter::successors(Some((middle, 1.0)), next).collect();
    // Smallest first, so that the tail keeps its digits.
    let half: f64 = weights.iter().rev().map(|(_, weight)| weight).sum();
    let total = if count.is_multiple_of(2) { 2.0 * half - 1.0 } else { 2.0 * half };
    let limit = (1.0 - confidence) / 2.0 * total * (1.0 + SLACK);
    let mut tail = 0.0;
    let reaches = |&&(_, weight): &&(usize, f64)| {
        tail += weight;
        tail > limit
    };
    // The first rank whose cumulative weight exceeds the limit.
    let low = weights.iter().rev().find(reaches).map_or(middle + 1, |&(rank, _)| rank);
    (low > 0).then(|| (low, count - low + 1))
}

/// Returns the samples at the ranks of [`rank_interval`]; `sorted` is in ascending order.
pub(crate) fn median_interval(sorted: &[i64], confidence: f64) -> Option<(i64, i64)> {
    debug_assert!(sorted.is_sorted(), "the caller sorts");
    let (low, high) = rank_interval(sorted.len(), confidence)?;
    Some((*sorted.get(low - 1)?, *sorted.get(high - 1)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Binomial coefficients of one row by Pascal's triangle.
    fn pascal(count: usize) -> Vec<u128> {
        (0..count).fold(vec![1], |row, _| {
            let inner = row.windows(2).map(|pair| pair[0] + pair[1]);
            std::iter::once(1).chain(inner).chain(std::iter::once(1)).collect()
        })
    }

    /// Computes the ranks by definition and in whole numbers, for a tail of `part` 2^20ths on each side.
    fn brute(count: usize, part: u128) -> Option<(usize, usize)> {
        let row = pascal(count);
        let fits = |low: &usize| row[..*low].iter().sum::<u128>() << 20 <= part << count;
        let low = (1..=count.div_ceil(2)).rev().find(fits)?;
        Some((low, count - low + 1))
    }

    #[test]
    fn ranks_match_the_published_table() {
        let table = [
            (6, 1, 6),
            (8, 1, 8),
            (10, 2, 9),
            (15, 4, 12),
            (20, 6, 15),
            (30, 10, 21),
            (50, 18, 33),
            (100, 40, 61),
        ];
        for (count, low, high) in table {
            assert_eq!(rank_interval(count, 0.95), Some((low, high)), "{count}");
        }
        for count in 0..6 {
            assert_eq!(rank_interval(count, 0.95), None, "{count}");
        }
    }

    #[test]
    fn ranks_match_exact_integer_sums() {
        // Tails in 2^20ths: exact floats, so that ties are ties on both sides. 2^15 of them is a
        // tail of 1/32, which 5 samples hit exactly.
        for part in [1_u128, 1 << 13, 26_214, 1 << 15, 52_428, 1 << 17, 1 << 18, (1 << 19) - 1] {
            let confidence = 1.0 - part as f64 / f64::from(1 << 19);
            for count in 0..=60 {
                assert_eq!(rank_interval(count, confidence), brute(count, part), "{count} at {confidence}");
            }
        }
    }

    #[test]
    fn many_samples_follow_the_normal_approximation() {
        // (n - z·√n)/2 with z = 1.959964; off by one rank at most.
        for count in [10_000_usize, 99_999, 100_000, 10_000_000] {
            let (low, high) = rank_interval(count, 0.95).expect("ranks");
            let normal = (count as f64 - 1.959_964 * (count as f64).sqrt()) / 2.0;
            assert!((low as f64 - normal).abs() <= 1.0, "{count}: {low} against {normal}");
            assert_eq!(low + high, count + 1);
        }
    }

    #[test]
    fn confidence_outside_0_to_1_has_no_interval() {
        for confidence in [0.0, 1.0, -0.5, 95.0, f64::NAN] {
            assert_eq!(rank_interval(100, confidence), None, "{confidence}");
        }
        assert_eq!(rank_interval(7, 1e-17), Some((4, 4)));
        assert_eq!(rank_interval(8, 1e-17), Some((4, 5)));
    }

    proptest! {
        #[test]
        fn higher_confidence_is_never_narrower(count in 10_usize..3000, a in 0.01..0.99, b in 0.01..0.99) {
            let (less, more) = if a < b { (a, b) } else { (b, a) };
            let (inner, outer) = (rank_interval(count, less).expect("l"), rank_interval(count, more).expect("m"));
            prop_assert!(outer.0 <= inner.0 && inner.1 <= outer.1);
        }
    }
}
