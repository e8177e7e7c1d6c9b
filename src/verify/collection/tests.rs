use super::*;
use crate::{
    model::{Attributes, CaseId, KernelName, Kind, Tensor},
    render::Sentinels,
    verify::journal::Raised,
};

const WARM_UP: u32 = 2;
const MEASURED: u32 = 8;
const FASTEST: Nanos = Nanos(900);

fn case(rows: u64) -> Case {
    let tensor = Some(Tensor::new(vec![rows, 8], Dtype::Float));
    Case {
        kernel: KernelName::new("Add").expect("a name"),
        inputs: vec![tensor.clone(), Some(Tensor::new(vec![], Dtype::Float))],
        outputs: vec![tensor],
        attributes: Attributes::default(),
    }
}

/// A collection of two cases in which everything went well; tests then break one thing.
struct Collection {
    manifest: Manifest,
    cases: Vec<Case>,
    journal: Journal,
    records: Vec<RawRecord>,
    end: CollectionEnd,
}

impl Collection {
    fn good() -> Self {
        let cases = vec![case(16), case(32)];
        let listed = cases.iter().zip(0..).map(|(case, ordinal)| ManifestCase {
            ordinal,
            case: case.id(),
            seed: 1,
            kernel: "Add".to_owned(),
            reading: "element-wise".to_owned(),
            arguments: Vec::new(),
            outputs: Vec::new(),
        });
        let manifest = Manifest {
            run: "r".to_owned(),
            collection: 1,
            kind: Kind::Rehearsal,
            device: 3,
            gang: Vec::new(),
            seed: 1,
            warm_up: WARM_UP,
            measured: MEASURED,
            expert_skew: 0.0,
            sentinels: Sentinels::default(),
            cases: listed.collect(),
        };
        let mut records = Vec::new();
        for (ordinal, case) in (0..).zip(&cases) {
            records.push(sentinel(manifest.sentinels.opening(ordinal)));
            for launch in 0..i64::from(WARM_UP + MEASURED) {
                records.push(record("AddAiCore", case, 1000 + 20 * (launch % 3)));
            }
            records.push(sentinel(manifest.sentinels.closing(ordinal)));
        }
        let lines = (0..2).map(|ordinal| {
            (ordinal, JournalLine { ordinal, launched: WARM_UP + MEASURED, error: None, seconds: None })
        });
        let journal =
            Journal { lines: lines.collect(), is_started: true, is_done: true, ..Journal::default() };
        let mut collection = Self { manifest, cases, journal, records, end: CollectionEnd::ByItself };
        collection.restamp();
        collection
    }

    fn restamp(&mut self) {
        for (record, at) in self.records.iter_mut().zip(0..) {
            record.start = Nanos(at * 5000);
        }
    }

    fn own(&mut self, ordinal: usize) -> impl Iterator<Item = &mut RawRecord> {
        let inputs = self.cases[ordinal].inputs.clone();
        self.records.iter_mut().filter(move |record| record.inputs == inputs)
    }

    fn findings(&self) -> Vec<Finding> {
        self.attempts().into_iter().map(|attempt| attempt.finding).collect()
    }

    fn attempts(&self) -> Vec<Attempt> {
        let expected: Vec<Expected<'_>> = self
            .cases
            .iter()
            .map(|case| Expected {
                case,
                names: vec!["Add", "AddAiCore"],
                beside: &[],
                fastest: FASTEST,
                notes: &[],
                host_slots: Vec::new(),
            })
            .collect();
        judge(&self.manifest, &expected, std::slice::from_ref(&self.journal), &self.records, self.end)
    }
}

fn sentinel(length: u64) -> RawRecord {
    let vector = Some(Tensor::new(vec![length], Dtype::Int32));
    RawRecord { inputs: vec![vector.clone()], outputs: vec![vector], ..record("Neg", &case(1), 1000) }
}

fn record(kernel: &str, case: &Case, duration: i64) -> RawRecord {
    RawRecord {
        kernel: kernel.to_owned(),
        start: Nanos(0),
        duration: Nanos(duration),
        device: Some(3),
        inputs: case.inputs.clone(),
        outputs: case.outputs.clone(),
        counters: vec![Some(f64::from(u32::try_from(duration).unwrap_or_default())); COUNTERS.len()],
    }
}

