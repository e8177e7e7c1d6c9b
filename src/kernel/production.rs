//! Comparison of the replay's median with that of the same case in production profiles.

use super::{CacheState, CaseOutcome, Nanos, RowResult, Verdict, reason_remarks, verdict::CLAUSE_SEPARATOR};

/// Greatest factor between the medians of replay and production, in either direction. Caches, other kernels on the device and
/// another clock account for less in most kernels.
pub(crate) const PRODUCTION_FACTOR: f64 = 1.4;

/// Returns how the median of a replay in nanoseconds contradicts that of production; `None` if it does not. A cold
/// cache may make a kernel several times as long, where production finds its tensors in the cache.
pub(crate) fn production_contradiction(median: f64, production: Nanos, cache: CacheState) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "durations of kernels")]
    let ratio = median / production.0 as f64;
    let is_longer_by_cache = cache == CacheState::Cold && ratio > 1.0;
    (ratio.ln().abs() > PRODUCTION_FACTOR.ln() && !is_longer_by_cache)
        .then(|| format!("the median is {ratio:.2} times that of production, {production} us"))
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
        Self { outcome: self.outcome.with_contradiction(&contradiction), ..self }
    }
}

impl CaseOutcome {
    /// Returns the outcome of an attempt that something contradicts: `suspicious`, whatever its spread.
    pub(crate) fn of_contradicted_attempt(&self, contradiction: &str) -> Self {
        match self.verdict {
            Verdict::Noisy => Self::with_remarks(Verdict::Suspicious, contradiction, [self.reason.as_str()]),
            _ => self.with_contradiction(contradiction),
        }
    }

    /// Returns the outcome of a measurement that something contradicts: `suspicious` instead of `ok`; any other verdict gets
    /// the contradiction as a remark.
    pub(crate) fn with_contradiction(&self, contradiction: &str) -> Self {
        match self.verdict {
            Verdict::Ok => {
                Self::with_remarks(Verdict::Suspicious, contradiction, reason_remarks(&self.reason))
            }
            // It is the cause or a remark already.
            _ if self.reason.split(CLAUSE_SEPARATOR).any(|clause| clause == contradiction) => self.clone(),
            verdict => Self::with_remarks(verdict, &self.reason, [contradiction]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_far_from_production_are_contradictions() {
        let with = |median, cache| production_contradiction(median, Nanos(10_000), cache);
        let text = |median: f64| with(median, CacheState::Hot);
        assert_eq!(text(13_900.0), None);
        assert_eq!(text(7_200.0), None);
        let slow = "the median is 1.50 times that of production, 10.000 us";
        assert_eq!(text(15_000.0).as_deref(), Some(slow));
        assert!(text(6_000.0).is_some_and(|text| text.starts_with("the median is 0.60 times")));
        assert_eq!(with(30_000.0, CacheState::Cold), None, "production may find its tensors in the cache");
        assert_eq!(with(6_000.0, CacheState::Cold), text(6_000.0));
    }

    #[test]
    fn only_accepted_results_become_suspicious() {
        let of = |verdict| CaseOutcome::new(verdict, "a cause; a remark").with_contradiction("too slow");
        assert_eq!(of(Verdict::Ok), CaseOutcome::new(Verdict::Suspicious, "too slow; a remark"));
        assert_eq!(of(Verdict::Noisy), CaseOutcome::new(Verdict::Noisy, "a cause; a remark; too slow"));
        let attempt =
            CaseOutcome::new(Verdict::Noisy, "a cause; a remark").of_contradicted_attempt("too slow");
        assert_eq!(attempt, CaseOutcome::new(Verdict::Suspicious, "too slow; a cause; a remark"));
        let suspicious = CaseOutcome::new(Verdict::Suspicious, "too slow; a remark");
        assert_eq!(suspicious.with_contradiction("too slow"), suspicious);
    }
}
