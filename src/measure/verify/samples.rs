//! Acceptance of samples, the published interval, patterns of the durations, the agreement of the collections of a row, and the row
//! that the attempts in the ledger give together.

use std::collections::{BTreeMap, BTreeSet};

use super::{EstimatedCase, EstimatedMedian, controls::control_change};
use crate::{
    base::stats::{
        DurationPattern, OutlierFence, SampleSummary, find_common_modes, find_common_trend,
        find_duration_pattern, median, median_interval, median_interval_of_collections,
    },
    kernel::{
        AttemptSamples, CaseId, CaseOutcome, Cause, IntervalMethod, Measurement, MedianInterval,
        RecordedTask, RowResult, Verdict,
        cause::{CollectionScope, TaskProperty},
    },
};

/// Limit of the relative half width of the 95 % interval of the median; a wider case is `noisy`.
pub(super) const NOISE_TARGET: f64 = 0.05;
/// Limit where devices differ in all cases: more launches and collections do not average such a difference out.
pub(super) const DEVICE_TARGET: f64 = 0.03;
/// Step of the device's timer: durations in profiles are multiples of 20 ns.
pub(crate) const TIMER_QUANTUM_NS: i64 = 20;
/// Maximum fraction of severe outliers; more of them are a second mode of the distribution.
pub(super) const MAX_OUTLIERS: f64 = 0.1;

pub(super) fn accepted_samples(samples: &[i64]) -> Vec<bool> {
    OutlierFence::from_samples(samples, TIMER_QUANTUM_NS).map_or_else(
        || vec![true; samples.len()],
        |fence| samples.iter().map(|&sample| !fence.excludes(sample)).collect(),
    )
}

/// Returns the published 95 % interval of the median: by the ranks of the samples for one collection, by the
/// hierarchical bootstrap for several. The interval is widened by half a step of the timer at both ends, because each
/// duration is rounded to a step.
pub(super) fn published_interval(collections: &[Vec<i64>], seed: u64) -> Option<(f64, f64)> {
    let (low, high) = match collections {
        [one] => {
            let mut sorted = one.clone();
            sorted.sort_unstable();
            median_interval(&sorted, 0.95).map(|(low, high)| (low as f64, high as f64))?
        }
        _ if collections.iter().map(Vec::len).sum::<usize>() < 6 => return None,
        _ => median_interval_of_collections(collections, seed)?,
    };
    let half_step = TIMER_QUANTUM_NS as f64 / 2.0;
    Some(((low - half_step).max(0.0), high + half_step))
}

pub(super) fn widest_interval(method: Option<IntervalMethod>) -> f64 {
    match method {
        Some(IntervalMethod::JointFitOfUnequalDevices) => DEVICE_TARGET,
        _ => NOISE_TARGET,
    }
}

pub(super) fn noise_reason(
    samples: &[i64],
    interval: Option<(f64, f64)>,
    method: Option<IntervalMethod>,
    outliers: usize,
) -> Option<Cause> {
    let Some((low, high)) = interval else {
        return Some(Cause::FewSamples { samples: samples.len() });
    };
    let left_out = outliers as f64 / (outliers + samples.len()) as f64;
    if outliers > 1 && left_out > MAX_OUTLIERS {
        return Some(Cause::ManyOutliers { percent: (left_out * 100.0).into() });
    }
    let median = median(samples.iter().copied())?;
    let half = (high - median).max(median - low);
    let quantum = TIMER_QUANTUM_NS as f64;
    let (known, target) = (half / median * 100.0, widest_interval(method) * 100.0);
    (half > quantum && known > target).then(|| Cause::WideInterval {
        percent: known.into(),
        target_percent: target.into(),
        devices_differ: method == Some(IntervalMethod::JointFitOfUnequalDevices),
    })
}

pub(super) fn pattern_reason(durations: &[i64]) -> Option<Cause> {
    find_duration_pattern(durations, TIMER_QUANTUM_NS).map(|pattern| pattern_cause(&pattern))
}

pub(super) fn pattern_cause(pattern: &DurationPattern) -> Cause {
    match *pattern {
        DurationPattern::Trend { change } => Cause::Trend { percent: (change * 100.0).into() },
        DurationPattern::Step { change, before, samples } => {
            Cause::Step { percent: (change * 100.0).into(), before, samples }
        }
        DurationPattern::TwoModes { low, high, upper_share } => Cause::TwoModes {
            low_us: (low / 1e3).into(),
            high_us: (high / 1e3).into(),
            upper_percent: (upper_share * 100.0).into(),
        },
    }
}

