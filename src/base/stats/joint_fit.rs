//! Joint fit of the medians of all cases and collections: a 95 % interval of the median of each case over collections,
//! which launches of one collection alone cannot give.
//!
//! Model: `y_ij = mu_i + A_j + u_i B_j + e_ij`. `y_ij` is the logarithm of the median of case i in collection j, `u_i` the
//! relative noise of its launches, `A_j` an effect of the collection that all kernels share (such as its clock), `B_j` one
//! in proportion to launch noise, and `e_ij` an offset of its own with a variance that is estimated from all cases
//! together: G. K. Smyth, Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3 (2004), section 3.
//! A case of one collection has the variance of cases with similar noise.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

pub use collection_effects::EffectComponents;
pub(super) use collection_effects::{EffectGroup, effect_variances};
use collection_effects::{RemovedEffects, remove_collection_effects};
pub use device_effects::DeviceEffects;
pub use variance_prior::VariancePrior;

use super::OutlierFence;

mod collection_effects;
mod device_effects;
mod symmetric_matrix;
mod variance_prior;

/// Degrees of freedom that stand for a known variance.
const KNOWN_VARIANCE: f64 = 1e6;
/// Least launch noise: below it, the logarithm of a median is exact to the timer's step.
const MIN_LAUNCH_NOISE: f64 = 1e-5;
/// Number of cases with several collections from which the degrees of freedom of the prior are trusted without a cap.
const LARGE_NIGHT: usize = 400;
/// Number of cases with several collections below which a prior of earlier collections is used.
pub const MIN_REPEATED_CASES: usize = 20;

/// Median of the accepted samples of a case in one collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectionMedian {
    /// Index of the case.
    pub case: usize,
    /// Index of the collection.
    pub collection: usize,
    /// Natural logarithm of the median, in nanoseconds.
    pub log_median: f64,
    /// Relative noise of the launches: 1.4826 max(MAD, half a step of the timer) / median.
    pub launch_noise: f64,
}

impl CollectionMedian {
    /// Computes the median of accepted samples in nanoseconds, which are above 0; `None` without samples. `step` is the step
    /// of the timer in nanoseconds.
    pub fn from_samples(case: usize, collection: usize, samples: &[i64], step: i64) -> Option<Self> {
        let OutlierFence { median, sigma } = OutlierFence::from_samples(samples, step)?;
        Some(Self { case, collection, log_median: median.ln(), launch_noise: sigma / median })
    }
}

/// Effects of collections that a fit removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectModel<'a> {
    /// `A_j` and `B_j`, as far as the cases of several collections show them.
    Joint,
    /// The same, and `D_d` of the device of the collection where the collections show that devices differ. The slice has the
    /// number of the device of each collection.
    JointWithDevices(&'a [usize]),
    /// None: the offset of each median is its own.
    Independent,
}

/// Estimate of the median of a case over collections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseEstimate {
    /// Logarithm of the median, in nanoseconds.
    pub log_median: f64,
    /// Half width of the 95 % interval of the logarithm; infinite if nothing bounds it.
    pub half_width: f64,
    /// Degrees of freedom of the interval; 0 if nothing bounds it.
    pub freedom: f64,
    pub collections: usize,
    /// Mean of the effects that were subtracted: `log_median + correction` is the mean of the measured logarithms.
    pub correction: f64,
}

impl CaseEstimate {
    /// Returns the variance of `log_median`; infinite if nothing bounds it.
    pub fn variance(&self) -> f64 {
        if self.half_width.is_infinite() {
            return f64::INFINITY;
        }
        let error = self.half_width / upper_quantile(self.freedom);
        error * error
    }
}

