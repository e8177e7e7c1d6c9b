//! Effects that the cases of a collection share, as random effects: `A_j ~ N(0, vA)`, `B_j ~ N(0, vB)`, and
//! `e_ij ~ N(0, ve u_i^2)`. The cases are fixed effects and absorbed; the variances are found by expectation and maximization
//! (N. M. Laird and J. H. Ware, Random-effects models for longitudinal data, Biometrics 38, 1982). Effects that several
//! collections share, such as the effect of their device, are further groups of the same kind.

use super::{
    CaseMedians, CollectionMedian,
    device_effects::{DeviceEffects, device_variance},
    symmetric_matrix::{SquareMatrix, inverse, product, zeros},
};

/// Iterations; the variances change by less than a percent after them.
const ITERATIONS: usize = 12;
/// Variance added to the variance of a median: rounding and offsets that do not follow launch noise.
const MEDIAN_VARIANCE_FLOOR: f64 = 1e-8;
const FIRST_COMMON: f64 = 1e-5;
/// Least variances: a variance of 0 would be kept by every further iteration.
const MIN_COMMON: f64 = 1e-10;
const MIN_PROPORTIONAL: f64 = 1e-6;
const MIN_OWN: f64 = 1e-9;

/// Standard deviations of the effects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EffectComponents {
    /// Standard deviation of `A_j`, the relative effect that is common to all kernels of a collection.
    pub common: f64,
    /// Standard deviation of `B_j`, in units of launch noise.
    pub proportional: f64,
    /// Standard deviation of the offset of a case in a collection, in units of launch noise.
    pub own: f64,
}

#[derive(Clone, Debug)]
pub(super) struct RemovedEffects {
    /// `y_ij - A_j - u_i B_j`, by index of the median.
    pub(super) adjusted: Vec<f64>,
    pub(super) mean_variance: Vec<f64>,
    pub(super) freedom: f64,
    pub(super) components: EffectComponents,
    pub(super) devices: Option<DeviceEffects>,
}

impl RemovedEffects {
    pub(super) fn none(adjusted: Vec<f64>, cases: usize) -> Self {
        let components = EffectComponents::default();
        Self { adjusted, mean_variance: vec![0.0; cases], freedom: 0.0, components, devices: None }
    }
}

/// Effects with the same variance, of which each collection has one.
#[derive(Clone, Debug)]
pub(in crate::base::stats) struct EffectGroup {
    /// Number of the effect of each collection, by the collection's index.
    of_collection: Vec<usize>,
    count: usize,
    /// True if effects are in units of the launch noise of a case, false if they are relative.
    is_proportional: bool,
    first_variance: f64,
}

impl EffectGroup {
    /// Effects that all cases of a collection share alike, and those in proportion to launch noise.
    fn of_collections(count: usize) -> [Self; 2] {
        [(false, FIRST_COMMON), (true, 0.1)].map(|(is_proportional, first_variance)| Self {
            of_collection: (0..count).collect(),
            count,
            is_proportional,
            first_variance,
        })
    }

    /// Effects that all kernels and several collections share. `of_collection` has the number of each collection's effect.
    pub(in crate::base::stats) fn shared(of_collection: Vec<usize>) -> Self {
        let count = of_collection.iter().map(|effect| effect + 1).max().unwrap_or_default();
        Self { of_collection, count, is_proportional: false, first_variance: FIRST_COMMON }
    }
}

#[derive(Clone, Debug)]
pub(in crate::base::stats) struct EffectVariances {
    pub(in crate::base::stats) groups: Vec<f64>,
    /// Variance of the offset of a case in a collection, in units of the square of its launch noise.
    pub(in crate::base::stats) own: f64,
}

/// Normal equations of the effects with the cases absorbed, in units of 1 / ve.
struct AbsorbedEquations {
    groups: Vec<EffectGroup>,
    offsets: Vec<usize>,
    size: usize,
    matrix: SquareMatrix,
    right: Vec<f64>,
    /// Medians minus the mean of their case.
    centred: Vec<f64>,
    /// Precision of a median of each case, in units of 1 / ve.
    precisions: Vec<f64>,
}

impl AbsorbedEquations {
    fn new(medians: &[CollectionMedian], cases: &[CaseMedians], groups: Vec<EffectGroup>) -> Self {
        let mut size = 0;
        let offset = |group: &EffectGroup| {
            size += group.count;
            size - group.count
        };
        let offsets = groups.iter().map(offset).collect();
        let mut equations = Self {
            groups,
            offsets,
            size,
            matrix: zeros(size),
            right: vec![0.0; size],
            centred: medians.iter().map(|median| median.log_median).collect(),
            precisions: cases
                .iter()
                .map(|case| 1.0 / (case.noise * case.noise + MEDIAN_VARIANCE_FLOOR))
                .collect(),
        };
        for (case, group) in cases.iter().enumerate() {
            equations.absorb_case(case, group, medians);
        }
        equations
    }

