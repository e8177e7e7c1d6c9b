//! Sample of the valid candidates of a grid: a low-discrepancy sequence over the axes in log space, so that small and
//! large shapes are equally represented, without replacement.
//!
//! A point of the sequence falls into one cell of each axis; a cell extends half-way to the neighbours of its value. The
//! candidate in these cells is selected if it is valid and not selected yet. If the sequence does not reach enough candidates,
//! the rest is selected evenly by index. All arithmetic is exact or rounded as IEEE 754 defines: a seed gives the same sample
//! on every machine.

use super::definition::{CandidateSpace, GridAxis};
use crate::base::stats::SplitMix64;

/// Points tried for each wanted or existing candidate before the rest is selected evenly.
const TRIALS: u64 = 16;
/// Limit of the points tried, about one second of work.
const MAX_TRIALS: u64 = 1 << 23;

pub(crate) struct CandidateStratum<'a> {
    pub(crate) space: &'a CandidateSpace,
    /// Indexes of valid candidates without a row, ascending.
    pub(crate) valid: &'a [u64],
    pub(crate) added: usize,
    pub(crate) existing: u64,
}

impl CandidateStratum<'_> {
    /// Returns the number of points to try for `wanted` candidates; if few candidates are valid, most points are lost.
    fn trials(&self, wanted: usize) -> u64 {
        let (wanted, valid) = (wanted as u64, self.valid.len().max(1) as u64);
        let losses = self.space.candidates().div_ceil(valid + self.existing);
        (wanted + self.existing).saturating_mul(TRIALS).saturating_mul(losses).min(MAX_TRIALS)
    }
}

