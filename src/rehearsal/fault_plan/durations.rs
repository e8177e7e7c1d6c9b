//! Parameters of simulated durations, which `python/rehearsal/timing.py` computes: the noise of the lifelike model, and start
//! and bandwidth of collectives.

use serde::{Deserialize, Deserializer, Serialize};

/// Noise of the lifelike model. All standard deviations are relative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedNoise {
    /// Standard deviation of launches: one value for all cases, or a range within which each case has its own value.
    #[serde(deserialize_with = "one_or_range")]
    pub(crate) launch: [f64; 2],
    pub(crate) collection: f64,
    /// Standard deviation of the offset of a case in a collection, in units of its launch noise.
    pub(crate) offset: f64,
    /// Correlation of the offsets of the cases of a collection, from 0 to 1.
    pub(crate) shared: f64,
    /// True if a fifth of the offsets is 2 standard deviations and the others are -0.5, instead of normal ones.
    pub(crate) two_modes: bool,
    /// Correlation of successive launches, from 0 to below 1.
    pub(crate) dependence: f64,
    pub(crate) devices: f64,
}

impl Default for RehearsedNoise {
    fn default() -> Self {
        Self {
            launch: [0.01; 2],
            collection: 0.005,
            offset: 0.0,
            shared: 0.0,
            two_modes: false,
            dependence: 0.0,
            devices: 0.0,
        }
    }
}

impl RehearsedNoise {
    pub(super) fn first_invalid(&self) -> Option<(&'static str, &'static str)> {
        let Self { launch: [least, most], collection, offset, shared, two_modes: _, dependence, devices } =
            *self;
        let deviation = "expected a relative standard deviation from 0 to 0.2";
        let parameters = [
            (
                "launch",
                0.0 < least && least <= most && most <= 0.2,
                "expected a relative standard deviation above 0, up to 0.2, or a range [least, most]",
            ),
            ("collection", (0.0..=0.2).contains(&collection), deviation),
            ("offset", (0.0..=10.0).contains(&offset), "expected a multiple of launch noise from 0 to 10"),
            ("shared", (0.0..=1.0).contains(&shared), "expected a correlation from 0 to 1"),
            ("dependence", (0.0..=0.95).contains(&dependence), "expected a correlation from 0 to 0.95"),
            ("devices", (0.0..=0.2).contains(&devices), deviation),
        ];
        parameters.into_iter().find(|(_, is_valid, _)| !is_valid).map(|(key, _, expected)| (key, expected))
    }
}

/// Reads a number as a range of that number alone.
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
    /// In the order of their sizes.
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
