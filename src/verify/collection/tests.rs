use std::fs;

use super::*;
use crate::{
    domain::{CaseAttributes, CaseId, DataKind, Dtype, KernelName, ProfilerSettings, Tensor},
    render::{ExpectedRecord, HostNumbers, PinnedEnvironment, SentinelLengths},
    verify::journal::PythonException,
};

mod cache_flushes;
mod controls;
mod equal_calls;

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
            record: ExpectedRecord::default(),
            measured: None,
        });
        let manifest = Manifest {
            run: "r".to_owned(),
            collection: 1,
            kind: DataKind::Rehearsal,
            device: LogicalDeviceId(3),
            gang: Vec::new(),
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
        has_device_column: true,
        inputs: case.inputs.clone(),
        outputs: case.outputs.clone(),
        task: RecordedTask::default(),
        counters: counters(0.9 * duration as f64, duration as f64),
        blocks: None,
        stream: None,
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
    (first.verdict, first.reason)
}

#[test]
fn complete_collection_is_ok() {
    let attempts = Collection::without_faults().attempts();
    for attempt in &attempts {
        assert_eq!(attempt.outcome, CaseOutcome::new(Verdict::Ok, "every launch recorded"));
        assert_eq!(attempt.launches.len(), (WARM_UP + MEASURED) as usize);
        assert_eq!(attempt.launches.iter().filter(|launch| launch.is_accepted).count(), MEASURED as usize);
        // Launches 2 to 9 took 1040, 1000, 1020, 1040, 1000, 1020, 1040, 1000.
        assert_eq!(attempt.counters[1], Some(1020.0));
    }
}

/// The kernel that flushes the cache runs before each launch, also before those of Neg, which has its name.
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

/// The cores work for most of each launch at the rated clock; the table, or the clock, shows less time.
#[test]
fn launches_that_are_shorter_than_the_work_of_their_cores_are_implausible() {
    // Cores that work for a part of the duration, at one cycle per nanosecond and block.
    let with = |share: f64, change: fn(usize, &mut RawRecord)| {
        after(|collection| {
            for record in &mut collection.records {
                let working = 0.9 * record.duration.0 as f64;
                (record.blocks, record.counters) = (Some(4), counters(working, 4.0 * working));
            }
            for (number, record) in collection.own(0).enumerate() {
                let working = share * record.duration.0 as f64;
                record.counters = counters(working, 4.0 * working);
                change(number, record);
            }
        })
    };
    assert_eq!(with(1.0, |_, _| ()).0, Verdict::Ok);
    let (verdict, reason) = with(1.125, |_, _| ());
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(
        reason,
        "the cores worked 1.125 times as long as the launches took, at the rated clock, so that the durations are too short or the clock is \
         above its rating"
    );
    // Records without blocks or counters, and of a kernel with twice as many blocks as cores, whose cycles are those of each block.
    assert_eq!(with(1.125, |_, record| record.blocks = None).0, Verdict::Ok);
    assert_eq!(with(1.125, |_, record| record.counters.clear()).0, Verdict::Ok);
    assert_eq!(with(1.125, |_, record| record.blocks = Some(8)).0, Verdict::Ok);
    let one = |number: usize, record: &mut RawRecord| {
        if number != 3 {
            record.counters = counters(900.0, 3_600.0);
        }
    };
    assert_eq!(with(2.0, one).0, Verdict::Ok, "a single launch");
}

/// Durations in nanoseconds in the column of microseconds.
#[test]
fn durations_in_another_unit_are_implausible() {
    let (verdict, reason) = after(|c| c.own(0).for_each(|record| record.duration.0 *= 1000));
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(reason, "launch 0 took 1000.000 us, but the next one started 5.000 us after it");
}

/// Durations in whole microseconds: a median of 20 us can be half of one off, one of 200 us is exact enough.
#[test]
fn medians_of_few_steps_of_a_coarse_timer_are_implausible() {
    let with_durations = |nanos: fn(i64) -> i64| {
        let (verdict, reason) = after(|c| {
            for (number, record) in (0..).zip(&mut c.records) {
                let length = if record.kernel == "Neg" { 3 + number % 9 } else { nanos(number) };
                record.duration.0 = length * 1_000;
            }
            (300..).zip(c.own(1)).for_each(|(length, record)| record.duration.0 = length * 1_000);
            c.restamp();
        });
        (verdict, reason)
    };
    let (verdict, reason) = with_durations(|number| 20 + number % 2);
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(
        reason,
        "all times of the collection are multiples of 1.000 us, more than 2 % of the median, 21.000 us"
    );
    assert_eq!(with_durations(|number| 200 + number % 2).0, Verdict::Ok);
    // Few durations that differ show no step, unless the starts have it as well.
    let with_few = |pause: i64| {
        let mut collection = Collection::without_faults();
        collection.records.iter_mut().for_each(|record| record.duration.0 = 2_000);
        collection.restamp();
        (0..).zip(&mut collection.records).for_each(|(number, record)| record.start.0 += pause * number);
        collection.outcomes()[0].verdict
    };
    assert_eq!([20, 1_000].map(with_few), [Verdict::Ok, Verdict::Implausible]);
}

