//! Values of the elements of a vector: runs that repeat a list, so that long messages of collectives are exchanged
//! and compared element by element without storing each.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A number of elements that repeat a list, from one of its places on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, Vec<i64>, u64)", into = "(u64, Vec<i64>, u64)")]
struct ValueRun {
    length: u64,
    period: Arc<[i64]>,
    phase: u64,
}

impl From<(u64, Vec<i64>, u64)> for ValueRun {
    fn from((length, period, phase): (u64, Vec<i64>, u64)) -> Self {
        Self { length, period: period.into(), phase }
    }
}

impl From<ValueRun> for (u64, Vec<i64>, u64) {
    fn from(run: ValueRun) -> Self {
        (run.length, run.period.to_vec(), run.phase)
    }
}

impl ValueRun {
    fn at(&self, place: u64) -> i64 {
        let length = self.period.len().max(1) as u64;
        let index = usize::try_from((self.phase + place) % length).unwrap_or_default();
        self.period.get(index).copied().unwrap_or_default()
    }
}

/// The elements of a vector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ElementValues {
    runs: Vec<ValueRun>,
}

impl ElementValues {
    pub(crate) fn from_list(values: Vec<i64>) -> Self {
        let mut all = Self::default();
        all.push(ValueRun { length: values.len() as u64, period: values.into(), phase: 0 });
        all
    }

