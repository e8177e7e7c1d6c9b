use super::*;
use crate::{
    kernel::{
        CaseAttributes, CaseId, DataKind, Dtype, KernelName, ProfilerSettings, Tensor,
        render::{ExpectedRecord, HostNumbers, PinnedEnvironment, SentinelLengths},
    },
    measure::verify::journal::PythonException,
};

mod cache_flushes;
mod controls;
mod cores;
mod durations;
mod equal_calls;
mod gangs;
mod recorded_devices;

const WARM_UP: u32 = 2;
const MEASURED: u32 = 8;
const FASTEST: Nanos = Nanos(900);

fn case(rows: u64) -> Case {
    let tensor = Some(Tensor::new(vec![rows, 8], Dtype::Float));
    Case {
        kernel: KernelName::new("Add").expect("a name"),
        inputs: vec![tensor.clone(), Some(Tensor::new(vec![], Dtype::Float))],
        outputs: vec![tensor],
        attributes: CaseAttributes::default(),
    }
}

/// A successful collection of two cases, which tests then modify.
struct Collection {
    manifest: Manifest,
    cases: Vec<Case>,
    journal: LaunchJournal,
    records: Vec<RawRecord>,
    end: CollectionTermination,
}

impl Collection {
    fn without_faults() -> Self {
        let cases = vec![case(16), case(32)];
        let listed = cases.iter().zip(0..).map(|(case, ordinal)| ManifestCase {
            ordinal,
            case: case.id(),
            seed: 1,
            kernel: "Add".to_owned(),
            shapes: String::new(),
            form: "element-wise".to_owned(),
            api: "torch.add".to_owned(),
            arguments: Vec::new(),
            returns: Vec::new(),
            switches: Default::default(),
            record: ExpectedRecord::default(),
            measured: None,
        });
        let manifest = Manifest {
            run: "r".to_owned(),
            collection: 1,
            kind: DataKind::Rehearsal,
            device: LogicalDeviceId(3),
            gang: Vec::new(),
            hosts: Vec::new(),
            host: 0,
            host_numbers: HostNumbers::default(),
            seed: 1,
            warm_up: WARM_UP,
            measured: MEASURED,
            flush_bytes: None,
            expert_skew: 0.0,
            profiler: ProfilerSettings::default(),
            environment: PinnedEnvironment::default(),
            sentinels: SentinelLengths::default(),
            controls: None,
            cases: listed.collect(),
        };
        let mut records = Vec::new();
        for (ordinal, case) in (0..).zip(&cases) {
            records.push(sentinel(manifest.sentinels.opening(ordinal)));
            for launch in 0..i64::from(WARM_UP + MEASURED) {
                records.push(record("AddAiCore", case, 1000 + 20 * (launch % 3)));
            }
            records.push(sentinel(manifest.sentinels.closing_length(ordinal)));
        }
        let lines = (0..2).map(|ordinal| {
            (
                ordinal,
                JournalLine {
                    ordinal,
                    launched: WARM_UP + MEASURED,
                    error: None,
                    usable: true,
                    seconds: None,
                    unsettled: None,
                },
            )
        });
        let journal = LaunchJournal {
            lines: lines.collect(),
            is_started: true,
            is_done: true,
            ..LaunchJournal::default()
        };
        let mut collection = Self { manifest, cases, journal, records, end: CollectionTermination::Exited };
        collection.restamp();
        collection
    }

    fn restamp(&mut self) {
        let mut start = 0;
        for record in &mut self.records {
            record.start = Nanos(start);
            start += record.duration.0 + 4000;
        }
    }

    fn own(&mut self, ordinal: usize) -> impl Iterator<Item = &mut RawRecord> {
        let inputs = self.cases[ordinal].inputs.clone();
        self.records.iter_mut().filter(move |record| record.inputs == inputs)
    }

    fn outcomes(&self) -> Vec<CaseOutcome> {
        self.attempts().into_iter().map(|attempt| attempt.outcome).collect()
    }

    fn attempts(&self) -> Vec<Attempt> {
        assessed(self, std::slice::from_ref(&self.journal))
    }
}

fn expected_of<'a>(case: &'a Case, names: Vec<&'a str>) -> ExpectedLaunches<'a> {
    ExpectedLaunches { names, fastest: FASTEST, ..ExpectedLaunches::without_rules(case) }
}