/// Steps of years: fifty of them are more than the type of durations has.
#[test]
fn steps_of_any_size_are_implausible() {
    let verdicts = |duration: fn(i64) -> i64| {
        let mut collection = Collection::without_faults();
        (1..).zip(&mut collection.records).for_each(|(number, record)| record.duration.0 = duration(number));
        collection.outcomes().into_iter().map(|outcome| outcome.verdict).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(|number| i64::MAX / 49 * number), [Verdict::Implausible; 2]);
    assert_eq!(verdicts(|_| i64::MAX), [Verdict::Implausible; 2]);
}

#[test]
fn launches_at_a_lower_clock_are_throttled_but_warm_ups_are_not() {
    let low = Some(LowClock { mhz: 1_321.4, set_mhz: 1_850.0 });
    let (verdict, reason) = after(|c| c.own(0).skip(4).for_each(|record| record.low_clock = low));
    assert_eq!(verdict, Verdict::Throttled);
    let cause = "6 of 8 launches ran at a lower clock than the 1850 MHz for which the device is set, down to 1321 MHz";
    assert_eq!(reason, cause);
    let (verdict, _) = after(|c| c.own(0).take(2).for_each(|record| record.low_clock = low));
    assert_eq!(verdict, Verdict::Ok);
}

/// The count is right where the record of another launch is missing.
#[test]
fn launch_that_is_recorded_twice_hides_a_lost_record() {
    let (verdict, reason) = after(|c| {
        let second = c.own(0).nth(4).expect("a launch").clone();
        *c.own(0).nth(5).expect("a launch") = second;
    });
    assert_eq!(verdict, Verdict::LostRecords);
    assert_eq!(reason, "one launch is recorded twice, as launches 4 and 5");
}

#[test]
fn launches_on_other_units_or_with_fewer_blocks_are_not_those_of_one_kernel() {
    let on = |unit: &str| RecordedTask { core: unit.to_owned(), ..RecordedTask::default() };
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.task = on("AI_CORE"));
        c.own(0).skip(7).for_each(|record| record.task = on("AI_VECTOR_CORE"));
    });
    assert_eq!(verdict, Verdict::WrongKernel);
    assert_eq!(reason, "its launches ran on different units: AI_CORE, AI_VECTOR_CORE");
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.blocks = Some(24));
        c.own(0).skip(7).for_each(|record| record.blocks = Some(1));
    });
    assert_eq!(verdict, Verdict::WrongKernel);
    assert_eq!(reason, "its launches used different numbers of blocks: 1, 24");
    let (verdict, _) = after(|c| c.own(0).for_each(|record| record.blocks = Some(24)));
    assert_eq!(verdict, Verdict::Ok);
}

#[test]
fn launches_on_several_streams_are_implausible() {
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.stream = Some(3));
        c.own(0).skip(9).for_each(|record| record.stream = Some(11));
    });
    assert_eq!(verdict, Verdict::Implausible);
    assert_eq!(reason, "its launches ran on different streams: 3, 11");
    let (verdict, _) = after(|c| c.own(0).for_each(|record| record.stream = Some(3)));
    assert_eq!(verdict, Verdict::Ok);
}

/// The call was compiled for one core, or all others were reserved.
#[test]
fn large_case_on_one_block_is_suspicious() {
    let mut collection = Collection::without_faults();
    collection.own(0).for_each(|record| {
        record.blocks = Some(1);
        record.task.core = "AI_VECTOR_CORE".to_owned();
    });
    let records: Vec<RawRecord> = collection.own(0).map(|record| record.clone()).collect();
    let used: Vec<&RawRecord> = records.iter().collect();
    let mut case = collection.cases[0].clone();
    assert_eq!(on_one_block(&used, &case), None, "{case:?}");
    case.outputs = vec![Some(Tensor::new([1024, 1024], Dtype::Float))];
    let found = on_one_block(&used, &case).expect("a large case");
    assert!(found.starts_with("it ran on one block, although its tensors have 4 MiB"), "{found}");
}

