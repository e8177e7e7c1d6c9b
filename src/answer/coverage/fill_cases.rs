//! Cases that close gaps, valued by the time that they stand for.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::CoverageGap;
use crate::kernel::{CaseId, IdentifiedCase};

/// Maximum ratio of tokens between neighbouring rows of a bracket: the interpolation error of a kernel whose time is a
/// constant and a linear part is below a percent within it, while tile steps need nearer rows.
const BRACKET_RATIO: f64 = 4.0;
const MAX_BRACKET_ROWS: usize = 4;
/// Value in nanoseconds of an invocation whose time is unknown: cases of known times precede it.
const UNTIMED_VALUE: f64 = 1e-3;

#[derive(Clone, Debug)]
pub(crate) struct FillCase {
    pub(crate) case: IdentifiedCase,
    /// Time in nanoseconds that it stands for, divided among the rows of a bracket.
    pub(crate) value: f64,
    /// True if an interpolation answers its gap before it is measured.
    pub(crate) is_refinement: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilledBy {
    Case(CaseId),
    /// A measurement of this case, and of other parts, of which none is known to have a case.
    Part(CaseId),
    /// Measurements of all of these, between which it is interpolated.
    Bracket(Vec<CaseId>),
    /// No case can be built, for the reason of the gap.
    Nothing,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FillCases {
    /// The cases, the most valuable first; refinements last.
    pub(crate) cases: Vec<FillCase>,
    pub(crate) filled_by: Vec<FilledBy>,
    /// Cases that close no gap: rows that answer with durations of production profiles only.
    pub(crate) unmeasured: BTreeSet<CaseId>,
}

impl FillCases {
    /// Chooses cases for gaps: the exact case of each, or two to four that bracket several gaps along the tokens.
    pub(crate) fn of_gaps(gaps: &[CoverageGap<'_>]) -> Self {
        let mut brackets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, gap) in gaps.iter().enumerate() {
            if let (Some(bracket), Some(_)) = (gap.bracket, &gap.case) {
                brackets.entry(bracket.number).or_default().push(index);
            }
        }
        let mut filled_by = vec![FilledBy::Nothing; gaps.len()];
        let mut values: BTreeMap<CaseId, FillCase> = BTreeMap::new();
        let mut add = |case: IdentifiedCase, value: f64, is_refinement: bool| {
            let id = case.id().clone();
            let known = values.entry(id).or_insert(FillCase { case, value: 0.0, is_refinement });
            known.value += value;
            known.is_refinement &= is_refinement;
        };
        for members in brackets.values() {
            let rows = bracket_rows(gaps, members);
            let ids = rows.iter().filter_map(|&index| Some(gaps[index].case.as_ref()?.id().clone()));
            let ids: Vec<CaseId> = ids.collect();
            let share = members.iter().map(|&index| value_of(&gaps[index])).sum::<f64>() / rows.len() as f64;
            for &index in members {
                let Some(case) = gaps[index].case.clone() else { continue };
                let is_row = rows.contains(&index);
                filled_by[index] =
                    if is_row { FilledBy::Case(case.id().clone()) } else { FilledBy::Bracket(ids.clone()) };
                add(case, if is_row { share } else { value_of(&gaps[index]) }, !is_row);
            }
        }
        let in_bracket: BTreeSet<usize> = brackets.into_values().flatten().collect();
        for (index, gap) in gaps.iter().enumerate().filter(|(index, _)| !in_bracket.contains(index)) {
            if let Some(case) = gap.case.clone() {
                let id = case.id().clone();
                filled_by[index] = if gap.is_only_part { FilledBy::Case(id) } else { FilledBy::Part(id) };
                add(case, value_of(gap), false);
            }
        }
        let mut cases: Vec<FillCase> = values.into_values().collect();
        sort_cases(&mut cases);
        Self { cases, filled_by, unmeasured: BTreeSet::new() }
    }

    /// Adds the cases of rows that answer workloads without a measurement, with the time that they stand for. They
    /// count as covered, but the duration in another model is not the duration of the kernel alone.
    #[must_use]
    pub(crate) fn with_unmeasured_rows(mut self, rows: Vec<(IdentifiedCase, f64)>) -> Self {
        let places = self.cases.iter().enumerate().map(|(at, known)| (known.case.id().clone(), at));
        let mut places: HashMap<CaseId, usize> = places.collect();
        for (case, value) in rows {
            if let Some(&at) = places.get(case.id()) {
                // An interpolation answers the gap of the case, and no row its duration alone.
                self.cases[at].is_refinement = false;
                self.cases[at].value += value;
            } else {
                places.insert(case.id().clone(), self.cases.len());
                self.unmeasured.insert(case.id().clone());
                self.cases.push(FillCase { case, value, is_refinement: false });
            }
        }
        sort_cases(&mut self.cases);
        self
    }

    pub(crate) fn needed(&self) -> impl Iterator<Item = &FillCase> {
        self.cases.iter().filter(|case| !case.is_refinement)
    }

    /// Returns the share of all time whose gaps are closed if these cases are measured. Gaps with other missing parts
    /// are not: one of these may have no case.
    pub(crate) fn closed_share(&self, gaps: &[CoverageGap<'_>], measured: &BTreeSet<&CaseId>) -> f64 {
        let is_closed = |filled_by: &FilledBy| match filled_by {
            FilledBy::Case(case) => measured.contains(case),
            FilledBy::Bracket(cases) => cases.iter().all(|case| measured.contains(case)),
            FilledBy::Part(_) | FilledBy::Nothing => false,
        };
        let closed = gaps.iter().zip(&self.filled_by).filter(|(_, filled_by)| is_closed(filled_by));
        closed.filter_map(|(gap, _)| gap.share).sum()
    }
}

fn sort_cases(cases: &mut [FillCase]) {
    cases.sort_by(|one, other| {
        one.is_refinement.cmp(&other.is_refinement).then(other.value.total_cmp(&one.value))
    });
}

fn value_of(gap: &CoverageGap<'_>) -> f64 {
    gap.time.unwrap_or(UNTIMED_VALUE * gap.count)
}

/// Returns the gaps whose cases enclose other gaps: the gaps with the fewest and the most tokens, and up to two between
/// them.
fn bracket_rows(gaps: &[CoverageGap<'_>], members: &[usize]) -> Vec<usize> {
    let mut sorted: Vec<(u64, usize)> =
        members.iter().filter_map(|&index| Some((gaps[index].bracket?.tokens, index))).collect();
    sorted.sort_unstable();
    sorted.dedup_by_key(|(tokens, _)| *tokens);
    let (Some(&(least, _)), Some(&(most, _))) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let log = |tokens: u64| (tokens as f64).ln();
    let span = log(most) - log(least);
    let segments = (span / BRACKET_RATIO.ln()).ceil().clamp(1.0, MAX_BRACKET_ROWS as f64 - 1.0) as usize;
    let mut rows: Vec<usize> = Vec::new();
    for place in 0..=segments {
        let wanted = log(least) + span * place as f64 / segments as f64;
        let distance = |tokens: u64| (log(tokens) - wanted).abs();
        let nearest = sorted.iter().min_by(|one, other| distance(one.0).total_cmp(&distance(other.0)));
        rows.extend(nearest.map(|(_, index)| *index).filter(|index| !rows.contains(index)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose case is planned already adds its time, and is not left for the time that remains.
    #[test]
    fn unmeasured_rows_add_their_time_to_cases_of_gaps() {
        let [gap, refinement, row] = ["Add", "Mul", "SwiGlu"].map(IdentifiedCase::without_tensors);
        let planned = [(&gap, 5.0, false), (&refinement, 1.0, true)]
            .map(|(case, value, is_refinement)| FillCase { case: case.clone(), value, is_refinement });
        let fill = FillCases { cases: planned.to_vec(), ..FillCases::default() };
        let rows = vec![(refinement.clone(), 7.0), (row.clone(), 6.0), (row.clone(), 3.0)];
        let fill = fill.with_unmeasured_rows(rows);
        let found: Vec<_> = fill.cases.iter().map(|one| (&one.case, one.value, one.is_refinement)).collect();
        assert_eq!(found, [(&row, 9.0, false), (&refinement, 8.0, false), (&gap, 5.0, false)]);
        assert_eq!(fill.unmeasured, BTreeSet::from([row.id().clone()]));
    }
}
