//! Gaps in the values of an axis, and the fewest points that close them.

use std::collections::BTreeSet;

use crate::cases::grid::definition::{DensityStandard, SegmentSpacing};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AxisGap {
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Allowed distance in the strictest segment which the gap overlaps and violates.
    pub(crate) allowed: SegmentSpacing,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AxisShortfall {
    pub(crate) ends: Vec<i64>,
    pub(crate) required: Vec<i64>,
    /// Gaps that are too wide, with missing endpoints counted as values.
    pub(crate) gaps: Vec<AxisGap>,
    /// The fewest and roundest points that complete the values, ascending: endpoints, required points, and in gaps.
    pub(crate) points: Vec<i64>,
}

impl AxisShortfall {
    /// Compares values with a standard. Values outside its endpoints are ignored.
    pub(crate) fn from_values(standard: &DensityStandard, values: &BTreeSet<i64>) -> Self {
        let mut all = values.clone();
        let missing = |points: &[i64]| -> Vec<i64> {
            points.iter().copied().filter(|point| !values.contains(point)).collect()
        };
        let required = missing(&standard.required);
        let Some((least, greatest)) = standard.ends() else {
            return Self { points: required.clone(), required, ..Self::default() };
        };
        let ends = missing(&[least, greatest]);
        all.extend([least, greatest]);
        let gaps = neighbour_pairs(&all, least, greatest)
            .filter_map(|(from, to)| Some(AxisGap { from, to, allowed: standard.forbids(from, to)? }))
            .collect();
        all.extend(&standard.required);
        let filling: Vec<i64> = neighbour_pairs(&all, least, greatest)
            .flat_map(|(from, to)| closing_points(standard, from, to))
            .collect();
        let points: BTreeSet<i64> = ends.iter().chain(&required).chain(&filling).copied().collect();
        Self { ends, required, gaps, points: points.into_iter().collect() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

fn neighbour_pairs(values: &BTreeSet<i64>, least: i64, greatest: i64) -> impl Iterator<Item = (i64, i64)> {
    let inside = values.range(least..=greatest);
    inside.clone().copied().zip(inside.skip(1).copied())
}

/// Returns the fewest points that close a gap: the roundest numbers in the ranges that the greatest steps leave.
fn closing_points(standard: &DensityStandard, from: i64, to: i64) -> Vec<i64> {
    // The furthest points from above, until `from` is within the allowed distance of the last one.
    let mut floors = Vec::new();
    let mut at = to;
    while standard.forbids(from, at).is_some() {
        at = 1 + last_where(from, at - 1, |number| standard.forbids(number, at).is_some());
        floors.push(at);
    }
    let mut points = Vec::with_capacity(floors.len());
    let mut at = from;
    for floor in floors.into_iter().rev() {
        let ceiling = last_where(at + 1, to, |number| standard.forbids(at, number).is_none());
        at = roundest(floor.max(at + 1), ceiling);
        points.push(at);
    }
    points
}

/// Returns the last number from `low` on and below `high` for which `holds` is true, as it is for `low` and all numbers between.
fn last_where(mut low: i64, mut high: i64, holds: impl Fn(i64) -> bool) -> i64 {
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns the only number from `low` to `high` that the greatest power of two divides.
fn roundest(low: i64, high: i64) -> i64 {
    let mut round = high;
    let mut power = 1_i64;
    while let Some(next) = power.checked_mul(2).filter(|power| high - high % power >= low.max(1)) {
        power = next;
        round = high - high % power;
    }
    round
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::LazyLock};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        base::assets::AssetFiles, cases::grid::definition::DensityFile, kernel::catalogue::Catalogue,
    };

    /// Parses a standard from a density file.
    fn standard(segments: &str, required: &str) -> DensityStandard {
        let text = format!(
            "summary: a test\nstandards:\n  one: {{segments: [{segments}], required: [{required}]}}\nkernels:\n  \
             add: {{kernels: [Add], axes: {{t: {{standard: one, value: 1}}}}}}\n"
        );
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let density = DensityFile::parse(Path::new("d.yaml"), &text, &catalogue).expect("a standard");
        let add = crate::kernel::KernelName::new("Add").expect("a name");
        density.axes(&add, catalogue.entry(&add).expect("there"))[0].standard.clone()
    }

    fn missing(standard: &DensityStandard, values: &[i64]) -> Vec<i64> {
        AxisShortfall::from_values(standard, &values.iter().copied().collect()).points
    }

    const ROWS: &str = "1..8 step 1, 8..16 step 2, 16..32 step 4, 32..64 step 8, 64..128 step 16, \
                        128..256 step 64, 256..1024 step 256, 1024..32768 ratio 2";

    #[test]
    fn gap_across_two_segments_is_checked_against_both() {
        let rows = standard(ROWS, "");
        assert_eq!(rows.forbids(8, 10), None, "it starts at the end of the finer segment");
        assert_eq!(rows.forbids(7, 10), Some(SegmentSpacing::Step(1)));
        assert_eq!(rows.forbids(15, 17), None);
        assert_eq!(rows.forbids(15, 18), Some(SegmentSpacing::Step(2)));
        assert_eq!(
            rows.forbids(600, 1100),
            Some(SegmentSpacing::Step(256)),
            "though its ratio is less than 2"
        );
        assert_eq!(rows.forbids(1000, 1256), None);
        // The coarser segment first: ratio 4 up to 64, ratio 2 above.
        let tokens = standard("1..64 ratio 4, 64..32768 ratio 2", "");
        assert_eq!(tokens.forbids(48, 128), Some(SegmentSpacing::Ratio(2.0)));
        assert_eq!(tokens.forbids(16, 64), None);
        assert_eq!(
            missing(&tokens, &[1, 4, 16, 48, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]),
            [64]
        );
    }

    #[test]
    fn consecutive_numbers_meet_every_ratio() {
        let twice = standard("1..8 ratio 2", "");
        assert_eq!(missing(&twice, &[1, 2, 4, 8]), [0_i64; 0]);
        assert_eq!(missing(&twice, &[1, 3, 8]), [2, 4]);
        // No whole number is within a ratio of 1.25 above 1: consecutive numbers are as close as possible.
        let quarter = standard("1..16 ratio 1.25", "");
        assert_eq!(missing(&quarter, &[1, 16]), [2, 3, 4, 5, 6, 7, 8, 10, 12, 14]);
        assert_eq!(quarter.forbids(8, 10), None, "exactly a ratio of 1.25");
    }

    #[test]
    fn missing_ends_and_required_points_are_listed() {
        let widths = standard("128..1024 step 128", "200, 64");
        let short = AxisShortfall::from_values(&widths, &[64, 256, 2048].into());
        assert_eq!((short.ends, short.required), (vec![128, 1024], vec![200]));
        let gaps: Vec<(i64, i64)> = short.gaps.iter().map(|gap| (gap.from, gap.to)).collect();
        assert_eq!(gaps, [(256, 1024)], "2048 is outside the endpoints and closes no gap");
        assert_eq!(short.points, [128, 200, 384, 512, 640, 768, 896, 1024]);
        assert_eq!(missing(&standard("", "3, 5"), &[5, 9]), [3]);
    }

    #[test]
    fn proposed_points_are_round() {
        let rows = standard(ROWS, "");
        assert_eq!(
            missing(
                &rows,
                &(1..=64)
                    .chain([70, 128, 192, 256, 512, 768, 1024, 2048, 4096, 8192, 16384, 32768])
                    .collect::<Vec<_>>()
            ),
            [80, 96, 112]
        );
        assert_eq!(
            (roundest(27648, 36864), roundest(5, 7), roundest(9, 9), roundest(1, 3)),
            (32768, 6, 9, 2)
        );
    }

    static MIXED: LazyLock<[DensityStandard; 4]> = LazyLock::new(|| {
        [
            "1..8 step 1, 8..32 step 4, 32..64 ratio 2",
            "1..16 ratio 4, 16..64 ratio 2",
            "2..10 ratio 1.5, 10..40 step 7, 40..60 ratio 1.25",
            "3..60 step 5",
        ]
        .map(|segments| standard(segments, ""))
    });

    proptest! {
        /// The points complete the values, and no smaller number of points does.
        #[test]
        fn proposed_points_are_the_fewest(
            values in proptest::collection::btree_set(1_i64..70, 0..12),
            which in 0_usize..4,
        ) {
            let standard = &MIXED[which];
            let (least, greatest) = standard.ends().expect("segments");
            let points = AxisShortfall::from_values(standard, &values).points;
            let mut all = values.clone();
            all.extend(&points);
            prop_assert!(AxisShortfall::from_values(standard, &all).is_empty(), "{:?} + {:?}", values, points);
            // Brute force: the fewest new points on a path from end to end that passes through every value.
            let mut fewest = vec![usize::MAX; 80];
            let cost = |at: i64| usize::from(!values.contains(&at));
            let at = |number: i64| usize::try_from(number).expect("small");
            fewest[at(least)] = cost(least);
            for to in least + 1..=greatest {
                let steps = (least..to).filter(|from| {
                    values.range(from + 1..to).next().is_none() && standard.forbids(*from, to).is_none()
                });
                let best = steps.map(|from| fewest[at(from)]).min().unwrap_or(usize::MAX);
                fewest[at(to)] = best.saturating_add(cost(to));
            }
            prop_assert_eq!(points.len(), fewest[at(greatest)]);
        }
    }
}