/// With an unknown number of blocks, cycles per block of one collection would be those of all blocks in another.
#[test]
fn clock_is_unknown_without_a_number_of_blocks() {
    let rate = |blocks: Option<u32>| {
        let mut collection = Collection::without_faults();
        collection.own(0).for_each(|record| record.blocks = blocks);
        collection.attempts().remove(0).cycle_rate
    };
    assert_eq!((rate(None), rate(Some(0))), (None, None));
    let [one, many] = [1, 24].map(|blocks| rate(Some(blocks)).expect("a rate").per_microsecond);
    assert!((one / many - 24.0).abs() < 1e-9, "{one} {many}");
}

/// Starts may be in the wrong unit as well; then only the host's clock shows it. Simulated durations are independent of
/// the host's clock.
#[test]
fn launches_longer_than_the_case_by_the_hosts_clock_are_implausible() {
    let mut collection = Collection::without_faults();
    for record in &mut collection.records {
        record.duration.0 *= 1000;
        record.start.0 *= 1000;
    }
    for line in collection.journal.lines.values_mut() {
        line.seconds = Some(0.001);
    }
    assert!(collection.outcomes().iter().all(|outcome| outcome.verdict == Verdict::Ok));
    collection.manifest.kind = DataKind::Npu;
    for outcome in collection.outcomes() {
        assert_eq!(outcome.verdict, Verdict::Implausible);
        let reason = "its launches took 0.010180 s, 10.2 times longer than the case by the host's clock";
        assert_eq!(outcome.reason, reason);
    }
    for line in collection.journal.lines.values_mut() {
        line.seconds = Some(0.011);
    }
    assert!(collection.outcomes().iter().all(|outcome| outcome.verdict == Verdict::Ok));
}

#[test]
fn kernels_on_an_ai_cpu_are_wrong_unless_they_were_recorded_there() {
    let (verdict, reason) =
        after(|c| c.own(0).for_each(|record| record.task.core = RecordedTask::AI_CPU.to_owned()));
    assert_eq!(verdict, Verdict::WrongKernel);
    assert!(reason.starts_with("the kernel ran on an AI CPU"), "{reason}");
}

#[test]
fn order_of_records_in_the_file_does_not_matter() {
    let mut shuffled = Collection::without_faults();
    shuffled.records.reverse();
    shuffled.records.sort_by_key(|record| record.start);
    assert_eq!(shuffled.outcomes(), Collection::without_faults().outcomes());
}

#[test]
fn lost_record_affects_only_its_case() {
    let (verdict, reason) = after(|c| {
        c.records.remove(4);
    });
    assert_eq!((verdict, reason.as_str()), (Verdict::LostRecords, "10 launches, 9 records"));
}

#[test]
fn lost_sentinel_is_lost_records() {
    let (verdict, reason) = after(|c| {
        c.records.remove(0);
    });
    assert_eq!(verdict, Verdict::LostRecords);
    assert!(reason.contains("sentinels"), "{reason}");
}

#[test]
fn empty_profile_is_lost_records() {
    let mut collection = Collection::without_faults();
    collection.records.clear();
    for outcome in collection.outcomes() {
        assert_eq!(outcome, CaseOutcome::new(Verdict::LostRecords, "msprof left no records"));
    }
}

#[test]
fn other_kernel_is_wrong_kernel_and_named() {
    let (verdict, reason) = after(|c| c.own(0).for_each(|record| record.kernel = "Adds".to_owned()));
    assert_eq!((verdict, reason.as_str()), (Verdict::WrongKernel, "the call ran as Adds, not as Add"));
}

#[test]
fn other_shapes_are_wrong_kernel_and_named() {
    let (verdict, reason) = after(|c| {
        c.own(0).for_each(|record| record.outputs = vec![Some(Tensor::new(vec![8, 8], Dtype::Float))]);
    });
    assert_eq!(verdict, Verdict::WrongKernel);
    assert_eq!(reason, "output 0 was recorded as FLOAT[8,8], the case has FLOAT[16,8]");
}