/// The first case's finding after a change, and the second's, which must not suffer.
fn after(change: impl FnOnce(&mut Collection)) -> (Verdict, String) {
    let mut collection = Collection::good();
    change(&mut collection);
    let [first, second] = <[Finding; 2]>::try_from(collection.findings()).expect("two cases");
    assert_eq!(second.verdict, Verdict::Ok, "the other case is healthy: {}", second.reason);
    (first.verdict, first.reason)
}

#[test]
fn a_good_collection_is_ok() {
    let attempts = Collection::good().attempts();
    for attempt in &attempts {
        assert_eq!(attempt.finding, Finding::new(Verdict::Ok, "every launch recorded"));
        assert_eq!(attempt.launches.len(), (WARM_UP + MEASURED) as usize);
        assert_eq!(attempt.launches.iter().filter(|launch| launch.is_accepted).count(), MEASURED as usize);
        // Launches 2 to 9 took 1040, 1000, 1020, 1040, 1000, 1020, 1040, 1000.
        assert_eq!(attempt.counters[0], Some(1020.0));
    }
}

#[test]
fn records_in_any_order_of_the_file_are_the_same() {
    let mut shuffled = Collection::good();
    shuffled.records.reverse();
    shuffled.records.sort_by_key(|record| record.start);
    assert_eq!(shuffled.findings(), Collection::good().findings());
}

#[test]
fn a_lost_record_is_noticed_in_its_case_alone() {
    let (verdict, reason) = after(|c| {
        c.records.remove(4);
    });
    assert_eq!((verdict, reason.as_str()), (Verdict::LostRecords, "10 launches, 9 records"));
}

#[test]
fn a_lost_sentinel_is_noticed() {
    let (verdict, reason) = after(|c| {
        c.records.remove(0);
    });
    assert_eq!(verdict, Verdict::LostRecords);
    assert!(reason.contains("sentinels"), "{reason}");
}

#[test]
fn no_records_at_all_are_lost_records() {
    let mut collection = Collection::good();
    collection.records.clear();
    for finding in collection.findings() {
        assert_eq!(finding, Finding::new(Verdict::LostRecords, "msprof left no records"));
    }
}

#[test]
fn another_kernel_is_named() {
    let (verdict, reason) = after(|c| c.own(0).for_each(|record| record.kernel = "Adds".to_owned()));
    assert_eq!((verdict, reason.as_str()), (Verdict::WrongKernel, "the call ran as Adds, not as Add"));
}

#[test]
fn other_shapes_are_named() {
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.outputs = vec![Some(Tensor::new(vec![8, 8], Dtype::Float))]);
    });
    assert_eq!(verdict, Verdict::WrongKernel);
    assert_eq!(reason, "output 0 was recorded as FLOAT[8,8], the case has FLOAT[16,8]");
}

#[test]
fn results_that_are_left_out_need_not_be_shown() {
    let (verdict, _) =
        after(|c| c.own(0).for_each(|record| record.outputs.push(Some(Tensor::new(vec![], Dtype::Float)))));
    assert_eq!(verdict, Verdict::Ok);
    let (verdict, reason) =
        after(|c| c.own(0).for_each(|record| record.outputs.push(Some(Tensor::new(vec![4], Dtype::Float)))));
    assert_eq!((verdict, reason.as_str()), (Verdict::WrongKernel, "recorded with 2 outputs, the case has 1"));
}

#[test]
fn the_type_of_a_scalar_is_not_the_callers() {
    let (verdict, _) = after(|c| {
        c.own(0).for_each(|record| record.inputs[1] = Some(Tensor::new(vec![], Dtype::Double)));
    });
    assert_eq!(verdict, Verdict::Ok);
}

#[test]
fn another_device_is_named() {
    let (verdict, reason) = after(|c| c.own(0).for_each(|record| record.device = Some(5)));
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Implausible, "launched on device 3, recorded on device 5")
    );
}