fn assessed(collection: &Collection, journals: &[LaunchJournal]) -> Vec<Attempt> {
    let expected: Vec<ExpectedLaunches<'_>> =
        collection.cases.iter().map(|case| expected_of(case, vec!["Add", "AddAiCore"])).collect();
    let (records, end) = (&collection.records, collection.end);
    assess_collection(&collection.manifest, &expected, journals, records, end, &SoftwareChange::None)
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
        device: Some(LogicalDeviceId(3)),
        host: 0,
        has_device_column: true,
        inputs: case.inputs.clone(),
        outputs: case.outputs.clone(),
        task: RecordedTask::default(),
        counters: counters(0.9 * duration as f64, duration as f64),
        blocks: None,
        stream: None,
        is_hf32: None,
        low_clock: None,
    }
}

/// Counters of a launch on matrix cores that work for a time in nanoseconds, and for a number of cycles.
fn counters(working: f64, cycles: f64) -> Vec<Option<f64>> {
    let value = |name: &&str| match *name {
        "aicore_time(us)" => working / 1e3,
        "aic_total_cycles" => cycles,
        _ => 0.0,
    };
    COUNTERS.iter().map(|name| Some(value(name))).collect()
}

/// Returns the outcome of the first case after a change; the second case must stay `ok`.
fn after(change: impl FnOnce(&mut Collection)) -> (Verdict, String) {
    let mut collection = Collection::without_faults();
    change(&mut collection);
    let [first, second] = <[CaseOutcome; 2]>::try_from(collection.outcomes()).expect("two cases");
    assert_eq!(second.verdict, Verdict::Ok, "the other case is healthy: {}", second.reason);
    (first.verdict, first.reason.to_string())
}

#[test]
fn complete_collection_is_ok() {
    let attempts = Collection::without_faults().attempts();
    for attempt in &attempts {
        assert_eq!(attempt.outcome, (Verdict::Ok, "every launch recorded"));
        assert_eq!(attempt.launches.len(), (WARM_UP + MEASURED) as usize);
        assert_eq!(attempt.launches.iter().filter(|launch| launch.is_accepted).count(), MEASURED as usize);
        // Launches 2 to 9 took 1040, 1000, 1020, 1040, 1000, 1020, 1040, 1000.
        assert_eq!(attempt.counters[1], Some(1020.0));
    }
}

/// The kernel that flushes the cache runs before each launch, also before launches of Neg, which has the same name.
#[test]
fn flushes_of_the_cache_are_no_launches_of_a_case() {
    let flush = |bytes: u64| RawRecord {
        inputs: vec![Some(Tensor::new(vec![2, bytes / 8], Dtype::Int32))],
        ..record("Neg", &case(1), 640_000)
    };
    let mut collection = Collection::without_faults();
    let unflushed = collection.attempts();
    let launches = std::mem::take(&mut collection.records).into_iter();
    collection.records = launches
        .flat_map(|record| {
            let is_launch = record.kernel == "AddAiCore";
            is_launch.then(|| flush(4096)).into_iter().chain([record])
        })
        .collect();
    collection.restamp();
    assert!(
        collection.outcomes().iter().all(|outcome| outcome.reason.contains("Neg")),
        "they count as others"
    );
    collection.manifest.flush_bytes = Some(4096);
    let flushed = collection.attempts();
    for (flushed, unflushed) in flushed.iter().zip(&unflushed) {
        assert_eq!(flushed.outcome, unflushed.outcome);
        assert_eq!(flushed.counters, unflushed.counters);
    }
    collection.manifest.flush_bytes = Some(8192);
    let is_other_size =
        |outcome: CaseOutcome| outcome.reason == "no record of a flush of the cache before launch 0";
    assert!(collection.outcomes().into_iter().all(is_other_size));
}

#[test]
fn order_of_records_in_the_file_does_not_matter() {
    let mut shuffled = Collection::without_faults();
    shuffled.records.reverse();
    shuffled.records.sort_by_key(|record| record.start);
    assert_eq!(shuffled.outcomes(), Collection::without_faults().outcomes());
}

#[test]
fn empty_profile_is_lost_records() {
    let mut collection = Collection::without_faults();
    collection.records.clear();
    for outcome in collection.outcomes() {
        assert_eq!(outcome, (Verdict::LostRecords, "msprof left no records"));
    }
}

