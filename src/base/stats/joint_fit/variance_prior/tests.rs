use statrs::distribution::{ChiSquared, Continuous, FisherSnedecor};

use super::*;

fn observed(variance: f64, freedom: f64) -> ObservedVariance {
    ObservedVariance { log_variance: variance.ln(), freedom, covariate: 0.0 }
}

#[test]
fn densities_match_statrs() {
    for variance in [1e-3, 0.2, 1.0, 7.0] {
        for freedom in [1.0, 2.0, 7.0] {
            for expected in [0.1, 1.0, 3.0] {
                let own = observed(variance, freedom).log_density(f64::ln(expected), 4.0).value;
                let fisher = FisherSnedecor::new(freedom, 4.0).expect("a distribution");
                let density = fisher.ln_pdf(variance / expected) - f64::ln(expected);
                assert!((own - density).abs() < 1e-9, "{variance} {freedom} {expected}: {own} {density}");
                let own = observed(variance, freedom).log_density(f64::ln(expected), f64::INFINITY).value;
                let chi = ChiSquared::new(freedom).expect("a distribution");
                let density = chi.ln_pdf(freedom * variance / expected) + (freedom / expected).ln();
                assert!((own - density).abs() < 1e-9, "{variance} {freedom} {expected}: {own} {density}");
            }
        }
    }
}

/// Variances of cases whose logarithm of the launch variance is `covariate`.
fn cases() -> Vec<ObservedVariance> {
    let case = |index: u32| {
        let covariate = f64::from(index % 17) / 4.0 - 2.0;
        let scatter = f64::from(index * 7919 % 101) / 25.0 - 2.0;
        ObservedVariance { log_variance: 0.8 * covariate - 5.0 + scatter, freedom: 1.0, covariate }
    };
    (0..200).map(case).collect()
}

#[test]
fn newton_steps_reach_the_greatest_likelihood_of_a_lattice() {
    let cases = cases();
    for prior in [1.5, 4.0, f64::INFINITY] {
        for start in [-12.0, -5.0, 3.0] {
            let mut line = PriorLine { intercept: start, slope: START_SLOPE };
            let reached = line.maximize(&cases, prior);
            let steps = || (-5..=5).map(|step| f64::from(step) * 0.02);
            let around = steps().flat_map(|one| steps().map(move |other| (one, other)));
            let greatest = around
                .map(|(one, other)| PriorLine { intercept: line.intercept + one, slope: line.slope + other })
                .map(|line| line.mean_log_density(&cases, prior))
                .fold(f64::NEG_INFINITY, f64::max);
            assert!(greatest <= reached + 1e-12, "{prior} from {start}: {greatest} > {reached}");
        }
    }
}

#[test]
fn slope_is_kept_where_noise_is_equal() {
    let prior = VariancePrior::fit(&[1e-4, 3e-4, 2e-4], &[1.0; 3], &[-9.0; 3]);
    assert!((prior.slope - START_SLOPE).abs() < 1e-12);
    assert!((1e-5..1e-3).contains(&prior.variance(-9.0)), "{prior:?}");
}

#[test]
fn moderated_variance_lies_between_own_and_expected() {
    let prior = VariancePrior { intercept: 0.0, slope: 0.0, centre: 0.0, freedom: 4.0 };
    let (variance, freedom) = prior.moderate(6.0, 1.0, 1.0);
    assert!((variance - 2.0).abs() < 1e-12 && (freedom - 5.0).abs() < 1e-12);
    let exact = VariancePrior { freedom: f64::INFINITY, ..prior };
    assert_eq!(exact.moderate(6.0, 1.0, 1.0), (1.0, super::super::KNOWN_VARIANCE));
}
