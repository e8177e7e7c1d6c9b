//! Candidates of a kernel's grids, with more numbers of tokens than the ladders have.

use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;

use super::AdaptiveCandidate;
use crate::{
    answer::lookup::{LookupEngine, OpQuery},
    cases::grid::{
        CandidateSource, Candidates, ExistingCases, SelectionRequest,
        definition::{CandidateSpace, GridAxis},
        select_rows,
    },
    kernel::{IdentifiedCase, KernelName},
};

const STEPS_OF_OCTAVE: f64 = 12.0;
/// Multiple to which frameworks pad tokens.
const ALIGNMENT: i64 = 16;
/// If a kernel has more candidates than this, only the numbers of tokens of the ladder are used.
const MAX_CANDIDATES: u64 = 200_000;

#[derive(Clone, Debug)]
pub struct GridCandidate {
    pub case: IdentifiedCase,
    /// Question of the candidate, and its place among the other candidates.
    pub candidate: AdaptiveCandidate,
}

/// Returns the cases of a kernel's spaces that the request accepts, whether they have rows or not.
pub fn grid_candidates(
    kernel: &KernelName,
    spaces: &[&CandidateSpace],
    request: &SelectionRequest<'_>,
) -> Vec<GridCandidate> {
    let refined: Vec<CandidateSpace> = spaces.iter().map(|space| with_more_tokens(space)).collect();
    let count = refined.iter().fold(0_u64, |sum, space| sum.saturating_add(space.candidates()));
    let spaces: Vec<&CandidateSpace> =
        if count <= MAX_CANDIDATES { refined.iter().collect() } else { spaces.to_vec() };
    let source = CandidateSource::Grid(spaces.clone());
    let selected = select_rows(kernel, source, request, &ExistingCases::default());
    let mut found = Vec::new();
    for (space, indices) in spaces.iter().zip(&selected.selected) {
        let line = GridLine::new(space);
        let mut candidates = Candidates::new(space);
        for index in indices {
            candidates.go_to(*index);
            if candidates.check().is_err() {
                continue;
            }
            let numbers = candidates.numbers().to_vec();
            let Ok(case) = candidates.case() else { continue };
            let candidate = line.candidate(LookupEngine::query_of_case(case), &numbers);
            found.push(GridCandidate { case: IdentifiedCase::new(case.clone()), candidate });
        }
    }
    found
}

struct GridLine<'s> {
    space: &'s CandidateSpace,
    tokens: Option<(usize, &'s [i64])>,
}

impl<'s> GridLine<'s> {
    fn new(space: &'s CandidateSpace) -> Self {
        let tokens = token_axis(space).and_then(|axis| {
            let axis = &space.axes[axis];
            let place = space.names.iter().position(|name| *name == axis.names[0])?;
            Some((place, axis.values.as_slice()))
        });
        Self { space, tokens }
    }

    /// Returns a candidate with its place: along the keys of attention, or the tokens of other kernels. A candidate
    /// stands for the questions up to the middles between it and its neighbours, by the logarithm of their tokens.
    fn candidate(&self, query: OpQuery, numbers: &[i64]) -> AdaptiveCandidate {
        let hash = |key: &(Vec<String>, Vec<i64>)| FixedState::with_seed(0).hash_one(key);
        if let Some(length) = query.attention.mean_kv_length() {
            let attention = &query.attention;
            let first = query.inputs.first().map(|input| &input.dims);
            let key = vec![format!("{first:?} {:?} {:?}", attention.kv_heads, attention.sparse_mode)];
            let line = hash(&(key, Vec::new()));
            return AdaptiveCandidate { query, line, weight: 1.0, position: length.ln() };
        }
        let tokens = self.tokens.map(|(place, _)| place);
        // Numbers that follow from the tokens are no part of the key, and models with equal numbers share lines.
        let axes = &self.space.names[..self.space.names.len() - self.space.derived.len()];
        let others: Vec<usize> = (0..axes.len()).filter(|place| Some(*place) != tokens).collect();
        let names = others.iter().map(|&place| axes[place].clone()).chain([self.space.pattern.clone()]);
        let line = hash(&(names.collect(), others.iter().map(|&place| numbers[place]).collect()));
        let Some((place, values)) = self.tokens else {
            return AdaptiveCandidate { query, line, weight: 1.0, position: 0.0 };
        };
        let log = |tokens: i64| (tokens.max(1) as f64).ln();
        let at = values.partition_point(|value| *value < numbers[place]);
        let neighbours = [at.saturating_sub(1), (at + 1).min(values.len() - 1)];
        let weight = (log(values[neighbours[1]]) - log(values[neighbours[0]])) / 2.0;
        AdaptiveCandidate { query, line, weight: weight.max(1e-6), position: log(numbers[place]) }
    }
}

/// Returns the axis that is the first dimension of the first input.
fn token_axis(space: &CandidateSpace) -> Option<usize> {
    let first = space.inputs.first()?.as_ref()?.dims.first()?;
    space.axes.iter().position(|axis| axis.names.len() == 1 && axis.names[0] == first.source)
}

/// Returns a space with steps of a twelfth of an octave between the least and the greatest number of tokens, both as
/// they are and as multiples of 16.
fn with_more_tokens(space: &CandidateSpace) -> CandidateSpace {
    let mut space = space.clone();
    let Some(axis) = token_axis(&space) else { return space };
    let GridAxis { values, .. } = &mut space.axes[axis];
    let (Some(&least), Some(&most)) = (values.iter().min(), values.iter().max()) else { return space };
    let mut step = 0;
    loop {
        let tokens = (least as f64 * (f64::from(step) / STEPS_OF_OCTAVE).exp2()).round() as i64;
        if tokens >= most {
            break;
        }
        let padded = (tokens + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        values.extend([tokens, padded].into_iter().filter(|value| (least..most).contains(value)));
        step += 1;
    }
    values.sort_unstable();
    values.dedup();
    space
}
