//! Analytic model of collectives, the least time of the known algorithms on the links of one tier, and the comparison of
//! measured rows with it.
//!
//! Sizes have the same meaning as in the tables (`message_bytes`, see [`CollectiveKind::size_semantics`]), so that a
//! measured row and its prediction mean the same bytes: `reduce_scatter` counts the output of one rank, `all_to_all`
//! the input of one rank with its own part, which passes no link.

use schemars::JsonSchema;
use serde::Serialize;
use strum::Display;

use super::sweep::{Sweep, SweepPoint};
use crate::kernel::{
    CollectiveKind,
    collective::{CommNetwork, CommTier, LinkKind},
};

/// Returns the predicted time of a message in µs; `None` for a tier that the network lacks, fewer than two ranks, and collectives
/// without a model.
///
/// With steps of L µs and a bandwidth B of each rank, the model has the faster one of a ring of `n - 1` steps and of a tree or
/// recursive doubling of `log2 n` steps. `all_reduce` by a tree sends the whole message twice, so that the ring is faster for
/// large ones.
pub(crate) fn predict_time(
    network: &CommNetwork,
    kind: CollectiveKind,
    message: u64,
    ranks: u64,
    tier: u64,
) -> Option<f64> {
    let place = usize::try_from(tier).ok()?;
    let link = network.tiers.get(place)?;
    if ranks < 2 {
        return None;
    }
    let largest: u64 = network.grid.get(place..)?.iter().product();
    let bytes_per_us = used_bandwidth(link, ranks, largest) * 1e-6;
    let (n, size, latency) = (ranks as f64, message as f64, link.latency_us);
    let fewest_steps = (n - 1.0).min(n.log2());
    let time = |steps: f64, bytes: f64| steps * latency + bytes / bytes_per_us;
    match kind {
        CollectiveKind::AllReduce => {
            let ring = time(2.0 * (n - 1.0), 2.0 * (n - 1.0) * size / n);
            Some(ring.min(time(2.0 * n.log2(), 2.0 * size)))
        }
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
            Some(time(fewest_steps, (n - 1.0) * size))
        }
        CollectiveKind::AllToAll | CollectiveKind::AllToAllV => {
            Some(time(fewest_steps, (n - 1.0) * size / n))
        }
        CollectiveKind::SendReceive => Some(time(1.0, size)),
        CollectiveKind::Broadcast => None,
    }
}

/// Returns the greatest bus bandwidth of a group in 10⁹ bytes per second: the peak of the links that it uses.
pub(crate) fn peak_bus_bandwidth(network: &CommNetwork, ranks: u64, tier: u64) -> Option<f64> {
    let place = usize::try_from(tier).ok()?;
    let link = network.tiers.get(place).filter(|_| ranks > 1)?;
    let largest: u64 = network.grid.get(place..)?.iter().product();
    Some(used_bandwidth(&CommTier { efficiency: 1.0, ..*link }, ranks, largest) * 1e-9)
}

/// Bandwidth of a rank in bytes per second. In a full mesh, a group uses the links to its own members only.
fn used_bandwidth(link: &CommTier, ranks: u64, largest: u64) -> f64 {
    let reached = link.gb_per_s * 1e9 * link.efficiency;
    match link.kind {
        LinkKind::Clos => reached,
        LinkKind::FullMesh => {
            let links = largest.saturating_sub(1).max(1);
            reached * (ranks - 1).min(links) as f64 / links as f64
        }
    }
}

/// Outcome of the comparison of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "UPPERCASE")]
pub(crate) enum ModelVerdict {
    /// Measured and predicted time differ by at most the tolerance.
    Pass,
    /// By at most twice the tolerance.
    Warn,
    /// By more.
    Fail,
    /// No prediction: the row has no tier, the network lacks it, or the collective has no model.
    #[strum(serialize = "no model")]
    NoModel,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelComparison<'s> {
    pub(crate) sweep: &'s Sweep,
    pub(crate) point: &'s SweepPoint,
    pub(crate) predicted_us: Option<f64>,
    pub(crate) verdict: ModelVerdict,
}

impl ModelComparison<'_> {
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.predicted_us.map(|predicted| self.point.micros / predicted)
    }
}

/// Compares each row with the model, both in the size of the table. `tolerance` is a ratio above 1.
pub(crate) fn compare_with_model<'s>(
    network: &CommNetwork,
    sweeps: &'s [Sweep],
    tolerance: f64,
) -> Vec<ModelComparison<'s>> {
    let rows = sweeps.iter().flat_map(|sweep| sweep.points.iter().map(move |point| (sweep, point)));
    rows.map(|(sweep, point)| {
        let predicted = sweep.key.tier.and_then(|tier| {
            predict_time(network, sweep.kind, sweep.equal_message(point.message), sweep.key.ranks, tier)
        });
        let predicted_us = predicted.filter(|micros| *micros > 0.0);
        let verdict = predicted_us
            .map_or(ModelVerdict::NoModel, |predicted| verdict_of_ratio(point.micros / predicted, tolerance));
        ModelComparison { sweep, point, predicted_us, verdict }
    })
    .collect()
}

