//! Errors of answers, and the estimate of their quantiles from hold-outs.

/// Hold-outs of an estimate, the last ones.
pub const HOLD_OUTS: usize = 60;
/// Share of questions whose error is at most the estimate.
const QUANTILE: f64 = 0.9;

/// Returns the error of an answer as the absolute logarithm of its ratio to the measurement, infinite without an
/// answer.
pub fn log_error(predicted: Option<f64>, measured: f64) -> f64 {
    match predicted {
        Some(predicted) if predicted > 0.0 && measured > 0.0 => (predicted / measured).ln().abs(),
        _ => f64::INFINITY,
    }
}

/// Quantiles of the errors of hold-outs, as absolute logarithms of ratios; infinite where hold-outs have no answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorEstimate {
    pub hold_outs: usize,
    pub p50: f64,
    pub p90: f64,
    pub max: f64,
}

impl ErrorEstimate {
    /// Estimates quantiles from the errors of hold-outs. `None` with too few for a 90th percentile.
    ///
    /// With n errors, the error of a further question is at most the ⌈(n + 1) q⌉-th smallest one with a probability of
    /// at least q (the quantile of split conformal prediction).
    pub fn from_errors(errors: &[f64]) -> Option<Self> {
        let mut sorted = errors.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quantile| sorted.get(conformal_rank(sorted.len(), quantile)? - 1).copied();
        Some(Self {
            hold_outs: sorted.len(),
            p50: at(0.5)?,
            p90: at(QUANTILE)?,
            max: sorted.last().copied()?,
        })
    }
}

/// Returns ⌈(count + 1) quantile⌉; `None` if it is greater than the count.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of hold-outs"
)]
fn conformal_rank(count: usize, quantile: f64) -> Option<usize> {
    let rank = ((count + 1) as f64 * quantile - 1e-9).ceil() as usize;
    (1..=count).contains(&rank).then_some(rank)
}

/// Returns the 90th percentile of values with weights; `None` without values.
pub(super) fn weighted_quantile(values: &mut [(f64, f64)]) -> Option<f64> {
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    values.iter().find_map(|(value, weight)| {
        sum += weight;
        (sum >= QUANTILE * total).then_some(*value)
    })
}
