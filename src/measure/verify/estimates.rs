//! Estimates of the cases of a ledger from all collections of the same software together, and of the cases of one run; and
//! contradictions between the median of a case and other measurements: the same case with earlier software, and cases of the same
//! kernel with other sizes. A second collection decides if the case or the measurement is unusual.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use foldhash::fast::FixedState;
use indexmap::{IndexMap, IndexSet};

use super::{
    controls::control_change,
    samples::{MedianAgreement, TIMER_QUANTUM_NS, is_mostly_patterned, pattern_reason},
};
use crate::{
    base::stats::{
        CaseEstimate, CollectionMedian, EffectModel, JointFit, MIN_OWN_COLLECTIONS, MIN_REPEATED_CASES,
        NeighbourFit, PrecisionAim, ShapePoint, VariancePrior, estimate_median, fit_medians, fit_neighbours,
        hash_numbers, repeated_cases,
    },
    database::ledger::{KnownCase, Ledger, LedgerError},
    kernel::{
        CONFIRMING_COLLECTIONS, CacheState, CaseId, CaseMap, CaseOutcome, Cause, CollectionSamples,
        DeviceDeviation, HostDevice, IntervalMethod, KernelName, Nanos, cause::CollectionScope,
        production_contradiction, split_signature_dims,
    },
};

#[derive(Clone, Debug, Default)]
struct SoftwareMedians {
    medians: NumberedMedians,
    /// Number of collections with a pattern, by the number of the case; none for a case without one.
    patterned: BTreeMap<usize, usize>,
    devices: BTreeMap<HostDevice, usize>,
    device_of_collection: Vec<usize>,
}

impl SoftwareMedians {
    fn add(&mut self, measured: &CollectionSamples, host: &str) {
        let (case, collection) = self.medians.numbers((measured.case.clone(), 0), measured.collection);
        if collection == self.device_of_collection.len() {
            let next = self.devices.len();
            let device = HostDevice { host: host.to_owned(), device: measured.device };
            self.device_of_collection.push(*self.devices.entry(device).or_insert(next));
        }
        let median = CollectionMedian::from_samples(case, collection, &measured.samples, TIMER_QUANTUM_NS);
        median.into_iter().for_each(|median| self.medians.add(median));
        let has_changed = || measured.noise.as_deref().is_some_and(|noise| control_change(noise).is_some());
        if pattern_reason(&measured.samples).is_some() || has_changed() {
            *self.patterned.entry(case).or_default() += 1;
        }
    }

