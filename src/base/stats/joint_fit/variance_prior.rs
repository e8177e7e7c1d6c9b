//! Prior of the variance of a case's offset: `s^2 ~ s0^2 F(s - 1, d0)` with `ln s0^2 = a + b ln(launch variance)`.

use statrs::function::{beta::ln_beta, gamma::ln_gamma};

const FREEDOMS: [f64; 10] = [1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0, f64::INFINITY];
/// Slope at which the search begins, and which is kept where all cases have the same launch noise.
const START_SLOPE: f64 = 0.5;
/// Limit of Newton steps; a concave function of two parameters needs about six.
const MAX_STEPS: usize = 100;
/// Gain of the mean log density below which a further step changes no digit of a result.
const MIN_GAIN: f64 = 1e-15;
const MIN_COVARIATE_VARIANCE: f64 = 1e-12;

/// Variance of an offset as a function of launch noise, and how much it varies between cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariancePrior {
    /// Logarithm of the variance where the covariate is `centre`.
    pub intercept: f64,
    /// Change of it with the covariate, the logarithm of the launch variance.
    pub slope: f64,
    /// Covariate at which the intercept is the logarithm of the variance.
    pub centre: f64,
    /// Degrees of freedom; infinite if the variance follows from launch noise exactly.
    pub freedom: f64,
}

impl VariancePrior {
    pub(super) fn variance(&self, covariate: f64) -> f64 {
        (self.intercept + self.slope * (covariate - self.centre)).exp()
    }

    /// Combines the variance of a case, which has `freedom` degrees of freedom, with the expected one. Returns the variance
    /// and its degrees of freedom.
    pub(super) fn moderate(&self, own: f64, freedom: f64, expected: f64) -> (f64, f64) {
        if self.freedom.is_infinite() {
            return (expected, super::KNOWN_VARIANCE);
        }
        let total = self.freedom + freedom;
        ((self.freedom * expected + freedom * own) / total, total)
    }

    /// Fits a prior to variances above 0 by maximum likelihood. The slices have one value per case, at least one.
    pub(super) fn fit(variances: &[f64], freedoms: &[f64], covariates: &[f64]) -> Self {
        let count = variances.len() as f64;
        let centre = covariates.iter().sum::<f64>() / count;
        let start = (variances.iter().sum::<f64>() / count).ln();
        let observed = || variances.iter().zip(freedoms).zip(covariates);
        let cases: Vec<ObservedVariance> = observed()
            .map(|((variance, freedom), covariate)| ObservedVariance {
                log_variance: variance.ln(),
                freedom: *freedom,
                covariate: covariate - centre,
            })
            .collect();
        let mut line = PriorLine { intercept: start, slope: START_SLOPE };
        let mut best = Self { intercept: start, slope: START_SLOPE, centre, freedom: FREEDOMS[0] };
        let (mut greatest, mut worse) = (f64::NEG_INFINITY, 0);
        // The likelihood has one maximum over the degrees of freedom.
        for freedom in FREEDOMS {
            let likelihood = line.maximize(&cases, freedom);
            worse += 1;
            if likelihood > greatest + 1e-9 {
                let PriorLine { intercept, slope } = line;
                best = Self { intercept, slope, centre, freedom };
                (greatest, worse) = (likelihood, 0);
            }
            if worse == 2 {
                break;
            }
        }
        best
    }
}

#[derive(Clone, Copy, Debug)]
struct ObservedVariance {
    log_variance: f64,
    freedom: f64,
    covariate: f64,
}

/// Log density of a variance and its derivatives with respect to the logarithm of the expected variance.
#[derive(Clone, Copy, Debug, Default)]
struct LogDensity {
    value: f64,
    first: f64,
    second: f64,
}

impl ObservedVariance {
    /// `s^2 = s0^2 F(freedom, prior)`, or `s0^2 chi^2(freedom) / freedom` for an infinite prior. Concave in `ln s0^2`.
    fn log_density(&self, log_expected: f64, prior: f64) -> LogDensity {
        let (half, log_ratio) = (self.freedom / 2.0, self.log_variance - log_expected);
        if prior.is_infinite() {
            let scaled = half * log_ratio.exp();
            return LogDensity {
                value: half * half.ln() - ln_gamma(half) + half * log_ratio - scaled - self.log_variance,
                first: scaled - half,
                second: -scaled,
            };
        }
        let (total, log_odds) = (half + prior / 2.0, (self.freedom / prior).ln() + log_ratio);
        // ln(1 + odds) without overflow.
        let log_sum = log_odds.max(0.0) + (-log_odds.abs()).exp().ln_1p();
        let share = (log_odds - log_sum).exp();
        LogDensity {
            value: half * log_odds - total * log_sum - ln_beta(half, prior / 2.0) - self.log_variance,
            first: total * share - half,
            second: -total * share * (1.0 - share),
        }
    }
}

/// `ln s0^2 = intercept + slope covariate`.
#[derive(Clone, Copy, Debug)]
struct PriorLine {
    intercept: f64,
    slope: f64,
}

impl PriorLine {
    fn mean_log_density(self, cases: &[ObservedVariance], prior: f64) -> f64 {
        let value = |case: &ObservedVariance| {
            case.log_density(self.intercept + self.slope * case.covariate, prior).value
        };
        cases.iter().map(value).sum::<f64>() / cases.len() as f64
    }

    fn maximize(&mut self, cases: &[ObservedVariance], prior: f64) -> f64 {
        let mut value = self.mean_log_density(cases, prior);
        for _ in 0..MAX_STEPS {
            let Some(step) = self.newton_step(cases, prior) else { break };
            // Far from the maximum a full step may be too long.
            let candidates = (0..50).map(|halvings| 0.5_f64.powi(halvings)).map(|length| Self {
                intercept: self.intercept + length * step.intercept,
                slope: self.slope + length * step.slope,
            });
            let better = candidates
                .map(|line| (line.mean_log_density(cases, prior), line))
                .find(|(reached, _)| *reached > value);
            let Some((reached, line)) = better else { break };
            let gain = reached - value;
            (*self, value) = (line, reached);
            if gain < MIN_GAIN {
                break;
            }
        }
        value
    }

    fn newton_step(self, cases: &[ObservedVariance], prior: f64) -> Option<Self> {
        let (mut gradient, mut hessian) = ([0.0; 2], [0.0; 3]);
        for case in cases {
            let density = case.log_density(self.intercept + self.slope * case.covariate, prior);
            gradient[0] += density.first;
            gradient[1] += density.first * case.covariate;
            hessian[0] += density.second;
            hessian[1] += density.second * case.covariate;
            hessian[2] += density.second * case.covariate * case.covariate;
        }
        let spread = cases.iter().map(|case| case.covariate * case.covariate).sum::<f64>();
        if spread / (cases.len() as f64) < MIN_COVARIATE_VARIANCE {
            let intercept = -gradient[0] / hessian[0];
            return intercept.is_finite().then_some(Self { intercept, slope: 0.0 });
        }
        let determinant = hessian[0] * hessian[2] - hessian[1] * hessian[1];
        let intercept = (hessian[1] * gradient[1] - hessian[2] * gradient[0]) / determinant;
        let slope = (hessian[1] * gradient[0] - hessian[0] * gradient[1]) / determinant;
        (intercept.is_finite() && slope.is_finite()).then_some(Self { intercept, slope })
    }
}

#[cfg(test)]
mod tests;
