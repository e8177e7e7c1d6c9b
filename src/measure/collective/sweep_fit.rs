//! The fit of one sweep, and the comparison of the fits of several group sizes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    analytic::peak_bus_bandwidth,
    line::{LineFit, SizeDuration},
    scaling::{ScalingComparison, compare_algorithms},
    segments::{RangeLine, divide_sizes},
    sweep::{Sweep, SweepKey, SweepPoint},
};
use crate::kernel::{CollectiveKind, Dtype, PartWeights, collective::CommNetwork};

/// Ratio of two lines from which a change is a jump of the duration.
const MIN_JUMP: f64 = 0.02;

/// Source of the knowledge of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SwitchEvidence {
    /// The profiler shows another algorithm.
    #[strum(serialize = "algorithm type")]
    AlgorithmType,
    /// Two lines fit much better than one.
    #[strum(serialize = "fit")]
    Fit,
}

/// Change of the algorithm between two sizes, across which nothing may be interpolated.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AlgorithmSwitch {
    /// The last message size before the change, and the first one behind it.
    pub(crate) before: u64,
    pub(crate) behind: u64,
    /// Sizes between which the change is at 95 %.
    pub(crate) at_least: u64,
    pub(crate) at_most: u64,
    pub(crate) evidence: SwitchEvidence,
    /// Ratio of the durations behind and before the change, between the two sizes; `None` without two lines.
    pub(crate) jump: Option<f64>,
    /// True if the sizes between which it is differ by at most a quarter.
    #[serde(skip)]
    pub(crate) is_located: bool,
    /// Message sizes whose measurement locates it.
    pub(crate) refining_sizes: Vec<u64>,
}

impl AlgorithmSwitch {
    pub(crate) fn is_discontinuity(&self) -> bool {
        self.jump.is_some_and(|jump| (jump - 1.0).abs() > MIN_JUMP)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SweepFit {
    pub(crate) sweep: Sweep,
    /// None for a sweep with too few sizes.
    pub(crate) ranges: Vec<RangeLine>,
    pub(crate) switches: Vec<AlgorithmSwitch>,
}

impl SweepFit {
    /// Fits a sweep. Where the profiler shows the algorithm of every size, it divides the sizes; each part is divided further
    /// by the fit.
    pub(crate) fn from_sweep(sweep: Sweep) -> Self {
        let points: Vec<SizeDuration> = sweep
            .points
            .iter()
            .map(|point| SizeDuration { bytes: point.bandwidth_bytes as f64, micros: point.micros })
            .collect();
        let mut ranges: Vec<RangeLine> = Vec::new();
        for (first, end) in algorithm_runs(&sweep.points) {
            for range in divide_sizes(&points[first..end]) {
                let (low, high) = range.possible_ends;
                ranges.push(RangeLine {
                    first: first + range.first,
                    end: first + range.end,
                    possible_ends: (first + low, first + high),
                    algorithm: sweep.points[first].algorithm.clone(),
                    ..range
                });
            }
        }
        let switches = find_switches(&sweep, &ranges);
        Self { sweep, ranges, switches }
    }

    pub(crate) fn peak(&self, network: Option<&CommNetwork>) -> Option<f64> {
        peak_bus_bandwidth(network?, self.sweep.key.ranks, self.sweep.key.tier?)
    }

    pub(crate) fn line_of_point(&self, index: usize) -> Option<&LineFit> {
        let range = self.ranges.iter().find(|range| (range.first..range.end).contains(&index))?;
        Some(&range.line)
    }
}

/// Returns the runs of points with one algorithm; one run if a point has none.
fn algorithm_runs(points: &[SweepPoint]) -> Vec<(usize, usize)> {
    let is_known = points.iter().all(|point| !point.algorithm.is_empty());
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, point) in points.iter().enumerate() {
        match runs.last_mut() {
            Some((first, end)) if !is_known || points[*first].algorithm == point.algorithm => {
                *end = index + 1;
            }
            _ => runs.push((index, index + 1)),
        }
    }
    runs
}

fn find_switches(sweep: &Sweep, ranges: &[RangeLine]) -> Vec<AlgorithmSwitch> {
    let points = &sweep.points;
    let sizes: Vec<u64> = points.iter().map(|point| point.message).collect();
    let element = sweep.key.dtype.as_ref().and_then(Dtype::bytes).unwrap_or(1);
    let granularity = sweep.kind.size_granularity(element, sweep.key.ranks);
    let switch = |end: usize, possible_ends: (usize, usize), evidence: SwitchEvidence| {
        let before = ranges.iter().find(|range| range.end == end);
        let behind = ranges.iter().find(|range| range.first == end);
        let [left, right] = [end - 1, end].map(|index| points[index].bandwidth_bytes as f64);
        let middle = (left * right).sqrt();
        let jump = before.zip(behind);
        let jump = jump.map(|(before, behind)| behind.line.micros(middle) / before.line.micros(middle));
        AlgorithmSwitch {
            before: sizes[end - 1],
            behind: sizes[end],
            at_least: sizes[possible_ends.0 - 1],
            at_most: sizes[possible_ends.1],
            evidence,
            jump,
            is_located: is_located(&sizes, possible_ends),
            refining_sizes: refining_sizes(&sizes, end, possible_ends, granularity),
        }
    };
    let runs = algorithm_runs(points);
    let mut switches: BTreeMap<usize, AlgorithmSwitch> = BTreeMap::new();
    for (_, end) in &runs[..runs.len().saturating_sub(1)] {
        switches.insert(*end, switch(*end, (*end, *end), SwitchEvidence::AlgorithmType));
    }
    for RangeLine { end, possible_ends, .. } in ranges {
        // The end of a run is no result of the fit.
        if *end < points.len() {
            switches.entry(*end).or_insert_with(|| switch(*end, *possible_ends, SwitchEvidence::Fit));
        }
    }
    switches.into_values().collect()
}

/// Algorithms by the lines of several group sizes, for small and for large messages.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ScalingOfGroups {
    #[schemars(with = "String")]
    pub(crate) collective: CollectiveKind,
    pub(crate) tier: Option<u64>,
    pub(crate) dtype: Option<String>,
    pub(crate) environment: String,
    pub(crate) ranks: Vec<u64>,
    /// By the lines of the smallest sizes.
    pub(crate) small_messages: ScalingComparison,
    /// By those of the largest sizes.
    pub(crate) large_messages: ScalingComparison,
}

