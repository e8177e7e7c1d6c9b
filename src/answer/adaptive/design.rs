//! Choice of the next candidates, and the estimate of the error from hold-outs.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::{
    answer::lookup::{AnswerSource, LookupEngine, OpQuery, Padding},
    base::{command_error::CommandError, stats::SplitMix64},
};

const RANDOM_SHARE: f64 = 0.1;
/// Maximum factor between expected errors and errors of hold-outs, in either direction.
const MAX_CORRECTION: f64 = 5.0;
const MIN_FOR_CORRECTION: usize = 20;

#[derive(Clone, Debug)]
pub struct AdaptiveCandidate {
    /// Question that it answers exactly.
    pub query: OpQuery,
    /// Candidates of one line differ along one axis only, that which lookups interpolate first.
    pub line: u64,
    /// Share of the questions that it stands for, relative to others.
    pub weight: f64,
    /// Position along this axis, such as the logarithm of a number of tokens.
    pub position: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct AdaptiveOptions {
    /// Wanted 90th percentile of the errors, as the absolute logarithm of a ratio.
    pub target: f64,
    pub batch: usize,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChoiceReason {
    /// The end of a line, beyond which nothing is answered.
    LineEnd,
    WorstBracket(f64),
    HoldOut,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChosenCandidate {
    pub candidate: usize,
    pub reason: ChoiceReason,
    /// Latency in microseconds that lookups answer before it is measured; `None` without an answer.
    pub predicted: Option<f64>,
    /// Error that is expected in its bracket; `None` for the end of a line.
    expected: Option<f64>,
}

/// Candidate chosen at random, with its error once it is measured.
#[derive(Clone, Copy, Debug)]
struct HoldOut {
    error: f64,
    expected: Option<f64>,
}

#[derive(Debug)]
pub struct AdaptiveDesign {
    pub candidates: Vec<AdaptiveCandidate>,
    options: AdaptiveOptions,
    /// Candidates of each line in the order of positions; the lines in random order.
    lines: Vec<Vec<usize>>,
    states: Vec<CandidateState>,
    hold_outs: Vec<HoldOut>,
    pending: BTreeMap<usize, ChosenCandidate>,
    random: SplitMix64,
}

impl AdaptiveDesign {
    /// Creates a design without measurements. Equal inputs have equal choices.
    pub fn new(candidates: Vec<AdaptiveCandidate>, options: AdaptiveOptions) -> Self {
        let mut random = SplitMix64::new(options.seed);
        let mut by_line: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, candidate) in candidates.iter().enumerate() {
            by_line.entry(candidate.line).or_default().push(index);
        }
        let mut lines: Vec<Vec<usize>> = by_line.into_values().collect();
        for line in &mut lines {
            line.sort_by(|&one, &other| candidates[one].position.total_cmp(&candidates[other].position));
        }
        shuffle(&mut lines, &mut random);
        Self {
            states: vec![CandidateState::Open; candidates.len()],
            candidates,
            options,
            lines,
            hold_outs: Vec::new(),
            pending: BTreeMap::new(),
            random,
        }
    }

    /// Records the latency of a candidate in microseconds; `None` if it cannot be measured.
    pub fn record(&mut self, candidate: usize, latency: Option<f64>) {
        let latency = latency.filter(|latency| *latency > 0.0);
        self.states[candidate] = latency.map_or(CandidateState::Failed, CandidateState::Measured);
        if let Some(chosen) = self.pending.remove(&candidate)
            && let (ChoiceReason::HoldOut, Some(latency)) = (chosen.reason, latency)
        {
            let (error, expected) = (log_error(chosen.predicted, latency), chosen.expected);
            self.hold_outs.push(HoldOut { error, expected });
        }
    }

    /// Returns the errors of the hold-outs of the estimate, as absolute logarithms of ratios.
    pub fn hold_out_errors(&self) -> Vec<f64> {
        self.last_hold_outs().iter().map(|hold_out| hold_out.error).collect()
    }

    /// Adds the errors of hold-outs of an earlier design of the same candidates.
    pub fn add_hold_outs(&mut self, errors: &[f64]) {
        self.hold_outs.extend(errors.iter().map(|&error| HoldOut { error, expected: None }));
    }

    fn last_hold_outs(&self) -> &[HoldOut] {
        &self.hold_outs[self.hold_outs.len().saturating_sub(HOLD_OUTS)..]
    }

    pub fn measured(&self) -> usize {
        self.states.iter().filter(|state| state.latency().is_some()).count()
    }

    /// Returns the estimate of the error; `None` with too few hold-outs.
    pub fn estimate(&self) -> Option<ErrorEstimate> {
        let errors = self.hold_out_errors();
        let has_more = || self.lines.iter().any(|line| !brackets_of_line(line, &self.states).is_empty());
        if errors.len() < HOLD_OUTS && has_more() {
            return None;
        }
        ErrorEstimate::from_errors(&errors)
    }

    pub fn is_met(&self) -> bool {
        self.estimate().is_some_and(|estimate| estimate.p90 <= self.options.target)
    }

    /// Chooses the next candidates, at most as many as a batch has; none if all are measured or failed. `engine` has
    /// the rows of all recorded candidates.
    pub fn next_batch(&mut self, engine: &mut LookupEngine) -> Result<Vec<ChosenCandidate>, CommandError> {
        let ends = self.lines.iter().flat_map(|line| open_ends(line, &self.states));
        let reason = ChoiceReason::LineEnd;
        let ends =
            ends.map(|candidate| ChosenCandidate { candidate, reason, predicted: None, expected: None });
        let mut batch: Vec<ChosenCandidate> = ends.take(self.options.batch).collect();
        if batch.is_empty() {
            let rated = self.rate_brackets(engine)?;
            let random = match self.is_to_be_verified(&rated) {
                true => self.options.batch,
                false => ((self.options.batch as f64 * RANDOM_SHARE).ceil() as usize).max(1),
            };
            batch = self.choose_hold_outs(&rated, random);
            self.divide_brackets(rated, self.options.batch.saturating_sub(random), &mut batch);
        }
        for chosen in &mut batch {
            let answer = engine.lookup(&self.candidates[chosen.candidate].query)?;
            chosen.predicted = answer.latency.map(|latency| latency.0);
            self.pending.insert(chosen.candidate, *chosen);
        }
        Ok(batch)
    }

    /// Returns true if the expected errors, corrected by the errors of the last hold-outs, are at most the target.
    fn is_to_be_verified(&self, rated: &[LineBracket]) -> bool {
        let mut expected: Vec<(f64, f64)> =
            rated.iter().map(|rated| (rated.error, self.weight_of(rated))).collect();
        let last = self.last_hold_outs();
        let mut errors: Vec<(f64, f64)> = last.iter().map(|hold_out| (hold_out.error, 1.0)).collect();
        let mut before: Vec<(f64, f64)> =
            last.iter().filter_map(|hold_out| Some((hold_out.expected?, 1.0))).collect();
        let correction = match (weighted_quantile(&mut errors), weighted_quantile(&mut before)) {
            (Some(found), Some(expected)) if last.len() >= MIN_FOR_CORRECTION && expected > 0.0 => {
                (found / expected).clamp(1.0 / MAX_CORRECTION, MAX_CORRECTION)
            }
            _ => 1.0,
        };
        weighted_quantile(&mut expected).is_none_or(|expected| expected * correction <= self.options.target)
    }

    /// Returns random candidates between the ends of their lines: beyond them nothing can be measured.
    fn choose_hold_outs(&mut self, rated: &[LineBracket], count: usize) -> Vec<ChosenCandidate> {
        let mut open: Vec<(f64, ChosenCandidate)> = Vec::new();
        for LineBracket { inside, error, .. } in rated {
            let (reason, expected) = (ChoiceReason::HoldOut, Some(*error));
            for &candidate in inside {
                // The least of exponential variables with these rates is each one with a probability in proportion to
                // its weight (Efraimidis and Spirakis, 2006).
                let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                let key = -(1.0 - uniform).ln() / self.candidates[candidate].weight;
                open.push((key, ChosenCandidate { candidate, reason, predicted: None, expected }));
            }
        }
        open.sort_by(|one, other| one.0.total_cmp(&other.0));
        open.into_iter().take(count).map(|(_, chosen)| chosen).collect()
    }

    fn divide_brackets(&self, mut rated: Vec<LineBracket>, count: usize, chosen: &mut Vec<ChosenCandidate>) {
        let gain = |rated: &LineBracket| {
            let excess = if rated.error > self.options.target { 1.0 } else { 1e-3 };
            excess * rated.error.min(1.0) * self.weight_of(rated)
        };
        rated.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
        let known: BTreeSet<usize> = chosen.iter().map(|chosen| chosen.candidate).collect();
        let middles = rated.into_iter().filter_map(|rated| {
            let inside: Vec<usize> =
                rated.inside.iter().copied().filter(|inside| !known.contains(inside)).collect();
            let candidate = self.middle_of(rated.ends, &inside)?;
            let (reason, expected) = (ChoiceReason::WorstBracket(rated.error), Some(rated.error));
            Some(ChosenCandidate { candidate, reason, predicted: None, expected })
        });
        chosen.extend(middles.take(count));
    }

    fn weight_of(&self, bracket: &LineBracket) -> f64 {
        bracket.inside.iter().map(|&index| self.candidates[index].weight).sum()
    }

    fn middle_of(&self, ends: [usize; 2], inside: &[usize]) -> Option<usize> {
        let [low, high] = ends.map(|end| self.candidates[end].position);
        let distance = |index: usize| (self.candidates[index].position - f64::midpoint(low, high)).abs();
        inside.iter().copied().min_by(|&one, &other| distance(one).total_cmp(&distance(other)))
    }

    /// Returns all brackets with their expected errors: the greatest of those with which the rows at its ends are
    /// answered from the others, and of the difference of the answer in its middle from a smooth line through the rows; but at
    /// most the ratio of the latencies at its ends. The first and the last row of a line have no answer without themselves.
    fn rate_brackets(&self, engine: &mut LookupEngine) -> Result<Vec<LineBracket>, CommandError> {
        let mut rated = Vec::new();
        for line in &self.lines {
            let measured = |index: &usize| self.states[*index].latency().is_some();
            let rows: Vec<usize> = line.iter().copied().filter(measured).collect();
            let mut left_out: BTreeMap<usize, f64> = BTreeMap::new();
            for mut bracket in brackets_of_line(line, &self.states) {
                let mut error: Option<f64> = None;
                let is_outer = |end: &usize| Some(end) == rows.first() || Some(end) == rows.last();
                for end in bracket.ends.into_iter().filter(|end| !is_outer(end)) {
                    if let Entry::Vacant(unknown) = left_out.entry(end) {
                        unknown.insert(self.left_out_error(end, engine)?);
                    }
                    error = Some(error.unwrap_or(0.0).max(left_out[&end]));
                }
                // Between equal latencies there is no step to find, whatever the next bracket has.
                if let Some(error) = error {
                    bracket.error = error.max(self.disagreement(&rows, &bracket, engine)?);
                }
                if let [Some(low), Some(high)] = bracket.ends.map(|end| self.states[end].latency()) {
                    bracket.error = bracket.error.min((low / high).ln().abs());
                }
                rated.push(bracket);
            }
        }
        Ok(rated)
    }

    /// Returns the difference, as the absolute logarithm of a ratio, between the answer in the middle of a bracket and the
    /// monotone cubic through the rows of its line in logarithms; 0 without an answer.
    fn disagreement(
        &self,
        rows: &[usize],
        bracket: &LineBracket,
        engine: &LookupEngine,
    ) -> Result<f64, CommandError> {
        let point = |index: usize| {
            let log_latency = self.states[index].latency()?.ln();
            Some(LinePoint { position: self.candidates[index].position, log_latency })
        };
        let [low, high] = bracket.ends;
        let (Some(middle), Some(at)) =
            (self.middle_of(bracket.ends, &bracket.inside), rows.iter().position(|row| *row == low))
        else {
            return Ok(0.0);
        };
        let (Some(low), Some(high)) = (point(low), point(high)) else { return Ok(0.0) };
        let before = at.checked_sub(1).and_then(|before| point(rows[before]));
        let after = rows.get(at + 2).copied().and_then(point);
        let smooth = monotone_cubic(before, [low, high], after, self.candidates[middle].position);
        let answer = engine.lookup(&self.candidates[middle].query)?.latency;
        Ok(answer.filter(|latency| latency.0 > 0.0).map_or(0.0, |latency| (latency.0.ln() - smooth).abs()))
    }

    fn left_out_error(&self, index: usize, engine: &mut LookupEngine) -> Result<f64, CommandError> {
        let Some(latency) = self.states[index].latency() else { return Ok(f64::INFINITY) };
        let query = &self.candidates[index].query;
        let mut answer = engine.lookup(query)?;
        let mut hidden = Vec::new();
        for _ in 0..answer.equal_rows.max(1) {
            let is_padded = answer.rule.is_some_and(|rule| rule.padding != Padding::None);
            if answer.source != AnswerSource::Measured || is_padded {
                break;
            }
            hidden.append(&mut answer.rows);
            answer = engine.lookup_without_rows(query, &hidden)?;
        }
        Ok(log_error(answer.latency.map(|latency| latency.0), latency))
    }
}

fn shuffle<T>(items: &mut [T], random: &mut SplitMix64) {
    for last in (1..items.len()).rev() {
        let other = random.next_below(last as u64 + 1) as usize;
        items.swap(last, other);
    }
}

/// Hold-outs of an estimate, the last ones.
pub const HOLD_OUTS: usize = 60;
/// Share of questions whose error is at most the estimate.
const QUANTILE: f64 = 0.9;

/// Returns the error of an answer as the absolute logarithm of its ratio to the measurement, infinite without an
/// answer.
pub fn log_error(predicted: Option<f64>, measured: f64) -> f64 {
    match predicted {
        Some(predicted) if predicted > 0.0 && measured > 0.0 => (predicted / measured).ln().abs(),
        _ => f64::INFINITY,
    }
}

/// Quantiles of the errors of hold-outs, as absolute logarithms of ratios; infinite where hold-outs have no answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorEstimate {
    pub hold_outs: usize,
    pub p50: f64,
    pub p90: f64,
    pub max: f64,
}

impl ErrorEstimate {
    /// Estimates quantiles from the errors of hold-outs. `None` with too few for a 90th percentile.
    ///
    /// With n errors, the error of a further question is at most the ⌈(n + 1) q⌉-th smallest one with a probability of
    /// at least q (the quantile of split conformal prediction).
    pub fn from_errors(errors: &[f64]) -> Option<Self> {
        let mut sorted = errors.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quantile: f64| {
            let rank = ((sorted.len() + 1) as f64 * quantile - 1e-9).ceil() as usize;
            sorted.get(rank.checked_sub(1)?).copied()
        };
        Some(Self {
            hold_outs: sorted.len(),
            p50: at(0.5)?,
            p90: at(QUANTILE)?,
            max: sorted.last().copied()?,
        })
    }
}

/// Returns the 90th percentile of values with weights; `None` without values.
fn weighted_quantile(values: &mut [(f64, f64)]) -> Option<f64> {
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    values.iter().find_map(|(value, weight)| {
        sum += weight;
        (sum >= QUANTILE * total).then_some(*value)
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CandidateState {
    Open,
    /// Latency in microseconds.
    Measured(f64),
    Failed,
}

impl CandidateState {
    const fn latency(self) -> Option<f64> {
        if let Self::Measured(latency) = self { Some(latency) } else { None }
    }
}

/// Candidates between two neighbouring measured ones of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LineBracket {
    pub(super) ends: [usize; 2],
    pub(super) inside: Vec<usize>,
    /// Expected error as the absolute logarithm of a ratio, infinite until it is rated.
    error: f64,
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
                    let ends = [low, candidate];
                    brackets.push(LineBracket { ends, inside, error: f64::INFINITY });
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
    let is_failed = |candidate: &usize| states[*candidate] == CandidateState::Failed;
    let end_outside = |outside: &[usize]| match outside.iter().rposition(is_failed) {
        None => outside.first().copied(),
        Some(failed) => middle(&outside[failed + 1..]),
    };
    let measured = |candidate: &usize| states[*candidate].latency().is_some();
    let mut ends: Vec<usize> = match (line.iter().position(measured), line.iter().rposition(measured)) {
        (Some(first), Some(last)) => {
            let after: Vec<usize> = line[last + 1..].iter().rev().copied().collect();
            [&line[..first], &after].into_iter().filter_map(end_outside).collect()
        }
        _ => match line.iter().filter(|candidate| is_failed(candidate)).count() {
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
mod brackets_tests {
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
