//! Common subsequences of two lists: the longest ones, or approximations for very long lists.

use std::{cmp::Ordering, collections::HashMap, hash::Hash, ops::Range};

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Sum of the lengths of two sequences beyond which a common subsequence need not be the longest: an exact one takes a time up to
/// the square of the sum. The approximation takes 4 s for two sequences of 300,000 random names.
const MAX_EXACT: usize = 20_000;

pub(super) type PlacePair = (usize, usize);
pub(super) type ListGap = (Range<usize>, Range<usize>);

/// Two lists as the numbers of their keys, which are equal for equal keys.
#[derive(Debug)]
pub(super) struct KeyedLists {
    base: Vec<usize>,
    other: Vec<usize>,
    algorithm: Algorithm,
}

impl KeyedLists {
    pub(super) fn new<T, K: Eq + Hash>(base: &[T], other: &[T], key: &dyn Fn(&T) -> K) -> Self {
        let mut numbers: HashMap<K, usize> = HashMap::new();
        let mut keys = |items: &[T]| -> Vec<usize> {
            let mut keys = Vec::with_capacity(items.len());
            for item in items {
                let next = numbers.len();
                keys.push(*numbers.entry(key(item)).or_insert(next));
            }
            keys
        };
        let algorithm = match base.len().saturating_add(other.len()) <= MAX_EXACT {
            true => Algorithm::RawMyers,
            false => Algorithm::Myers,
        };
        Self { base: keys(base), other: keys(other), algorithm }
    }

    pub(super) fn whole(&self) -> Vec<ListGap> {
        vec![(0..self.base.len(), 0..self.other.len())]
    }

    pub(super) fn is_equal(&self, (base, other): PlacePair) -> bool {
        self.base[base] == self.other[other]
    }

    /// Returns the places of a common subsequence of the keys in each of some parts, so that no key is in both lists between two of
    /// its members.
    pub(super) fn match_keys(&self, mut parts: Vec<ListGap>) -> Vec<PlacePair> {
        let mut pairs = Vec::new();
        while let Some((base, other)) = parts.pop() {
            let mut found = self.common_subsequence(base.clone(), other.clone());
            if self.algorithm != Algorithm::RawMyers {
                // An approximation may leave items that can be matched, in the worst case all of them.
                if found.is_empty() {
                    found.extend(self.first_common(base.clone(), other.clone()));
                }
                if !found.is_empty() {
                    parts.extend(gaps_between(&found, base, other));
                }
            }
            pairs.append(&mut found);
        }
        pairs.sort_unstable();
        pairs
    }

    fn common_subsequence(&self, base: Range<usize>, other: Range<usize>) -> Vec<PlacePair> {
        let parts = capture_diff_slices(self.algorithm, &self.base[base.clone()], &self.other[other.clone()]);
        let equal = parts.into_iter().filter_map(|part| match part {
            DiffOp::Equal { old_index, new_index, len } => {
                Some((0..len).map(move |at| (old_index + at, new_index + at)))
            }
            _ => None,
        });
        equal.flatten().map(|(own, place)| (base.start + own, other.start + place)).collect()
    }

    /// Returns the first item of other whose key base has, with the first one of base.
    fn first_common(&self, base: Range<usize>, mut other: Range<usize>) -> Option<PlacePair> {
        let mut places: HashMap<usize, usize> = HashMap::new();
        base.for_each(|at| {
            places.entry(self.base[at]).or_insert(at);
        });
        other.find_map(|at| Some((*places.get(&self.other[at])?, at)))
    }
}

pub(super) fn gaps_between(pairs: &[PlacePair], base: Range<usize>, other: Range<usize>) -> Vec<ListGap> {
    let mut gaps = Vec::new();
    let (mut base_at, mut other_at) = (base.start, other.start);
    for (base_place, other_place) in pairs.iter().copied().chain([(base.end, other.end)]) {
        if base_at < base_place && other_at < other_place {
            gaps.push((base_at..base_place, other_at..other_place));
        }
        (base_at, other_at) = (base_place + 1, other_place + 1);
    }
    gaps
}

/// Joins two matchings of the same lists: of each part between the pairs that both have, the matching with the higher value, of
/// equal ones that with more pairs, then the first. A pair counts once, an exact one twice: a call more at the start and one
/// less at the end would otherwise shift all calls between them, and shapes that recur by chance would otherwise leave
/// calls of equal names unmatched.
pub(super) fn better_parts(
    first: &[PlacePair],
    second: &[PlacePair],
    is_exact: &dyn Fn(PlacePair) -> bool,
) -> Vec<PlacePair> {
    let value = |part: &[PlacePair]| {
        let exact = part.iter().filter(|pair| is_exact(**pair)).count();
        (part.len() + exact, part.len())
    };
    let mut better = Vec::with_capacity(first.len().max(second.len()));
    let mut add_part = |one: &[PlacePair], two: &[PlacePair]| {
        better.extend_from_slice(if value(two) > value(one) { two } else { one });
    };
    let (mut first_from, mut second_from, mut first_at, mut second_at) = (0, 0, 0, 0);
    while let (Some(one), Some(two)) = (first.get(first_at), second.get(second_at)) {
        match one.cmp(two) {
            Ordering::Less => first_at += 1,
            Ordering::Greater => second_at += 1,
            Ordering::Equal => {
                (first_at, second_at) = (first_at + 1, second_at + 1);
                add_part(&first[first_from..first_at], &second[second_from..second_at]);
                (first_from, second_from) = (first_at, second_at);
            }
        }
    }
    add_part(&first[first_from..], &second[second_from..]);
    better
}
