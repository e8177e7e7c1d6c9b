//! Estimates of the cases of one run. A run of few collections does not show how much collections differ, so that the variance
//! between them is taken from all runs of the ledger with the same software.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    joint_estimates::{JointEstimates, timer_resolution},
    samples::TIMER_QUANTUM_NS,
};
use crate::{
    base::stats::{
        CaseEstimate, CollectionMedian, EffectModel, MIN_OWN_COLLECTIONS, MIN_REPEATED_CASES, VariancePrior,
        estimate_median, fit_medians,
    },
    database::ledger::{Ledger, LedgerError},
    kernel::{CacheState, CaseId},
};

/// Estimates of the cases of a run, or of all, each from its collections with its newest software.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunEstimates {
    /// By case; cases without a known variance are left out.
    pub(crate) by_case: HashMap<CaseId, CaseEstimate>,
    /// Number of collections of each measured case.
    pub(crate) collections: HashMap<CaseId, usize>,
}

/// Median of a case in a collection.
#[derive(Clone, Debug)]
struct MeasuredMedian {
    case: CaseId,
    /// Index of the software.
    software: usize,
    /// Key of the collection in the ledger.
    collection: i64,
    /// True for a collection of the run.
    is_of_run: bool,
    /// Index of the run.
    run: usize,
    /// Its case and collection are 0.
    median: CollectionMedian,
}

/// Medians whose cases, or whose cases in each run, are numbered.
#[derive(Debug, Default)]
struct NumberedMedians<'a> {
    medians: Vec<CollectionMedian>,
    cases: Vec<&'a CaseId>,
}

impl<'a> NumberedMedians<'a> {
    /// Numbers the cases of medians; those of two runs apart if `divides_runs` is true.
    fn new(measured: &[&'a MeasuredMedian], divides_runs: bool) -> Self {
        let mut numbered = Self::default();
        let (mut cases, mut collections) = (BTreeMap::new(), BTreeMap::new());
        for one in measured {
            let run = if divides_runs { one.run } else { 0 };
            let case = *cases.entry((&one.case, run)).or_insert_with(|| {
                numbered.cases.push(&one.case);
                numbered.cases.len() - 1
            });
            let next = collections.len();
            let collection = *collections.entry(one.collection).or_insert(next);
            numbered.medians.push(CollectionMedian { case, collection, ..one.median });
        }
        numbered
    }

    fn by_case(&self) -> Vec<Vec<f64>> {
        let mut by_case = vec![Vec::new(); self.cases.len()];
        self.medians.iter().for_each(|median| by_case[median.case].push(median.log_median));
        by_case
    }

    fn repeated_count(&self) -> usize {
        self.by_case().iter().filter(|medians| medians.len() > 1).count()
    }

    fn fit(&self, model: EffectModel<'_>, prior: Option<&VariancePrior>) -> Vec<Option<CaseEstimate>> {
        let resolutions: Vec<f64> = self.by_case().iter().map(|medians| timer_resolution(medians)).collect();
        fit_medians(&self.medians, &resolutions, model, prior).estimates
    }

    /// Returns the variance between collections, effects that their cases share included; `None` with too few repeated cases.
    fn variance_prior(&self) -> Option<VariancePrior> {
        if self.repeated_count() < MIN_REPEATED_CASES {
            return None;
        }
        let by_case = self.by_case();
        let resolutions: Vec<f64> = by_case.iter().map(|medians| timer_resolution(medians)).collect();
        let prior = fit_medians(&self.medians, &resolutions, EffectModel::Independent, None).prior?;
        let freedom = prior.freedom.min(self.collection_freedom().max(1.0));
        Some(VariancePrior { freedom, ..prior })
    }
}

impl NumberedMedians<'_> {
    /// Returns the number of independent differences between collections of the same case: all cases together show no more
    /// than these of an effect that the cases of a collection share.
    fn collection_freedom(&self) -> f64 {
        let mut first_of_case: HashMap<usize, usize> = HashMap::new();
        let mut parents: Vec<usize> = Vec::new();
        let mut differences = 0_u32;
        for median in &self.medians {
            parents.extend(parents.len()..=median.collection);
            let first = *first_of_case.entry(median.case).or_insert(median.collection);
            let [one, other] = [first, median.collection].map(|collection| root(&mut parents, collection));
            if one != other {
                parents[other] = one;
                differences += 1;
            }
        }
        f64::from(differences)
    }
}

/// Returns the collection that stands for all that are joined with one, and shortens the way to it.
fn root(parents: &mut [usize], mut collection: usize) -> usize {
    while parents[collection] != collection {
        parents[collection] = parents[parents[collection]];
        collection = parents[collection];
    }
    collection
}