#[test]
fn faster_than_the_roofline_is_implausible() {
    let (verdict, reason) = after(|c| c.own(0).nth(4).expect("a launch").duration = Nanos(840));
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(reason, "launch 4 took 0.840 us, the roofline allows no less than 0.900 us");
    let (verdict, _) = after(|c| c.own(0).nth(1).expect("a warm-up launch").duration = Nanos(880));
    assert_eq!(verdict, Verdict::Ok, "within the margin");
}

#[test]
fn a_wide_spread_is_noisy_and_still_measured() {
    let (verdict, reason) = after(|c| {
        for (record, number) in c.own(0).zip(0..) {
            record.duration = Nanos(1000 + number * 100);
        }
    });
    assert_eq!(verdict, Verdict::Noisy);
    assert!(reason.starts_with("median known to "), "{reason}");
}

#[test]
fn a_severe_outlier_is_labelled_counted_and_left_out() {
    let mut collection = Collection::good();
    collection.own(0).nth(5).expect("a launch").duration = Nanos(90_000);
    let attempts = collection.attempts();
    assert_eq!(attempts[0].finding.reason, "every launch recorded; 1 severe outlier left out");
    assert_eq!(attempts[0].launches.iter().filter(|launch| launch.is_accepted).count(), 7);
    assert!(attempts[0].counters[0].expect("a mean") < 2000.0, "counters are of the same launches");
}

#[test]
fn helpers_of_the_call_are_remarked() {
    let (verdict, reason) = after(|c| {
        let helper = record("TransData", &case(99), 5000);
        c.records.insert(3, helper);
        c.restamp();
    });
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Ok, "every launch recorded; the call also launched TransData")
    );
}

#[test]
fn what_python_raised_decides() {
    for (class, message, verdict) in [
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied", Verdict::InvalidArgs),
        ("OutOfMemoryError", "NPU out of memory", Verdict::Oom),
        ("RuntimeError", "aclrtSynchronizeStream failed, error code is 507015", Verdict::Crashed),
    ] {
        let raised = Raised { class: class.to_owned(), message: message.to_owned() };
        let (found, reason) = after(|c| c.journal.lines.get_mut(&0).expect("a line").error = Some(raised));
        assert_eq!((found, reason), (verdict, format!("{class}: {message}")));
    }
}

#[test]
fn launches_whose_records_were_cut_off_by_us_are_not_run() {
    for end in [CollectionEnd::TimedOut, CollectionEnd::Stopped] {
        let mut collection = Collection::good();
        collection.records.clear();
        collection.end = end;
        for finding in collection.findings() {
            assert_eq!(finding.verdict, Verdict::NotRun, "{}", finding.reason);
        }
    }
}

#[test]
fn more_records_than_launches_are_another_call() {
    let (verdict, reason) = after(|c| {
        let twice = c.own(0).next().expect("a launch").clone();
        c.records.insert(2, twice);
        c.restamp();
    });
    assert_eq!((verdict, reason.as_str()), (Verdict::WrongKernel, "10 launches, 11 records"));
}

#[test]
fn the_case_that_ran_when_the_process_died_is_blamed_and_later_ones_are_not() {
    for (end, verdict) in [
        (CollectionEnd::ByItself, Verdict::Crashed),
        (CollectionEnd::TimedOut, Verdict::Hung),
        (CollectionEnd::Stopped, Verdict::NotRun),
    ] {
        let mut collection = Collection::good();
        collection.journal = Journal { is_started: true, ..Journal::default() };
        collection.end = end;
        let findings = collection.findings();
        assert_eq!(findings[0].verdict, verdict);
        assert_eq!(findings[1], Finding::new(Verdict::NotRun, "the collection ended before its turn"));
    }
    let mut collection = Collection::good();
    collection.journal = Journal::default();
    for finding in collection.findings() {
        assert_eq!(finding.verdict, Verdict::NotRun, "a script that never began blames no case");
    }
    let mut collection = Collection::good();
    collection.journal.lines.remove(&1);
    assert_eq!(collection.findings()[0].verdict, Verdict::Ok);
    assert_eq!(collection.findings()[1].verdict, Verdict::Crashed);
    assert_ne!(collection.attempts()[1].case, CaseId::from_stored("x"));
}
