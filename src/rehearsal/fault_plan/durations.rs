//! Parameters of simulated durations, which `python/rehearsal/timing.py` computes: the noise of the lifelike model, and start
//! and bandwidth of collectives.

use serde::{Deserialize, Deserializer, Serialize};

parameters! {
    /// Noise of the lifelike model. All standard deviations are relative.
    pub(crate) RehearsedNoise {
        /// Standard deviation of launches: one value for all cases, or a range within which each case has its own value.
        #[serde(deserialize_with = "one_or_range")]
        launch: [f64; 2] = [0.01; 2],
        collection: f64 = 0.005,
        /// Standard deviation of the offset of a case in a collection, in units of its launch noise.
        offset: f64 = 0.0,
        /// Correlation of the offsets of the cases of a collection, from 0 to 1.
        shared: f64 = 0.0,
        /// True if a fifth of the offsets is 2 standard deviations and the others are -0.5, instead of normal ones.
        two_modes: bool = false,
        /// Correlation of successive launches, from 0 to below 1.
        dependence: f64 = 0.0,
        devices: f64 = 0.0,
    }
}

fn one_or_range<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number, or two numbers: [least, most]")]
    enum OneOrRange {
        One(f64),
        Range([f64; 2]),
    }
    OneOrRange::deserialize(from).map(|value| match value {
        OneOrRange::One(one) => [one; 2],
        OneOrRange::Range(range) => range,
    })
}

/// Model of the durations of all collectives: t = start + S / bandwidth, by the first regime that has the size. S is that of
/// bandwidths: of gathers and scatters the data of all ranks together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedCollectives {
    regimes: Vec<CollectiveRegime>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectiveRegime {
    /// Largest size in bytes; none for the last regime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    up_to: Option<u64>,
    start_us: f64,
    /// 10^9 bytes per second.
    gigabytes_per_second: f64,
}

impl Default for RehearsedCollectives {
    /// Regimes that fits of sweeps can find; they are of no device.
    fn default() -> Self {
        let regime = |up_to, start_us, gigabytes_per_second| CollectiveRegime {
            up_to,
            start_us,
            gigabytes_per_second,
        };
        let regimes = vec![
            regime(Some(32 << 10), 12.0, 20.0),
            regime(Some(2 << 20), 22.0, 70.0),
            regime(None, 60.0, 170.0),
        ];
        Self { regimes }
    }
}

impl RehearsedCollectives {
    /// Returns true if each regime has a positive start and bandwidth, and all but the last a larger size than the one before.
    pub(super) fn is_valid(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let Some((last, before)) = self.regimes.split_last() else { return false };
        let sizes: Option<Vec<u64>> = before.iter().map(|regime| regime.up_to).collect();
        last.up_to.is_none()
            && sizes.is_some_and(|sizes| sizes.is_sorted_by(|one, other| one < other))
            && self
                .regimes
                .iter()
                .all(|regime| positive(regime.start_us) && positive(regime.gigabytes_per_second))
    }
}