fn verdict_of_ratio(ratio: f64, tolerance: f64) -> ModelVerdict {
    match ratio.max(1.0 / ratio) {
        off if off <= tolerance => ModelVerdict::Pass,
        off if off <= 2.0 * tolerance => ModelVerdict::Warn,
        _ => ModelVerdict::Fail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::assets::AssetFiles, kernel::device::DeviceProfile};

    fn network(profile: &str) -> CommNetwork {
        DeviceProfile::load(&AssetFiles::embedded(), profile).expect("a profile").comm.expect("a network")
    }

    fn micros(profile: &str, kind: CollectiveKind, message: u64, ranks: u64, tier: u64) -> f64 {
        predict_time(&network(profile), kind, message, ranks, tier).expect("a model")
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 0.001, "{value} instead of {expected}");
    }

    const A3: &str = "ATLAS_800_A3_752T_128G_DIE";
    const A2: &str = "ATLAS_800_A2_313T_64G";

    /// Values that the superseded validator computes, tier 1 of an A3 with 16 ranks.
    #[test]
    fn predictions_are_those_of_the_superseded_validator() {
        assert_near(micros(A3, CollectiveKind::AllReduce, 65_536, 16, 1), 4.955);
        assert_near(micros(A3, CollectiveKind::AllReduce, 1_310_720, 16, 1), 23.11);
        assert_near(micros(A3, CollectiveKind::AllGather, 655_360, 16, 1), 73.65);
    }

    /// The validator of the superseded tool took the size of `reduce_scatter` for the sum of all ranks, so that its
    /// result was wrong by a factor of their number (row 35 of its known defects): a scatter moves what a gather of the
    /// same size per rank does.
    #[test]
    fn reduce_scatter_counts_the_bytes_of_one_rank_as_its_table_does() {
        for ranks in [2, 4, 16] {
            let [scatter, gather] = [CollectiveKind::ReduceScatter, CollectiveKind::AllGather]
                .map(|kind| micros(A3, kind, 655_360, ranks, 1));
            assert_near(scatter, gather);
        }
        assert_near(micros(A3, CollectiveKind::ReduceScatter, 655_360, 16, 1), 73.65);
    }

    /// The table's size of `all_to_all` includes the part that a rank keeps (row 36); the links carry the others.
    #[test]
    fn all_to_all_sends_all_parts_but_its_own() {
        let predicted = predict_time(&network(A3), CollectiveKind::AllToAll, 1 << 20, 4, 1).expect("a model");
        assert_near(predicted, 1.0 + 0.75 * 1_048_576.0 / (196e9 * 0.7) * 1e6);
    }

    #[test]
    fn small_groups_use_some_links_of_a_mesh() {
        // All-gather over 2 of 8 ranks uses one of seven links.
        let time = |message, ranks| micros(A2, CollectiveKind::AllGather, message, ranks, 1);
        let transfer = |ranks| time(1 << 20, ranks) - time(0, ranks);
        assert_near(transfer(2), 1_048_576.0 / (196e9 * 0.7 / 7.0) * 1e6);
        assert_near(transfer(8), 7.0 * 1_048_576.0 / (196e9 * 0.7) * 1e6);
    }

    #[test]
    fn a_prediction_needs_a_tier_two_ranks_and_a_model() {
        let network = network(A3);
        let predicted = |kind, ranks, tier| predict_time(&network, kind, 1024, ranks, tier);
        assert_eq!(predicted(CollectiveKind::AllReduce, 4, 3), None);
        assert_eq!(predicted(CollectiveKind::AllReduce, 1, 1), None);
        assert_eq!(predicted(CollectiveKind::Broadcast, 4, 1), None);
        assert!(predicted(CollectiveKind::SendReceive, 2, 0).is_some());
    }

    #[test]
    fn verdicts_follow_the_tolerance_in_both_directions() {
        for (ratio, expected) in [
            (1.0, ModelVerdict::Pass),
            (2.0, ModelVerdict::Pass),
            (0.5, ModelVerdict::Pass),
            (2.1, ModelVerdict::Warn),
            (0.26, ModelVerdict::Warn),
            (4.1, ModelVerdict::Fail),
            (0.2, ModelVerdict::Fail),
            (f64::INFINITY, ModelVerdict::Fail),
        ] {
            assert_eq!(verdict_of_ratio(ratio, 2.0), expected, "{ratio}");
        }
        assert_eq!(verdict_of_ratio(1.2, 1.1), ModelVerdict::Warn);
    }
}