#[test]
fn omitted_outputs_may_be_missing_in_the_record() {
    let (verdict, _) =
        after(|c| c.own(0).for_each(|record| record.outputs.push(Some(Tensor::new(vec![], Dtype::Float)))));
    assert_eq!(verdict, Verdict::Ok);
    let (verdict, reason) =
        after(|c| c.own(0).for_each(|record| record.outputs.push(Some(Tensor::new(vec![4], Dtype::Float)))));
    assert_eq!((verdict, reason.as_str()), (Verdict::WrongKernel, "recorded with 2 outputs, the case has 1"));
}

#[test]
fn dtype_of_a_scalar_is_ignored() {
    let (verdict, _) = after(|c| {
        c.own(0).for_each(|record| record.inputs[1] = Some(Tensor::new(vec![], Dtype::Double)));
    });
    assert_eq!(verdict, Verdict::Ok);
}

#[test]
fn other_device_is_implausible_and_named() {
    let (verdict, reason) = after(|c| c.own(0).for_each(|record| record.device = Some(LogicalDeviceId(5))));
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
fn wide_spread_is_noisy_and_still_measured() {
    let (verdict, reason) = after(|c| {
        for (record, number) in c.own(0).zip(0..) {
            record.duration = Nanos(1000 + number * 100);
        }
    });
    assert_eq!(verdict, Verdict::Noisy);
    assert!(reason.starts_with("median known to "), "{reason}");
}

#[test]
fn severe_outlier_is_labelled_counted_and_left_out() {
    let mut collection = Collection::without_faults();
    collection.own(0).nth(5).expect("a launch").duration = Nanos(90_000);
    collection.restamp();
    let attempts = collection.attempts();
    assert_eq!(attempts[0].outcome.reason, "every launch recorded; 1 severe outlier left out");
    assert_eq!(attempts[0].launches.iter().filter(|launch| launch.is_accepted).count(), 7);
    assert!(attempts[0].counters[1].expect("a mean") < 2000.0, "counters are of the same launches");
}

#[test]
fn helper_kernels_of_the_call_are_in_the_reason() {
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
fn exception_decides_the_verdict() {
    for (class, message, verdict) in [
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied", Verdict::Rejected),
        ("OutOfMemoryError", "NPU out of memory", Verdict::Oom),
        ("RuntimeError", "aclrtSynchronizeStream failed, error code is 507015", Verdict::Crashed),
    ] {
        let raised = PythonException { class: class.to_owned(), message: message.to_owned() };
        let (found, reason) = after(|c| c.journal.lines.get_mut(&0).expect("a line").error = Some(raised));
        assert_eq!((found, reason), (verdict, format!("{class}: {message}")));
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
fn more_records_than_launches_are_wrong_kernel() {
    let (verdict, reason) = after(|c| {
        let twice = c.own(0).next().expect("a launch").clone();
        c.records.insert(2, twice);
        c.restamp();
    });
    assert_eq!((verdict, reason.as_str()), (Verdict::WrongKernel, "10 launches, 11 records"));
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
        assert_eq!(findings[1], CaseOutcome::new(Verdict::NotRun, "the collection ended before its turn"));
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

/// Output of a gang of devices 3 and 6; durations on the second device are `longer` nanoseconds more.
fn gang(longer: i64) -> (Collection, Vec<LaunchJournal>) {
    let mut collection = Collection::without_faults();
    collection.manifest.gang = vec![LogicalDeviceId(3), LogicalDeviceId(6)];
    let others = collection.records.iter().cloned().map(|record| RawRecord {
        device: Some(LogicalDeviceId(6)),
        duration: Nanos(record.duration.0 + longer),
        ..record
    });
    let others: Vec<RawRecord> = others.collect();
    // Records of both processes, sorted by start time.
    collection.records = collection.records.drain(..).zip(others).flat_map(<[_; 2]>::from).collect();
    collection.restamp();
    let journals = vec![collection.journal.clone(); 2];
    (collection, journals)
}

fn assessed(collection: &Collection, journals: &[LaunchJournal]) -> Vec<Attempt> {
    let expected: Vec<ExpectedLaunches<'_>> = collection
        .cases
        .iter()
        .map(|case| ExpectedLaunches {
            equal_kernels: Vec::new(),
            equal_cases: &[],
            case,
            names: vec!["Add", "AddAiCore"],
            also_launched: &[],
            fastest: FASTEST,
            notes: &[],
            host_slots: Vec::new(),
            is_on_ai_cpu: false,
        })
        .collect();
    let (records, end) = (&collection.records, collection.end);
    assess_collection(&collection.manifest, &expected, journals, records, end, &SoftwareChange::None)
}

#[test]
fn sample_of_a_gang_is_the_slowest_rank() {
    let (mut collection, journals) = gang(0);
    // In the third launch the first rank is the slower one, in all others the second.
    let mut launches = [0; 7];
    for record in collection.records.iter_mut().filter(|record| record.kernel == "AddAiCore") {
        let device = record.device.expect("a line");
        let device = device.0 as usize;
        launches[device] += 1;
        record.duration = Nanos(match (device, launches[device]) {
            (3, 3) => 1060,
            (3, _) => 1000,
            _ => 1020,
        });
    }
    let attempts = assessed(&collection, &journals);
    assert_eq!(attempts[0].outcome.verdict, Verdict::Ok, "{:?}", attempts[0].outcome);
    let durations: Vec<i64> = attempts[0].launches.iter().map(|launch| launch.duration.0).collect();
    assert_eq!(durations, [1020, 1020, 1060, 1020, 1020, 1020, 1020, 1020, 1020, 1020]);
    assert_eq!(attempts[0].launched, 10);
}

#[test]
fn durations_of_the_fastest_rank_are_kept_and_a_large_difference_is_named() {
    for (longer, reason) in [
        (20, "every launch recorded"),
        (300, "every launch recorded; the fastest rank takes 1.000 us, the slowest 1.300 us"),
    ] {
        let (mut collection, journals) = gang(0);
        for record in collection.records.iter_mut().filter(|record| record.kernel == "AddAiCore") {
            let is_second = record.device == Some(LogicalDeviceId(6));
            record.duration = Nanos(if is_second { 1000 + longer } else { 1000 });
        }
        let attempt = assessed(&collection, &journals).remove(0);
        assert_eq!(attempt.outcome, CaseOutcome::new(Verdict::Ok, reason));
        assert_eq!(attempt.fastest_ranks, [Nanos(1000); 10]);
        assert!(attempt.launches.iter().all(|launch| launch.duration == Nanos(1000 + longer)));
    }
    assert!(Collection::without_faults().attempts()[0].fastest_ranks.is_empty());
}

/// Fails in the state in which a record without a device matched every device.
#[test]
fn record_without_a_device_is_implausible() {
    let mut collection = Collection::without_faults();
    collection.own(0).take(2).for_each(|record| record.device = None);
    let outcome = collection.outcomes().remove(0);
    assert_eq!(outcome.verdict, Verdict::Implausible);
    assert_eq!(outcome.reason, "launched on device 3, but 2 of 10 records name no device");
    let mut collection = Collection::without_faults();
    for record in &mut collection.records {
        (record.device, record.has_device_column) = (None, false);
    }
    let outcome = collection.outcomes().remove(0);
    assert_eq!(outcome.verdict, Verdict::Implausible);
    let reason = "launched on device 3, but the profile has no column for the device, and not one folder `device_N` that replaces it";
    assert_eq!(outcome.reason, reason);
}

#[test]
fn launches_of_another_binary_are_a_wrong_kernel() {
    let name = |collection: &mut Collection, operator: &str, from: usize| {
        collection.own(0).skip(from).for_each(|record| record.task.operator = operator.to_owned());
    };
    let mut collection = Collection::without_faults();
    name(&mut collection, "aclnnAdd_AddAiCore_Add", 0);
    assert_eq!(collection.outcomes()[0].verdict, Verdict::Ok);
    name(&mut collection, "aclnnAdd_AddV3_Add", 4);
    let outcome = collection.outcomes().remove(0);
    assert_eq!(outcome.verdict, Verdict::WrongKernel);
    let reason = "its launches ran as different operators: aclnnAdd_AddAiCore_Add (), aclnnAdd_AddV3_Add ()";
    assert_eq!(outcome.reason, reason);
    let mut collection = Collection::without_faults();
    collection.own(0).take(1).for_each(|record| record.task.state = "static".to_owned());
    assert_eq!(collection.outcomes()[0].verdict, Verdict::WrongKernel);
}

/// Tables of earlier versions of the profiler have no column for the device.
#[test]
fn device_of_a_table_without_such_a_column_is_that_of_the_profile() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("PROF_000001_1_A");
    let output = root.join("mindstudio_profiler_output");
    fs::create_dir_all(&output).expect("created");
    let header = "OP Type,Task Start Time(us),Task Duration(us),Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats";
    let row = r#"Add,100.5,12.3,"""8""",FLOAT,ND,"""8""",FLOAT,ND"#;
    fs::write(output.join("op_summary_1.csv"), format!("{header}\n{row}\n")).expect("written");
    let device = || read_records(folder.path()).expect("a table").records[0].device;
    assert_eq!(device(), None);
    fs::create_dir(root.join("device_5")).expect("created");
    assert_eq!(device(), Some(LogicalDeviceId(5)));
    fs::create_dir(root.join("device_6")).expect("created");
    assert_eq!(device(), None);
}

#[test]
fn launches_of_every_rank_must_be_recorded() {
    let outcomes = |change: &dyn Fn(&mut Collection, &mut Vec<LaunchJournal>)| {
        let (mut collection, mut journals) = gang(20);
        change(&mut collection, &mut journals);
        let attempts = assessed(&collection, &journals);
        let outcome_text = |CaseOutcome { verdict, reason }: CaseOutcome| format!("{verdict} ({reason})");
        attempts.into_iter().map(|attempt| outcome_text(attempt.outcome)).collect::<Vec<_>>()
    };
    let ok = "ok (every launch recorded)";
    assert_eq!(outcomes(&|_, _| {}), [ok, ok]);
    let lost = outcomes(&|collection, _| {
        let last = collection
            .records
            .iter()
            .rposition(|r| r.device == Some(LogicalDeviceId(6)) && r.kernel == "AddAiCore");
        collection.records.remove(last.expect("a line"));
    });
    assert_eq!(lost, [ok, "lost_records (rank 1 (device 6): 10 launches, 9 records)"]);
    let elsewhere = outcomes(&|collection, _| {
        collection
            .records
            .iter_mut()
            .filter(|r| r.device == Some(LogicalDeviceId(6)))
            .for_each(|r| r.device = Some(LogicalDeviceId(9)));
    });
    assert!(
        elsewhere[0].contains("rank 1 (device 6): launched on device 6, recorded on device 9"),
        "{elsewhere:?}"
    );
    let fewer = outcomes(&|collection, journals| {
        journals[1].lines.get_mut(&1).expect("a line").launched = 9;
        let last = collection
            .records
            .iter()
            .rposition(|r| r.device == Some(LogicalDeviceId(6)) && r.kernel == "AddAiCore");
        collection.records.remove(last.expect("a line"));
    });
    assert_eq!(fewer, [ok, "lost_records (the ranks launched it 10, 9 times)"]);
    let crashed = outcomes(&|_, journals| {
        for journal in journals.iter_mut() {
            journal.is_done = false;
        }
        journals[1].lines.clear();
    });
    assert_eq!(crashed[0], "crashed (rank 1 (device 6): the process ended while it ran)");
    assert!(crashed[1].starts_with("not_run"), "only the first case is suspected: {crashed:?}");
    let all = outcomes(&|_, journals| journals.iter_mut().for_each(|journal| journal.lines.clear()));
    assert_eq!(all[0], "crashed (the process ended while it ran)", "torchrun ends all when one fails");
    let other = |class: &str, message: &str| {
        Some(PythonException { class: class.to_owned(), message: message.to_owned() })
    };
    let fault = outcomes(&|_, journals| {
        journals[0].lines.clear();
        journals[1].lines.remove(&1);
        journals[1].lines.get_mut(&0).expect("a line").error =
            other("RuntimeError", "NPU function error, error code is 507015");
    });
    assert!(fault[0].starts_with("crashed (rank 1 (device 6): RuntimeError: NPU function"), "{fault:?}");
    let stopped = outcomes(&|collection, journals| {
        collection.end = CollectionTermination::Stopped;
        journals[0].lines.remove(&1);
        journals[0].lines.get_mut(&0).expect("a line").error = other("RuntimeError", "a peer is gone");
        journals[1].lines.clear();
    });
    assert_eq!(
        stopped[0], "not_run (the run was stopped while it ran)",
        "an error that follows from the end"
    );
    let starved = outcomes(&|_, journals| {
        journals[0].lines.get_mut(&0).expect("a line").error = other("OutOfMemoryError", "NPU out of memory");
        journals[1].lines.clear();
    });
    assert!(starved[0].starts_with("oom (rank 0 (device 3): "), "{starved:?}");
    let oom = outcomes(&|_, journals| {
        journals[0].lines.get_mut(&0).expect("a line").error =
            other("OtherRank", "rank 1 has not launched it");
        journals[1].lines.get_mut(&0).expect("a line").error = other("OutOfMemoryError", "NPU out of memory");
    });
    assert_eq!(oom, ["oom (rank 1 (device 6): OutOfMemoryError: NPU out of memory)", ok]);
}
