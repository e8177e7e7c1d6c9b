//! Comparison of the measurements of two ledgers, or of two runs, case by case.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use crate::{
    base::stats::{CaseEstimate, ComparisonVerdict, EstimateDifference, compare_estimates},
    database::ledger::{FailedAttempt, KnownCase, Ledger, LedgerError},
    kernel::{CacheState, CaseId, KernelName, SoftwareFingerprint, Verdict},
    measure::verify::{RunEstimates, timer_resolution},
};

/// Greatest part of a change in time that may remain in cycles when the clock explains the change.
const MAX_CYCLE_SHARE: f64 = 0.25;

pub(crate) struct MeasuredSide {
    pub(crate) cases: BTreeMap<CaseId, KnownCase>,
    failures: BTreeMap<CaseId, FailedAttempt>,
    estimates: RunEstimates,
    /// Mean logarithm of cycles / (blocks x time) of each case, for the software of its newest collection.
    log_cycle_rates: HashMap<CaseId, f64>,
    pub(crate) software: Option<SoftwareFingerprint>,
}

impl MeasuredSide {
    pub(crate) fn read(ledger: &Ledger, run: Option<&str>, cache: CacheState) -> Result<Self, LedgerError> {
        let estimates = match run {
            Some(run) => RunEstimates::from_run(ledger, run, cache)?,
            None => RunEstimates::from_ledger(ledger, cache)?,
        };
        let known = ledger.cases_with_prefix("")?.into_iter();
        let cases = known.filter(|known| estimates.collections.contains_key(&known.case));
        let mut software = None;
        for record in ledger.list_runs()?.iter().filter(|record| run.is_none_or(|run| run == record.run)) {
            software = ledger.run_software(&record.run)?.or(software);
        }
        Ok(Self {
            failures: ledger.newest_failures(run, cache)?,
            cases: cases.map(|known| (known.case.clone(), known)).collect(),
            estimates,
            log_cycle_rates: log_cycle_rates(ledger, run, cache)?,
            software,
        })
    }

    pub(crate) fn keep_kernels(&mut self, kernels: &[KernelName]) {
        self.cases.retain(|_, known| kernels.iter().any(|kernel| kernel.as_str() == known.kernel));
    }

    pub(crate) fn keep_cases(&mut self, selected: &BTreeSet<CaseId>) {
        self.cases.retain(|case, _| selected.contains(case));
        self.failures.retain(|case, _| selected.contains(case));
    }
}

fn log_cycle_rates(
    ledger: &Ledger,
    run: Option<&str>,
    cache: CacheState,
) -> Result<HashMap<CaseId, f64>, LedgerError> {
    let mut by_case: HashMap<CaseId, (Option<String>, Vec<f64>)> = HashMap::new();
    for stored in ledger.cycle_rates(cache)? {
        let is_of_run = run.is_none_or(|run| run == stored.run);
        if !is_of_run || stored.verdict == Verdict::Throttled || stored.rate.per_microsecond <= 0.0 {
            continue;
        }
        let (software, rates) = by_case.entry(stored.case).or_default();
        if *software != stored.software {
            *software = stored.software;
            rates.clear();
        }
        rates.push(stored.rate.per_microsecond.ln());
    }
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    Ok(by_case.into_iter().map(|(case, (_, rates))| (case, mean(&rates))).collect())
}

/// A case that both sides have measured. The fields are in the order of the JSON keys.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct CaseDifference {
    pub(crate) verdict: ComparisonVerdict,
    pub(crate) kernel: String,
    pub(crate) case: CaseId,
    pub(crate) signature: String,
    /// Medians of both sides in microseconds; `None` without an interval over collections.
    pub(crate) medians_us: [Option<f64>; 2],
    pub(crate) collections: [usize; 2],
    /// Second median relative to the first, in percent, and its 95 % interval.
    pub(crate) change_percent: Option<f64>,
    pub(crate) interval_percent: Option<[f64; 2]>,
    /// Change of the number of cycles, in percent; `None` if a side has no counters of the case.
    pub(crate) cycles_percent: Option<f64>,
    pub(crate) remark: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct FailedCase {
    pub(crate) kernel: String,
    pub(crate) case: CaseId,
    pub(crate) attempt: FailedAttempt,
}

pub(crate) struct LedgerDifference {
    /// Cases of both sides: slow, fast, same, ambiguous; within each the greatest change first.
    pub(crate) cases: Vec<CaseDifference>,
    pub(crate) only: [usize; 2],
    /// The cases among these that the other side has attempted without an accepted result.
    pub(crate) failed_in_other: [Vec<FailedCase>; 2],
    /// Ambiguous cases, by the side that is known less well: without an interval over collections, else with the wider one.
    pub(crate) ambiguous: [Vec<CaseId>; 2],
    pub(crate) without_interval: usize,
}