/// Selects candidates, ascending for each stratum, until there are `rows` rows with earlier ones, or all for `None`.
/// Rows are divided evenly over strata; what a small one cannot give comes from the others.
pub(crate) fn sample_candidates(
    strata: &[CandidateStratum<'_>],
    rows: Option<usize>,
    seed: u64,
) -> Vec<Vec<u64>> {
    let sizes: Vec<usize> = strata.iter().map(|stratum| stratum.valid.len()).collect();
    let added: Vec<usize> = strata.iter().map(|stratum| stratum.added).collect();
    let quotas = rows.map_or_else(|| sizes.clone(), |rows| quotas(&sizes, &added, rows, seed));
    let strata = strata.iter().zip(quotas).zip(0..);
    strata.map(|((stratum, quota), number)| sample_stratum(stratum, quota, mix(seed ^ mix(number)))).collect()
}

/// Returns the number of candidates to select from each stratum, at most its size, so that together with the rows they
/// `had` there are `rows` and the smallest total is as large as possible. The seed decides which strata get the last rows.
pub(crate) fn quotas(sizes: &[usize], had: &[usize], rows: usize, seed: u64) -> Vec<usize> {
    let up_to = |level: usize| -> Vec<usize> {
        sizes.iter().zip(had).map(|(size, had)| level.saturating_sub(*had).min(*size)).collect()
    };
    let wanted = rows.saturating_sub(had.iter().sum());
    let (mut low, mut high) = (0, rows);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if up_to(middle).iter().sum::<usize>() <= wanted {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let (mut quotas, next) = (up_to(low), up_to(low.saturating_add(1)));
    let left = wanted - quotas.iter().sum::<usize>();
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&index| next[index] > quotas[index]).collect();
    order.sort_by_key(|&index| mix(seed ^ mix(index as u64)));
    order.into_iter().take(left).for_each(|index| quotas[index] += 1);
    quotas
}

fn sample_stratum(stratum: &CandidateStratum<'_>, wanted: usize, seed: u64) -> Vec<u64> {
    let valid = stratum.valid;
    if wanted >= valid.len() {
        return valid.to_vec();
    }
    let mut is_selected = vec![false; valid.len()];
    let mut count = 0;
    let axes: Vec<LogCells> = stratum.space.axes.iter().map(LogCells::from_axis).collect();
    let steps = steps(axes.iter().filter(|axis| axis.ends.len() > 1).count());
    let starts: Vec<f64> = (1_u64..).take(steps.len()).map(|axis| unit(mix(seed ^ mix(axis)))).collect();
    for point in 0..stratum.trials(wanted) {
        if count == wanted {
            break;
        }
        let mut coordinates = starts.iter().zip(&steps).map(|(start, step)| {
            let at = start + point as f64 * step;
            at - at.floor()
        });
        let index = axes.iter().fold(0_u64, |index, axis| {
            let digit = if axis.ends.len() > 1 { axis.cell(coordinates.next().unwrap_or(0.5)) } else { 0 };
            index * axis.ends.len() as u64 + digit as u64
        });
        if let Ok(place) = valid.binary_search(&index)
            && !is_selected[place]
        {
            is_selected[place] = true;
            count += 1;
        }
    }
    select_evenly(&mut is_selected, wanted - count, seed);
    let selected = valid.iter().zip(&is_selected).filter(|(_, selected)| **selected);
    selected.map(|(index, _)| *index).collect()
}

fn select_evenly(is_selected: &mut [bool], wanted: usize, seed: u64) {
    let free: Vec<usize> = (0..is_selected.len()).filter(|&place| !is_selected[place]).collect();
    let offset = usize::try_from(mix(seed) % free.len().max(1) as u64).unwrap_or_default();
    for number in 0..wanted {
        let place = (offset + number * free.len() / wanted.max(1)) % free.len();
        is_selected[free[place]] = true;
    }
}

struct LogCells {
    ends: Vec<f64>,
}

impl LogCells {
    fn from_axis(axis: &GridAxis) -> Self {
        // Names that change together have no common scale, so that their tuples are spaced evenly.
        let place = |index: usize| match axis.names.len() {
            1 => log2(axis.values[index]),
            _ => index as f64,
        };
        let places: Vec<f64> = (0..axis.len()).map(place).collect();
        let half = |gap: Option<f64>| gap.map_or(0.5, |gap| gap / 2.0);
        let first_gap = places.windows(2).next().map(|pair| pair[1] - pair[0]);
        let last_gap = places.windows(2).next_back().map(|pair| pair[1] - pair[0]);
        let (low, high) = match (places.first(), places.last()) {
            (Some(first), Some(last)) => (first - half(first_gap), last + half(last_gap)),
            _ => (0.0, 1.0),
        };
        let mut ends: Vec<f64> = places.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        ends.push(high);
        Self { ends: ends.into_iter().map(|end| (end - low) / (high - low)).collect() }
    }

    fn cell(&self, coordinate: f64) -> usize {
        self.ends.partition_point(|end| *end <= coordinate).min(self.ends.len() - 1)
    }
}

/// Returns a base-2 logarithm, linear between powers of two: unlike the library's, it is the same on every machine.
pub(crate) fn log2(value: i64) -> f64 {
    let value = value.max(1);
    let whole = value.ilog2();
    f64::from(whole) + (value as f64 / (1_i64 << whole) as f64 - 1.0)
}

/// Returns the steps of an additive sequence that fills `dimensions` evenly: powers of 1/φ, where φ^(d+1) = φ + 1.
fn steps(dimensions: usize) -> Vec<f64> {
    let power = |base: f64, exponent: usize| (0..exponent).fold(1.0, |product, _| product * base);
    // φ lies between 1 and 2; bisection is exact and ends at neighbouring numbers.
    let (mut low, mut high) = (1.0_f64, 2.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if power(middle, dimensions + 1) > middle + 1.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    (1..=dimensions).map(|dimension| 1.0 / power(low, dimension)).collect()
}

/// Mixes the bits of a number: the first output of SplitMix64 with that seed.
pub(crate) const fn mix(number: u64) -> u64 {
    SplitMix64::new(number).next_u64()
}

/// Returns a number from 0 to below 1 with the 53 high bits of `number`.
pub(crate) fn unit(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::KernelName;

    fn space(axes: &[&[i64]]) -> CandidateSpace {
        let axes = axes
            .iter()
            .zip('a'..)
            .map(|(values, name)| GridAxis { names: vec![name.to_string()], values: values.to_vec() });
        let axes: Vec<GridAxis> = axes.collect();
        CandidateSpace {
            kernel: KernelName::new("Add").expect("a name"),
            grid: String::new(),
            pattern: String::new(),
            model: None,
            names: axes.iter().flat_map(|axis| axis.names.clone()).collect(),
            axes,
            derived: Vec::new(),
            conditions: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: Vec::new(),
            constants: Vec::new(),
        }
    }

    #[test]
    fn quotas_are_even_and_remainder_goes_to_large_strata() {
        let fresh = |sizes: &[usize], rows| quotas(sizes, &vec![0; sizes.len()], rows, 0);
        assert_eq!(fresh(&[10, 101, 3], 30), [10, 17, 3]);
        assert_eq!(fresh(&[10, 10], 100), [10, 10]);
        assert_eq!(fresh(&[5, 5, 5], 2).into_iter().sum::<usize>(), 2);
        assert_eq!(fresh(&[], 5), Vec::<usize>::new());
        // Strata with the fewest rows get most; the others lose none.
        assert_eq!(quotas(&[50, 50, 50], &[10, 0, 30], 50, 0), [0, 10, 0]);
        assert_eq!(quotas(&[50, 50, 50], &[10, 0, 30], 60, 0), [5, 15, 0]);
        assert_eq!(quotas(&[50, 50], &[40, 40], 50, 0), [0, 0], "more rows exist than are wanted");
    }

    #[test]
    fn steps_are_powers_of_generalized_golden_ratio() {
        assert!((steps(1)[0] - 0.618_033_988_749_895).abs() < 1e-12);
        assert!((steps(2)[0] - 0.754_877_666_246_693).abs() < 1e-12);
    }

    #[test]
    fn sample_contains_small_and_large_values() {
        let ladder: Vec<i64> = (0..16).map(|power| 1 << power).collect();
        let space = space(&[&ladder, &ladder]);
        let valid: Vec<u64> = (0..256).collect();
        let taken = &sample_candidates(
            &[CandidateStratum { space: &space, valid: &valid, added: 0, existing: 0 }],
            Some(64),
            7,
        )[0];
        assert_eq!(taken.len(), 64);
        // A quarter of the grid: each quarter of each axis has its share of each quarter of the other.
        for (row, column) in (0..4).flat_map(|row| (0..4).map(move |column| (row, column))) {
            let inside = taken.iter().filter(|&&at| at / 16 / 4 == row && at % 16 / 4 == column).count();
            assert!((2..=6).contains(&inside), "{inside} of 64 in block {row}, {column}");
        }
    }

    /// Checks the share of candidates with a large first axis among 16 to 1000 rows added to others.
    #[test]
    fn sample_added_to_existing_rows_is_even() {
        let ladder: Vec<i64> = (0..16).map(|power| 1 << power).collect();
        let space = space(&[&ladder, &ladder, &ladder]);
        let all: Vec<u64> = (0..4096).collect();
        let large = |taken: &[u64]| taken.iter().filter(|&&at| at / 256 >= 10).count();
        for (first, second) in [(500, 16), (1000, 50), (2000, 200), (3000, 1000)] {
            for seed in 0..8 {
                let stratum = CandidateStratum { space: &space, valid: &all, added: 0, existing: 0 };
                let before = sample_candidates(&[stratum], Some(first), seed).remove(0);
                let left: Vec<u64> = all.iter().copied().filter(|at| !before.contains(at)).collect();
                let existing = before.len() as u64;
                let stratum = CandidateStratum { space: &space, valid: &left, added: first, existing };
                let added = sample_candidates(&[stratum], Some(first + second), seed).remove(0);
                assert_eq!(added.len(), second);
                // 6 of 16 values are large.
                let (found, fair) = (large(&added), second * 6 / 16);
                assert!(found.abs_diff(fair) <= 2 + fair / 5, "{found} of {second}, expected {fair}");
            }
        }
    }

    /// Repeated small selections give rows of all patterns.
    #[test]
    fn repeated_small_samples_cover_all_strata() {
        let small = space(&[&[1, 2, 4, 8]]);
        let (valid, few): (Vec<u64>, Vec<u64>) = ((0..4).collect(), (0..2).collect());
        let mut added = vec![0; 9];
        for rows in 1..=9 {
            let strata = added.iter().enumerate().map(|(index, &added)| CandidateStratum {
                space: &small,
                valid: if index < 3 { &few } else { &valid },
                added,
                existing: 0,
            });
            let taken = sample_candidates(&strata.collect::<Vec<_>>(), Some(rows), 3);
            added.iter_mut().zip(taken).for_each(|(added, taken)| *added += taken.len());
        }
        assert_eq!(added, [1; 9]);
    }

    proptest! {
        /// The sample has the wanted size, no duplicates, only valid candidates, and is repeatable.
        #[test]
        fn candidate_sample_has_no_duplicates(
            valid in proptest::collection::btree_set(0_u64..300, 0..300),
            wanted in 0_usize..400,
            seed in any::<u64>(),
        ) {
            let space = space(&[&[1, 2, 3, 4, 6, 8, 512, 1024, 2048, 32768], &[1, 5, 7], &[2, 4, 8, 16, 32, 64, 128, 192, 256, 9999]]);
            let valid: Vec<u64> = valid.into_iter().collect();
            let take = || {
                let stratum = CandidateStratum { space: &space, valid: &valid, added: 0, existing: 0 };
                sample_candidates(&[stratum], Some(wanted), seed).remove(0)
            };
            let taken = take();
            prop_assert_eq!(taken.len(), wanted.min(valid.len()));
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(taken.iter().all(|index| valid.contains(index)));
            prop_assert_eq!(take(), taken);
        }
    }
}
