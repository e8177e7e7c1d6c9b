//! Straight lines of durations over sizes: t = α + β·S with α, β ≥ 0.
//!
//! Residuals count in relation to the duration: durations of a sweep differ by a factor of 10⁴, so that plain least squares
//! ignore small messages.

use statrs::distribution::{ContinuousCDF, StudentsT};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SizeDuration {
    /// S in bytes.
    pub(crate) bytes: f64,
    /// Duration in µs, above 0.
    pub(crate) micros: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LineFit {
    /// Latency in µs.
    pub(crate) alpha: f64,
    /// µs per byte.
    pub(crate) beta: f64,
    pub(crate) residual_squares: f64,
    points: usize,
    /// Inverse of the normal equations for α and β without bounds: variances by the variance of relative residuals.
    inverse: [f64; 3],
}

/// Least and greatest value of a 95 % interval.
pub(crate) type Interval = (f64, f64);

impl LineFit {
    /// Fits a line; `None` for fewer than two sizes, and for durations that are not above 0.
    pub(crate) fn from_points(points: &[SizeDuration]) -> Option<Self> {
        if points.iter().any(|point| !(point.micros > 0.0 && point.micros.is_finite() && point.bytes >= 0.0))
        {
            return None;
        }
        // Sizes are scaled so that the equations are balanced.
        let scale = points.iter().map(|point| point.bytes).fold(0.0, f64::max);
        let least = points.iter().map(|point| point.bytes).fold(f64::INFINITY, f64::min);
        if points.len() < 2 || least >= scale {
            return None;
        }
        // Rows 1/t and S/t with the target 1.
        let rows = points.iter().map(|point| (1.0 / point.micros, point.bytes / scale / point.micros));
        let [mut aa, mut ab, mut bb, mut a1, mut b1] = [0.0; 5];
        for (a, b) in rows.clone() {
            aa += a * a;
            ab += a * b;
            bb += b * b;
            a1 += a;
            b1 += b;
        }
        let determinant = aa * bb - ab * ab;
        if determinant <= 0.0 {
            return None;
        }
        let squares =
            |(alpha, beta): (f64, f64)| rows.clone().map(|(a, b)| (alpha * a + beta * b - 1.0).powi(2)).sum();
        let free = ((bb * a1 - ab * b1) / determinant, (aa * b1 - ab * a1) / determinant);
        let (alpha, beta) = match free.0 >= 0.0 && free.1 >= 0.0 {
            true => free,
            // The optimum is on the border.
            false => {
                let borders = [(0.0, b1 / bb), (a1 / aa, 0.0)];
                let [first, second]: [f64; 2] = borders.map(squares);
                borders[usize::from(second < first)]
            }
        };
        let inverse = [bb / determinant, -ab / determinant / scale, aa / determinant / scale / scale];
        let residual_squares = squares((alpha, beta));
        Some(Self { alpha, beta: beta / scale, residual_squares, points: points.len(), inverse })
    }

    pub(crate) fn micros(&self, bytes: f64) -> f64 {
        self.alpha + self.beta * bytes
    }

    pub(crate) fn relative_error(&self) -> f64 {
        (self.residual_squares / self.points as f64).sqrt()
    }

    /// Returns a value's 95 % interval by Student's t from the scatter of the points, for a variance without that scatter;
    /// `None` for two points, which have none.
    fn interval(&self, value: f64, variance: f64) -> Option<Interval> {
        let freedom = self.points.checked_sub(2).filter(|freedom| *freedom > 0)? as f64;
        let quantile = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975);
        let half = quantile * (self.residual_squares / freedom * variance.max(0.0)).sqrt();
        Some(((value - half).max(0.0), value + half))
    }

    /// In µs.
    pub(crate) fn alpha_interval(&self) -> Option<Interval> {
        self.interval(self.alpha, self.inverse[0])
    }

    /// In µs per byte.
    pub(crate) fn beta_interval(&self) -> Option<Interval> {
        self.interval(self.beta, self.inverse[2])
    }

    pub(crate) fn interval_at(&self, bytes: f64) -> Option<Interval> {
        let [aa, ab, bb] = self.inverse;
        self.interval(self.micros(bytes), aa + 2.0 * bytes * ab + bytes * bytes * bb)
    }

    /// Returns the bandwidth of large messages in 10⁹ bytes per second; `None` if the time does not depend on the size.
    pub(crate) fn gigabytes_per_second(&self) -> Option<f64> {
        (self.beta > 0.0).then(|| 1e-3 / self.beta)
    }

    /// Returns the interval of the bandwidth. Its upper end is infinite if the time per byte may be 0.
    pub(crate) fn bandwidth_interval(&self) -> Option<Interval> {
        let (low, high) = self.beta_interval()?;
        (high > 0.0).then(|| (1e-3 / high, if low > 0.0 { 1e-3 / low } else { f64::INFINITY }))
    }

    /// Returns the size of which half the time is latency, in bytes.
    pub(crate) fn half_bandwidth_bytes(&self) -> Option<f64> {
        (self.beta > 0.0).then(|| self.alpha / self.beta)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(alpha: f64, beta: f64, noise: impl Fn(usize) -> f64) -> Vec<SizeDuration> {
        (0..12)
            .map(|index| {
                let bytes = 1024.0 * f64::from(1 << index);
                SizeDuration { bytes, micros: (alpha + beta * bytes) * (1.0 + noise(index)) }
            })
            .collect()
    }

    #[test]
    fn exact_lines_are_recovered() {
        let fit = LineFit::from_points(&points(12.0, 1e-3 / 70.0, |_| 0.0)).expect("a line");
        assert!((fit.alpha - 12.0).abs() < 1e-9 && (fit.beta / (1e-3 / 70.0) - 1.0).abs() < 1e-9, "{fit:?}");
        assert!((fit.gigabytes_per_second().expect("a slope") - 70.0).abs() < 1e-6);
        assert!((fit.half_bandwidth_bytes().expect("a slope") / 840_000.0 - 1.0).abs() < 1e-6);
        assert!(fit.relative_error() < 1e-12);
    }

    /// Plain least squares give the latency of the largest message's noise (row 41 of the known defects).
    #[test]
    fn small_messages_count_as_much_as_large_ones() {
        let noisy = points(12.0, 1e-3 / 2.0, |index| if index == 11 { 0.05 } else { 0.0 });
        let fit = LineFit::from_points(&noisy).expect("a line");
        assert!((fit.alpha / 12.0 - 1.0).abs() < 0.05, "{fit:?}");
        let sums = noisy.iter().fold([0.0; 4], |[x, y, xx, xy], point| {
            let (size, time) = (point.bytes, point.micros);
            [x + size, y + time, xx + size * size, xy + size * time]
        });
        let [x, y, xx, xy] = sums;
        let plain = (y * xx - x * xy) / (12.0 * xx - x * x);
        assert!((plain / 12.0 - 1.0).abs() > 0.1, "plain least squares: {plain}");
    }

    #[test]
    fn parameters_are_not_negative() {
        let falling: Vec<SizeDuration> = [(1.0, 10.0), (2.0, 9.0), (4.0, 8.0)]
            .map(|(bytes, micros)| SizeDuration { bytes, micros })
            .to_vec();
        let fit = LineFit::from_points(&falling).expect("a line");
        assert!(fit.beta == 0.0 && fit.alpha > 8.0 && fit.alpha < 10.0, "{fit:?}");
        assert_eq!(fit.gigabytes_per_second(), None);
        let steep: Vec<SizeDuration> = [(1.0, 1.0), (2.0, 3.0), (4.0, 8.0)]
            .map(|(bytes, micros)| SizeDuration { bytes, micros })
            .to_vec();
        let fit = LineFit::from_points(&steep).expect("a line");
        assert!(fit.alpha == 0.0 && fit.beta > 1.0, "{fit:?}");
        assert_eq!(fit.alpha_interval().expect("three points").0, 0.0);
    }

    #[test]
    fn unusable_points_have_no_line() {
        let point = |bytes, micros| SizeDuration { bytes, micros };
        assert_eq!(LineFit::from_points(&[]), None);
        assert_eq!(LineFit::from_points(&[point(1.0, 1.0)]), None);
        assert_eq!(LineFit::from_points(&[point(8.0, 1.0), point(8.0, 2.0)]), None);
        assert_eq!(LineFit::from_points(&[point(1.0, 0.0), point(2.0, 1.0)]), None);
        assert_eq!(LineFit::from_points(&[point(1.0, f64::NAN), point(2.0, 1.0)]), None);
        let two = LineFit::from_points(&[point(1.0, 1.0), point(2.0, 2.0)]).expect("a line");
        assert_eq!(two.alpha_interval(), None, "two points have no scatter");
    }

    /// Simulated: intervals of 200 lines with 2 % noise hold the truth as often as they state.
    #[test]
    fn intervals_hold_the_truth_in_about_95_of_100_lines() {
        let mut held = [0, 0];
        for seed in 0..200_u64 {
            let noise = |index: usize| {
                0.02 * crate::base::stats::normal_deviate(crate::base::stats::hash_numbers(&[
                    seed,
                    index as u64,
                ]))
            };
            let fit = LineFit::from_points(&points(12.0, 1e-3 / 20.0, noise)).expect("a line");
            let within = |interval: Option<Interval>, truth: f64| {
                interval.is_some_and(|(low, high)| low <= truth && truth <= high)
            };
            held[0] += i32::from(within(fit.alpha_interval(), 12.0));
            held[1] += i32::from(within(fit.bandwidth_interval(), 20.0));
        }
        assert!(held.iter().all(|count| (180..=199).contains(count)), "{held:?}");
    }

    proptest! {
        #[test]
        fn no_other_line_with_these_bounds_fits_better(
            times in proptest::collection::vec(0.5_f64..50.0, 3..8),
            alpha in 0.0_f64..50.0,
            beta in 0.0_f64..20.0,
        ) {
            let points: Vec<SizeDuration> = times
                .iter()
                .zip(1..)
                .map(|(micros, bytes)| SizeDuration { bytes: f64::from(bytes), micros: *micros })
                .collect();
            let fit = LineFit::from_points(&points).expect("a line");
            prop_assert!(fit.alpha >= 0.0 && fit.beta >= 0.0);
            let other: f64 = points
                .iter()
                .map(|point| ((alpha + beta * point.bytes) / point.micros - 1.0).powi(2))
                .sum();
            prop_assert!(fit.residual_squares <= other + 1e-9, "{fit:?} {other}");
        }
    }
}
