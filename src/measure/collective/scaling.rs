//! The algorithm that fits the dependence of latency and time per byte on the number of ranks.

use schemars::JsonSchema;
use serde::Serialize;
use strum::{Display, VariantArray};

use super::line::{Interval, LineFit};
use crate::kernel::CollectiveKind;

const MIN_GROUPS: usize = 3;
/// Relative uncertainty below which no parameter is trusted: the models are coarse.
const MIN_UNCERTAINTY: f64 = 0.05;
/// Mean square of the deviations, in uncertainties, up to which an algorithm fits.
const FITTING: f64 = 4.0;
/// Factor by which the next algorithm must fit worse.
const DISTINCT: f64 = 4.0;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, Serialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CollectiveAlgorithm {
    /// Neighbours pass parts around, in as many steps as there are other ranks.
    Ring,
    /// Distances double or halve with each step.
    HalvingDoubling,
    /// The whole message passes a tree, up and down.
    Tree,
    /// Each rank exchanges with one other in each step.
    Pairwise,
}

impl CollectiveAlgorithm {
    /// Returns the numbers of steps and of transfers of S bytes, on which latency and time are proportional; `None` if the
    /// collective is not done this way.
    fn factors(self, kind: CollectiveKind, ranks: f64) -> Option<(f64, f64)> {
        let (steps, doublings) = (ranks - 1.0, ranks.log2());
        let share = steps / ranks;
        match (kind, self) {
            (CollectiveKind::AllReduce, Self::Ring) => Some((2.0 * steps, 2.0 * share)),
            (CollectiveKind::AllReduce, Self::HalvingDoubling) => Some((2.0 * doublings, 2.0 * share)),
            (CollectiveKind::AllReduce, Self::Tree) => Some((2.0 * doublings, 2.0 * doublings)),
            (CollectiveKind::AllGather | CollectiveKind::ReduceScatter, Self::Ring)
            | (CollectiveKind::AllToAll | CollectiveKind::AllToAllV, Self::Pairwise) => Some((steps, share)),
            (CollectiveKind::AllGather | CollectiveKind::ReduceScatter, Self::HalvingDoubling) => {
                Some((doublings, share))
            }
            (CollectiveKind::Broadcast, Self::Tree) => Some((doublings, doublings)),
            _ => None,
        }
    }
}

/// Fit of one algorithm to all group sizes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ScalingFit {
    pub(crate) algorithm: CollectiveAlgorithm,
    /// Latency of one step in µs.
    pub(crate) step_us: Option<f64>,
    /// Bandwidth of a link in 10⁹ bytes per second.
    pub(crate) gb_per_s: Option<f64>,
    /// Root mean square of the relative deviations of latencies and times per byte.
    pub(crate) error_percent: f64,
    /// Mean square of the same in relation to their uncertainties.
    #[serde(skip)]
    deviation: f64,
}

/// Comparison of the algorithms of one range of sizes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ScalingComparison {
    /// The best one, if it is clearly the best and fits.
    pub(crate) algorithm: Option<CollectiveAlgorithm>,
    /// The reason why none is named, else empty.
    pub(crate) undecided: String,
    /// All algorithms of the collective, the best first.
    pub(crate) fits: Vec<ScalingFit>,
}

/// Fits a unit (latency of a step, time of a byte) to parameters with their factors, to which they are proportional, and
/// intervals. Returns it with the relative deviations and the same in uncertainties.
fn fit_unit(parameters: &[(f64, f64, Option<Interval>)]) -> Option<(f64, Vec<(f64, f64)>)> {
    let known = parameters.iter().filter(|(value, ..)| *value > 0.0);
    // The relative uncertainty is half of the interval.
    let known = known.map(|(value, factor, interval)| {
        let half = interval.map_or(1.0, |(low, high)| ((high - low) / 2.0 / value).max(MIN_UNCERTAINTY));
        (*value, *factor, half.min(1e3))
    });
    let known: Vec<(f64, f64, f64)> = known.collect();
    let rows =
        known.iter().map(|(value, factor, uncertainty)| (factor / value, 1.0 / (uncertainty * uncertainty)));
    let squares: f64 = rows.clone().map(|(x, weight)| weight * x * x).sum();
    let unit = rows.map(|(x, weight)| weight * x).sum::<f64>() / squares;
    if !unit.is_finite() || known.len() < MIN_GROUPS {
        return None;
    }
    let deviations = known.iter().map(|(value, factor, uncertainty)| {
        let off = unit * factor / value - 1.0;
        (off, off / uncertainty)
    });
    Some((unit, deviations.collect()))
}

pub(crate) fn compare_algorithms(kind: CollectiveKind, groups: &[(u64, &LineFit)]) -> ScalingComparison {
    let mut fits = Vec::new();
    if groups.len() >= MIN_GROUPS {
        let algorithms = CollectiveAlgorithm::VARIANTS.iter();
        fits.extend(algorithms.filter_map(|&algorithm| fit_algorithm(kind, algorithm, groups)));
    }
    fits.sort_by(|one: &ScalingFit, other| one.deviation.total_cmp(&other.deviation));
    let (algorithm, undecided) = match fits.as_slice() {
        [] if groups.len() < MIN_GROUPS => (None, "fewer than 3 numbers of ranks"),
        [] => (None, "no algorithm is known for this collective, or its parameters are 0"),
        [best, ..] if best.deviation > FITTING => (None, "no known algorithm fits"),
        [best, next, ..] if next.deviation < DISTINCT * best.deviation.max(1.0) => {
            (None, "several algorithms fit")
        }
        [best, ..] => (Some(best.algorithm), ""),
    };
    ScalingComparison { algorithm, undecided: undecided.to_owned(), fits }
}

