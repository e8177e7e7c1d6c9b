//! Sample of the valid mutants: even shares of changed objects, in each small and large cases equally.

use std::collections::{BTreeMap, BTreeSet};

use super::Mutant;
use crate::cases::grid::{
    ExistingCases,
    definition::Mutation,
    sample::{log2, mix, quotas, unit},
};

/// Strata of the sample, numbered: mutation and changed object (a dimension, an argument, a form).
#[derive(Debug, Default)]
pub(crate) struct MutantStrata(BTreeMap<(usize, String), usize>);

impl MutantStrata {
    pub(crate) fn number(&mut self, mutant: &Mutant) -> usize {
        let next = self.0.len();
        *self.0.entry((mutant.mutation, mutant.what.clone())).or_insert(next)
    }

    /// Returns the number of existing rows of each stratum; the last number counts rows of strata that have no mutants now.
    pub(crate) fn existing_rows(&self, mutations: &[&Mutation], known: &ExistingCases) -> Vec<usize> {
        let mut existing = vec![0; self.0.len() + 1];
        for (origin, rows) in &known.rows {
            let changed = |place: usize| mutations.get(place).and_then(|one| one.changed_in(origin));
            let Some((mutation, changed)) =
                (0..mutations.len()).find_map(|place| Some((place, changed(place)?)))
            else {
                continue;
            };
            let starts_with = |what: &str| {
                changed.strip_prefix(what).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let of_mutation = self.0.range((mutation, String::new())..(mutation + 1, String::new()));
            let stratum = of_mutation
                .filter(|((_, what), _)| starts_with(what))
                .max_by_key(|((_, what), _)| what.len());
            existing[stratum.map_or(self.0.len(), |(_, number)| *number)] += rows;
        }
        existing
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SizedMutant {
    pub(crate) stratum: usize,
    pub(crate) bytes: u64,
}

/// Returns the positions of the selected mutants, ascending: all for `None`, else so many that with the existing rows of
/// each stratum there are `rows`. The same seed selects the same mutants.
pub(crate) fn sample_mutants(
    mutants: &[SizedMutant],
    existing: &[usize],
    rows: Option<usize>,
    seed: u64,
) -> Vec<usize> {
    let Some(rows) = rows else { return (0..mutants.len()).collect() };
    let mut strata: Vec<Vec<usize>> = vec![Vec::new(); existing.len()];
    for (place, mutant) in mutants.iter().enumerate() {
        strata[mutant.stratum].push(place);
    }
    let sizes: Vec<usize> = strata.iter().map(Vec::len).collect();
    let mut selected: Vec<usize> = Vec::new();
    for ((places, quota), number) in strata.iter().zip(quotas(&sizes, existing, rows, seed)).zip(0..) {
        selected.extend(sample_stratum(mutants, places, quota, mix(seed ^ mix(number))));
    }
    selected.sort_unstable();
    selected
}

/// Selects `wanted` mutants: for each point of an additive sequence in log space the nearest one that is left.
fn sample_stratum(mutants: &[SizedMutant], places: &[usize], wanted: usize, seed: u64) -> Vec<usize> {
    if wanted >= places.len() {
        return places.to_vec();
    }
    let size = |place: usize| log2(i64::try_from(mutants[place].bytes).unwrap_or(i64::MAX));
    // The seed decides among cases of one size; the bits of positive numbers have the order of the numbers.
    let key = |place: usize| (size(place).to_bits(), mix(seed ^ place as u64), place);
    let mut free: BTreeSet<(u64, u64, usize)> = places.iter().map(|place| key(*place)).collect();
    let at = |key: Option<&(u64, u64, usize)>| key.map_or(0.0, |key| f64::from_bits(key.0));
    let (low, high) = (at(free.first()), at(free.last()));
    let mut selected = Vec::with_capacity(wanted);
    let mut share = unit(mix(seed));
    while selected.len() < wanted {
        share = (share + GOLDEN).fract();
        let point = low + share * (high - low);
        let from = (point.to_bits(), 0, 0);
        let (below, above) = (free.range(..from).next_back(), free.range(from..).next());
        let distance = |key: &(u64, u64, usize)| (f64::from_bits(key.0) - point).abs();
        let nearest = match (below, above) {
            (Some(below), Some(above)) if distance(below) < distance(above) => *below,
            (Some(below), None) => *below,
            (_, Some(above)) => *above,
            (None, None) => break,
        };
        free.remove(&nearest);
        selected.push(nearest.2);
    }
    selected
}

/// Step of the additive sequence that fills a line most evenly: 1/φ.
const GOLDEN: f64 = 0.618_033_988_749_895;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The sample has the wanted size and no duplicates, and is repeatable.
        #[test]
        fn mutant_sample_has_no_duplicates(
            sizes in proptest::collection::vec((0_usize..5, 1_u64..1 << 40), 0..200),
            wanted in 0_usize..250,
            seed in any::<u64>(),
        ) {
            let choices: Vec<SizedMutant> =
                sizes.iter().map(|&(stratum, bytes)| SizedMutant { stratum, bytes }).collect();
            let taken = sample_mutants(&choices, &[0; 5], Some(wanted), seed);
            prop_assert_eq!(taken.len(), wanted.min(choices.len()));
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(taken.iter().all(|place| *place < choices.len()));
            prop_assert_eq!(sample_mutants(&choices, &[0; 5], Some(wanted), seed), taken);
        }
    }

    #[test]
    fn strata_have_even_shares_of_all_sizes() {
        let large = (0..300).map(|power| SizedMutant { stratum: 0, bytes: 1 << (power / 10) });
        let small = (0..10).map(|_| SizedMutant { stratum: 1, bytes: 1 << 20 });
        let choices: Vec<SizedMutant> = large.chain(small).collect();
        let taken = sample_mutants(&choices, &[0, 0], Some(70), 3);
        let of = |stratum: usize| taken.iter().filter(|place| choices[**place].stratum == stratum).count();
        assert_eq!((of(0), of(1)), (60, 10));
        for third in 0..3 {
            let inside =
                taken.iter().filter(|place| (third * 100..third * 100 + 100).contains(*place)).count();
            assert!((17..=23).contains(&inside), "{inside} of 60 in third {third}");
        }
        assert_ne!(sample_mutants(&choices, &[0, 0], Some(70), 4), taken, "the seed decides");
        // With existing rows every stratum has the same total; rows of strata without mutants count too.
        let of =
            |taken: &[usize], wanted| taken.iter().filter(|place| choices[**place].stratum == wanted).count();
        let taken = sample_mutants(&choices, &[20, 2, 8], Some(50), 3);
        assert_eq!((of(&taken, 0), of(&taken, 1)), (10, 10));
    }
}