    /// Estimates all cases jointly if enough of them have several collections, else those with three collections from their own medians.
    fn estimate_cases(&self) -> (Vec<Option<EstimatedMedian>>, Vec<DeviceDeviation>) {
        let has_one_device = self.devices.len() == 1;
        if self.medians.repeated_count() < MIN_REPEATED_CASES {
            let method = match has_one_device {
                true => IntervalMethod::CollectionsOnOneDevice,
                false => IntervalMethod::Collections,
            };
            let own = self.medians.by_case.values().map(|medians| {
                let estimate = || estimate_median(medians, timer_resolution(medians));
                (medians.len() >= MIN_OWN_COLLECTIONS)
                    .then(|| EstimatedMedian { estimate: estimate(), method })
            });
            return (own.collect(), Vec::new());
        }
        let fit = self.medians.fit(EffectModel::JointWithDevices(&self.device_of_collection), None);
        let method = match (&fit.devices, has_one_device) {
            (Some(_), _) => IntervalMethod::JointFitOfUnequalDevices,
            (None, true) => IntervalMethod::JointFitOnOneDevice,
            (None, false) => IntervalMethod::JointFit,
        };
        let estimated = |estimate| EstimatedMedian { estimate, method };
        let devices = fit.devices.as_ref().map_or_else(Vec::new, |found| {
            let deviation = |(place, &number): (&HostDevice, &usize)| DeviceDeviation {
                place: place.clone(),
                deviation: found.effects[number].exp_m1(),
            };
            self.devices.iter().map(deviation).collect()
        });
        (fit.estimates.into_iter().map(|estimate| estimate.map(estimated)).collect(), devices)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the step of the timer relative to the mean of medians.
pub(crate) fn timer_resolution(log_medians: &[f64]) -> f64 {
    TIMER_QUANTUM_NS as f64 / mean(log_medians).exp()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EstimatedMedian {
    pub(crate) estimate: CaseEstimate,
    pub(crate) method: IntervalMethod,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EstimatedCase {
    pub(super) median: Option<EstimatedMedian>,
    pub(super) collections: usize,
    /// Number of the collections whose durations have a pattern, or in which the control kernels show a change of the device.
    pub(super) patterned: usize,
    pub(super) disagrees: bool,
    pub(super) software: usize,
    pub(crate) references: Option<CaseReferences>,
}

impl EstimatedCase {
    pub(crate) fn judge_row(&self, outcome: CaseOutcome) -> CaseOutcome {
        match self.references.as_ref().and_then(CaseReferences::contradiction) {
            Some(contradiction) => judge_contradiction(outcome, contradiction, self.collections),
            None => outcome,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct JointEstimates {
    cache: CacheState,
    pub(crate) cases: CaseMap<EstimatedCase>,
    devices: BTreeMap<usize, Vec<DeviceDeviation>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct EstimateInput {
    cache: CacheState,
    by_software: BTreeMap<Option<Arc<str>>, SoftwareMedians>,
    newest: CaseMap<Option<Arc<str>>>,
    earlier: CaseMap<Option<Arc<str>>>,
    hosts: BTreeMap<i64, String>,
}

impl EstimateInput {
    pub(crate) fn new(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        Ok(Self { cache, hosts: ledger.collection_hosts()?, ..Self::default() })
    }

    /// Adds a measurement; one without an accepted sample is none. They come in the order of their attempts.
    pub(crate) fn add(&mut self, measured: &CollectionSamples) {
        if measured.samples.is_empty() {
            return;
        }
        let host = self.hosts.get(&measured.collection).map_or("", String::as_str);
        self.by_software.entry(measured.software.clone()).or_default().add(measured, host);
        let earlier = self.newest.insert(measured.case.clone(), measured.software.clone());
        if let Some(earlier) = earlier.filter(|earlier| *earlier != measured.software) {
            self.earlier.insert(measured.case.clone(), earlier);
        }
    }

    fn estimate_cases(&self, cases: &[KnownCase]) -> JointEstimates {
        let mut all = JointEstimates { cache: self.cache, ..JointEstimates::default() };
        let mut of_cases = Vec::new();
        for (number, (software, medians)) in self.by_software.iter().enumerate() {
            let (estimates, devices) = medians.estimate_cases();
            if !devices.is_empty() {
                all.devices.insert(number, devices);
            }
            for (index, ((case, _), of_case)) in medians.medians.by_case.iter().enumerate() {
                if self.newest.get(case) == Some(software) {
                    let estimated = EstimatedCase {
                        median: estimates[index],
                        collections: of_case.len(),
                        patterned: medians.patterned.get(&index).copied().unwrap_or_default(),
                        disagrees: disagree(of_case),
                        software: number,
                        references: None,
                    };
                    all.cases.insert(case.clone(), estimated);
                    let log_median = mean(of_case);
                    let earlier = self.earlier.get(case).and_then(|earlier| {
                        let earlier = &self.by_software.get(earlier)?.medians;
                        Some(mean(earlier.by_case.get(&(case.clone(), 0))?))
                    });
                    of_cases.push(CaseMedian { case: case.clone(), log_median, earlier, software: number });
                }
            }
        }
        for (case, references) in find_references(of_cases, cases) {
            all.cases.entry(case).and_modify(|estimated| estimated.references = Some(references));
        }
        all
    }
}

impl JointEstimates {
    pub(crate) fn from_ledger(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        let mut input = EstimateInput::new(ledger, cache)?;
        ledger.for_each_measurement(cache, |measured| input.add(measured))?;
        Self::from_input(&input, ledger)
    }

    pub(crate) fn from_input(input: &EstimateInput, ledger: &Ledger) -> Result<Self, LedgerError> {
        let known = if input.by_software.is_empty() { Vec::new() } else { ledger.cases_with_prefix("")? };
        Ok(input.estimate_cases(&known))
    }

    pub(crate) fn collection_count(&self, case: &CaseId) -> usize {
        self.cases.get(case).map_or(0, |found| found.collections)
    }

    pub(crate) fn unequal_devices(&self, cases: &[&CaseId]) -> &[DeviceDeviation] {
        let software = cases.iter().filter_map(|case| Some(self.cases.get(*case)?.software)).max();
        software.and_then(|number| self.devices.get(&number)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn of_case(&self, case: &CaseId) -> Option<&EstimatedMedian> {
        self.cases.get(case)?.median.as_ref()
    }

    pub(crate) fn needs_confirmation(&self, case: &CaseId, production: Option<Nanos>) -> bool {
        let references = self.cases.get(case).and_then(|found| found.references.as_ref());
        let Some(references) = references else { return false };
        let by_production = production.and_then(|production| {
            production_contradiction(references.log_median.exp(), production, self.cache)
        });
        (1..CONFIRMING_COLLECTIONS).contains(&self.collection_count(case))
            && (by_production.is_some() || references.contradiction().is_some())
    }

    pub(crate) fn count_precise(&self, cases: &[&CaseId], aim: PrecisionAim) -> usize {
        let estimates = cases.iter().filter_map(|case| self.of_case(case)).map(|median| median.estimate);
        estimates
            .filter(|estimate| aim.is_reached(estimate, timer_resolution(&[estimate.log_median])))
            .count()
    }

    /// Returns true if another collection is to show whether a pattern is the case's own, or which of its collections is right.
    fn has_open_pattern(&self, case: &CaseId, aim: PrecisionAim) -> bool {
        let Some(&EstimatedCase { collections, patterned, disagrees, .. }) = self.cases.get(case) else {
            return false;
        };
        (is_mostly_patterned(patterned, collections) || disagrees)
            && collections < MIN_OWN_COLLECTIONS.min(aim.max_collections)
    }

    /// Returns the indices of the cases that another collection is to measure for a precision. Until the variance between
    /// collections is known, these are cases of one collection: all of a small plan, else a fifth; then the cases whose
    /// intervals are too wide and can reach the precision. Cases whose durations have a pattern, or whose collections disagree,
    /// are measured in up to three collections. A case without measurements is not among them.
    pub(crate) fn cases_to_repeat(&self, cases: &[&CaseId], aim: PrecisionAim) -> Vec<usize> {
        let count = |index: &usize| self.collection_count(cases[*index]);
        let measured: Vec<usize> = (0..cases.len()).filter(|index| count(index) > 0).collect();
        let goal = repeated_cases(measured.len());
        let repeated = measured.iter().filter(|index| count(index) > 1).count();
        if repeated < goal {
            let mut single: Vec<usize> = measured.into_iter().filter(|index| count(index) == 1).collect();
            // A random part that does not depend on the order of the plan or on an interruption.
            single.sort_by_cached_key(|index| hash_numbers(&[cases[*index].seed()]));
            let chosen = single.iter().enumerate();
            let is_chosen = |(place, index): &(usize, &usize)| {
                *place < goal - repeated || self.has_open_pattern(cases[**index], aim)
            };
            let mut chosen: Vec<usize> = chosen.filter(is_chosen).map(|(_, index)| *index).collect();
            chosen.sort_unstable();
            return chosen;
        }
        let can_be_more_precise = |index: &usize| match self.of_case(cases[*index]) {
            None => count(index) < MIN_OWN_COLLECTIONS.min(aim.max_collections),
            Some(median) => {
                let estimate = &median.estimate;
                aim.needs_another_collection(estimate, timer_resolution(&[estimate.log_median]))
            }
        };
        let is_open = |index: &usize| can_be_more_precise(index) || self.has_open_pattern(cases[*index], aim);
        measured.into_iter().filter(is_open).collect()
    }
}

fn disagree(log_medians: &[f64]) -> bool {
    let medians: Vec<f64> = log_medians.iter().map(|median| median.exp()).collect();
    MedianAgreement::of_medians(&medians).is_some_and(|agreement| agreement.is_poor)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RunEstimates {
    /// Estimates by case; cases without a known variance are left out.
    pub(crate) by_case: HashMap<CaseId, CaseEstimate>,
    pub(crate) collections: HashMap<CaseId, usize>,
}

#[derive(Clone, Debug)]
struct MeasuredMedian {
    case: CaseId,
    software: usize,
    collection: i64,
    is_of_run: bool,
    run: usize,
    /// The median itself, whose case and collection are 0.
    median: CollectionMedian,
}

/// Medians with the numbers of their cases and collections, in the order in which they occur.
#[derive(Clone, Debug, Default)]
struct NumberedMedians {
    medians: Vec<CollectionMedian>,
    /// Logarithms of the medians of each case, and of each run if runs are told apart, else of run 0.
    by_case: IndexMap<(CaseId, usize), Vec<f64>, FixedState>,
    collections: IndexSet<i64>,
}

impl NumberedMedians {
    fn new(measured: &[&MeasuredMedian], divides_runs: bool) -> Self {
        let mut numbered = Self::default();
        for one in measured {
            let run = if divides_runs { one.run } else { 0 };
            let (case, collection) = numbered.numbers((one.case.clone(), run), one.collection);
            numbered.add(CollectionMedian { case, collection, ..one.median });
        }
        numbered
    }

    fn numbers(&mut self, case: (CaseId, usize), collection: i64) -> (usize, usize) {
        let case = self.by_case.entry(case);
        let number = case.index();
        case.or_default();
        (number, self.collections.insert_full(collection).0)
    }

    fn add(&mut self, median: CollectionMedian) {
        self.by_case[median.case].push(median.log_median);
        self.medians.push(median);
    }

    fn repeated_count(&self) -> usize {
        self.by_case.values().filter(|medians| medians.len() > 1).count()
    }

    fn fit(&self, model: EffectModel<'_>, prior: Option<&VariancePrior>) -> JointFit {
        let resolutions: Vec<f64> = self.by_case.values().map(|medians| timer_resolution(medians)).collect();
        fit_medians(&self.medians, &resolutions, model, prior)
    }

    fn variance_prior(&self) -> Option<VariancePrior> {
        if self.repeated_count() < MIN_REPEATED_CASES {
            return None;
        }
        let prior = self.fit(EffectModel::Independent, None).prior?;
        Some(VariancePrior { freedom: prior.freedom.min(self.collection_freedom().max(1.0)), ..prior })
    }

    /// Returns the number of independent differences between collections of the same case.
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

fn root(parents: &mut [usize], mut collection: usize) -> usize {
    while parents[collection] != collection {
        parents[collection] = parents[parents[collection]];
        collection = parents[collection];
    }
    collection
}

impl RunEstimates {
    pub(crate) fn from_ledger(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        let joint = JointEstimates::from_ledger(ledger, cache)?;
        let mut all = Self::default();
        for (case, estimated) in joint.cases {
            all.collections.insert(case.clone(), estimated.collections);
            all.by_case.extend(estimated.median.map(|median| (case, median.estimate)));
        }
        Ok(all)
    }

    pub(crate) fn from_run(ledger: &Ledger, run: &str, cache: CacheState) -> Result<Self, LedgerError> {
        let runs = ledger.collection_runs()?;
        let (mut names, mut software) = (IndexSet::new(), IndexSet::new());
        let mut measured = Vec::new();
        ledger.for_each_measurement(cache, |samples| {
            let Some(name) = runs.get(&samples.collection) else { return };
            let Some(median) = CollectionMedian::from_samples(0, 0, &samples.samples, TIMER_QUANTUM_NS)
            else {
                return;
            };
            measured.push(MeasuredMedian {
                case: samples.case.clone(),
                software: software.insert_full(samples.software.clone()).0,
                collection: samples.collection,
                is_of_run: name == run,
                run: names.insert_full(name).0,
                median,
            });
        })?;
        Ok(Self::from_medians(&measured))
    }

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

    fn add_software(&mut self, measured: &[&MeasuredMedian], is_newest: impl Fn(&CaseId) -> bool) {
        let of_run: Vec<&MeasuredMedian> = measured.iter().copied().filter(|one| one.is_of_run).collect();
        let run = NumberedMedians::new(&of_run, false);
        let fitted = if run.repeated_count() >= MIN_REPEATED_CASES {
            Some(run.fit(EffectModel::Joint, None).estimates)
        } else {
            // A difference between runs is what a comparison is to find; it counts as noise only where no run repeats cases.
            let prior = [true, false]
                .into_iter()
                .find_map(|divides_runs| NumberedMedians::new(measured, divides_runs).variance_prior());
            prior.map(|prior| run.fit(EffectModel::Independent, Some(&prior)).estimates)
        };
        let estimates = fitted.unwrap_or_else(|| {
            let ledger = NumberedMedians::new(measured, false).by_case;
            run.by_case
                .iter()
                .map(|(case, medians)| estimate_by_own_variance(medians, &ledger[case]))
                .collect()
        });
        for (((case, _), medians), estimate) in run.by_case.iter().zip(estimates) {
            if is_newest(case) {
                self.collections.insert(case.clone(), medians.len());
                self.by_case.extend(estimate.map(|estimate| (case.clone(), estimate)));
            }
        }
    }
}

/// Estimates a case with the variance of its medians in a run, or in the ledger; `None` with fewer than three.
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
        log_median: mean(of_run),
        half_width: all.half_width * (all.collections as f64 / count).sqrt(),
        collections: of_run.len(),
        ..all
    })
}

/// Greatest factor between the medians of a case with the newest software and with the one before it, in either direction.
pub(super) const HISTORY_FACTOR: f64 = 1.3;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CaseMedian {
    pub(super) case: CaseId,
    pub(super) log_median: f64,
    pub(super) earlier: Option<f64>,
    pub(super) software: usize,
}

/// Durations of a case and of others with which its median is compared, as logarithms of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CaseReferences {
    pub(crate) log_median: f64,
    pub(crate) earlier: Option<f64>,
    pub(crate) neighbours: Option<NeighbourFit>,
}

impl CaseReferences {
    pub(crate) fn contradiction(&self) -> Option<Cause> {
        self.history_contradiction().or_else(|| self.neighbour_contradiction())
    }

    pub(crate) fn history_contradiction(&self) -> Option<Cause> {
        let earlier = self.earlier?;
        let ratio = self.log_median - earlier;
        (ratio.abs() > HISTORY_FACTOR.ln())
            .then(|| Cause::History { ratio: ratio.exp().into(), median_ns: nanos(earlier) })
    }

    pub(crate) fn neighbour_contradiction(&self) -> Option<Cause> {
        let fit = self.neighbours.filter(|fit| fit.contradicts(self.log_median))?;
        let ratio = (self.log_median - fit.log_duration).exp();
        let expected_ns = nanos(fit.log_duration);
        Some(Cause::Neighbours { ratio: ratio.into(), cases: fit.neighbours, expected_ns })
    }
}

/// Returns the reference durations of each case, which do not depend on the order of `medians`. `cases` has their signatures.
pub(super) fn find_references(
    mut medians: Vec<CaseMedian>,
    cases: &[KnownCase],
) -> impl Iterator<Item = (CaseId, CaseReferences)> {
    // Cases at equal distances are neighbours in this order, as far as there is room for them.
    medians.sort_unstable_by(|one, other| (one.software, &one.case).cmp(&(other.software, &other.case)));
    let signatures: HashMap<&CaseId, &KnownCase, FixedState> =
        cases.iter().map(|known| (&known.case, known)).collect();
    let mut classes = BTreeMap::<_, (Vec<usize>, Vec<ShapePoint>)>::new();
    for (number, median) in medians.iter().enumerate() {
        let Some(known) = signatures.get(&median.case) else { continue };
        let Ok(kernel) = KernelName::new(&known.kernel) else { continue };
        let (dims, class) = split_signature_dims(&kernel, &known.signature);
        let log_dims = dims.into_iter().map(|dim| (dim.max(1) as f64).ln()).collect();
        let (numbers, points) = classes.entry((median.software, known.kernel.as_str(), class)).or_default();
        numbers.push(number);
        points.push(ShapePoint { log_dims, log_duration: median.log_median });
    }
    let mut neighbours: Vec<Option<NeighbourFit>> = vec![None; medians.len()];
    for (numbers, points) in classes.into_values() {
        for (number, fit) in numbers.into_iter().zip(fit_neighbours(&points)) {
            neighbours[number] = fit;
        }
    }
    let all = medians.into_iter().zip(neighbours);
    all.map(|(CaseMedian { case, log_median, earlier, .. }, neighbours)| {
        (case, CaseReferences { log_median, earlier, neighbours })
    })
}

fn judge_contradiction(outcome: CaseOutcome, contradiction: Cause, collections: usize) -> CaseOutcome {
    if collections < CONFIRMING_COLLECTIONS {
        return outcome.with_contradiction(contradiction);
    }
    outcome.with_remark(contradiction.within(collections, None, CollectionScope::Each))
}

fn nanos(log_nanos: f64) -> Nanos {
    Nanos(log_nanos.exp().round() as i64)
}

#[cfg(test)]
mod run_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kernel::{Reason, Verdict},
        measure::verify::controls::tests::control_change_of,
    };

    fn measured(case: u32, collection: i64, software: &str, median: i64) -> CollectionSamples {
        let samples = (-5..=5).map(|step| median + 20 * step).collect();
        let software = Some(software.into());
        let case = CaseId::from_stored(format!("{case:016x}"));
        let device = u32::try_from(collection % 3).expect("a device");
        CollectionSamples { case, collection, device, software, noise: None, samples }
    }

    fn estimates(measurements: &[CollectionSamples]) -> JointEstimates {
        let mut input = EstimateInput::default();
        measurements.iter().for_each(|measured| input.add(measured));
        input.estimate_cases(&[])
    }

    /// Precise cases, two collections of one of which are 10 % apart.
    #[test]
    fn cases_whose_collections_disagree_are_measured_in_three_collections() {
        let aim = PrecisionAim { half_width: 0.5, max_collections: 8 };
        let cases: Vec<CaseId> = (0..30).map(|case| CaseId::from_stored(format!("{case:016x}"))).collect();
        let cases: Vec<&CaseId> = cases.iter().collect();
        let median = |case, collection| if (case, collection) == (7, 2) { 110_000 } else { 100_000 };
        let all = |collections| -> Vec<CollectionSamples> {
            let each = (1..=collections).flat_map(|collection| (0..30).map(move |case| (case, collection)));
            each.map(|(case, collection)| measured(case, collection, "8.5", median(case, collection)))
                .collect()
        };
        assert_eq!(estimates(&all(2)).cases_to_repeat(&cases, aim), [7]);
        assert_eq!(estimates(&all(3)).cases_to_repeat(&cases, aim), [0; 0]);
    }

    /// Precise cases: the collections of one of them had another clock at their end, and the last one shows that it was theirs.
    #[test]
    fn cases_of_a_device_that_changed_are_measured_in_three_collections() {
        let aim = PrecisionAim { half_width: 0.05, max_collections: 8 };
        let cases: Vec<CaseId> = (0..30).map(|case| CaseId::from_stored(format!("{case:016x}"))).collect();
        let cases: Vec<&CaseId> = cases.iter().collect();
        let mut all: Vec<CollectionSamples> = Vec::new();
        for collection in 1..=3 {
            all.extend((0..30).map(|case| measured(case, collection, "8.5", 100_000)));
            let reason = Arc::new(Reason::from(control_change_of(4.0)));
            all.iter_mut()
                .filter(|one| one.case == *cases[7])
                .for_each(|one| one.noise = Some(Arc::clone(&reason)));
            let repeated = estimates(&all).cases_to_repeat(&cases, aim);
            match collection {
                1 => assert_eq!(repeated.len(), 30, "few cases are measured twice"),
                2 => assert_eq!(repeated, [7]),
                _ => assert_eq!(repeated, [0; 0]),
            }
        }
    }

    /// An attempt whose samples are all outliers does not make its software the newest.
    #[test]
    fn attempts_without_an_accepted_sample_do_not_count() {
        let all = [1, 2, 3].map(|collection| measured(1, collection, "8.3", 100_000));
        let empty = CollectionSamples { samples: Vec::new(), ..measured(1, 4, "8.5", 100_000) };
        let case = all[0].case.clone();
        let of = |measurements: &[CollectionSamples]| {
            let found = estimates(measurements);
            (found.of_case(&case).copied(), found.collection_count(&case), found.cases[&case].software)
        };
        assert_eq!(of(&[&all[..], &[empty]].concat()), of(&all));
        assert!(of(&all).0.is_some());
    }

    #[test]
    fn few_cases_need_three_collections() {
        let case = CaseId::from_stored(format!("{:016x}", 1));
        let mut all = vec![measured(1, 1, "8.5", 100_000), measured(1, 2, "8.5", 101_000)];
        assert_eq!(estimates(&all).of_case(&case), None);
        all.push(measured(1, 3, "8.5", 99_000));
        let Some(EstimatedMedian { estimate, method: IntervalMethod::Collections }) =
            estimates(&all).of_case(&case).copied()
        else {
            panic!("an estimate from its own medians");
        };
        all.iter_mut().for_each(|measured| measured.device = 1);
        let on_one = estimates(&all).of_case(&case).map(|median| median.method);
        assert_eq!(on_one, Some(IntervalMethod::CollectionsOnOneDevice));
        assert_eq!(estimate.collections, 3);
        assert!((0.01..0.05).contains(&estimate.half_width), "{estimate:?}");
    }

    #[test]
    fn cases_of_one_collection_are_estimated_from_repeated_ones() {
        let median = |case: u32, collection: i64| 100_000 + i64::from(case) * 1000 + collection * 300;
        let mut all: Vec<_> = (0..40).map(|case| measured(case, 1, "8.5", median(case, 1))).collect();
        all.extend((0..25).map(|case| measured(case, 2, "8.5", median(case, 2))));
        // Cases of other software are estimated apart.
        all.extend((50..60).map(|case| measured(case, 9, "8.3", 5_000)));
        let estimates = estimates(&all);
        let count = |number: u32| {
            let case = CaseId::from_stored(format!("{number:016x}"));
            estimates
                .of_case(&case)
                .map(|median| (median.method == IntervalMethod::JointFit, median.estimate.collections))
        };
        assert_eq!((count(3), count(30), count(55)), (Some((true, 2)), Some((true, 1)), None));
    }

    #[test]
    fn only_collections_of_the_newest_software_count() {
        let mut all: Vec<_> = (0..30).map(|case| measured(case, 1, "8.3", 50_000)).collect();
        all.extend((0..30).map(|case| measured(case, 2, "8.3", 50_100)));
        all.push(measured(4, 3, "8.5", 40_000));
        let estimates = estimates(&all);
        let of = |number: u32| estimates.of_case(&CaseId::from_stored(format!("{number:016x}"))).copied();
        assert_eq!(of(4), None, "one collection of the newest software");
        assert_eq!(of(5).map(|median| median.estimate.collections), Some(2));
    }

    fn known(number: u64, rows: u64) -> KnownCase {
        let case = CaseId::from_stored(format!("{number:016x}"));
        let signature = format!("Add|{rows},512:FLOAT:ND|{rows},512:FLOAT:ND|");
        KnownCase { case, kernel: "Add".to_owned(), signature }
    }

    fn contradictions(medians: &[CaseMedian], cases: &[KnownCase]) -> BTreeMap<CaseId, String> {
        let found = find_references(medians.to_vec(), cases);
        found.filter_map(|(case, references)| Some((case, references.contradiction()?.to_string()))).collect()
    }

    #[test]
    fn neighbours_and_history_contradict() {
        let cases: Vec<KnownCase> = (0..10).map(|step| known(step, 8 << step)).collect();
        let mut medians: Vec<CaseMedian> = cases
            .iter()
            .zip(0_i32..)
            .map(|(known, step)| CaseMedian {
                case: known.case.clone(),
                log_median: (1_000.0 * 1.9_f64.powi(step)).ln(),
                earlier: None,
                software: 0,
            })
            .collect();
        assert_eq!(contradictions(&medians, &cases), BTreeMap::new());
        medians[4].log_median += 4_f64.ln();
        medians[7].earlier = Some(medians[7].log_median - 0.5_f64.ln());
        medians[8].earlier = Some(medians[8].log_median + 0.2);
        let found = contradictions(&medians, &cases);
        insta::assert_debug_snapshot!(
            found.iter().map(|(case, text)| (case.as_str(), text.as_str())).collect::<Vec<_>>()
        );
        // Cases of other software are not neighbours.
        medians.iter_mut().enumerate().for_each(|(index, median)| median.software = index);
        assert_eq!(contradictions(&medians, &cases).len(), 1);
    }

    /// Many shapes of one size are at equal distances from others, which have more neighbours than are used.
    #[test]
    fn references_do_not_depend_on_the_order_of_measurements() {
        let cases: Vec<KnownCase> = (0..81_u64)
            .map(|number| {
                let (rows, columns) = (1 << (number % 9), 1 << (number / 9));
                let case =
                    CaseId::from_stored(format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
                let signature = format!("Add|{rows},{columns}:FLOAT:ND|{rows},{columns}:FLOAT:ND|");
                KnownCase { case, kernel: "Add".to_owned(), signature }
            })
            .collect();
        let mut medians: Vec<CaseMedian> = cases
            .iter()
            .zip(0_i32..)
            .map(|(known, number)| CaseMedian {
                case: known.case.clone(),
                log_median: f64::from(number * 37 % 23),
                earlier: None,
                software: 0,
            })
            .collect();
        let references = |medians: &[CaseMedian]| -> BTreeMap<CaseId, Option<NeighbourFit>> {
            let found = find_references(medians.to_vec(), &cases);
            found.map(|(case, references)| (case, references.neighbours)).collect()
        };
        let first = references(&medians);
        assert!(first.values().flatten().count() > 5, "{first:?}");
        for step in [7, 11, 13] {
            medians.rotate_left(step);
            medians.reverse();
            assert_eq!(references(&medians), first);
        }
    }

    #[test]
    fn a_second_collection_confirms() {
        let ok = CaseOutcome::new(Verdict::Ok, "every launch recorded");
        let alone = judge_contradiction(ok.clone(), "too slow".into(), 1);
        assert_eq!(alone, CaseOutcome::new(Verdict::Suspicious, "too slow"));
        let confirmed = judge_contradiction(ok, "too slow".into(), 2);
        assert_eq!(confirmed.verdict, Verdict::Ok);
        assert_eq!(confirmed.reason.to_string(), "every launch recorded; too slow, in 2 collections");
    }
}
