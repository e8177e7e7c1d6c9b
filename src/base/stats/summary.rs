//! Summary statistics of samples, from exact integer sums.

/// Summary of samples; all values except the count in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleSummary {
    /// Number of samples, at least 1.
    pub count: usize,
    pub mean: f64,
    /// Median; for an even count the mean of the middle two.
    pub median: f64,
    /// Sample standard deviation (divisor `count - 1`); `None` for a single sample.
    pub std: Option<f64>,
    pub min: f64,
    pub max: f64,
    /// 95th percentile, linearly interpolated (type 7 of Hyndman and Fan, numpy's default).
    pub p95: f64,
}

impl SampleSummary {
    /// Summarises samples, which are sorted in place; `None` without samples.
    pub fn from_samples(samples: &mut [i64]) -> Option<Self> {
        samples.sort_unstable();
        let (&min, &max) = (samples.first()?, samples.last()?);
        Some(Self {
            count: samples.len(),
            mean: mean_of(samples)?,
            median: median_of_sorted(samples)?,
            std: std_of(samples),
            min: min as f64,
            max: max as f64,
            p95: quantile_of_sorted(samples, 950)?,
        })
    }
}

/// Returns the arithmetic mean, rounded once from the exact quotient; `None` without samples.
pub(super) fn mean_of(samples: &[i64]) -> Option<f64> {
    let sum: i128 = samples.iter().copied().map(i128::from).sum();
    (!samples.is_empty()).then(|| rounded_quotient(sum, samples.len() as u64))
}

pub(crate) fn median_of_sorted(sorted: &[i64]) -> Option<f64> {
    twice_median_of_sorted(sorted).map(|twice| rounded_quotient(twice, 2))
}

pub(crate) fn median(samples: impl IntoIterator<Item = i64>) -> Option<f64> {
    let mut sorted: Vec<i64> = samples.into_iter().collect();
    sorted.sort_unstable();
    median_of_sorted(&sorted)
}

pub(super) fn twice_median_of_sorted<T: Copy + Into<i128> + PartialOrd>(sorted: &[T]) -> Option<i128> {
    debug_assert!(sorted.is_sorted(), "the caller sorts");
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((*low).into() + (*high).into())
}

/// Returns the type-7 quantile at `permille` thousandths of values in ascending order, rounded once.
pub(super) fn quantile_of_sorted<T: Copy + Into<i128>>(sorted: &[T], permille: usize) -> Option<f64> {
    let position = sorted.len().checked_sub(1)? * permille;
    let (index, part) = (position / 1000, position % 1000);
    let low: i128 = (*sorted.get(index)?).into();
    // At the last value no interpolation is needed.
    let high: i128 = sorted.get(index + 1).map_or(low, |&value| value.into());
    Some(rounded_quotient(1000 * low + part as i128 * (high - low), 1000))
}

fn std_of(samples: &[i64]) -> Option<f64> {
    let count = samples.len() as u64;
    let degrees = count.checked_sub(2)? + 1;
    let sum: i128 = samples.iter().copied().map(i128::from).sum();
    // Deviations from the integer below the mean are small, so that their squares fit, and exact, so that the
    // subtraction below loses no precision.
    let centre = sum.div_euclid(i128::from(count));
    let rest = sum.rem_euclid(i128::from(count)).unsigned_abs();
    let deviations = samples.iter().map(|&sample| (i128::from(sample) - centre).unsigned_abs());
    let squares = deviations.clone().try_fold(0_u128, |total, d| total.checked_add(d.checked_mul(d)?));
    let exact = squares.and_then(|squares| {
        let numerator = squares.checked_mul(count.into())? - rest * rest;
        Some(rounded_quotient(i128::try_from(numerator).ok()?, count.checked_mul(degrees)?))
    });
    let variance = exact.unwrap_or_else(|| {
        // Samples centuries apart overflow 128 bits; the fraction of a nanosecond between centre and mean is then far
        // below the last digit, and floats are precise enough.
        deviations.map(|d| (d as f64) * (d as f64)).sum::<f64>() / degrees as f64
    });
    Some(variance.sqrt())
}