/// Compares the algorithms of each collective over its group sizes, where there are several. The factors of the algorithms are those
/// of equal parts, so sweeps with other parts are left out.
pub(crate) fn compare_group_sizes(fits: &[SweepFit]) -> Vec<ScalingOfGroups> {
    let mut groups: BTreeMap<(CollectiveKind, SweepKey), Vec<&SweepFit>> = BTreeMap::new();
    let has_equal_parts = |fit: &&SweepFit| fit.sweep.key.parts == PartWeights::Equal;
    for fit in fits.iter().filter(has_equal_parts).filter(|fit| !fit.ranges.is_empty()) {
        let key = SweepKey { ranks: 0, ..fit.sweep.key.clone() };
        groups.entry((fit.sweep.kind, key)).or_default().push(fit);
    }
    let several = groups.into_iter().filter(|(_, fits)| fits.len() > 1);
    several
        .map(|((collective, key), fits)| {
            let compared = |line_of: fn(&SweepFit) -> Option<&RangeLine>| {
                let lines = fits.iter().filter_map(|fit| Some((fit.sweep.key.ranks, &line_of(fit)?.line)));
                compare_algorithms(collective, &lines.collect::<Vec<_>>())
            };
            ScalingOfGroups {
                collective,
                tier: key.tier,
                dtype: key.dtype.map(|dtype| dtype.as_str().to_owned()),
                environment: key.environment,
                ranks: fits.iter().map(|fit| fit.sweep.key.ranks).collect(),
                small_messages: compared(|fit| fit.ranges.first()),
                large_messages: compared(|fit| fit.ranges.last()),
            }
        })
        .collect()
}

/// Factors from the smaller size of a cell to new ones; neighbours differ by less than [`LOCATED_RATIO`].
const FACTORS: [(u64, u64); 4] = [(9, 8), (5, 4), (3, 2), (7, 4)];
/// Ratio of the sizes around a change from which it counts as located.
const LOCATED_RATIO: f64 = 1.25;

/// Returns message sizes inside the two cells around a change, and inside all cells where it may be, that are not among the
/// measured ones; none if it is located.
///
/// `sizes` ascend; the change is between `sizes[end - 1]` and `sizes[end]`, or at another end from `possible_ends`.
fn refining_sizes(sizes: &[u64], end: usize, possible_ends: (usize, usize), granularity: u64) -> Vec<u64> {
    if end == 0 || end >= sizes.len() || is_located(sizes, possible_ends) {
        return Vec::new();
    }
    let first = possible_ends.0.min(end - 1).max(1);
    let last = possible_ends.1.max(end).min(sizes.len() - 1);
    let mut found = Vec::new();
    for cell in first..=last {
        let (low, high) = (sizes[cell - 1], sizes[cell]);
        if is_narrow(low, high) {
            continue;
        }
        for (numerator, denominator) in FACTORS {
            let exact = u128::from(low) * u128::from(numerator) / u128::from(denominator);
            let Ok(size) = u64::try_from(exact) else { continue };
            let size = size / granularity.max(1) * granularity.max(1);
            if size > low && size < high && !found.contains(&size) {
                found.push(size);
            }
        }
    }
    found
}

fn is_narrow(low: u64, high: u64) -> bool {
    high as f64 <= low as f64 * LOCATED_RATIO
}

