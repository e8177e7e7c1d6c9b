//! A smooth line through the rows of a line of candidates, an interpolator beside that of the lookups: where both differ,
//! rows do not determine what is between them.

/// Row with its position and the logarithm of its latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinePoint {
    pub(super) position: f64,
    pub(super) log_latency: f64,
}

impl LinePoint {
    fn slope_to(self, other: Self) -> f64 {
        (other.log_latency - self.log_latency) / (other.position - self.position)
    }
}

/// Returns the logarithm of the latency at a position between `low` and `high` by the monotone cubic of Fritsch and Butland (SIAM
/// J. Sci. Stat. Comput. 5, 1984): at each row the slope is the weighted harmonic mean of those on both sides, 0 at an extremum, at the
/// ends of the line that of the bracket.
pub(super) fn monotone_cubic(
    before: Option<LinePoint>,
    [low, high]: [LinePoint; 2],
    after: Option<LinePoint>,
    position: f64,
) -> f64 {
    let width = high.position - low.position;
    let slope = low.slope_to(high);
    let at_low = before.map_or(slope, |before| {
        mean_slope((before.slope_to(low), low.position - before.position), (slope, width))
    });
    let at_high = after.map_or(slope, |after| {
        mean_slope((slope, width), (high.slope_to(after), after.position - high.position))
    });
    let share = (position - low.position) / width;
    let rest = 1.0 - share;
    rest * rest * (1.0 + 2.0 * share) * low.log_latency
        + share * share * (1.0 + 2.0 * rest) * high.log_latency
        + width * share * rest * (rest * at_low - share * at_high)
}

/// Returns the weighted harmonic mean of the slopes of two neighbouring brackets with their widths, 0 if their signs differ.
fn mean_slope((left, left_width): (f64, f64), (right, right_width): (f64, f64)) -> f64 {
    if left * right <= 0.0 {
        return 0.0;
    }
    let share = (left_width + 2.0 * right_width) / (3.0 * (left_width + right_width));
    left * right / (share * right + (1.0 - share) * left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(position: f64, log_latency: f64) -> LinePoint {
        LinePoint { position, log_latency }
    }

    #[test]
    fn straight_lines_are_reproduced_and_ends_are_met() {
        let line = |position: f64| point(position, 3.0 * position - 1.0);
        let found = monotone_cubic(Some(line(0.0)), [line(1.0), line(3.0)], Some(line(4.0)), 2.2);
        assert!((found - 5.6).abs() < 1e-12, "{found}");
        let alone = monotone_cubic(None, [line(1.0), line(3.0)], None, 1.5);
        assert!((alone - 3.5).abs() < 1e-12, "{alone}");
        for (position, log_latency) in [(1.0, 0.5), (2.0, 4.0)] {
            let found = monotone_cubic(
                Some(point(0.0, 0.0)),
                [point(1.0, 0.5), point(2.0, 4.0)],
                Some(point(5.0, 4.1)),
                position,
            );
            assert!((found - log_latency).abs() < 1e-12);
        }
    }

    /// Values by scipy.interpolate.PchipInterpolator([0, 1, 2, 4], [0, 1, 4, 5]) at 1.25, 1.5 and 1.75.
    #[test]
    fn values_equal_those_of_scipy() {
        let values =
            [(1.25, 1.636_045_258_620_689_7), (1.5, 2.571_120_689_655_172_4), (1.75, 3.470_635_775_862_069)];
        for (position, expected) in values {
            let found = monotone_cubic(
                Some(point(0.0, 0.0)),
                [point(1.0, 1.0), point(2.0, 4.0)],
                Some(point(4.0, 5.0)),
                position,
            );
            assert!((found - expected).abs() < 1e-9, "{position}: {found}");
        }
    }

    /// A step has no overshoot.
    #[test]
    fn interpolation_stays_between_the_ends() {
        for position in [1.1, 1.5, 1.9] {
            let found = monotone_cubic(
                Some(point(0.0, 1.0)),
                [point(1.0, 1.0), point(2.0, 2.0)],
                Some(point(3.0, 2.0)),
                position,
            );
            assert!((1.0..=2.0).contains(&found));
        }
    }
}
