//! Comparison of measured rows with the analytic model of a network.

use schemars::JsonSchema;
use serde::Serialize;
use strum::Display;

use super::{
    analytic::{PredictedTime, predict_time},
    sweep::{Sweep, SweepPoint},
};
use crate::kernel::collective::CommNetwork;

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

/// A measured row beside its prediction.
#[derive(Clone, Debug)]
pub(crate) struct ModelComparison<'s> {
    pub(crate) sweep: &'s Sweep,
    pub(crate) point: &'s SweepPoint,
    pub(crate) predicted_us: Option<f64>,
    pub(crate) verdict: ModelVerdict,
}

impl ModelComparison<'_> {
    /// Returns the ratio of the measured to the predicted time.
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
        let predicted_us = predicted.map(PredictedTime::micros).filter(|micros| *micros > 0.0);
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
