//! Durations of collectives on the rehearsal host: start and bandwidth by size, with switches between algorithms.

use serde::{Deserialize, Serialize};

use crate::kernel::Nanos;

/// Model of the durations of all collectives: t = start + S / bandwidth, by the first regime that has the size. S is that of
/// bandwidths: of gathers and scatters the data of all ranks together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedCollectives {
    /// In the order of their sizes.
    regimes: Vec<CollectiveRegime>,
}

/// Sizes for which one algorithm is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectiveRegime {
    /// Largest size in bytes; none for the last regime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    up_to: Option<u64>,
    /// Duration of a collective without data in microseconds.
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

    /// Returns the duration of a collective of this size, without noise.
    pub(crate) fn duration(&self, size: u64) -> Nanos {
        let has_size = |regime: &&CollectiveRegime| regime.up_to.is_none_or(|most| size <= most);
        let Some(regime) = self.regimes.iter().find(has_size) else { return Nanos(0) };
        let nanos = regime.start_us * 1e3 + size as f64 / regime.gigabytes_per_second;
        Nanos(nanos.round() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_follow_the_regime_of_the_size() {
        let model = RehearsedCollectives::default();
        assert!(model.is_valid());
        let duration = |size| model.duration(size).0;
        assert_eq!((duration(32 << 10), duration((32 << 10) + 1)), (12_000 + 1_638, 22_000 + 468));
        assert_eq!(duration(512 << 20), 60_000 + 3_158_064);
    }
}
