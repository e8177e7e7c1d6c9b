//! Pools the attempts in the ledger into the numbers of a row.

use super::samples::{noise_reason, published_interval};
use crate::{
    domain::{
        AttemptSamples, CaseId, CaseOutcome, Measurement, RecordedTask, RowResult, Verdict, reason_cause,
        reason_remarks,
    },
    stats::SampleSummary,
};

/// Pools the attempts at a case into a row: those of the newest software, and of them those that ended `ok`, or noisy ones
/// if there are no others. `None` without attempts. The verdict is that of the pooled samples: collections that are
/// steady individually may differ.
pub(crate) fn pool_attempts(case: &CaseId, evidence: &[AttemptSamples]) -> Option<RowResult> {
    let newest = evidence.iter().rfind(|attempt| !attempt.samples.is_empty())?;
    let generation = || {
        let measured = evidence.iter().filter(|attempt| !attempt.samples.is_empty());
        measured.filter(|attempt| attempt.software == newest.software)
    };
    let best = generation().map(|attempt| attempt.verdict).min()?;
    let used: Vec<&AttemptSamples> = generation().filter(|attempt| attempt.verdict == best).collect();
    let last = used.last()?;
    let mut pooled: Vec<i64> = used.iter().flat_map(|attempt| attempt.samples.iter().copied()).collect();
    let summary = SampleSummary::from_samples(&mut pooled)?;
    let collections: Vec<Vec<i64>> = used.iter().map(|attempt| attempt.samples.clone()).collect();
    let interval = published_interval(&collections, case.seed());
    let samples = pooled.len();
    let measurement = Measurement {
        summary,
        interval,
        samples,
        collections: used.len(),
        counters: pooled_counters(&used),
        task: newest_task(&used),
    };
    // Pooled samples may be steadier than individual collections, or less steady.
    let (verdict, cause) = match noise_reason(&pooled, interval, 0) {
        Some(why) if used.len() > 1 => (Verdict::Noisy, format!("{why}, over {} collections", used.len())),
        None if best != Verdict::Ok && used.len() > 1 => {
            (Verdict::Ok, "every launch recorded, steady over all collections together".to_owned())
        }
        _ => (best, reason_cause(&last.reason).to_owned()),
    };
    // Assumptions of one collection, such as a host without a selftest, concern the pooled samples as well.
    let remarks = used.iter().flat_map(|attempt| reason_remarks(&attempt.reason));
    let outcome = CaseOutcome::with_remarks(verdict, &cause, remarks);
    Some(RowResult {
        case: case.clone(),
        run: last.run.clone(),
        outcome,
        measurement: Some(measurement),
        software: newest.software.clone(),
    })
}

/// Returns state and unit of the newest attempt that has them.
fn newest_task(used: &[&AttemptSamples]) -> RecordedTask {
    let known = used.iter().rfind(|attempt| !attempt.task.core.is_empty());
    known.map(|attempt| attempt.task.clone()).unwrap_or_default()
}

