//! Pools the attempts in the ledger into the numbers of a row.

use std::collections::BTreeSet;

use super::{
    EstimatedCase, EstimatedMedian,
    controls::control_change,
    samples::{
        RowPatterns, TIMER_QUANTUM_NS, is_mostly_patterned, noise_reason, published_interval,
        variant_contradiction,
    },
};
use crate::{
    base::stats::SampleSummary,
    kernel::{
        AttemptSamples, CaseId, CaseOutcome, Cause, IntervalMethod, Measurement, MedianInterval,
        RecordedTask, RowResult, Verdict, cause::CollectionScope,
    },
};

/// Returns the attempts that a row pools: those with samples that have the cache and the software of the newest.
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

/// Pools the attempts at a case into a row: those of the newest software that passed verification, whatever their spread. Leaving
/// out noisy ones would select samples by their spread, and the interval would be too narrow. `None` without attempts. The
/// verdict is that of the pooled samples: collections that are steady individually may differ. `estimated` is what all
/// cases and collections show of the case; without an estimate, the interval is that of the samples.
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
    // An estimate of another number of collections is of another state of the ledger.
    let estimated = estimated.filter(|estimated| estimated.collections == used.len());
    let median = estimated.and_then(|estimated| estimated.median.as_ref());
    let interval = match median.and_then(estimated_interval) {
        Some(interval) => Some(interval),
        None => sample_interval(&collections, summary.median, case.seed()),
    };
    let samples = pooled.len();
    let measurement = Measurement {
        summary,
        interval,
        samples,
        collections: used.len(),
        counters: pooled_counters(&used),
        // Operator, state and unit of the newest attempt that has a unit.
        task: used
            .iter()
            .rfind(|attempt| !attempt.task.core.is_empty())
            .map(|attempt| RecordedTask::clone(&attempt.task))
            .unwrap_or_default(),
    };
    // Pooled samples may be steadier than individual collections, or less steady.
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
    // Whatever the spread: there is no common median.
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

/// Returns the interval of an estimate, widened by half a step of the timer; `None` if nothing bounds it.
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

/// Returns the means of the counters over all launches; attempts are weighted by their samples.
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

    use super::*;
    use crate::{
        base::stats::CaseEstimate,
        kernel::{CacheState, IdentifiedSoftware, Reason, SoftwareFingerprint},
        measure::verify::controls::control_change_of,
    };

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
                row.software.and_then(|software| software.fingerprint().cann.clone()),
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