impl RunEstimates {
    /// Estimates the cases of all runs of a ledger together. Fails with [`LedgerError`] if it cannot be read.
    pub(crate) fn from_ledger(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        let joint = JointEstimates::from_ledger(ledger, cache)?;
        let mut all = Self::default();
        for case in joint.measured_cases() {
            all.collections.insert(case.clone(), joint.collection_count(case));
            all.by_case.extend(joint.of_case(case).map(|median| (case.clone(), median.estimate)));
        }
        Ok(all)
    }

    /// Estimates the cases of a run from its measurements in one state of the cache. Fails with [`LedgerError`] if the ledger
    /// cannot be read.
    pub(crate) fn from_run(ledger: &Ledger, run: &str, cache: CacheState) -> Result<Self, LedgerError> {
        let runs = ledger.collection_runs()?;
        let names: BTreeSet<&String> = runs.values().collect();
        let numbers: BTreeMap<&String, usize> =
            names.into_iter().enumerate().map(|(number, name)| (name, number)).collect();
        let mut software = BTreeMap::new();
        let mut measured = Vec::new();
        ledger.for_each_measurement(cache, |samples| {
            let Some(name) = runs.get(&samples.collection) else { return };
            let Some(median) = CollectionMedian::from_samples(0, 0, &samples.samples, TIMER_QUANTUM_NS)
            else {
                return;
            };
            let next = software.len();
            measured.push(MeasuredMedian {
                case: samples.case.clone(),
                software: *software.entry(samples.software.clone()).or_insert(next),
                collection: samples.collection,
                is_of_run: name == run,
                run: numbers[name],
                median,
            });
        })?;
        Ok(Self::from_medians(&measured))
    }

    /// Estimates the cases of the run; the medians are in the order of their measurement.
    fn from_medians(measured: &[MeasuredMedian]) -> Self {
        let of_run = || measured.iter().filter(|one| one.is_of_run);
        let newest: HashMap<&CaseId, usize> = of_run().map(|one| (&one.case, one.software)).collect();
        let mut estimates = Self::default();
        for software in newest.values().copied().collect::<BTreeSet<usize>>() {
            let same: Vec<&MeasuredMedian> = measured.iter().filter(|one| one.software == software).collect();
            estimates.add_software(&same, |case| newest.get(case) == Some(&software));
        }
        estimates
    }

    /// Adds the cases of a software for which `is_newest` is true.
    fn add_software(&mut self, measured: &[&MeasuredMedian], is_newest: impl Fn(&CaseId) -> bool) {
        let of_run: Vec<&MeasuredMedian> = measured.iter().copied().filter(|one| one.is_of_run).collect();
        let run = NumberedMedians::new(&of_run, false);
        let by_case = run.by_case();
        let fitted = if run.repeated_count() >= MIN_REPEATED_CASES {
            Some(run.fit(EffectModel::Joint, None))
        } else {
            // A difference between runs is what a comparison is to find; it counts as noise only where no run repeats cases.
            let prior = [true, false]
                .into_iter()
                .find_map(|divides_runs| NumberedMedians::new(measured, divides_runs).variance_prior());
            prior.map(|prior| run.fit(EffectModel::Independent, Some(&prior)))
        };
        let estimates = fitted.unwrap_or_else(|| {
            let all = NumberedMedians::new(measured, false);
            let ledger: HashMap<&CaseId, Vec<f64>> = all.cases.iter().copied().zip(all.by_case()).collect();
            let own = run.cases.iter().zip(&by_case);
            own.map(|(case, medians)| estimate_by_own_variance(medians, &ledger[case])).collect()
        });
        for ((case, medians), estimate) in run.cases.iter().zip(&by_case).zip(estimates) {
            if is_newest(case) {
                self.collections.insert((*case).clone(), medians.len());
                self.by_case.extend(estimate.map(|estimate| ((*case).clone(), estimate)));
            }
        }
    }
}

/// Estimates a case from its medians in a run, with their own variance, or that of all its medians in the ledger; `None` with
/// fewer than three.
fn estimate_by_own_variance(of_run: &[f64], of_ledger: &[f64]) -> Option<CaseEstimate> {
    let resolution = timer_resolution(of_run);
    if of_run.len() >= MIN_OWN_COLLECTIONS {
        return Some(estimate_median(of_run, resolution));
    }
    if of_ledger.len() < MIN_OWN_COLLECTIONS {
        return None;
    }
    let all = estimate_median(of_ledger, resolution);
    let count = of_run.len() as f64;
    Some(CaseEstimate {
        log_median: of_run.iter().sum::<f64>() / count,
        half_width: all.half_width * (all.collections as f64 / count).sqrt(),
        collections: of_run.len(),
        ..all
    })
}

#[cfg(test)]
mod tests;