impl LedgerDifference {
    pub(crate) fn has_slow_case(&self) -> bool {
        self.cases.iter().any(|case| case.verdict == ComparisonVerdict::Slow)
    }
}

pub(crate) fn compare_sides(sides: [&MeasuredSide; 2], margin: f64) -> LedgerDifference {
    let [first, second] = sides;
    let common: Vec<&KnownCase> =
        first.cases.values().filter(|known| second.cases.contains_key(&known.case)).collect();
    let differences: Vec<Option<EstimateDifference>> =
        common.iter().map(|known| difference_of(sides, &known.case)).collect();
    let verdicts = compare_estimates(&differences, margin);
    let without_interval = differences.iter().filter(|difference| difference.is_none()).count();
    let rows = common.iter().zip(differences).zip(verdicts);
    let mut cases: Vec<CaseDifference> = rows
        .map(|((known, difference), verdict)| case_difference(sides, known, difference, verdict))
        .collect();
    let size = |case: &CaseDifference| case.change_percent.map_or(-1.0, f64::abs);
    cases.sort_by(|one, other| {
        one.verdict.cmp(&other.verdict).then_with(|| size(other).total_cmp(&size(one)))
    });
    let mut ambiguous = [Vec::new(), Vec::new()];
    for case in cases.iter().filter(|case| case.verdict == ComparisonVerdict::Ambiguous) {
        let variance = |side: &MeasuredSide| {
            side.estimates.by_case.get(&case.case).map_or(f64::INFINITY, CaseEstimate::variance)
        };
        ambiguous[usize::from(variance(second) > variance(first))].push(case.case.clone());
    }
    let only = [first, second].map(|side| side.cases.len() - common.len());
    let failed_in_other = [failed_in_other(first, second), failed_in_other(second, first)];
    LedgerDifference { cases, only, failed_in_other, ambiguous, without_interval }
}

fn failed_in_other(side: &MeasuredSide, other: &MeasuredSide) -> Vec<FailedCase> {
    let missing = side.cases.values().filter(|known| !other.cases.contains_key(&known.case));
    let failed = missing.filter_map(|known| {
        let attempt = other.failures.get(&known.case)?.clone();
        Some(FailedCase { kernel: known.kernel.clone(), case: known.case.clone(), attempt })
    });
    failed.collect()
}

fn difference_of(sides: [&MeasuredSide; 2], case: &CaseId) -> Option<EstimateDifference> {
    let [first, second] = sides.map(|side| side.estimates.by_case.get(case));
    let (first, second) = (first?, second?);
    let resolution = timer_resolution(&[first.log_median.min(second.log_median)]);
    EstimateDifference::between(first, second, resolution)
}

fn case_difference(
    sides: [&MeasuredSide; 2],
    known: &KnownCase,
    difference: Option<EstimateDifference>,
    verdict: ComparisonVerdict,
) -> CaseDifference {
    let median_us = |estimate: &CaseEstimate| estimate.log_median.exp() / 1e3;
    let percent = |log_ratio: f64| log_ratio.exp_m1() * 100.0;
    let [first_rate, second_rate] = sides.map(|side| side.log_cycle_rates.get(&known.case));
    let log_cycles = difference.zip(first_rate.zip(second_rate));
    let log_cycles = log_cycles.map(|(difference, (first, second))| difference.log_ratio + second - first);
    let collections =
        sides.map(|side| side.estimates.collections.get(&known.case).copied().unwrap_or_default());
    CaseDifference {
        verdict,
        kernel: known.kernel.clone(),
        case: known.case.clone(),
        signature: known.signature.clone(),
        medians_us: sides.map(|side| side.estimates.by_case.get(&known.case).map(median_us)),
        collections,
        change_percent: difference.map(|difference| percent(difference.log_ratio)),
        interval_percent: difference.map(|EstimateDifference { log_ratio, half_width, .. }| {
            [percent(log_ratio - half_width), percent(log_ratio + half_width)]
        }),
        cycles_percent: log_cycles.map(percent),
        remark: remark(verdict, difference, log_cycles),
    }
}

fn remark(
    verdict: ComparisonVerdict,
    difference: Option<EstimateDifference>,
    log_cycles: Option<f64>,
) -> Option<String> {
    let Some(EstimateDifference { log_ratio, .. }) = difference else {
        return Some("no interval over collections".to_owned());
    };
    let is_changed = matches!(verdict, ComparisonVerdict::Slow | ComparisonVerdict::Fast);
    let is_clock = is_changed && log_cycles.is_some_and(|one| one.abs() <= MAX_CYCLE_SHARE * log_ratio.abs());
    is_clock.then(|| "the same cycles: the clock differs".to_owned())
}
