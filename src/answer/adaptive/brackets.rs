//! Brackets: the candidates between neighbouring rows of a line, and a smooth line through the rows. It is an interpolator beside that
//! of the lookups: where both differ, rows do not determine what is between them.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CandidateState {
    Open,
    /// Latency in microseconds.
    Measured(f64),
    Failed,
}

/// Candidates between two neighbouring measured ones of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LineBracket {
    pub(super) ends: [usize; 2],
    pub(super) inside: Vec<usize>,
}

/// Divides a line, whose candidates are in the order of positions, into brackets with open candidates.
pub(super) fn brackets_of_line(line: &[usize], states: &[CandidateState]) -> Vec<LineBracket> {
    let (mut brackets, mut low, mut inside) = (Vec::new(), None, Vec::new());
    for &candidate in line {
        match states[candidate] {
            CandidateState::Open => inside.push(candidate),
            CandidateState::Failed => {}
            CandidateState::Measured(_) => {
                let inside = std::mem::take(&mut inside);
                if let Some(low) = low.replace(candidate).filter(|_| !inside.is_empty()) {
                    brackets.push(LineBracket { ends: [low, candidate], inside });
                }
            }
        }
    }
    brackets
}

/// Failed candidates after which a line without a measured one is given up.
const MAX_FAILURES: usize = 4;

/// Returns the open candidates with which a line gets its ends: the first and the last one. Where these cannot be
/// measured, as with too little memory, the place from which on they can is searched by halves.
pub(super) fn open_ends(line: &[usize], states: &[CandidateState]) -> Vec<usize> {
    let is_failed = |candidate: &&usize| states[**candidate] == CandidateState::Failed;
    let measured = |candidate: &usize| matches!(states[*candidate], CandidateState::Measured(_));
    let mut ends: Vec<usize> = match (line.iter().position(measured), line.iter().rposition(measured)) {
        (Some(first), Some(last)) => {
            let after: Vec<usize> = line[last + 1..].iter().rev().copied().collect();
            [&line[..first], &after].into_iter().filter_map(|outside| end_outside(outside, states)).collect()
        }
        _ => match line.iter().filter(is_failed).count() {
            0 => line.first().into_iter().chain(line.last()).copied().collect(),
            1..=MAX_FAILURES => {
                let runs = line.split(|candidate| states[*candidate] != CandidateState::Open);
                runs.max_by_key(|run| run.len()).and_then(middle).into_iter().collect()
            }
            _ => Vec::new(),
        },
    };
    ends.dedup();
    ends
}

/// Returns the next end among candidates outside of the measured ones, outermost first.
fn end_outside(outside: &[usize], states: &[CandidateState]) -> Option<usize> {
    match outside.iter().rposition(|candidate| states[*candidate] == CandidateState::Failed) {
        None => outside.first().copied(),
        Some(failed) => middle(&outside[failed + 1..]),
    }
}

fn middle(candidates: &[usize]) -> Option<usize> {
    candidates.get(candidates.len() / 2).copied()
}

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
