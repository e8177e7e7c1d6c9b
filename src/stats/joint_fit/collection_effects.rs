//! Effects that the cases of a collection share, as random effects: `A_j ~ N(0, vA)`, `B_j ~ N(0, vB)`, and
//! `e_ij ~ N(0, ve u_i^2)`. The cases are fixed effects and absorbed; the variances are found by expectation and
//! maximization (N. M. Laird and J. H. Ware, Random-effects models for longitudinal data, Biometrics 38, 1982).

use faer::{Mat, MatRef, Side, linalg::solvers::DenseSolveCore};

use super::{CaseMedians, CollectionMedian};

/// Iterations; the variances change by less than a percent after them.
const ITERATIONS: usize = 12;
/// Variance added to that of a median: rounding and offsets that do not follow launch noise.
const MEDIAN_VARIANCE_FLOOR: f64 = 1e-8;
/// Least variances: a variance of 0 would be kept by every further iteration.
const LEAST_COMMON: f64 = 1e-10;
const LEAST_PROPORTIONAL: f64 = 1e-6;
const LEAST_OWN: f64 = 1e-9;

/// Standard deviations of the effects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EffectComponents {
    /// Of `A_j`: relative, common to all kernels of a collection.
    pub common: f64,
    /// Of `B_j`, in units of launch noise.
    pub proportional: f64,
    /// Of the offset of a case in a collection, in units of launch noise.
    pub own: f64,
}

/// Medians without the effects of their collections.
#[derive(Clone, Debug)]
pub(super) struct RemovedEffects {
    /// `y_ij - A_j - u_i B_j`, by index of the median.
    pub(super) adjusted: Vec<f64>,
    /// Posterior variance of the mean effect of each case.
    pub(super) mean_variance: Vec<f64>,
    /// Degrees of freedom that the effects take.
    pub(super) freedom: f64,
    pub(super) components: EffectComponents,
}

impl RemovedEffects {
    pub(super) fn none(adjusted: Vec<f64>, cases: usize) -> Self {
        let components = EffectComponents::default();
        Self { adjusted, mean_variance: vec![0.0; cases], freedom: 0.0, components }
    }
}

/// Variances of a model.
#[derive(Clone, Copy, Debug)]
struct EffectVariances {
    common: f64,
    proportional: f64,
    own: f64,
}

/// Normal equations of the effects with the cases absorbed, in units of 1 / ve. Effect j is `A_j`, effect
/// `collections + j` is `B_j`.
struct AbsorbedEquations {
    collections: usize,
    matrix: Mat<f64>,
    right: Mat<f64>,
    /// Medians minus the mean of their case.
    centred: Vec<f64>,
    /// Precision of a median of each case, in units of 1 / ve.
    precisions: Vec<f64>,
}

impl AbsorbedEquations {
    fn new(medians: &[CollectionMedian], groups: &[CaseMedians]) -> Self {
        let collections = medians.iter().map(|median| median.collection + 1).max().unwrap_or_default();
        let mut equations = Self {
            collections,
            matrix: Mat::zeros(2 * collections, 2 * collections),
            right: Mat::zeros(2 * collections, 1),
            centred: medians.iter().map(|median| median.log_median).collect(),
            precisions: groups
                .iter()
                .map(|group| 1.0 / (group.noise * group.noise + MEDIAN_VARIANCE_FLOOR))
                .collect(),
        };
        for (case, group) in groups.iter().enumerate() {
            equations.absorb_case(case, group, medians);
        }
        equations
    }

    /// Effects of a median with their factors: 1 for `A_j`, the case's launch noise for `B_j`.
    fn factors(&self, median: &CollectionMedian, noise: f64) -> [(usize, f64); 2] {
        [(median.collection, 1.0), (self.collections + median.collection, noise)]
    }

    fn absorb_case(&mut self, case: usize, group: &CaseMedians, medians: &[CollectionMedian]) {
        let (precision, count) = (self.precisions[case], group.count());
        let mean = group.medians.iter().map(|&index| medians[index].log_median).sum::<f64>() / count;
        for &index in &group.medians {
            self.centred[index] -= mean;
            let own = self.factors(&medians[index], group.noise);
            for (row, factor) in own {
                self.right[(row, 0)] += precision * factor * self.centred[index];
                for (column, other) in own {
                    self.matrix[(row, column)] += precision * factor * other;
                }
                for &paired in &group.medians {
                    for (column, other) in self.factors(&medians[paired], group.noise) {
                        self.matrix[(row, column)] -= precision / count * factor * other;
                    }
                }
            }
        }
    }

    /// Returns the posterior covariance of the effects; `None` if it cannot be computed, which finite medians exclude.
    fn posterior_covariance(&self, variances: EffectVariances) -> Option<Mat<f64>> {
        let size = 2 * self.collections;
        let precision = Mat::from_fn(size, size, |row, column| {
            let prior = if row == column { 1.0 / self.prior_variance(variances, row) } else { 0.0 };
            self.matrix[(row, column)] / variances.own + prior
        });
        Some(precision.llt(Side::Lower).ok()?.inverse())
    }

    fn prior_variance(&self, variances: EffectVariances, effect: usize) -> f64 {
        if effect < self.collections { variances.common } else { variances.proportional }
    }