fn is_located(sizes: &[u64], (least, greatest): (usize, usize)) -> bool {
    match (least.checked_sub(1).and_then(|before| sizes.get(before)), sizes.get(greatest)) {
        (Some(low), Some(high)) => is_narrow(*low, *high),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(algorithm: impl Fn(u64) -> &'static str, micros: impl Fn(f64) -> f64) -> Sweep {
        let points = (10..26)
            .map(|bits| {
                let message = 1_u64 << bits;
                SweepPoint {
                    message,
                    bandwidth_bytes: message,
                    micros: micros(message as f64),
                    interval: None,
                    algorithm: algorithm(message).to_owned(),
                    rows: 1,
                    is_foreign: false,
                }
            })
            .collect();
        let key = SweepKey {
            tier: Some(1),
            ranks: 8,
            dtype: Some(Dtype::Bf16),
            environment: String::new(),
            parts: PartWeights::Equal,
        };
        Sweep { kind: CollectiveKind::AllReduce, key, points }
    }

    #[test]
    fn a_jump_is_a_discontinuity_with_sizes_that_locate_it() {
        let micros = |bytes: f64| match bytes < 100_000.0 {
            true => 10.0 + bytes * 1e-3 / 20.0,
            false => 40.0 + bytes * 1e-3 / 90.0,
        };
        let fit = SweepFit::from_sweep(sweep(|_| "", micros));
        let [switch] = fit.switches.as_slice() else { panic!("{:?}", fit.switches) };
        assert_eq!((switch.before, switch.behind), (65_536, 131_072));
        assert_eq!((switch.at_least, switch.at_most), (65_536, 131_072));
        assert!(switch.is_discontinuity() && !switch.is_located, "{switch:?}");
        // Both lines at 92682 bytes, between the two sizes.
        assert!((switch.jump.expect("lines") - (40.0 + 1.0298) / (10.0 + 4.6341)).abs() < 0.01, "{switch:?}");
        assert!(switch.refining_sizes.contains(&81_920) && switch.refining_sizes.len() == 8, "{switch:?}");
        assert_eq!(switch.evidence, SwitchEvidence::Fit);
    }

    /// A change that the profiler shows is one, even if the durations do not.
    #[test]
    fn the_profilers_algorithm_divides_the_sizes() {
        let named = |message: u64| if message < 65_536 { "RING-RING" } else { "HD-RING" };
        let fit = SweepFit::from_sweep(sweep(named, |bytes| 10.0 + bytes * 1e-3 / 20.0));
        let [switch] = fit.switches.as_slice() else { panic!("{:?}", fit.switches) };
        assert_eq!((switch.before, switch.behind), (32_768, 65_536));
        assert_eq!(switch.evidence, SwitchEvidence::AlgorithmType);
        assert!(!switch.is_discontinuity(), "{switch:?}");
        assert_eq!(fit.ranges.len(), 2);
        assert_eq!(fit.ranges[1].algorithm, "HD-RING");
        // One row without the algorithm: the fit decides.
        let partly = |message: u64| if message == 1024 { "" } else { named(message) };
        let fit = SweepFit::from_sweep(sweep(partly, |bytes| 10.0 + bytes * 1e-3 / 20.0));
        assert_eq!((fit.switches.len(), fit.ranges.len()), (0, 1));
    }

    #[test]
    fn an_algorithm_of_few_sizes_has_no_line_but_a_change() {
        let named = |message: u64| if message < 4096 { "TREE" } else { "RING" };
        let fit = SweepFit::from_sweep(sweep(named, |bytes| 10.0 + bytes * 1e-3 / 20.0));
        assert_eq!((fit.ranges.len(), fit.switches.len()), (1, 1));
        assert_eq!(fit.switches[0].jump, None);
        assert!(fit.line_of_point(0).is_none() && fit.line_of_point(3).is_some());
    }

    #[test]
    fn sizes_around_a_change_locate_it_within_a_quarter() {
        let sizes: Vec<u64> = (7..30).map(|bits| 1 << bits).collect();
        // Between 32 and 64 KiB.
        let more = refining_sizes(&sizes, 9, (9, 9), 2);
        let kib = |size: u64| size * 1024;
        let expected = [kib(18), kib(20), kib(24), kib(28), kib(36), kib(40), kib(48), kib(56)];
        assert_eq!(more, expected);
        let mut all = sizes.clone();
        all.extend(more);
        all.sort_unstable();
        for end in 1..all.len() {
            if all[end - 1] >= kib(16) && all[end] <= kib(64) {
                assert!(is_located(&all, (end, end)));
                assert_eq!(refining_sizes(&all, end, (end, end), 2), [0; 0]);
            }
        }
        // Where the change may be one size later, that cell has further sizes as well.
        assert!(refining_sizes(&sizes, 9, (9, 10), 2).contains(&kib(80)));
    }

    #[test]
    fn refining_sizes_can_be_divided_among_the_ranks() {
        let granularity = CollectiveKind::AllToAll.size_granularity(2, 16);
        assert_eq!(refining_sizes(&[128, 256, 512], 1, (1, 1), granularity), [160, 192, 224]);
        assert_eq!(refining_sizes(&[1, 2, 4], 1, (1, 1), 1), [0; 0], "no size is between 1 and 2");
        assert_eq!(refining_sizes(&[1024], 1, (1, 1), 1), [0; 0]);
        assert_eq!(refining_sizes(&[], 0, (0, 0), 1), [0; 0]);
    }
}