/// Estimates of all cases, and what they share.
#[derive(Clone, Debug, PartialEq)]
pub struct JointFit {
    /// Estimates by the index of the case; `None` for a case without a median.
    pub estimates: Vec<Option<CaseEstimate>>,
    pub components: EffectComponents,
    /// Variance of an offset as a function of launch noise; `None` if no case has two collections and there is no earlier
    /// one.
    pub prior: Option<VariancePrior>,
    /// Effects of devices; `None` without the model, or if devices do not differ.
    pub devices: Option<DeviceEffects>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CaseMedians {
    medians: Vec<usize>,
    noise: f64,
    /// Square of the launch noise of its first collection, which is as uncertain for every case.
    first_noise_square: f64,
    mean_noise_square: f64,
}

impl CaseMedians {
    pub(super) fn count(&self) -> f64 {
        self.medians.len() as f64
    }
}

pub(super) fn group_by_case(medians: &[CollectionMedian], cases: usize) -> Vec<CaseMedians> {
    let mut groups = vec![CaseMedians::default(); cases];
    for (index, median) in medians.iter().enumerate() {
        let group = &mut groups[median.case];
        let square = median.launch_noise * median.launch_noise;
        if group.medians.is_empty() {
            group.first_noise_square = square;
        }
        group.medians.push(index);
        group.mean_noise_square += square;
    }
    for group in groups.iter_mut().filter(|group| !group.medians.is_empty()) {
        group.mean_noise_square /= group.count();
        group.noise = group.mean_noise_square.sqrt().max(MIN_LAUNCH_NOISE);
    }
    groups
}

/// Fits the medians of all cases. `resolutions` has the timer's step relative to the median of each case, and a case of
/// `medians` is an index of it. `earlier` is the prior of earlier collections, used while few cases are repeated.
pub fn fit_medians(
    medians: &[CollectionMedian],
    resolutions: &[f64],
    model: EffectModel<'_>,
    earlier: Option<&VariancePrior>,
) -> JointFit {
    let groups = group_by_case(medians, resolutions.len());
    let measured: Vec<f64> = medians.iter().map(|median| median.log_median).collect();
    let devices = match model {
        EffectModel::JointWithDevices(devices) => Some(devices),
        EffectModel::Joint | EffectModel::Independent => None,
    };
    let effects = if model == EffectModel::Independent || are_repeats_equal(&groups, &measured, resolutions) {
        RemovedEffects::none(measured.clone(), groups.len())
    } else {
        remove_collection_effects(medians, &groups, devices)
    };
    let own = own_variances(&groups, &effects, resolutions);
    let covariates = noise_covariates(&groups, resolutions);
    let prior = choose_prior(&groups, &own, &covariates, earlier);
    let mut quantiles = BTreeMap::new();
    let estimates = groups.iter().enumerate().map(|(case, group)| {
        if group.medians.is_empty() {
            return None;
        }
        let count = group.count();
        let mean = |values: &[f64]| group.medians.iter().map(|&index| values[index]).sum::<f64>() / count;
        let (log_median, raw) = (mean(&effects.adjusted), mean(&measured));
        let (half_width, freedom) = prior.map_or((f64::INFINITY, 0.0), |prior| {
            let expected = prior.variance(covariates[case]);
            let (variance, freedom) = match group.medians.len() {
                1 => (expected, prior.freedom.min(KNOWN_VARIANCE)),
                _ => prior.moderate(own[case], count - 1.0, expected),
            };
            let variance = variance / count + effects.mean_variance[case];
            let freedom = effects
                .devices
                .as_ref()
                .map_or(freedom, |devices| devices.combined_freedom(variance, freedom));
            let quantile = quantiles.entry(freedom.to_bits()).or_insert_with(|| upper_quantile(freedom));
            (*quantile * variance.sqrt(), freedom)
        });
        Some(CaseEstimate {
            log_median,
            half_width,
            freedom,
            collections: group.medians.len(),
            correction: raw - log_median,
        })
    });
    JointFit {
        estimates: estimates.collect(),
        components: effects.components,
        prior,
        devices: effects.devices,
    }
}

/// Estimates the median of one case from its collections alone, by Student's t distribution. `medians` are logarithms; fewer
/// than two have an infinite half width.
pub fn estimate_median(medians: &[f64], resolution: f64) -> CaseEstimate {
    let count = medians.len() as f64;
    let mean = medians.iter().sum::<f64>() / count;
    let squares: f64 = medians.iter().map(|median| (median - mean) * (median - mean)).sum();
    let freedom = (count - 1.0).max(0.0);
    let half_width = if medians.len() < 2 {
        f64::INFINITY
    } else {
        let variance = (squares / (count - 1.0)).max(timer_variance(resolution));
        upper_quantile(freedom) * (variance / count).sqrt()
    };
    CaseEstimate { log_median: mean, half_width, freedom, collections: medians.len(), correction: 0.0 }
}

/// Returns true if the medians of each case differ by at most a step of the timer, so that no effect can be seen.
fn are_repeats_equal(groups: &[CaseMedians], measured: &[f64], resolutions: &[f64]) -> bool {
    groups.iter().zip(resolutions).all(|(group, resolution)| {
        let values = group.medians.iter().map(|&index| measured[index]);
        let (least, greatest) = (values.clone().reduce(f64::min), values.reduce(f64::max));
        greatest.zip(least).is_none_or(|(greatest, least)| greatest - least <= *resolution)
    })
}

/// Variance of a rounding to steps of the timer, relative to the median.
fn timer_variance(resolution: f64) -> f64 {
    resolution * resolution / 12.0
}

/// Returns the variance of each case's adjusted medians around their mean; 0 for cases of one collection.
fn own_variances(groups: &[CaseMedians], effects: &RemovedEffects, resolutions: &[f64]) -> Vec<f64> {
    let measured = groups.iter().filter(|group| !group.medians.is_empty()).count();
    let nominal = (effects.adjusted.len() - measured) as f64;
    // Effects take a part of the degrees of freedom.
    let share = (nominal - effects.freedom).max(1.0) / nominal.max(1.0);
    let own = groups.iter().zip(resolutions).map(|(group, resolution)| {
        if group.medians.len() < 2 {
            return 0.0;
        }
        let values = group.medians.iter().map(|&index| effects.adjusted[index]);
        let mean = values.clone().sum::<f64>() / group.count();
        let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
        (squares / (group.count() - 1.0) / share).max(timer_variance(*resolution))
    });
    own.collect()
}

/// Returns the logarithm of each case's launch variance. Where some cases have one collection, that of the first
/// collection is used for all: the mean over more of them would be less noisy than theirs.
fn noise_covariates(groups: &[CaseMedians], resolutions: &[f64]) -> Vec<f64> {
    let has_single = groups.iter().any(|group| group.medians.len() == 1);
    let square =
        |group: &CaseMedians| if has_single { group.first_noise_square } else { group.mean_noise_square };
    let covariate =
        |(group, resolution): (&CaseMedians, &f64)| (square(group) + timer_variance(*resolution)).ln();
    groups.iter().zip(resolutions).map(covariate).collect()
}

fn choose_prior(
    groups: &[CaseMedians],
    own: &[f64],
    covariates: &[f64],
    earlier: Option<&VariancePrior>,
) -> Option<VariancePrior> {
    let repeated: Vec<usize> = (0..groups.len()).filter(|&case| groups[case].medians.len() > 1).collect();
    if repeated.len() < MIN_REPEATED_CASES
        && let Some(earlier) = earlier
    {
        return Some(*earlier);
    }
    if repeated.is_empty() {
        return None;
    }
    let variances: Vec<f64> = repeated.iter().map(|&case| own[case]).collect();
    let freedoms: Vec<f64> = repeated.iter().map(|&case| groups[case].count() - 1.0).collect();
    let covariates: Vec<f64> = repeated.iter().map(|&case| covariates[case]).collect();
    let mut prior = VariancePrior::fit(&variances, &freedoms, &covariates);
    if repeated.len() < LARGE_NIGHT {
        prior.freedom = prior.freedom.min((freedoms.iter().sum::<f64>() / 4.0).max(2.0));
    }
    Some(prior)
}

/// Returns the 97.5 % quantile of Student's t distribution, or of the normal distribution if the variance is known.
fn upper_quantile(freedom: f64) -> f64 {
    if freedom >= KNOWN_VARIANCE {
        return Normal::standard().inverse_cdf(0.975);
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests;
