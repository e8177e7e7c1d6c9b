//! Where the values of an axis fall short of a standard, and the fewest points that mend it.

use std::collections::BTreeSet;

use crate::grid::definition::{DensityStandard, SegmentSpacing};

/// Two neighbours that lie too far apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisGap {
    /// The smaller one.
    pub from: i64,
    /// The greater one.
    pub to: i64,
    /// How far apart they may lie; the strictest part of the standard that the gap reaches into and breaks.
    pub allowed: SegmentSpacing,
}

/// What values lack of a standard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AxisShortfall {
    /// Ends of the standard that are no values.
    pub ends: Vec<i64>,
    /// Required points that are no values.
    pub required: Vec<i64>,
    /// Gaps that are too wide, ends that are missing taken as values.
    pub gaps: Vec<AxisGap>,
    /// The fewest points with which nothing would be missing, ascending: ends and required points, and in the gaps
    /// that then are left the roundest numbers that close them.
    pub points: Vec<i64>,
}

impl AxisShortfall {
    /// Holds values against a standard. Those outside of its ends are not judged.
    #[must_use]
    pub fn from_values(standard: &DensityStandard, values: &BTreeSet<i64>) -> Self {
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
        let gaps = pairs(&all, least, greatest)
            .filter_map(|(from, to)| Some(AxisGap { from, to, allowed: standard.forbids(from, to)? }))
            .collect();
        all.extend(&standard.required);
        let filling: Vec<i64> =
            pairs(&all, least, greatest).flat_map(|(from, to)| fill(standard, from, to)).collect();
        let points: BTreeSet<i64> = ends.iter().chain(&required).chain(&filling).copied().collect();
        Self { ends, required, gaps, points: points.into_iter().collect() }
    }

    /// Whether nothing is missing.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.points.is_empty()
    }
}

/// Neighbours inside of the ends.
fn pairs(values: &BTreeSet<i64>, least: i64, greatest: i64) -> impl Iterator<Item = (i64, i64)> {
    let inside = values.range(least..=greatest);
    inside.clone().copied().zip(inside.skip(1).copied())
}

/// The fewest points that close a gap. How far a point may lie is found by going as far as is allowed from below
/// and from above; between the two the roundest number is taken.
fn fill(standard: &DensityStandard, from: i64, to: i64) -> Vec<i64> {
    // The furthest points from above, of which the last one is reached from `from`.
    let mut floors = Vec::new();
    let mut at = to;
    while standard.forbids(from, at).is_some() {
        at = furthest_before(standard, from, at);
        floors.push(at);
    }
    let mut points = Vec::with_capacity(floors.len());
    let mut at = from;
    for floor in floors.into_iter().rev() {
        let ceiling = furthest_behind(standard, at, to - 1);
        at = roundest(floor.max(at + 1), ceiling);
        points.push(at);
    }
    points
}

/// The greatest number up to `most` that may follow `from`. Whatever lies nearer may follow too.
fn furthest_behind(standard: &DensityStandard, from: i64, most: i64) -> i64 {
    let (mut good, mut bad) = (from + 1, most + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if standard.forbids(from, middle).is_none() { good = middle } else { bad = middle }
    }
    good
}

/// The least number above `least` that `to` may follow.
fn furthest_before(standard: &DensityStandard, least: i64, to: i64) -> i64 {
    let (mut bad, mut good) = (least, to - 1);
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if standard.forbids(middle, to).is_none() { good = middle } else { bad = middle }
    }
    good
}