    /// Effects of a median with their factors: 1 for `A_j`, the case's launch noise for `B_j`.
    fn factors(&self, median: &CollectionMedian, noise: f64) -> impl Iterator<Item = (usize, f64)> {
        let collection = median.collection;
        self.groups.iter().zip(&self.offsets).map(move |(group, offset)| {
            let factor = if group.is_proportional { noise } else { 1.0 };
            (offset + group.of_collection[collection], factor)
        })
    }

    fn absorb_case(&mut self, case: usize, group: &CaseMedians, medians: &[CollectionMedian]) {
        let (precision, count) = (self.precisions[case], group.count());
        let mean = group.medians.iter().map(|&index| medians[index].log_median).sum::<f64>() / count;
        for &index in &group.medians {
            self.centred[index] -= mean;
            let own: Vec<(usize, f64)> = self.factors(&medians[index], group.noise).collect();
            let of_case = group.medians.iter();
            let of_case: Vec<(usize, f64)> =
                of_case.flat_map(|&paired| self.factors(&medians[paired], group.noise)).collect();
            for &(row, factor) in &own {
                self.right[row] += precision * factor * self.centred[index];
                for &(column, other) in &own {
                    self.matrix[row][column] += precision * factor * other;
                }
                for &(column, other) in &of_case {
                    self.matrix[row][column] -= precision / count * factor * other;
                }
            }
        }
    }

    /// Returns the posterior covariance of the effects; `None` if it cannot be computed, which finite medians exclude.
    fn posterior_covariance(&self, variances: &EffectVariances) -> Option<SquareMatrix> {
        let prior = self.prior_variances(variances);
        let mut precision = self.matrix.clone();
        for (row, (values, prior)) in precision.iter_mut().zip(prior).enumerate() {
            values.iter_mut().for_each(|value| *value /= variances.own);
            values[row] += 1.0 / prior;
        }
        inverse(&precision)
    }

    fn prior_variances(&self, variances: &EffectVariances) -> Vec<f64> {
        let groups = self.groups.iter().zip(&variances.groups);
        groups.flat_map(|(group, variance)| std::iter::repeat_n(*variance, group.count)).collect()
    }

    fn update_variances(
        &self,
        effects: &[f64],
        covariance: &SquareMatrix,
        freedom: f64,
        cases: &[CaseMedians],
        shifts: &[f64],
    ) -> EffectVariances {
        let square = |effect: usize| effects[effect] * effects[effect] + covariance[effect][effect];
        let of_case = |(case, precision): (&CaseMedians, &f64)| {
            let mean = case.medians.iter().map(|&index| shifts[index]).sum::<f64>() / case.count();
            let squares = case.medians.iter().map(|&index| {
                let residual = self.centred[index] - (shifts[index] - mean);
                precision * residual * residual
            });
            squares.collect::<Vec<f64>>()
        };
        let weighted: f64 = cases.iter().zip(&self.precisions).flat_map(of_case).sum();
        let measured = cases.iter().filter(|case| !case.medians.is_empty()).count();
        let free = (self.centred.len() - measured) as f64 - freedom;
        let of_group = |(group, offset): (&EffectGroup, &usize)| {
            let squares: f64 = (*offset..offset + group.count).map(square).sum();
            let least = if group.is_proportional { MIN_PROPORTIONAL } else { MIN_COMMON };
            (squares / group.count as f64).max(least)
        };
        EffectVariances {
            groups: self.groups.iter().zip(&self.offsets).map(of_group).collect(),
            own: (weighted / free.max(1.0)).max(MIN_OWN),
        }
    }

    fn used_freedom(&self, variances: &EffectVariances, covariance: &SquareMatrix) -> f64 {
        let prior = self.prior_variances(variances);
        let unused: f64 =
            prior.iter().enumerate().map(|(effect, prior)| covariance[effect][effect] / prior).sum();
        self.size as f64 - unused
    }
}

struct FittedEffects {
    equations: AbsorbedEquations,
    variances: EffectVariances,
    effects: Vec<f64>,
    /// Covariances of all pairs of effects: the common mean of few collections is uncertain, which the diagonal alone
    /// would hide.
    covariance: SquareMatrix,
    freedom: f64,
    shifts: Vec<f64>,
}