#[test]
fn launches_without_exported_records_are_not_run_after_a_time_limit() {
    for end in [CollectionTermination::TimedOut, CollectionTermination::Stopped] {
        let mut collection = Collection::without_faults();
        collection.records.clear();
        collection.end = end;
        for outcome in collection.outcomes() {
            assert_eq!(outcome.verdict, Verdict::NotRun, "{}", outcome.reason);
        }
    }
}

#[test]
fn running_case_of_a_dead_process_is_crashed_and_later_ones_are_not_run() {
    for (end, verdict) in [
        (CollectionTermination::Exited, Verdict::Crashed),
        (CollectionTermination::TimedOut, Verdict::Hung),
        (CollectionTermination::Stopped, Verdict::NotRun),
    ] {
        let mut collection = Collection::without_faults();
        collection.journal = LaunchJournal { is_started: true, ..LaunchJournal::default() };
        collection.end = end;
        let findings = collection.outcomes();
        assert_eq!(findings[0].verdict, verdict);
        assert_eq!(findings[1], (Verdict::NotRun, "the collection ended before its turn"));
    }
    let mut collection = Collection::without_faults();
    collection.journal = LaunchJournal::default();
    for outcome in collection.outcomes() {
        assert_eq!(outcome.verdict, Verdict::NotRun, "a script that never began blames no case");
    }
    let mut collection = Collection::without_faults();
    collection.journal.lines.remove(&1);
    assert_eq!(collection.outcomes()[0].verdict, Verdict::Ok);
    assert_eq!(collection.outcomes()[1].verdict, Verdict::Crashed);
    assert_ne!(collection.attempts()[1].case, CaseId::from_stored("x"));
}

/// Asserts the verdict of the first case after a change, and the begin of its reason; the second case must stay `ok`.
fn check(verdict: Verdict, reason: &str, change: impl FnOnce(&mut Collection)) {
    let (found, text) = after(change);
    assert_eq!(found, verdict, "{text}");
    assert!(text.starts_with(reason), "{text}");
}

#[test]
fn lost_and_foreign_records_are_found_and_leave_the_other_case_ok() {
    // The count is right where the record of another launch is missing.
    check(Verdict::LostRecords, "one launch is recorded twice, as launches 4 and 5", |c| {
        let second = c.own(0).nth(4).expect("a launch").clone();
        *c.own(0).nth(5).expect("a launch") = second;
    });
    check(Verdict::LostRecords, "10 launches, 9 records", |c| drop(c.records.remove(4)));
    check(Verdict::LostRecords, "10 launches, but their sentinels", |c| drop(c.records.remove(0)));
    check(Verdict::WrongKernel, "10 launches, 11 records", |c| {
        let twice = c.own(0).next().expect("a launch").clone();
        c.records.insert(2, twice);
        c.restamp();
    });
    check(Verdict::WrongKernel, "the call ran as Adds, not as Add", |c| {
        c.own(0).for_each(|record| record.kernel = "Adds".to_owned());
    });
    check(Verdict::Ok, "every launch recorded; the call also launched TransData", |c| {
        let helper = record("TransData", &case(99), 5000);
        c.records.insert(3, helper);
        c.restamp();
    });
    check(Verdict::Implausible, "launched on device 3, recorded on device 5", |c| {
        c.own(0).for_each(|record| record.device = Some(LogicalDeviceId(5)));
    });
    // Fails in the state in which a record without a device matched every device.
    check(Verdict::Implausible, "launched on device 3, but 2 of 10 records name no device", |c| {
        c.own(0).take(2).for_each(|record| record.device = None);
    });
    check(Verdict::Implausible, "launched on device 3, but the profile has no column for the device", |c| {
        c.own(0).for_each(|record| (record.device, record.has_device_column) = (None, false));
    });
}

