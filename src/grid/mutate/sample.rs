//! Which of the valid mutants are taken where not all are: an even share for each thing that was changed, and of
//! each small and large cases alike, without replacement.

use std::collections::BTreeSet;

use crate::grid::sample::{log2, shares, split_mix, unit};

/// A mutant to choose from: what was changed, and how many bytes its case has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MutantChoice {
    pub(crate) stratum: usize,
    pub(crate) bytes: u64,
}

/// Places of those that are taken, ascending, until with the rows that are there of each stratum there are so many; all
/// where `None`. The same seed takes the same.
pub(crate) fn spread(
    choices: &[MutantChoice],
    there: &[usize],
    rows: Option<usize>,
    seed: u64,
) -> Vec<usize> {
    let Some(rows) = rows else { return (0..choices.len()).collect() };
    let mut strata: Vec<Vec<usize>> = vec![Vec::new(); there.len()];
    for (place, choice) in choices.iter().enumerate() {
        strata[choice.stratum].push(place);
    }
    let sizes: Vec<usize> = strata.iter().map(Vec::len).collect();
    let mut taken: Vec<usize> = Vec::new();
    for ((places, quota), number) in strata.iter().zip(shares(&sizes, there, rows, seed)).zip(0..) {
        taken.extend(of_stratum(choices, places, quota, split_mix(seed ^ split_mix(number))));
    }
    taken.sort_unstable();
    taken
}

/// Takes so many, at even distances in log space: each point of an additive sequence takes the nearest that is
/// free.
fn of_stratum(choices: &[MutantChoice], places: &[usize], wanted: usize, seed: u64) -> Vec<usize> {
    if wanted >= places.len() {
        return places.to_vec();
    }
    let size = |place: usize| log2(i64::try_from(choices[place].bytes).unwrap_or(i64::MAX));
    // Among cases of one size the seed decides; positive numbers are ordered as their bits are.
    let key = |place: usize| (size(place).to_bits(), split_mix(seed ^ place as u64), place);
    let mut free: BTreeSet<(u64, u64, usize)> = places.iter().map(|place| key(*place)).collect();
    let at = |key: Option<&(u64, u64, usize)>| key.map_or(0.0, |key| f64::from_bits(key.0));
    let (low, high) = (at(free.first()), at(free.last()));
    let mut taken = Vec::with_capacity(wanted);
    let mut share = unit(split_mix(seed));
    while taken.len() < wanted {
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
        taken.push(nearest.2);
    }
    taken
}

/// The step of an additive sequence that fills a line most evenly: 1/φ.
const GOLDEN: f64 = 0.618_033_988_749_895;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As many as are wanted, each once, and the same again.
        #[test]
        fn a_sample_is_without_replacement(
            sizes in proptest::collection::vec((0_usize..5, 1_u64..1 << 40), 0..200),
            wanted in 0_usize..250,
            seed in any::<u64>(),
        ) {
            let choices: Vec<MutantChoice> =
                sizes.iter().map(|&(stratum, bytes)| MutantChoice { stratum, bytes }).collect();
            let taken = spread(&choices, &[0; 5], Some(wanted), seed);
            prop_assert_eq!(taken.len(), wanted.min(choices.len()));
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(taken.iter().all(|place| *place < choices.len()));
            prop_assert_eq!(spread(&choices, &[0; 5], Some(wanted), seed), taken);
        }
    }

    #[test]
    fn each_stratum_has_its_share_and_sizes_are_spread() {
        let large = (0..300).map(|power| MutantChoice { stratum: 0, bytes: 1 << (power / 10) });
        let small = (0..10).map(|_| MutantChoice { stratum: 1, bytes: 1 << 20 });
        let choices: Vec<MutantChoice> = large.chain(small).collect();
        let taken = spread(&choices, &[0, 0], Some(70), 3);
        let of = |stratum: usize| taken.iter().filter(|place| choices[**place].stratum == stratum).count();
        assert_eq!((of(0), of(1)), (60, 10));
        for third in 0..3 {
            let inside =
                taken.iter().filter(|place| (third * 100..third * 100 + 100).contains(*place)).count();
            assert!((17..=23).contains(&inside), "{inside} of 60 in third {third}");
        }
        assert_ne!(spread(&choices, &[0, 0], Some(70), 4), taken, "the seed decides");
        // With what is there, each has as many; what nobody tries any more counts as well.
        let of =
            |taken: &[usize], wanted| taken.iter().filter(|place| choices[**place].stratum == wanted).count();
        let taken = spread(&choices, &[20, 2, 8], Some(50), 3);
        assert_eq!((of(&taken, 0), of(&taken, 1)), (10, 10));
    }
}
