//! Noise budget of a ledger: which source of variance the intervals of its rows come from, and what would reduce it most.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexSet;
use serde::Serialize;

use super::{ControlLevel, control_levels};
use crate::{
    base::stats::{
        CollectionMedian, CollectionPlace, MeasurementDesign, VarianceSources, median_of_floats,
        median_of_sorted,
    },
    database::ledger::{Ledger, LedgerError},
    kernel::{CacheState, CaseId, CollectionSamples},
    measure::verify::TIMER_QUANTUM_NS,
};

/// Number of collections of which the newest are used: the fit solves equations with two effects of each.
const MAX_COLLECTIONS: usize = 1_000;

/// Launch noise of the cases of a kernel. The fields are in the order of the JSON keys.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct KernelNoise {
    pub(crate) kernel: String,
    pub(crate) cases: usize,
    /// Median over collections of 1.4826 MAD / median, in percent.
    pub(crate) launch_percent: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct NoiseBudget {
    pub(crate) sources: VarianceSources,
    pub(crate) design: MeasurementDesign,
    pub(crate) cases: usize,
    pub(crate) collections: usize,
    pub(crate) devices: usize,
    pub(crate) runs: usize,
    pub(crate) hosts: usize,
    pub(crate) left_out: usize,
    pub(crate) kernels: Vec<KernelNoise>,
    pub(crate) controls: Vec<ControlLevel>,
}

struct PlacedMeasurement {
    samples: CollectionSamples,
    run: String,
    /// Name of the host; empty if the run does not state it, or if hosts cannot be separated from runs.
    host: String,
}

impl NoiseBudget {
    pub(crate) fn from_ledger(ledger: &Ledger, cache: CacheState) -> Result<Option<Self>, LedgerError> {
        let (runs, hosts) = (ledger.collection_runs()?, ledger.collection_hosts()?);
        let mut all: Vec<PlacedMeasurement> = Vec::new();
        ledger.for_each_measurement(cache, |measured| {
            let run = runs.get(&measured.collection).cloned().unwrap_or_default();
            let host = hosts.get(&measured.collection).cloned().unwrap_or_default();
            all.push(PlacedMeasurement { samples: measured.clone(), run, host });
        })?;
        let Some(newest) = all.last().map(|last| last.samples.software.clone()) else { return Ok(None) };
        all.retain(|measured| measured.samples.software == newest);
        let used: BTreeSet<i64> = all.iter().map(|measured| measured.samples.collection).collect();
        let left_out = used.len().saturating_sub(MAX_COLLECTIONS);
        if let Some(first) = used.iter().nth(left_out) {
            all.retain(|measured| measured.samples.collection >= *first);
        }
        let kernels: HashMap<CaseId, String> =
            ledger.cases_with_prefix("")?.into_iter().map(|known| (known.case, known.kernel)).collect();
        let controls = control_levels(&ledger.all_controls(cache)?);
        Ok(budget_of(&all, &kernels, left_out).map(|budget| Self { controls, ..budget }))
    }
}

fn budget_of(
    all: &[PlacedMeasurement],
    kernels: &HashMap<CaseId, String>,
    left_out: usize,
) -> Option<NoiseBudget> {
    // Distinct values are numbered from 0 in the order in which they occur.
    let (mut cases, mut collections) = (IndexSet::new(), IndexSet::new());
    let (mut devices, mut runs, mut hosts) = (IndexSet::new(), IndexSet::new(), IndexSet::new());
    let (mut medians, mut places) = (Vec::new(), Vec::new());
    let mut of_cases: BTreeMap<usize, Vec<CollectionPlace>> = BTreeMap::new();
    let mut by_kernel: BTreeMap<&str, (BTreeSet<usize>, Vec<f64>)> = BTreeMap::new();
    let mut launches = Vec::new();
    for PlacedMeasurement { samples, run, host } in all {
        let case = cases.insert_full(&samples.case).0;
        let collection = collections.insert_full(samples.collection).0;
        let place = CollectionPlace {
            device: devices.insert_full((host, samples.device)).0,
            run: runs.insert_full(run).0,
            host: hosts.insert_full(host).0,
        };
        if collection == places.len() {
            places.push(place);
        }
        let median = CollectionMedian::from_samples(case, collection, &samples.samples, TIMER_QUANTUM_NS);
        let Some(median) = median else { continue };
        medians.push(median);
        of_cases.entry(case).or_default().push(place);
        launches.push(samples.samples.len());
        let kernel = kernels.get(&samples.case).map_or("", String::as_str);
        let (of_kernel, noise) = by_kernel.entry(kernel).or_default();
        of_kernel.insert(case);
        noise.push(median.launch_noise);
    }
    let distinct = |number: fn(&CollectionPlace) -> usize| {
        of_cases.values().map(|places| places.iter().map(number).collect::<BTreeSet<_>>().len()).collect()
    };
    let design = MeasurementDesign {
        launches: median_count(launches)?,
        collections: median_count(of_cases.values().map(Vec::len).collect())?,
        devices: median_count(distinct(|place| place.device))?,
        runs: median_count(distinct(|place| place.run))?,
        hosts: median_count(distinct(|place| place.host))?,
    };
    let sources = VarianceSources::fit(&medians, cases.len(), &places, design.launches)?;
    let kernel_noise = |(kernel, (cases, mut noise)): (&str, (BTreeSet<usize>, Vec<f64>))| {
        let launch_percent = 100.0 * median_of_floats(&mut noise)?;
        Some(KernelNoise { kernel: kernel.to_owned(), cases: cases.len(), launch_percent })
    };
    let mut kernels: Vec<KernelNoise> = by_kernel.into_iter().filter_map(kernel_noise).collect();
    kernels.sort_by(|one, other| other.launch_percent.total_cmp(&one.launch_percent));
    Some(NoiseBudget {
        sources,
        design,
        cases: cases.len(),
        collections: collections.len(),
        devices: devices.len(),
        runs: runs.len(),
        hosts: hosts.len(),
        left_out,
        kernels,
        controls: Vec::new(),
    })
}

fn median_count(counts: Vec<usize>) -> Option<f64> {
    let mut counts: Vec<i64> = counts.into_iter().map(|one| i64::try_from(one).unwrap_or(i64::MAX)).collect();
    counts.sort_unstable();
    median_of_sorted(&counts)
}