pub(super) const MAX_DISAGREEMENT: f64 = NOISE_TARGET / 2.0;

pub(super) struct RowPatterns<'a> {
    pub(super) of_collections: Vec<DurationPattern>,
    pub(super) steady: Vec<&'a [i64]>,
    /// Pattern of these other collections together; `None` also if most collections have a pattern of their own.
    pub(super) common: Option<DurationPattern>,
    pub(super) is_of_most: bool,
}

impl<'a> RowPatterns<'a> {
    pub(super) fn of_collections(collections: &[&'a [i64]]) -> Self {
        let (mut patterns, mut steady) = (Vec::new(), Vec::new());
        for &samples in collections {
            match find_duration_pattern(samples, TIMER_QUANTUM_NS) {
                Some(pattern) => patterns.push(pattern),
                None => steady.push(samples),
            }
        }
        if is_mostly_patterned(patterns.len(), collections.len()) {
            return Self { of_collections: patterns, steady, common: None, is_of_most: true };
        }
        Self { of_collections: patterns, ..Self::of_steady_collections(steady) }
    }

    pub(super) fn of_steady_collections(steady: Vec<&'a [i64]>) -> Self {
        let find_common = || {
            find_common_trend(&steady, TIMER_QUANTUM_NS)
                .or_else(|| find_common_modes(&steady, TIMER_QUANTUM_NS))
        };
        let common = if steady.len() < 2 { None } else { find_common() };
        Self { of_collections: Vec::new(), steady, common, is_of_most: false }
    }

    /// Returns the pattern that makes the row noisy: the pattern of at least half of the collections, or else the trend
    /// or the modes of the other collections together. Also returns remarks on patterns of fewer collections. Their
    /// samples count as well, because leaving them out would select samples by the result.
    pub(super) fn cause_and_remarks(&self) -> (Option<Cause>, Vec<Cause>) {
        let (own, steady) = (self.of_collections.len(), self.steady.len());
        let all = own + steady;
        let last = self.of_collections.last().map(|last| pattern_cause(last).in_collections(own, all));
        if self.is_of_most {
            return (last, Vec::new());
        }
        let common = self.common.map(|common| {
            let of = Some(all).filter(|all| *all != steady);
            pattern_cause(&common).within(steady, of, CollectionScope::Together)
        });
        (common, last.into_iter().collect())
    }

    pub(super) fn agreement(&self) -> Option<MedianAgreement> {
        let medians = self.steady.iter().filter_map(|samples| median(samples.iter().copied()));
        MedianAgreement::of_medians(&medians.collect::<Vec<_>>())
    }

    /// The interval of the joint fit does not show a disagreement: the fit expects differences as large as in other cases.
    pub(super) fn disagreement_reason(&self) -> Option<Cause> {
        let agreement = self.agreement().filter(|agreement| agreement.is_poor)?;
        let (difference, error) = (100.0 * agreement.difference, 100.0 * agreement.error);
        Some(Cause::MediansDiffer { percent: difference.into(), error_percent: error.into() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MedianAgreement {
    /// Difference of the largest and the smallest median, relative to the mean of the medians.
    pub(super) difference: f64,
    pub(super) error: f64,
    pub(super) is_poor: bool,
}

impl MedianAgreement {
    /// Medians in nanoseconds; `None` for fewer than two.
    pub(super) fn of_medians(medians: &[f64]) -> Option<Self> {
        if medians.len() < 2 {
            return None;
        }
        let count = medians.len() as f64;
        let mean = medians.iter().sum::<f64>() / count;
        let squares: f64 = medians.iter().map(|median| (median / mean - 1.0).powi(2)).sum();
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let most = medians.iter().copied().fold(0.0, f64::max);
        let error = (squares / (count - 1.0) / count).sqrt();
        let is_poor = error > MAX_DISAGREEMENT && most - least > 2.0 * TIMER_QUANTUM_NS as f64;
        Some(Self { difference: (most - least) / mean, error, is_poor })
    }
}

pub(super) const fn is_mostly_patterned(patterned: usize, collections: usize) -> bool {
    patterned > 0 && patterned * 2 >= collections
}

/// Returns how the collections of a row differ in the binary that ran. A property that is not recorded agrees with any.
pub(super) fn variant_contradiction(tasks: &[&RecordedTask]) -> Option<Cause> {
    let find_difference = |property, read: fn(&RecordedTask) -> &str| {
        let mut collections: BTreeMap<&str, usize> = BTreeMap::new();
        for value in tasks.iter().map(|task| read(task)).filter(|value| !value.is_empty()) {
            *collections.entry(value).or_default() += 1;
        }
        (collections.len() > 1).then(|| Cause::Variants {
            property,
            collections: collections.iter().map(|(value, count)| ((*value).to_owned(), *count)).collect(),
        })
    };
    find_difference(TaskProperty::Operator, |task| &task.operator)
        .or_else(|| find_difference(TaskProperty::State, |task| &task.state))
        .or_else(|| find_difference(TaskProperty::Unit, |task| &task.core))
}

fn pooled_attempts(evidence: &[AttemptSamples]) -> Vec<&AttemptSamples> {
    let measured = evidence.iter().filter(|attempt| !attempt.samples.is_empty());
    let Some(newest) = measured.clone().next_back() else { return Vec::new() };
    measured
        .filter(|attempt| (attempt.cache, &attempt.software) == (newest.cache, &newest.software))
        .collect()
}

pub(crate) fn pooled_sample_count(evidence: &[AttemptSamples]) -> usize {
    pooled_attempts(evidence).iter().map(|attempt| attempt.samples.len()).sum()
}

/// Pools the attempts at a case into a row: all attempts with the newest software that passed verification, whatever their
/// spread. Leaving out noisy attempts would select samples by their spread, and the interval would be too narrow. `None` without
/// attempts. The verdict judges the pooled samples, because collections that are steady individually may differ. `estimated` is
/// the estimate from all cases and collections; without it, the interval is computed from the samples.
pub(crate) fn pool_attempts(
    case: &CaseId,
    evidence: &[AttemptSamples],
    estimated: Option<&EstimatedCase>,
) -> Option<RowResult> {
    let used = pooled_attempts(evidence);
    let last = used.last()?;
    let collections: Vec<Vec<i64>> = used.iter().map(|attempt| attempt.samples.to_vec()).collect();
    let mut pooled: Vec<i64> = collections.concat();
    let summary = SampleSummary::from_samples(&mut pooled)?;
    // An estimate from another number of collections belongs to another state of the ledger.
    let estimated = estimated.filter(|estimated| estimated.collections == used.len());
    let median = estimated.and_then(|estimated| estimated.median.as_ref());
    let of_samples = || sample_interval(&collections, summary.median, case.seed());
    let interval = median.and_then(estimated_interval).or_else(of_samples);
    // Operator, state and unit of the newest attempt that has a unit.
    let task = used.iter().rfind(|attempt| !attempt.task.core.is_empty());
    let samples = pooled.len();
    let measurement = Measurement {
        summary,
        interval,
        samples,
        collections: used.len(),
        counters: pooled_counters(&used),
        task: task.map(|attempt| RecordedTask::clone(&attempt.task)).unwrap_or_default(),
    };
    // Pooled samples may be more or less steady than individual collections.
    let outliers = used.iter().map(|attempt| attempt.outliers).sum();
    let are_ok = used.iter().all(|attempt| attempt.verdict != Verdict::Noisy);
    let ends = interval.map(|interval| (interval.low, interval.high));
    let by_collection: Vec<&[i64]> = collections.iter().map(Vec::as_slice).collect();
    let patterns = match estimated {
        Some(estimated) if estimated.patterned == 0 => RowPatterns::of_steady_collections(by_collection),
        _ => RowPatterns::of_collections(&by_collection),
    };
    let (pattern, pattern_remarks) = patterns.cause_and_remarks();
    let changes: Vec<&Cause> = used.iter().filter_map(|attempt| control_change(&attempt.reason)).collect();
    let change = changes.last().map(|last| Cause::clone(last).in_collections(changes.len(), used.len()));
    let is_changed = is_mostly_patterned(changes.len(), used.len());
    let pattern = pattern.or_else(|| change.clone().filter(|_| is_changed));
    let suspicious = used.iter().rfind(|attempt| attempt.verdict == Verdict::Suspicious);
    let noise = noise_reason(&pooled, ends, interval.map(|interval| interval.method), outliers)
        .or_else(|| patterns.disagreement_reason());
    let (verdict, cause) = match (noise, pattern) {
        (_, Some(pattern)) if used.len() > 1 => (Verdict::Noisy, pattern),
        (Some(why), None) if used.len() > 1 => {
            (Verdict::Noisy, why.within(used.len(), None, CollectionScope::Over))
        }
        (None, None) if !are_ok && used.len() > 1 => (Verdict::Ok, Cause::SteadyTogether),
        _ => (last.verdict, last.reason.cause.clone()),
    };
    // Assumptions of one collection, such as a host without a selftest, concern the pooled samples as well.
    let remarks = used.iter().flat_map(|attempt| &attempt.reason.remarks);
    let remarks = remarks.filter(|remark| !matches!(remark, Cause::ControlChange(_)));
    let remarks = remarks.chain(&pattern_remarks).chain(&change).cloned();
    let mut outcome = CaseOutcome::with_remarks(verdict, cause, remarks);
    // This holds for any spread: there is no common median.
    let tasks: Vec<&RecordedTask> = used.iter().map(|attempt| attempt.task.as_ref()).collect();
    if let Some(difference) = variant_contradiction(&tasks) {
        outcome = outcome.of_contradicted_attempt(difference);
    }
    if let Some(attempt) = suspicious {
        outcome = outcome.with_contradiction(attempt.reason.cause.clone());
    }
    Some(RowResult {
        case: case.clone(),
        cache: last.cache,
        run: last.run.to_string(),
        outcome,
        measurement: Some(measurement),
        software: last.software.clone(),
        withdrawn_runs: BTreeSet::new(),
    })
}

fn estimated_interval(median: &EstimatedMedian) -> Option<MedianInterval> {
    let estimate = median.estimate;
    let end = |sign: f64| {
        (estimate.log_median + sign * estimate.half_width).exp() + sign * TIMER_QUANTUM_NS as f64 / 2.0
    };
    estimate.half_width.is_finite().then(|| MedianInterval {
        estimate: estimate.log_median.exp(),
        low: end(-1.0).max(0.0),
        high: end(1.0),
        method: median.method,
        correction: median.method.is_joint_fit().then(|| estimate.correction.exp_m1()),
    })
}

fn sample_interval(collections: &[Vec<i64>], median: f64, seed: u64) -> Option<MedianInterval> {
    let (low, high) = published_interval(collections, seed)?;
    let method = if collections.len() == 1 { IntervalMethod::Launches } else { IntervalMethod::Bootstrap };
    Some(MedianInterval { estimate: median, low, high, method, correction: None })
}

fn pooled_counters(used: &[&AttemptSamples]) -> Vec<Option<f64>> {
    let width = used.iter().map(|attempt| attempt.counters.len()).max().unwrap_or_default();
    let mean = |index: usize| {
        let (mut sum, mut weight) = (0.0, 0.0);
        for attempt in used {
            if let Some(value) = attempt.counters.get(index) {
                sum += value * attempt.samples.len() as f64;
                weight += attempt.samples.len() as f64;
            }
        }
        (weight > 0.0).then(|| sum / weight)
    };
    (0..width).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{pattern_reason, *};
    use crate::{
        base::stats::CaseEstimate,
        kernel::{CacheState, IdentifiedSoftware, Reason, SoftwareFingerprint},
        measure::verify::controls::tests::control_change_of,
    };

    fn noise_of(collections: &[Vec<i64>], outliers: usize, seed: u64) -> Option<String> {
        noise_reason(&collections.concat(), published_interval(collections, seed), None, outliers)
            .map(|cause| cause.to_string())
    }

    /// All samples may be rounded to the same step: the median lies within half a step of it, not exactly at it.
    #[test]
    fn interval_includes_the_rounding_of_the_timer() {
        assert_eq!(published_interval(&[vec![1300; 20]], 1), Some((1290.0, 1310.0)));
        assert_eq!(published_interval(&[vec![1300; 20], vec![1300; 20]], 1), Some((1290.0, 1310.0)));
        assert_eq!(published_interval(&[vec![1300; 5]], 1), None);
    }

    #[test]
    fn timer_step_is_not_noise() {
        assert_eq!(noise_of(&[vec![100, 120, 100, 120, 100, 120, 120, 100]], 0, 1), None);
        let wide = noise_of(&[vec![1000, 1400, 1010, 1390, 1020, 1380, 1000, 1400]], 0, 1).expect("noise");
        assert!(wide.starts_with("median known to 1") || wide.starts_with("median known to 2"), "{wide}");
    }

    #[test]
    fn differing_collections_are_noisy() {
        let around = |middle: i64| (0..20).map(|step| middle + step * 2).collect::<Vec<_>>();
        assert_eq!(noise_of(&[around(10_000)], 0, 1), None);
        assert_eq!(noise_of(&[around(10_000), around(10_010)], 0, 1), None);
        assert!(noise_of(&[around(10_000), around(13_000)], 0, 1).is_some());
    }

    #[test]
    fn second_mode_is_noise() {
        let samples: Vec<i64> = std::iter::repeat_n(1000, 12).chain(std::iter::repeat_n(2000, 8)).collect();
        let kept = accepted_samples(&samples).iter().filter(|kept| **kept).count();
        assert_eq!(
            noise_of(&[vec![1000; kept]], 20 - kept, 1).as_deref(),
            Some("40 % of the samples are severe outliers")
        );
        assert_eq!(
            noise_of(&[vec![1000; 5]], 0, 1).as_deref(),
            Some("5 samples are too few for an interval")
        );
    }

    #[test]
    fn only_severe_outliers_are_left_out() {
        let mut samples = vec![1000, 1020, 980, 1000, 1040, 960, 1020, 980, 1000];
        samples.push(9000);
        let kept = accepted_samples(&samples);
        assert_eq!(kept.iter().filter(|kept| !**kept).count(), 1);
        assert!(!kept[9]);
    }

    #[test]
    fn medians_far_apart_are_noise() {
        let around = |middle: i64| (0..20).map(|step| middle + 20 * (step * 7 % 5)).collect::<Vec<_>>();
        let reason = |medians: &[i64]| {
            let collections: Vec<Vec<i64>> = medians.iter().map(|median| around(*median)).collect();
            let collections: Vec<&[i64]> = collections.iter().map(Vec::as_slice).collect();
            RowPatterns::of_collections(&collections).disagreement_reason().map(|cause| cause.to_string())
        };
        assert_eq!(reason(&[300_000]), None);
        assert_eq!(reason(&[300_000, 310_000]), None);
        let far = "the medians differ by 9.5 %, so that the error of their mean is 4.8 %";
        assert_eq!(reason(&[302_300, 332_500]).as_deref(), Some(far));
        // Two nights with different clocks of the device.
        assert!(reason(&[332_700, 328_000, 299_800, 301_300]).is_some());
        // One of eight medians is far from the others, which noise can cause.
        assert_eq!(reason(&[300_000, 301_000, 299_000, 300_500, 299_500, 302_000, 298_000, 330_000]), None);
        // Two steps of the timer.
        assert_eq!(reason(&[500, 540]), None);
    }

    /// Two of three collections have no pattern of their own.
    #[test]
    fn trend_of_all_collections_is_a_pattern() {
        let rising = |scatter: i64| -> Vec<i64> {
            (0..15).map(|number| 100_000 + 300 * number + scatter * (number * 7 % 5 - 2)).collect()
        };
        let (steady, all) = (rising(1_000), [rising(300), rising(1_000), rising(1_000)]);
        assert!(pattern_reason(&all[0]).is_some() && pattern_reason(&steady).is_none());
        let by_collection: Vec<&[i64]> = all.iter().map(Vec::as_slice).collect();
        let pooled = |collections: &[&[i64]]| {
            let (cause, remarks) = RowPatterns::of_collections(collections).cause_and_remarks();
            let texts: Vec<String> = remarks.iter().map(ToString::to_string).collect();
            (cause.map(|cause| cause.to_string()), texts)
        };
        let (pattern, remarks) = pooled(&by_collection);
        assert_eq!(
            pattern.as_deref(),
            Some("the durations rose by 4.1 % over the launches, in 2 of 3 collections together")
        );
        assert_eq!(remarks, ["the durations rose by 4.1 % over the launches, in 1 of 3 collections"]);
        assert_eq!(pooled(&by_collection[1..2]), (None, Vec::new()));
        let (pattern, _) = pooled(&by_collection[1..]);
        assert!(pattern.is_some_and(|pattern| pattern.ends_with("in 2 collections together")));
        // One collection has a trend, the others have none.
        let flat: Vec<i64> = (0..15).map(|number| 100_000 + 1_000 * (number * 7 % 5 - 2)).collect();
        let (pattern, remarks) = pooled(&[&all[0], &flat, &flat]);
        assert_eq!((pattern, remarks.len()), (None, 1));
        assert_eq!(pooled(&[]), (None, Vec::new()));
    }

    #[test]
    fn known_properties_are_compared() {
        let task = |operator: &str, state: &str, core: &str| {
            let [operator, state, core] = [operator, state, core].map(str::to_owned);
            RecordedTask { state, core, operator }
        };
        let find = |tasks: &[RecordedTask]| {
            variant_contradiction(&tasks.iter().collect::<Vec<_>>()).map(|cause| cause.to_string())
        };
        let add = task("AddAiCore", "dynamic", "AI_VECTOR_CORE");
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[add.clone(), add.clone(), RecordedTask::default()]), None);
        assert_eq!(find(&[add.clone(), task("", "dynamic", "")]), None);
        let other = task("AddV3", "static", "AI_VECTOR_CORE");
        let text = "its collections ran as different operators: AddAiCore in 2, AddV3 in 1";
        assert_eq!(find(&[add.clone(), other, add.clone()]).as_deref(), Some(text));
        let text = "its collections ran with different `OP State`: dynamic in 1, static in 1";
        assert_eq!(find(&[add.clone(), task("", "static", "")]).as_deref(), Some(text));
        let text = "its collections ran on different units: AI_VECTOR_CORE in 1, MIX_AIV in 1";
        assert_eq!(find(&[add, task("AddAiCore", "dynamic", "MIX_AIV")]).as_deref(), Some(text));
    }

    fn attempt(verdict: Verdict, samples: &[i64], counter: f64) -> AttemptSamples {
        AttemptSamples {
            cache: CacheState::Hot,
            run: format!("run of {}", samples.len()).into(),
            verdict,
            reason: Arc::new("because".into()),
            samples: samples.into(),
            outliers: 0,
            counters: vec![Some(counter), None].into(),
            task: Arc::default(),
            software: None,
        }
    }

    fn case() -> CaseId {
        CaseId::from_stored("00000000000000ff")
    }

    fn row(attempts: &[AttemptSamples]) -> RowResult {
        pool_attempts(&case(), attempts, None).expect("evidence")
    }

    fn outcome(attempts: &[AttemptSamples]) -> (Verdict, String) {
        let CaseOutcome { verdict, reason } = row(attempts).outcome;
        (verdict, reason.to_string())
    }

    #[test]
    fn attempts_of_several_collections_are_pooled() {
        let attempts = [attempt(Verdict::Ok, &[10, 20, 30], 1.0), attempt(Verdict::Ok, &[40], 5.0)];
        let row = row(&attempts);
        let measured = row.measurement.expect("numbers");
        assert_eq!((measured.samples, measured.collections), (4, 2));
        assert!((measured.summary.mean - 25.0).abs() < 1e-12);
        assert_eq!(measured.counters, [Some(2.0), None]);
        assert_eq!(row.run, "run of 1");
    }

    #[test]
    fn only_attempts_of_the_newest_software_are_pooled() {
        let of = |cann: Option<&str>, verdict, samples: &[i64]| {
            let software =
                |cann: &str| SoftwareFingerprint { cann: Some(cann.to_owned()), ..Default::default() };
            AttemptSamples {
                software: cann.map(software).map(IdentifiedSoftware::new).map(Arc::new),
                ..attempt(verdict, samples, 1.0)
            }
        };
        let unknown = of(None, Verdict::Ok, &[900; 9]);
        let old = of(Some("8.3"), Verdict::Ok, &[10; 9]);
        let new = of(Some("8.5"), Verdict::Noisy, &[20; 8]);
        let samples = |attempts: &[AttemptSamples]| {
            let row = row(attempts);
            (
                row.measurement.expect("numbers").samples,
                row.software.and_then(|software| software.fingerprint.cann.clone()),
            )
        };
        let (eight, nine) = ((8, Some("8.5".to_owned())), (18, Some("8.3".to_owned())));
        assert_eq!(
            samples(&[unknown.clone(), old.clone(), new.clone()]),
            eight,
            "not the better, but the newest"
        );
        assert_eq!(samples(&[old.clone(), new.clone(), old.clone()]), nine, "the earlier software again");
        assert_eq!(
            samples(&[unknown.clone(), unknown]),
            (18, None),
            "attempts of unknown software are pooled"
        );
        let without_samples = of(Some("8.5"), Verdict::Ok, &[]);
        assert_eq!(samples(&[old.clone(), old, without_samples]), nine);
    }

    #[test]
    fn attempts_of_different_binaries_are_suspicious_whatever_their_spread() {
        let of = |operator: &str, cann: &str, samples: &[i64]| AttemptSamples {
            task: Arc::new(RecordedTask { operator: operator.to_owned(), ..RecordedTask::default() }),
            software: Some(Arc::new(IdentifiedSoftware::new(SoftwareFingerprint {
                cann: Some(cann.to_owned()),
                ..Default::default()
            }))),
            ..attempt(Verdict::Ok, samples, 1.0)
        };
        let (one, other, unknown) = ("AddAiCore", "AddV3", "");
        let steady = [10_000; 20];
        let text = "its collections ran as different operators: AddAiCore in 2, AddV3 in 1";
        let mixed = [of(one, "8.5", &steady), of(other, "8.5", &steady), of(one, "8.5", &steady)];
        assert_eq!(outcome(&mixed), (Verdict::Suspicious, text.to_owned()));
        let apart = [of(one, "8.5", &steady), of(other, "8.5", &[13_000; 20]), of(one, "8.5", &steady)];
        let (verdict, reason) = outcome(&apart);
        assert_eq!(verdict, Verdict::Suspicious, "{reason}");
        assert!(reason.starts_with(&format!("{text}; ")), "{reason}");
        assert_eq!(outcome(&[of(one, "8.5", &steady), of(unknown, "8.5", &steady)]).0, Verdict::Ok);
        assert_eq!(outcome(&[of(one, "8.3", &steady), of(other, "8.5", &steady)]).0, Verdict::Ok);
    }

    #[test]
    fn remarks_of_all_pooled_attempts_are_kept() {
        let with = |verdict, samples: &[i64], remarks: &[&str]| AttemptSamples {
            reason: Arc::new(Reason::new(
                Cause::EveryLaunchRecorded,
                remarks.iter().map(|remark| Cause::from(*remark)),
            )),
            ..attempt(verdict, samples, 1.0)
        };
        let steady = [10_000; 20];
        let marked = with(Verdict::Ok, &steady, &["without a selftest", "assumed experts"]);
        let unmarked = with(Verdict::Ok, &steady, &["assumed experts"]);
        let expected = "every launch recorded; without a selftest; assumed experts".to_owned();
        assert_eq!(outcome(&[marked.clone(), unmarked.clone()]), (Verdict::Ok, expected.clone()));
        let reversed = "every launch recorded; assumed experts; without a selftest".to_owned();
        assert_eq!(outcome(&[unmarked, marked.clone()]), (Verdict::Ok, reversed));
        assert_eq!(outcome(std::slice::from_ref(&marked)), (Verdict::Ok, expected));
        let other = with(Verdict::Ok, &[13_000; 20], &[]);
        let (verdict, differing) = outcome(&[marked, other]);
        assert_eq!(verdict, Verdict::Noisy);
        assert!(
            differing.ends_with(", over 2 collections; without a selftest; assumed experts"),
            "{differing}"
        );
    }

    #[test]
    fn noisy_attempts_are_pooled_with_ok_ones() {
        let pooled = |attempts: &[AttemptSamples]| {
            let row = row(attempts);
            (row.measurement.expect("numbers").samples, row.outcome.verdict)
        };
        let good = attempt(Verdict::Ok, &[1000; 8], 1.0);
        let wide = [1000, 1001, 1002, 1003, 1004, 1005, 1006, 1200];
        let noisy = attempt(Verdict::Noisy, &wide, 1.0);
        assert_eq!(pooled(std::slice::from_ref(&noisy)), (8, Verdict::Noisy));
        assert_eq!(pooled(&[noisy.clone(), noisy.clone()]), (16, Verdict::Ok), "together they are steady");
        assert_eq!(pooled(&[noisy.clone(), good.clone()]), (16, Verdict::Ok));
        let apart = attempt(Verdict::Noisy, &[1300; 8], 1.0);
        assert_eq!(pooled(&[good, apart]), (16, Verdict::Noisy), "the spread between collections counts");
        assert_eq!(pool_attempts(&case(), &[], None), None);
    }

    /// A device that changed leaves no trace in samples that are steady together.
    #[test]
    fn changes_of_the_device_in_half_of_the_collections_make_a_row_noisy() {
        let with = |verdict, cause: Cause, remarks: Vec<Cause>| AttemptSamples {
            reason: Arc::new(Reason { cause, remarks }),
            ..attempt(verdict, &[10_000; 20], 1.0)
        };
        let steady = with(Verdict::Ok, Cause::EveryLaunchRecorded, Vec::new());
        let took = |percent: u32| control_change_of(f64::from(percent));
        let changed =
            |percent: u32| with(Verdict::Noisy, took(percent), vec![Cause::from("without a selftest")]);
        let also_wide = with(Verdict::Noisy, Cause::from("median known to 9 %, target 5 %"), vec![took(6)]);
        let in_all = format!("{}, in 2 of 2 collections; without a selftest", took(7));
        assert_eq!(outcome(&[changed(5), changed(7)]), (Verdict::Noisy, in_all));
        let in_half = format!("{}, in 1 of 2 collections", took(6));
        assert_eq!(outcome(&[also_wide.clone(), steady.clone()]), (Verdict::Noisy, in_half));
        let in_a_third = format!(
            "every launch recorded, steady over all collections together; without a selftest; {}, in 1 of 3 collections",
            took(5)
        );
        assert_eq!(outcome(&[steady.clone(), changed(5), steady]), (Verdict::Ok, in_a_third));
        for single in [changed(5), also_wide] {
            assert_eq!(outcome(std::slice::from_ref(&single)), (Verdict::Noisy, single.reason.to_string()));
        }
    }

    #[test]
    fn joint_estimate_is_the_interval_and_states_its_correction() {
        let attempts = [attempt(Verdict::Ok, &[10_000; 8], 1.0), attempt(Verdict::Ok, &[10_200; 8], 1.0)];
        let estimate = CaseEstimate {
            log_median: 10_000_f64.ln(),
            half_width: 0.01,
            freedom: 4.0,
            collections: 2,
            correction: 0.01,
        };
        let interval = |median: EstimatedMedian| {
            let collections = median.estimate.collections;
            let estimated =
                EstimatedCase { median: Some(median), collections, patterned: 0, ..EstimatedCase::default() };
            let row = pool_attempts(&case(), &attempts, Some(&estimated)).expect("evidence");
            row.measurement.expect("numbers").interval.expect("an interval")
        };
        let joint_fit = |estimate| EstimatedMedian { estimate, method: IntervalMethod::JointFit };
        let joint = interval(joint_fit(estimate));
        assert!((joint.low - (10_000.0 * (-0.01_f64).exp() - 10.0)).abs() < 1e-6, "{joint:?}");
        assert!((joint.high - (10_000.0 * 0.01_f64.exp() + 10.0)).abs() < 1e-6, "{joint:?}");
        // The mean of the logarithms of the medians is 10,099.5 ns.
        assert!((joint.estimate * (1.0 + joint.correction.expect("joint")) - 10_100.5).abs() < 0.1);
        assert_eq!(joint.method, IntervalMethod::JointFit);
        let stale = joint_fit(CaseEstimate { collections: 1, ..estimate });
        assert_eq!(interval(stale).method, IntervalMethod::Bootstrap);
        let unbounded = joint_fit(CaseEstimate { half_width: f64::INFINITY, ..estimate });
        assert_eq!(interval(unbounded).method, IntervalMethod::Bootstrap);
    }

    #[test]
    fn outliers_of_all_collections_are_counted() {
        let with = |outliers| AttemptSamples { outliers, ..attempt(Verdict::Noisy, &[1000; 12], 1.0) };
        let expected = "40 % of the samples are severe outliers, over 2 collections".to_owned();
        assert_eq!(outcome(&[with(8), with(8)]), (Verdict::Noisy, expected));
        let few = [with(8), with(0), with(0), with(0), with(0), with(0), with(0)];
        assert_eq!(outcome(&few).0, Verdict::Ok, "8 of 92 are less than a tenth");
    }
}