fn fit_effects(
    medians: &[CollectionMedian],
    cases: &[CaseMedians],
    groups: Vec<EffectGroup>,
    iterations: usize,
) -> Option<FittedEffects> {
    let equations = AbsorbedEquations::new(medians, cases, groups);
    let first = equations.groups.iter().map(|group| group.first_variance);
    let mut variances = EffectVariances { groups: first.collect(), own: 1.0 };
    let mut last = None;
    for _ in 0..iterations {
        let Some(covariance) = equations.posterior_covariance(&variances) else { break };
        let scaled = product(&covariance, &equations.right);
        let effects: Vec<f64> = scaled.iter().map(|effect| effect / variances.own).collect();
        let freedom = equations.used_freedom(&variances, &covariance);
        let shift = |median: &CollectionMedian| {
            let factors = equations.factors(median, cases[median.case].noise);
            factors.map(|(effect, factor)| factor * effects[effect]).sum()
        };
        let shifts: Vec<f64> = medians.iter().map(shift).collect();
        variances = equations.update_variances(&effects, &covariance, freedom, cases, &shifts);
        last = Some((effects, covariance, freedom, shifts));
    }
    let (effects, covariance, freedom, shifts) = last?;
    Some(FittedEffects { equations, variances, effects, covariance, freedom, shifts })
}

fn collection_count(medians: &[CollectionMedian]) -> usize {
    medians.iter().map(|median| median.collection + 1).max().unwrap_or_default()
}

/// Returns the variances of `A_j` and `B_j`, of the groups of effects that several collections share, and of the offsets, in
/// this order; `None` without medians.
pub(in crate::base::stats) fn effect_variances(
    medians: &[CollectionMedian],
    cases: &[CaseMedians],
    shared: Vec<EffectGroup>,
    iterations: usize,
) -> Option<EffectVariances> {
    let groups = EffectGroup::of_collections(collection_count(medians)).into_iter().chain(shared).collect();
    fit_effects(medians, cases, groups, iterations).map(|fitted| fitted.variances)
}

/// Estimates the effects of all collections and subtracts them from the medians. `devices` has the number of the device of each
/// collection. Effects of devices are fitted only where the collections show them: with few collections they cannot be
/// separated from those of collections.
pub(super) fn remove_collection_effects(
    medians: &[CollectionMedian],
    cases: &[CaseMedians],
    devices: Option<&[usize]>,
) -> RemovedEffects {
    let collections = collection_count(medians);
    let own = EffectGroup::of_collections(collections);
    let Some(without_devices) = fit_effects(medians, cases, own.to_vec(), ITERATIONS) else {
        return RemovedEffects::none(medians.iter().map(|median| median.log_median).collect(), cases.len());
    };
    let with_devices = devices.and_then(|devices| {
        let first_variance = device_variance(&without_devices.collection_shifts(medians), medians, devices)?;
        let shared = EffectGroup { first_variance, ..EffectGroup::shared(devices[..collections].to_vec()) };
        let groups = own.into_iter().chain([shared]).collect();
        fit_effects(medians, cases, groups, ITERATIONS)
    });
    with_devices.unwrap_or(without_devices).remove_from(medians, cases)
}

impl FittedEffects {
    /// Returns the mean of `A_j + u_i B_j` over the medians of each collection, weighted by their precision: cases of equal noise
    /// do not separate both effects.
    fn collection_shifts(&self, medians: &[CollectionMedian]) -> Vec<f64> {
        let mut sums = vec![(0.0, 0.0); collection_count(medians)];
        for (median, shift) in medians.iter().zip(&self.shifts) {
            let precision = self.equations.precisions[median.case];
            let (sum, weight) = &mut sums[median.collection];
            *sum += precision * shift;
            *weight += precision;
        }
        sums.into_iter().map(|(sum, weight)| if weight > 0.0 { sum / weight } else { 0.0 }).collect()
    }

    fn remove_from(&self, medians: &[CollectionMedian], cases: &[CaseMedians]) -> RemovedEffects {
        let Self { equations, variances, effects, covariance, freedom, shifts } = self;
        let mean_variance =
            cases.iter().map(|case| mean_effect_variance(case, medians, equations, covariance)).collect();
        let devices = equations.groups.get(2).map(|group| {
            let range = equations.offsets[2]..equations.offsets[2] + group.count;
            DeviceEffects::from_posterior(effects, covariance, range)
        });
        RemovedEffects {
            mean_variance,
            adjusted: medians.iter().zip(shifts).map(|(median, shift)| median.log_median - shift).collect(),
            freedom: *freedom,
            components: EffectComponents {
                common: variances.groups[0].sqrt(),
                proportional: variances.groups[1].sqrt(),
                own: variances.own.sqrt(),
            },
            devices,
        }
    }
}

/// Returns `g' C g` with g, the mean of the factors of a case's medians; 0 without medians.
fn mean_effect_variance(
    group: &CaseMedians,
    medians: &[CollectionMedian],
    equations: &AbsorbedEquations,
    covariance: &SquareMatrix,
) -> f64 {
    let factors: Vec<(usize, f64)> = group
        .medians
        .iter()
        .flat_map(|&index| equations.factors(&medians[index], group.noise))
        .map(|(effect, factor)| (effect, factor / group.count()))
        .collect();
    let pairs = factors.iter().flat_map(|&(row, factor)| {
        factors.iter().map(move |&(column, other)| factor * other * covariance[row][column])
    });
    pairs.sum()
}