/// Returns the quotient, rounded once to the nearest float, ties to even.
///
/// A division of two floats rounds up to three times if one of them does not fit 53 bits.
fn rounded_quotient(numerator: i128, denominator: u64) -> f64 {
    let magnitude = numerator.unsigned_abs();
    let shift = magnitude.leading_zeros().min(127);
    let scaled = magnitude << shift;
    let divisor = u128::from(denominator);
    // At least 64 bits remain. A sticky last bit for the remainder keeps a quotient above a tie from being rounded as a
    // tie; the division by the power of two is exact.
    let whole = (scaled / divisor) | u128::from(!scaled.is_multiple_of(divisor));
    let value = whole as f64 / (1_u128 << shift) as f64;
    if numerator < 0 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(samples: &[i64]) -> SampleSummary {
        SampleSummary::from_samples(&mut samples.to_vec()).expect("samples")
    }

    /// Textbook formula in floats: mean, then squared deviations.
    fn naive_std(samples: &[i64]) -> f64 {
        let count = samples.len() as f64;
        let mean = samples.iter().map(|&x| x as f64).sum::<f64>() / count;
        let squares = samples.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>();
        (squares / (count - 1.0)).sqrt()
    }

    #[test]
    fn summary_matches_a_manual_calculation() {
        // Sum 40; squared deviations sum to 32; place 0.95·7 = 6.65 lies between 7 and 9.
        let mut samples = [9, 2, 4, 4, 5, 4, 7, 5];
        let summary = SampleSummary::from_samples(&mut samples).expect("samples");
        assert_eq!(samples, [2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((summary.count, summary.mean, summary.median), (8, 5.0, 4.5));
        assert_eq!((summary.min, summary.max, summary.p95), (2.0, 9.0, 8.3));
        assert_eq!(summary.std, Some((32.0_f64 / 7.0).sqrt()));
    }

    #[test]
    fn missing_statistics_of_few_samples_are_none() {
        assert_eq!(SampleSummary::from_samples(&mut []), None);
        assert_eq!((mean_of(&[]), median_of_sorted(&[])), (None, None));
        let one = of(&[7]);
        assert_eq!((one.mean, one.median, one.p95, one.std), (7.0, 7.0, 7.0, None));
        assert_eq!(of(&[1, 2]).std, Some(0.5_f64.sqrt()));
        assert_eq!(of(&[3, 3, 3]).std, Some(0.0));
    }

    #[test]
    fn large_samples_neither_cancel_nor_overflow() {
        // At 2^60 a float steps by 256: a spread of 1 vanishes in any sum of float squares.
        let base = 1_i64 << 60;
        assert_eq!(of(&[base, base + 1, base + 2]).std, Some(1.0));
        let extreme = of(&[i64::MIN, i64::MAX]);
        assert_eq!((extreme.mean, extreme.median), (-0.5, -0.5));
        assert_eq!(extreme.std, Some(2.0_f64.powi(127).sqrt()));
        assert_eq!(of(&[i64::MAX; 9]).mean, 2.0_f64.powi(63));
    }

    #[test]
    fn quotients_are_rounded_once() {
        // 2^53 + 1 is a tie as a float; a third beyond it is not, and goes up.
        let tie = (1_i128 << 53) + 1;
        assert_eq!(rounded_quotient(tie, 1), 2.0_f64.powi(53));
        assert_eq!(rounded_quotient(3 * tie + 1, 3), 2.0_f64.powi(53) + 2.0);
        assert_eq!(rounded_quotient(-(3 * tie + 1), 3), -2.0_f64.powi(53) - 2.0);
        assert_eq!(rounded_quotient(0, 7), 0.0);
        // Here only the remainder decides, beyond the bits of the quotient.
        let divisor = (1_u64 << 40) - 1;
        let tied = i128::from(divisor) * (tie << 27);
        assert_eq!(rounded_quotient(tied, divisor), 2.0_f64.powi(80));
        assert_eq!(rounded_quotient(tied + 1, divisor), 2.0_f64.powi(80) + 2.0_f64.powi(28));
    }

    proptest! {
        #[test]
        fn small_quotients_equal_float_division(n in -(1_i64 << 53)..(1 << 53), d in 1_u64..1 << 53) {
            prop_assert_eq!(rounded_quotient(n.into(), d), n as f64 / d as f64);
        }

        #[test]
        fn large_quotients_lie_within_half_a_step(n in any::<i64>(), scale in 1_i64.., d in 1_u64..1 << 30) {
            let numerator = i128::from(n) * i128::from(scale >> 8);
            let value = rounded_quotient(numerator, d);
            // Exact where the value is whole, which it is from 2^53 on.
            prop_assume!(value.abs() >= 2.0_f64.powi(54));
            let step = value.abs().next_up() - value.abs();
            let off = (numerator - value as i128 * i128::from(d)).unsigned_abs();
            prop_assert!(2 * off <= step as u128 * u128::from(d));
        }

        #[test]
        fn std_matches_the_textbook_formula(samples in proptest::collection::vec(0_i64..10_000_000, 2..60)) {
            let (std, naive) = (of(&samples).std.expect("two"), naive_std(&samples));
            prop_assert!((std - naive).abs() <= 1e-9 * naive.max(1.0), "{std} {naive}");
        }

        #[test]
        fn percentile_matches_its_definition(mut samples in proptest::collection::vec(0_i64..1 << 30, 1..200)) {
            let p95 = of(&samples).p95;
            samples.sort_unstable();
            let place = (samples.len() - 1) as f64 * 0.95;
            let (low, high) = (samples[place.floor() as usize] as f64, samples[place.ceil() as usize] as f64);
            prop_assert!((p95 - (low + (high - low) * place.fract())).abs() < 1e-3);
        }
    }
}