fn fit_algorithm(
    kind: CollectiveKind,
    algorithm: CollectiveAlgorithm,
    groups: &[(u64, &LineFit)],
) -> Option<ScalingFit> {
    let (mut latencies, mut times) = (Vec::new(), Vec::new());
    for (ranks, line) in groups {
        let (steps, transfers) = algorithm.factors(kind, *ranks as f64)?;
        latencies.push((line.alpha, steps, line.alpha_interval()));
        times.push((line.beta, transfers, line.beta_interval()));
    }
    let (latency, time) = (fit_unit(&latencies), fit_unit(&times));
    let deviations: Vec<(f64, f64)> =
        [&latency, &time].into_iter().flatten().flat_map(|(_, deviations)| deviations.clone()).collect();
    if deviations.is_empty() {
        return None;
    }
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / deviations.len() as f64;
    Some(ScalingFit {
        algorithm,
        step_us: latency.as_ref().map(|(unit, _)| *unit),
        gb_per_s: time.as_ref().map(|(unit, _)| 1e-3 / unit),
        error_percent: 100.0 * mean(&mut deviations.iter().map(|(off, _)| off * off)).sqrt(),
        deviation: mean(&mut deviations.iter().map(|(_, off)| off * off)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::stats::{hash_numbers, normal_deviate},
        measure::collective::line::SizeDuration,
    };

    /// Lines of groups of 2, 4, 8 and 16 ranks of an algorithm with steps of 3 µs and links of 40 GB/s.
    fn lines(kind: CollectiveKind, algorithm: CollectiveAlgorithm, noise: f64) -> Vec<(u64, LineFit)> {
        [2_u64, 4, 8, 16]
            .into_iter()
            .map(|ranks| {
                let (steps, transfers) = algorithm.factors(kind, ranks as f64).expect("done this way");
                let points: Vec<SizeDuration> = (10..28)
                    .map(|bits: u32| {
                        let bytes = f64::from(1_u32 << bits);
                        let deviate = normal_deviate(hash_numbers(&[u64::from(bits), ranks]));
                        let micros = (3.0 * steps + transfers * bytes * 1e-3 / 40.0)
                            * (1.0 + noise * deviate).max(0.1);
                        SizeDuration { bytes, micros }
                    })
                    .collect();
                (ranks, LineFit::from_points(&points).expect("a line"))
            })
            .collect()
    }

    fn compared(kind: CollectiveKind, lines: &[(u64, LineFit)]) -> ScalingComparison {
        let groups: Vec<(u64, &LineFit)> = lines.iter().map(|(ranks, line)| (*ranks, line)).collect();
        compare_algorithms(kind, &groups)
    }

    #[test]
    fn the_algorithm_in_use_is_named_with_its_units() {
        for kind in [CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::AllToAll] {
            for algorithm in CollectiveAlgorithm::VARIANTS {
                if algorithm.factors(kind, 4.0).is_none() {
                    continue;
                }
                let comparison = compared(kind, &lines(kind, *algorithm, 0.01));
                assert_eq!(comparison.algorithm, Some(*algorithm), "{kind}: {comparison:?}");
                let best = &comparison.fits[0];
                assert!((best.step_us.expect("steps") / 3.0 - 1.0).abs() < 0.03, "{best:?}");
                assert!((best.gb_per_s.expect("transfers") / 40.0 - 1.0).abs() < 0.03, "{best:?}");
                assert!(best.error_percent < 5.0, "{best:?}");
            }
        }
    }

    #[test]
    fn an_unclear_algorithm_is_undecided_with_the_reason() {
        let kind = CollectiveKind::AllReduce;
        let all = lines(kind, CollectiveAlgorithm::Ring, 0.01);
        let few = compared(kind, &all[..2]);
        assert_eq!((few.algorithm, few.undecided.as_str()), (None, "fewer than 3 numbers of ranks"));
        // Latencies that fall with the number of ranks fit nothing.
        let mut odd = all.clone();
        odd.iter_mut().zip([40.0, 20.0, 10.0, 5.0]).for_each(|((_, line), alpha)| line.alpha = alpha);
        assert_eq!(compared(kind, &odd).undecided, "no known algorithm fits");
        // With noise of half a duration, both shapes with equal times per byte are possible.
        let noisy = compared(
            CollectiveKind::AllGather,
            &lines(CollectiveKind::AllGather, CollectiveAlgorithm::Ring, 0.5),
        );
        assert_eq!(noisy.algorithm, None, "{noisy:?}");
        let transfer = compared(CollectiveKind::SendReceive, &all);
        assert!(transfer.undecided.starts_with("no algorithm is known"), "{transfer:?}");
    }
}