#[test]
fn shapes_and_variants_of_the_launches_are_those_of_the_case() {
    let output = |dims: Vec<u64>| Some(Tensor::new(dims, Dtype::Float));
    check(Verdict::WrongKernel, "output 0 was recorded as FLOAT[8,8], the case has FLOAT[16,8]", |c| {
        c.own(0).for_each(|record| record.outputs = vec![output(vec![8, 8])]);
    });
    check(Verdict::WrongKernel, "recorded with 2 outputs, the case has 1", |c| {
        c.own(0).for_each(|record| record.outputs.push(output(vec![4])));
    });
    // An omitted output, and the type of a scalar.
    check(Verdict::Ok, "", |c| c.own(0).for_each(|record| record.outputs.push(output(vec![]))));
    check(Verdict::Ok, "", |c| {
        c.own(0).for_each(|record| record.inputs[1] = Some(Tensor::new(vec![], Dtype::Double)));
    });
    let named = |c: &mut Collection, operator: &str, from: usize| {
        c.own(0).skip(from).for_each(|record| record.task.operator = operator.to_owned());
    };
    check(Verdict::Ok, "", |c| named(c, "aclnnAdd_AddAiCore_Add", 0));
    let reason = "its launches ran as different operators: aclnnAdd_AddAiCore_Add (), aclnnAdd_AddV3_Add ()";
    check(Verdict::WrongKernel, reason, |c| {
        named(c, "aclnnAdd_AddAiCore_Add", 0);
        named(c, "aclnnAdd_AddV3_Add", 4);
    });
    check(Verdict::WrongKernel, "its launches ran as different operators", |c| {
        c.own(0).take(1).for_each(|record| record.task.state = "static".to_owned());
    });
    check(Verdict::WrongKernel, "its launches ran on different units: AI_CORE, AI_VECTOR_CORE", |c| {
        c.own(0).for_each(|record| record.task.core = "AI_CORE".to_owned());
        c.own(0).skip(7).for_each(|record| record.task.core = "AI_VECTOR_CORE".to_owned());
    });
    check(Verdict::WrongKernel, "the kernel ran on an AI CPU", |c| {
        c.own(0).for_each(|record| record.task.core = RecordedTask::AI_CPU.to_owned());
    });
    check(Verdict::Ok, "", |c| c.own(0).for_each(|record| record.blocks = Some(24)));
    check(Verdict::WrongKernel, "its launches used different numbers of blocks: 1, 24", |c| {
        c.own(0).for_each(|record| record.blocks = Some(24));
        c.own(0).skip(7).for_each(|record| record.blocks = Some(1));
    });
    check(Verdict::Ok, "", |c| c.own(0).for_each(|record| record.stream = Some(3)));
    check(Verdict::Implausible, "its launches ran on different streams: 3, 11", |c| {
        c.own(0).for_each(|record| record.stream = Some(3));
        c.own(0).skip(9).for_each(|record| record.stream = Some(11));
    });
}

#[test]
fn durations_of_the_launches_are_possible() {
    // Nanoseconds in the column of microseconds.
    check(
        Verdict::Implausible,
        "launch 0 took 1000.000 us, but the next one started 5.000 us after it",
        |c| {
            c.own(0).for_each(|record| record.duration.0 *= 1000);
        },
    );
    check(Verdict::Implausible, "launch 4 took 0.840 us, the roofline allows no less than 0.900 us", |c| {
        c.own(0).nth(4).expect("a launch").duration = Nanos(840);
    });
    // A warm-up within the margin.
    check(Verdict::Ok, "", |c| c.own(0).nth(1).expect("a launch").duration = Nanos(880));
    check(Verdict::Noisy, "median known to ", |c| {
        c.own(0).zip(0..).for_each(|(record, number)| record.duration = Nanos(1000 + number * 100));
    });
    let low = Some(LowClock { mhz: 1_321.4, set_mhz: 1_850.0 });
    let reason = "6 of 8 launches ran at a lower clock than the 1850 MHz for which the device is set, down to 1321 MHz";
    check(Verdict::Throttled, reason, |c| c.own(0).skip(4).for_each(|record| record.low_clock = low));
    check(Verdict::Ok, "", |c| c.own(0).take(2).for_each(|record| record.low_clock = low));
}

#[test]
fn exception_decides_the_verdict() {
    for (class, message, verdict) in [
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied", Verdict::Rejected),
        ("OutOfMemoryError", "NPU out of memory", Verdict::Oom),
        ("RuntimeError", "aclrtSynchronizeStream failed, error code is 507015", Verdict::Crashed),
    ] {
        let raised = PythonException { class: class.to_owned(), message: message.to_owned() };
        check(verdict, &format!("{class}: {message}"), |c| {
            c.journal.lines.get_mut(&0).expect("a line").error = Some(raised);
        });
    }
}
