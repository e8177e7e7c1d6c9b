//! Comparison of the replay's median with the median of the same case in production profiles.

use super::{CacheState, Cause, Nanos, RowResult};

/// Greatest factor between the medians of replay and production, in either direction. Caches, other kernels on the device and
/// another clock account for less in most kernels.
pub(crate) const PRODUCTION_FACTOR: f64 = 1.4;

/// Returns how the median of a replay in nanoseconds contradicts the median of production; `None` if it does not. A
/// cold cache may make a kernel several times as long, where production finds its tensors in the cache.
pub(crate) fn production_contradiction(median: f64, production: Nanos, cache: CacheState) -> Option<Cause> {
    #[expect(clippy::cast_precision_loss, reason = "durations of kernels")]
    let ratio = median / production.0 as f64;
    let is_longer_by_cache = cache == CacheState::Cold && ratio > 1.0;
    (ratio.ln().abs() > PRODUCTION_FACTOR.ln() && !is_longer_by_cache)
        .then(|| Cause::Production { ratio: ratio.into(), median_ns: production })
}

impl RowResult {
    /// Returns the result compared with the median of the case in production profiles: an accepted one that contradicts it
    /// becomes `suspicious`, any other gets a remark. Measuring again does not remove the contradiction, because all devices
    /// of a host may be wrong alike.
    pub(crate) fn judged_by_production(self, production: Nanos) -> Self {
        let median = self.measurement.as_ref().map(|measured| measured.summary.median);
        let Some(contradiction) =
            median.and_then(|median| production_contradiction(median, production, self.cache))
        else {
            return self;
        };
        Self { outcome: self.outcome.with_contradiction(contradiction), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_far_from_production_are_contradictions() {
        let with = |median, cache| {
            production_contradiction(median, Nanos(10_000), cache).map(|cause| cause.to_string())
        };
        let text = |median: f64| with(median, CacheState::Hot);
        assert_eq!(text(13_900.0), None);
        assert_eq!(text(7_200.0), None);
        let slow = "the median is 1.50 times that of production, 10.000 us";
        assert_eq!(text(15_000.0).as_deref(), Some(slow));
        assert!(text(6_000.0).is_some_and(|text| text.starts_with("the median is 0.60 times")));
        assert_eq!(with(30_000.0, CacheState::Cold), None, "production may find its tensors in the cache");
        assert_eq!(with(6_000.0, CacheState::Cold), text(6_000.0));
    }
}