/// The number from `low` to `high` that the greatest power of two divides; there is just one.
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
    use crate::{catalogue::Catalogue, config::AssetFiles, grid::definition::DensityFile};

    /// A standard as files have it.
    fn standard(segments: &str, required: &str) -> DensityStandard {
        let text = format!(
            "summary: a test\nstandards:\n  one: {{segments: [{segments}], required: [{required}]}}\nkernels:\n  \
             add: {{kernels: [Add], axes: {{t: {{standard: one, value: 1}}}}}}\n"
        );
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let density = DensityFile::parse(Path::new("d.yaml"), &text, &catalogue).expect("a standard");
        let add = crate::domain::KernelName::new("Add").expect("a name");
        density.axes(&add, catalogue.entry(&add).expect("there"))[0].standard.clone()
    }

    fn missing(standard: &DensityStandard, values: &[i64]) -> Vec<i64> {
        AxisShortfall::from_values(standard, &values.iter().copied().collect()).points
    }

    const ROWS: &str = "1..8 step 1, 8..16 step 2, 16..32 step 4, 32..64 step 8, 64..128 step 16, \
                        128..256 step 64, 256..1024 step 256, 1024..32768 ratio 2";

    #[test]
    fn a_gap_across_two_segments_is_held_against_both() {
        let rows = standard(ROWS, "");
        assert_eq!(rows.forbids(8, 10), None, "it begins where the finer segment ends");
        assert_eq!(rows.forbids(7, 10), Some(SegmentSpacing::Step(1)));
        assert_eq!(rows.forbids(15, 17), None);
        assert_eq!(rows.forbids(15, 18), Some(SegmentSpacing::Step(2)));
        assert_eq!(
            rows.forbids(600, 1100),
            Some(SegmentSpacing::Step(256)),
            "though its ratio is less than 2"
        );
        assert_eq!(rows.forbids(1000, 1256), None);
        // Coarser first: 4 times up to 64, twice behind.
        let tokens = standard("1..64 ratio 4, 64..32768 ratio 2", "");
        assert_eq!(tokens.forbids(48, 128), Some(SegmentSpacing::Ratio(2.0)));
        assert_eq!(tokens.forbids(16, 64), None);
        assert_eq!(
            missing(&tokens, &[1, 4, 16, 48, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]),
            [64]
        );
    }

    #[test]
    fn whole_numbers_end_where_a_ratio_does() {
        let twice = standard("1..8 ratio 2", "");
        assert_eq!(missing(&twice, &[1, 2, 4, 8]), [0_i64; 0]);
        assert_eq!(missing(&twice, &[1, 3, 8]), [2, 4]);
        // From 1 on nothing is 1.25 times as much: numbers that follow each other are as close as can be.
        let quarter = standard("1..16 ratio 1.25", "");
        assert_eq!(missing(&quarter, &[1, 16]), [2, 3, 4, 5, 6, 7, 8, 10, 12, 14]);
        assert_eq!(quarter.forbids(8, 10), None, "just 1.25 times");
    }

    #[test]
    fn ends_and_required_points_are_asked_for() {
        let widths = standard("128..1024 step 128", "200, 64");
        let short = AxisShortfall::from_values(&widths, &[64, 256, 2048].into());
        assert_eq!((short.ends, short.required), (vec![128, 1024], vec![200]));
        let gaps: Vec<(i64, i64)> = short.gaps.iter().map(|gap| (gap.from, gap.to)).collect();
        assert_eq!(gaps, [(256, 1024)], "2048 is outside, and closes nothing");
        assert_eq!(short.points, [128, 200, 384, 512, 640, 768, 896, 1024]);
        assert_eq!(missing(&standard("", "3, 5"), &[5, 9]), [3]);
    }

    #[test]
    fn points_are_round() {
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
        /// With the points nothing is missing, no fewer do, and none of them can be spared.
        #[test]
        fn points_are_the_fewest(
            values in proptest::collection::btree_set(1_i64..70, 0..12),
            which in 0_usize..4,
        ) {
            let standard = &MIXED[which];
            let (least, greatest) = standard.ends().expect("segments");
            let points = AxisShortfall::from_values(standard, &values).points;
            let mut all = values.clone();
            all.extend(&points);
            prop_assert!(AxisShortfall::from_values(standard, &all).is_none(), "{:?} + {:?}", values, points);
            // By trying every number: the fewest new points on a way from end to end that leaves no value out.
            let mut fewest = vec![usize::MAX; 80];
            let cost = |at: i64| usize::from(!values.contains(&at));
            let at = |number: i64| usize::try_from(number).expect("small");
            fewest[at(least)] = cost(least);
            for to in least + 1..=greatest {
                let ways = (least..to).filter(|from| {
                    values.range(from + 1..to).next().is_none() && standard.forbids(*from, to).is_none()
                });
                let best = ways.map(|from| fewest[at(from)]).min().unwrap_or(usize::MAX);
                fewest[at(to)] = best.saturating_add(cost(to));
            }
            prop_assert_eq!(points.len(), fewest[at(greatest)]);
        }
    }
}