    /// Returns the variances that the posterior of the effects expects, and the degrees of freedom that they take.
    fn update_variances(
        &self,
        variances: EffectVariances,
        posterior: &PosteriorEffects,
        groups: &[CaseMedians],
        residuals: &[f64],
    ) -> EffectVariances {
        let (size, collections) = (2 * self.collections, self.collections as f64);
        let square = |effect: usize| {
            posterior.effects[effect] * posterior.effects[effect] + posterior.covariance[(effect, effect)]
        };
        let weighted: f64 = groups
            .iter()
            .zip(&self.precisions)
            .flat_map(|(group, precision)| {
                group.medians.iter().map(move |&index| precision * residuals[index] * residuals[index])
            })
            .sum();
        let measured = groups.iter().filter(|group| !group.medians.is_empty()).count();
        let free =
            (self.centred.len() - measured) as f64 - self.used_freedom(variances, &posterior.covariance);
        EffectVariances {
            common: ((0..self.collections).map(square).sum::<f64>() / collections).max(LEAST_COMMON),
            proportional: ((self.collections..size).map(square).sum::<f64>() / collections)
                .max(LEAST_PROPORTIONAL),
            own: (weighted / free.max(1.0)).max(LEAST_OWN),
        }
    }

    fn used_freedom(&self, variances: EffectVariances, covariance: &Mat<f64>) -> f64 {
        let size = 2 * self.collections;
        let unused: f64 = (0..size)
            .map(|effect| covariance[(effect, effect)] / self.prior_variance(variances, effect))
            .sum();
        size as f64 - unused
    }
}

/// Posterior of the effects.
struct PosteriorEffects {
    effects: Vec<f64>,
    /// Of all pairs: the common mean of few collections is uncertain, which the diagonal alone would hide.
    covariance: Mat<f64>,
    freedom: f64,
}

/// Estimates the effects of all collections and subtracts them from the medians.
pub(super) fn remove_collection_effects(
    medians: &[CollectionMedian],
    groups: &[CaseMedians],
) -> RemovedEffects {
    let equations = AbsorbedEquations::new(medians, groups);
    let mut variances = EffectVariances { common: 1e-5, proportional: 0.1, own: 1.0 };
    let mut last = None;
    for _ in 0..ITERATIONS {
        let Some(covariance) = equations.posterior_covariance(variances) else { break };
        let scaled = covariance.as_ref() * &equations.right;
        let effects: Vec<f64> =
            (0..scaled.nrows()).map(|effect| scaled[(effect, 0)] / variances.own).collect();
        let freedom = equations.used_freedom(variances, &covariance);
        let posterior = PosteriorEffects { effects, covariance, freedom };
        let shifts = median_effects(medians, groups, &equations, &posterior.effects);
        let residuals = residuals(groups, &equations.centred, &shifts);
        variances = equations.update_variances(variances, &posterior, groups, &residuals);
        last = Some((posterior, shifts));
    }
    let measured = medians.iter().map(|median| median.log_median);
    let Some((posterior, shifts)) = last else {
        return RemovedEffects::none(measured.collect(), groups.len());
    };
    let mean_variance = groups
        .iter()
        .map(|group| mean_effect_variance(group, medians, &equations, posterior.covariance.as_ref()));
    RemovedEffects {
        mean_variance: mean_variance.collect(),
        adjusted: measured.zip(&shifts).map(|(measured, shift)| measured - shift).collect(),
        freedom: posterior.freedom,
        components: EffectComponents {
            common: variances.common.sqrt(),
            proportional: variances.proportional.sqrt(),
            own: variances.own.sqrt(),
        },
    }
}

/// Returns `A_j + u_i B_j` of each median.
fn median_effects(
    medians: &[CollectionMedian],
    groups: &[CaseMedians],
    equations: &AbsorbedEquations,
    effects: &[f64],
) -> Vec<f64> {
    let shift = |median: &CollectionMedian| {
        let factors = equations.factors(median, groups[median.case].noise);
        factors.iter().map(|&(effect, factor)| factor * effects[effect]).sum()
    };
    medians.iter().map(shift).collect()
}

/// Returns the medians minus effects and minus the mean of their case.
fn residuals(groups: &[CaseMedians], centred: &[f64], shifts: &[f64]) -> Vec<f64> {
    let mut residuals = centred.to_vec();
    for group in groups {
        let mean = group.medians.iter().map(|&index| shifts[index]).sum::<f64>() / group.count();
        group.medians.iter().for_each(|&index| residuals[index] -= shifts[index] - mean);
    }
    residuals
}

/// Returns `g' C g` with g, the mean of the factors of a case's medians; 0 without medians.
fn mean_effect_variance(
    group: &CaseMedians,
    medians: &[CollectionMedian],
    equations: &AbsorbedEquations,
    covariance: MatRef<'_, f64>,
) -> f64 {
    let factors: Vec<(usize, f64)> = group
        .medians
        .iter()
        .flat_map(|&index| equations.factors(&medians[index], group.noise))
        .map(|(effect, factor)| (effect, factor / group.count()))
        .collect();
    let pairs = factors.iter().flat_map(|&(row, factor)| {
        factors.iter().map(move |&(column, other)| factor * other * covariance[(row, column)])
    });
    pairs.sum()
}