    /// Returns `length` elements of one value.
    pub(crate) fn constant(value: i64, length: u64) -> Self {
        let mut all = Self::default();
        all.push(ValueRun { length, period: [value].into(), phase: 0 });
        all
    }

    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.length).sum()
    }

    /// Appends a run; one that continues the last becomes part of it.
    fn push(&mut self, run: ValueRun) {
        if run.length == 0 || run.period.is_empty() {
            return;
        }
        if let Some(last) = self.runs.last_mut()
            && last.period == run.period
            && (last.phase + last.length) % run.period.len() as u64 == run.phase % run.period.len() as u64
        {
            last.length += run.length;
            return;
        }
        self.runs.push(run);
    }

    /// Returns the elements from `start` on.
    pub(crate) fn slice(&self, start: u64, length: u64) -> Self {
        let mut part = Self::default();
        let (mut first, end) = (0, start.saturating_add(length));
        for run in &self.runs {
            let (from, to) = (start.max(first), end.min(first + run.length));
            if from < to {
                let phase = (run.phase + from - first) % run.period.len() as u64;
                part.push(ValueRun { length: to - from, phase, ..run.clone() });
            }
            first += run.length;
        }
        part
    }

    /// Returns the vector with other elements from `start` on.
    pub(crate) fn replaced(&self, start: u64, other: &Self) -> Self {
        let behind = start.saturating_add(other.len());
        let rest = self.len().saturating_sub(behind);
        Self::joined(&[self.slice(0, start), other.clone(), self.slice(behind, rest)])
    }

    pub(crate) fn joined(parts: &[Self]) -> Self {
        let mut all = Self::default();
        parts.iter().flat_map(|part| &part.runs).for_each(|run| all.push(run.clone()));
        all
    }

    /// Returns the sums of the elements of equally long vectors; `None` if their lengths differ or the pieces do not
    /// repeat.
    pub(crate) fn sum(vectors: &[&Self]) -> Option<Self> {
        /// Elements whose sums are computed one by one.
        const MOST: u64 = 1 << 20;
        let length = vectors.first()?.len();
        if vectors.iter().any(|vector| vector.len() != length) {
            return None;
        }
        let mut ends: Vec<u64> = Vec::new();
        for vector in vectors {
            let mut end = 0;
            ends.extend(vector.runs.iter().map(|run| {
                end += run.length;
                end
            }));
        }
        ends.sort_unstable();
        ends.dedup();
        let (mut all, mut start) = (Self::default(), 0);
        for end in ends {
            let pieces: Vec<Self> = vectors.iter().map(|vector| vector.slice(start, end - start)).collect();
            let runs: Vec<&ValueRun> = pieces.iter().flat_map(|piece| &piece.runs).collect();
            let period = runs.first()?.period.len() as u64;
            let is_common = runs.iter().all(|run| run.period.len() as u64 == period || run.period.len() == 1);
            let count = if is_common { period.min(end - start) } else { end - start };
            if runs.len() != vectors.len() || count > MOST {
                return None;
            }
            // Sums that are added to themselves at each launch exceed any number.
            let sum = |place: u64| runs.iter().fold(0_i64, |sum, run| sum.saturating_add(run.at(place)));
            let sums: Vec<i64> = (0..count).map(sum).collect();
            all.push(ValueRun { length: end - start, period: sums.into(), phase: 0 });
            start = end;
        }
        Some(all)
    }

    /// Returns true if both have the same elements.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let (mut one, mut two) = (self.runs.iter().cloned(), other.runs.iter().cloned());
        let (mut left, mut right) = (one.next(), two.next());
        while let (Some(first), Some(second)) = (&mut left, &mut right) {
            let length = first.length.min(second.length);
            // Beyond the product of the periods all pairs of elements repeat.
            let repeats = (first.period.len() as u64).saturating_mul(second.period.len() as u64);
            let compared = match first.period.len() == second.period.len() {
                true => length.min(first.period.len() as u64),
                false => length.min(repeats),
            };
            if (0..compared).any(|place| first.at(place) != second.at(place)) {
                return false;
            }
            for run in [&mut *first, &mut *second] {
                run.phase = (run.phase + length) % run.period.len() as u64;
                run.length -= length;
            }
            if first.length == 0 {
                left = one.next();
            }
            if right.as_ref().is_some_and(|run| run.length == 0) {
                right = two.next();
            }
        }
        true
    }

    /// Returns the elements one by one, up to a number of them.
    pub(crate) fn to_list(&self, most: usize) -> Vec<i64> {
        self.runs.iter().flat_map(|run| (0..run.length).map(|place| run.at(place))).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::SplitMix64;

    fn plain(values: &ElementValues) -> Vec<i64> {
        values.to_list(usize::MAX)
    }

    /// Vectors of random runs behave as lists of their elements.
    #[test]
    fn runs_behave_as_the_lists_of_their_elements() {
        let mut random = SplitMix64::new(3);
        let mut draw = |below: u64| random.next_below(below);
        for _ in 0..300 {
            let period = 1 + draw(3);
            let mut vector = |length: u64| {
                let values: Vec<i64> = (0..period).map(|_| draw(3).cast_signed()).collect();
                let mut all = ElementValues::default();
                all.push(ValueRun { length, period: values.into(), phase: draw(period) });
                all
            };
            let (one, other) = (vector(7), ElementValues::joined(&[vector(3), vector(4)]));
            let (a, b) = (plain(&one), plain(&other));
            assert_eq!(one.equals(&other), a == b, "{a:?} {b:?}");
            let sums: Vec<i64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            assert_eq!(ElementValues::sum(&[&one, &other]).map(|sum| plain(&sum)), Some(sums));
            assert_eq!(plain(&other.slice(2, 4)), b[2..6]);
            let mut replaced = a.clone();
            replaced[4..7].copy_from_slice(&b[..3]);
            assert_eq!(plain(&one.replaced(4, &other.slice(0, 3))), replaced);
        }
    }

    #[test]
    fn one_wrong_element_of_a_long_message_is_found() {
        let message = ElementValues::from_list((0..251).collect());
        let long = ElementValues::joined(&vec![message; 1_000]);
        assert_eq!(long.runs.len(), 1);
        let wrong = long.replaced(123_456, &ElementValues::constant(7, 1));
        assert!(long.equals(&long.clone()) && !long.equals(&wrong));
        assert_eq!(
            ElementValues::sum(&[&long, &wrong]).expect("a sum").slice(123_456, 1).to_list(9),
            [7 + 215]
        );
    }
}