/// Returns the means of the counters over all launches; attempts are weighted by their samples.
fn pooled_counters(used: &[&AttemptSamples]) -> Vec<Option<f64>> {
    let width = used.iter().map(|attempt| attempt.counters.len()).max().unwrap_or_default();
    let mean = |index: usize| {
        let (mut sum, mut weight) = (0.0, 0.0);
        for attempt in used {
            if let Some(Some(value)) = attempt.counters.get(index) {
                #[expect(clippy::cast_precision_loss, reason = "a count of launches")]
                let samples = attempt.samples.len() as f64;
                sum += value * samples;
                weight += samples;
            }
        }
        (weight > 0.0).then(|| sum / weight)
    };
    (0..width).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::SoftwareFingerprint;

    fn attempt(verdict: Verdict, samples: &[i64], counter: f64) -> AttemptSamples {
        AttemptSamples {
            run: format!("run of {}", samples.len()),
            verdict,
            reason: "because".to_owned(),
            samples: samples.to_vec(),
            counters: vec![Some(counter), None],
            task: RecordedTask::default(),
            software: None,
        }
    }

    #[test]
    fn attempts_of_several_collections_are_pooled() {
        let case = CaseId::from_stored("00000000000000ff");
        let attempts = [attempt(Verdict::Ok, &[10, 20, 30], 1.0), attempt(Verdict::Ok, &[40], 5.0)];
        let row = pool_attempts(&case, &attempts).expect("evidence");
        let measured = row.measurement.expect("numbers");
        assert_eq!((measured.samples, measured.collections), (4, 2));
        assert!((measured.summary.mean - 25.0).abs() < 1e-12);
        assert_eq!(measured.counters, [Some(2.0), None]);
        assert_eq!(row.run, "run of 1");
    }

    #[test]
    fn only_attempts_of_the_newest_software_are_pooled() {
        let case = CaseId::from_stored("00000000000000ff");
        let of = |cann: Option<&str>, verdict, samples: &[i64]| {
            let software =
                |cann: &str| SoftwareFingerprint { cann: Some(cann.to_owned()), ..Default::default() };
            AttemptSamples { software: cann.map(software), ..attempt(verdict, samples, 1.0) }
        };
        let unknown = of(None, Verdict::Ok, &[900; 9]);
        let old = of(Some("8.3"), Verdict::Ok, &[10; 9]);
        let new = of(Some("8.5"), Verdict::Noisy, &[20; 8]);
        let samples = |attempts: &[AttemptSamples]| {
            let row = pool_attempts(&case, attempts).expect("evidence");
            (row.measurement.expect("numbers").samples, row.software.and_then(|software| software.cann))
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
            "earlier versions of npubench are pooled"
        );
        let without_samples = of(Some("8.5"), Verdict::Ok, &[]);
        assert_eq!(samples(&[old.clone(), old, without_samples]), nine);
    }

    #[test]
    fn remarks_of_all_pooled_attempts_are_kept() {
        let case = CaseId::from_stored("00000000000000ff");
        let with = |verdict, samples: &[i64], reason: &str| AttemptSamples {
            reason: reason.to_owned(),
            ..attempt(verdict, samples, 1.0)
        };
        let reason = |attempts: &[AttemptSamples]| {
            let row = pool_attempts(&case, attempts).expect("evidence");
            (row.outcome.verdict, row.outcome.reason)
        };
        let steady = [10_000; 20];
        let marked = with(Verdict::Ok, &steady, "every launch recorded; without a selftest; assumed experts");
        let unmarked = with(Verdict::Ok, &steady, "every launch recorded; assumed experts");
        let expected = "every launch recorded; without a selftest; assumed experts".to_owned();
        assert_eq!(reason(&[marked.clone(), unmarked.clone()]), (Verdict::Ok, expected.clone()));
        let reversed = "every launch recorded; assumed experts; without a selftest".to_owned();
        assert_eq!(reason(&[unmarked, marked.clone()]), (Verdict::Ok, reversed));
        assert_eq!(reason(std::slice::from_ref(&marked)), (Verdict::Ok, expected));
        let other = with(Verdict::Ok, &[13_000; 20], "every launch recorded");
        let (verdict, differing) = reason(&[marked, other]);
        assert_eq!(verdict, Verdict::Noisy);
        assert!(
            differing.ends_with(", over 2 collections; without a selftest; assumed experts"),
            "{differing}"
        );
    }

    #[test]
    fn noisy_attempts_are_left_out_beside_ok_ones() {
        let case = CaseId::from_stored("00000000000000ff");
        let good = attempt(Verdict::Ok, &[10, 10], 1.0);
        let noisy = attempt(Verdict::Noisy, &[1000, 90], 1.0);
        let row = pool_attempts(&case, &[noisy.clone(), good]).expect("evidence");
        assert_eq!(row.measurement.expect("numbers").samples, 2);
        assert_eq!(pool_attempts(&case, &[noisy]).expect("evidence").outcome.verdict, Verdict::Noisy);
        let wide = attempt(Verdict::Noisy, &[1000, 1001, 1002, 1003, 1004, 1005, 1006, 1200], 1.0);
        let alone = pool_attempts(&case, std::slice::from_ref(&wide)).expect("evidence");
        assert_eq!(alone.outcome.verdict, Verdict::Noisy);
        let together = pool_attempts(&case, &[wide.clone(), wide]).expect("evidence");
        assert_eq!(together.outcome.verdict, Verdict::Ok, "{}", together.outcome.reason);
        assert_eq!(pool_attempts(&case, &[]), None);
    }
}
