//! Rules on the records of the launches of a case: each launch has a record of its own, of the expected kernel on the expected
//! device, and its duration is possible, also by the clock of the cores.

use std::{cmp::Ordering, collections::BTreeSet};

use super::{
    ExpectedLaunches, JournalLine, RawRecord,
    ranks::{CacheFlushes, RankLaunches, RankOutput},
    samples::TIMER_QUANTUM_NS,
};
use crate::{
    base::stats::{CycleRate, median_of_floats},
    kernel::{
        CaseOutcome, Cause, DataKind, Nanos, Verdict,
        cause::{Decimal, Overlap},
        signature_mismatch,
    },
    profile::{COUNTERS, LowClock},
};

/// Durations below this fraction of the roofline bound are implausible; the margin covers clocks above their rating
/// and rounding.
pub(crate) const PLAUSIBLE: f64 = 0.95;
/// Greatest overlap of successive launches. Recorded profiles of several CANN versions have none above 0.3 us.
const MAX_OVERLAP: Nanos = Nanos(1_000);
/// Greatest overlap of successive launches as a part of the duration: one divided by this.
const OVERLAP_DIVISOR: i64 = 100;
/// Greatest ratio of the time of all launches to the time of the case by the host's clock, which includes the launches.
const MAX_CLOCK_RATIO: f64 = 1.1;

/// Greatest step of the timer, as a part of the median duration: one divided by this. The median is known to half a step.
const STEP_DIVISOR: i64 = 50;
/// Step of the timer from which it is coarse, and number of different times that show it: one of half a million collections has
/// a common multiple of them by chance.
const COARSE_STEP: Nanos = Nanos(3 * TIMER_QUANTUM_NS);
const STEP_EVIDENCE: usize = 12;

pub(super) struct CaseRecords<'a> {
    pub(super) kind: DataKind,
    pub(super) rank: &'a RankOutput<'a>,
    pub(super) expected: &'a ExpectedLaunches<'a>,
    pub(super) line: &'a JournalLine,
    pub(super) launches: &'a RankLaunches<'a>,
    pub(super) flushes: &'a CacheFlushes,
}

pub(super) struct RecordRule {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) condition: fn() -> String,
    find_problem: fn(&CaseRecords<'_>) -> Option<Cause>,
}

const fn rule(
    name: &'static str,
    verdict: Verdict,
    find_problem: fn(&CaseRecords<'_>) -> Option<Cause>,
    condition: fn() -> String,
) -> RecordRule {
    RecordRule { name, verdict, condition, find_problem }
}

fn differing<T: Ord>(
    case: &CaseRecords<'_>,
    property: impl Fn(&RawRecord) -> Option<T>,
    cause: impl FnOnce(Vec<T>) -> Cause,
) -> Option<Cause> {
    let values: BTreeSet<T> = case.launches.own.iter().filter_map(|record| property(record)).collect();
    (values.len() > 1).then(|| cause(values.into_iter().collect()))
}

pub(super) const RECORD_RULES: [RecordRule; 21] = [
    rule("device", Verdict::Implausible, other_device, || {
        "each record has the number of the device on which the script launched".to_owned()
    }),
    rule("device_number", Verdict::Implausible, missing_device, || {
        "each record has a device, by the column of its table or by the only folder `device_N` of the profile"
            .to_owned()
    }),
    rule("kernel", Verdict::WrongKernel, other_kernel, || {
        "a record between the sentinels has the kernel of the case or one of its other names".to_owned()
    }),
    rule(
        "lost_records",
        Verdict::LostRecords,
        |case| other_count(case, Ordering::Less),
        || "as many records of the kernel as launches in the journal".to_owned(),
    ),
    rule(
        "extra_records",
        Verdict::WrongKernel,
        |case| other_count(case, Ordering::Greater),
        || "no more records of the kernel than launches in the journal".to_owned(),
    ),
    rule(
        "flush",
        Verdict::LostRecords,
        |case| case.flushes.launch_without_flush(&case.launches.own).map(|launch| Cause::NoFlush { launch }),
        || "if the cache is flushed, a record of a flush before each launch".to_owned(),
    ),
    rule("signature", Verdict::WrongKernel, other_signature, || {
        "shapes, types and formats of each record are those of the case".to_owned()
    }),
    rule("hf32", Verdict::WrongKernel, other_mode, || {
        "products of FLOAT ran in HF32 if the row has `Runtime allow_hf32`, and only then".to_owned()
    }),
    rule("variant", Verdict::WrongKernel, several_variants, || {
        "all launches have the same `OP State` and, but for numbers, the same `Op Name`: they ran the same binary".to_owned()
    }),
    rule("ai_cpu", Verdict::WrongKernel, ai_cpu, || {
        "no launch on an AI CPU, unless the row was recorded there".to_owned()
    }),
    rule("repeated_record", Verdict::LostRecords, repeated_record, || {
        "no two records have the same start".to_owned()
    }),
    rule("core_type", Verdict::WrongKernel, several_core_types, || {
        "all launches ran on the same unit".to_owned()
    }),
    rule(
        // The number of blocks follows from the shapes and the installation, so that it is the same for equal calls.
        "blocks",
        Verdict::WrongKernel,
        |case| differing(case, |record| record.blocks, |blocks| Cause::SeveralBlockCounts { blocks }),
        || "all launches used the same number of blocks".to_owned(),
    ),
    rule(
        // The script launches on one stream. On several, launches may overlap each other.
        "stream",
        Verdict::Implausible,
        |case| differing(case, |record| record.stream, |streams| Cause::SeveralStreams { streams }),
        || "all launches ran on the same stream, one after the other".to_owned(),
    ),
    rule("timer_step", Verdict::Implausible, below_timer_step, || {
        format!("no launch took less than a step of the timer, {} us", Nanos(TIMER_QUANTUM_NS))
    }),
    rule("coarse_timer", Verdict::Implausible, coarse_timer, || {
        format!(
            "the durations of the collection are no multiples of a step above {} % of the median, of {COARSE_STEP} us or more; where \
                 few of them differ, neither are the differences of their starts",
            100 / STEP_DIVISOR
        )
    }),
    rule("roofline", Verdict::Implausible, below_roofline, || {
        format!("no launch took less than {PLAUSIBLE} of the roofline bound")
    }),
    rule(
        "overlap",
        Verdict::Implausible,
        |case| first_overlap(&case.launches.own).map(Cause::Overlap),
        || {
            let percent = 100 / OVERLAP_DIVISOR;
            format!(
                "no launch took longer than until the start of the next one, by more than {percent} % and {MAX_OVERLAP} us"
            )
        },
    ),
    rule(
        "core_time",
        Verdict::Implausible,
        |case| {
            excess_core_time(&case.launches.own, case.rank.highest_clock)
                .map(|ratio| Cause::CoreTime { ratio })
        },
        || {
            format!(
                "the cores worked at most {MAX_CORE_TIME} times as long as the launches took, in their median; kernels with more blocks than cores \
                 or on cores of both kinds, and launches at another clock than most, are not judged"
            )
        },
    ),
    rule("host_clock", Verdict::Implausible, longer_than_the_case, || {
        format!(
            "all launches together took at most {MAX_CLOCK_RATIO} times as long as the case by the host's clock"
        )
    }),
    rule("longest_launch", Verdict::Implausible, absurd_duration, || {
        format!("no launch took more than {} s", Nanos::MAX_KERNEL.seconds())
    }),
];

pub(super) fn broken_rule(records: &CaseRecords<'_>) -> Option<CaseOutcome> {
    RECORD_RULES.iter().find_map(|rule| {
        let problem = (rule.find_problem)(records)?;
        Some(CaseOutcome::new(rule.verdict, problem))
    })
}

fn absurd_duration(case: &CaseRecords<'_>) -> Option<Cause> {
    let own = case.launches.own.iter().enumerate();
    let (number, longest) = own.max_by_key(|(_, record)| record.duration)?;
    (longest.duration > Nanos::MAX_KERNEL)
        .then_some(Cause::TooLong { launch: number, took_ns: longest.duration })
}

fn other_device(case: &CaseRecords<'_>) -> Option<Cause> {
    let is_other = |record: &RawRecord| record.device.filter(|device| *device != case.rank.device);
    let other = case.launches.records.iter().find_map(is_other)?;
    Some(Cause::OtherDevice { device: case.rank.device_name(), recorded_device: other.0 })
}

fn missing_device(case: &CaseRecords<'_>) -> Option<Cause> {
    let all = case.launches.records;
    let nameless = || all.iter().filter(|record| record.device.is_none());
    let (device, all, records) = (case.rank.device_name(), all.len(), nameless().count());
    nameless().next().map(|record| match record.has_device_column {
        true => Cause::RecordsWithoutDevice { device, records, all },
        false => Cause::NoDeviceColumn { device },
    })
}

fn other_kernel(case: &CaseRecords<'_>) -> Option<Cause> {
    let RankLaunches { own, records, .. } = case.launches;
    if !own.is_empty() || records.is_empty() {
        return None;
    }
    let ran: BTreeSet<&str> = records.iter().map(|record| record.kernel.as_str()).collect();
    let kernels = ran.into_iter().map(str::to_owned).collect();
    Some(Cause::OtherKernels { kernels, expected: case.expected.case.kernel.to_string() })
}

fn other_count(case: &CaseRecords<'_>, order: Ordering) -> Option<Cause> {
    let (launches, records) = (case.line.launched, case.launches.own.len());
    (records.cmp(&(launches as usize)) == order).then_some(Cause::RecordCount { launches, records })
}

fn other_signature(case: &CaseRecords<'_>) -> Option<Cause> {
    let ExpectedLaunches { case: expected, host_slots, .. } = case.expected;
    // The profiler shows no tensors of collectives.
    if expected.kernel.is_collective() {
        return None;
    }
    let mut own = case.launches.own.iter();
    own.find_map(|record| signature_mismatch(expected, host_slots, &record.inputs, &record.outputs))
}

fn other_mode(case: &CaseRecords<'_>) -> Option<Cause> {
    let allowed = case.expected.case.attributes.allows_hf32();
    let is_other = |record: &&RawRecord| record.is_hf32.is_some_and(|is_hf32| is_hf32 != allowed);
    case.launches.own.iter().any(is_other).then_some(Cause::OtherFloatMode { is_hf32: !allowed })
}

fn ai_cpu(case: &CaseRecords<'_>) -> Option<Cause> {
    let is_there = case.launches.own.iter().any(|record| record.task.is_on_ai_cpu());
    (is_there && !case.expected.is_on_ai_cpu).then_some(Cause::AiCpu)
}

/// The type of a kernel does not show which of its binaries ran.
fn several_variants(case: &CaseRecords<'_>) -> Option<Cause> {
    let variant = |record: &RawRecord| Some((record.task.operator.clone(), record.task.state.clone()));
    differing(case, variant, |operators| Cause::SeveralOperators { operators })
}

/// Launches of one stream start one after the other: two records with the same start are of one launch, so that the record of
/// another is missing where the count is right.
fn repeated_record(case: &CaseRecords<'_>) -> Option<Cause> {
    let first = case.launches.own.windows(2).position(|pair| pair[0].start == pair[1].start)?;
    Some(Cause::RecordedTwice { launch: first })
}

fn several_core_types(case: &CaseRecords<'_>) -> Option<Cause> {
    let core = |record: &RawRecord| Some(record.task.core.clone()).filter(|core| !core.is_empty());
    differing(case, core, |units| Cause::SeveralUnits { units })
}

fn shortest_launch<'a>(case: &CaseRecords<'a>) -> Option<(usize, &'a RawRecord)> {
    case.launches.own.iter().copied().enumerate().min_by_key(|(_, record)| record.duration)
}

fn below_timer_step(case: &CaseRecords<'_>) -> Option<Cause> {
    let (number, shortest) = shortest_launch(case)?;
    (shortest.duration.0 < TIMER_QUANTUM_NS).then_some(Cause::BelowTimerStep {
        launch: number,
        took_ns: shortest.duration,
        step_ns: Nanos(TIMER_QUANTUM_NS),
    })
}

/// The profiler can have a coarser timer than the device, so that equal durations do not come from the kernel.
fn coarse_timer(case: &CaseRecords<'_>) -> Option<Cause> {
    let mut durations: Vec<i64> = case.launches.own.iter().map(|record| record.duration.0).collect();
    durations.sort_unstable();
    let median = *durations.get(durations.len() / 2)?;
    let step = timer_step(&case.rank.records)?;
    let is_coarse = i128::from(step.0) * i128::from(STEP_DIVISOR) > i128::from(median);
    let percent = 100 / STEP_DIVISOR;
    (step >= COARSE_STEP && is_coarse).then_some(Cause::CoarseTimer {
        step_ns: step,
        percent,
        median_ns: Nanos(median),
    })
}

fn timer_step(records: &[RawRecord]) -> Option<Nanos> {
    let first = records.first()?.start;
    let durations = records.iter().map(|record| record.duration.0);
    let starts = records.iter().map(|record| record.start.0.saturating_sub(first.0));
    common_divisor(durations.clone()).or_else(|| common_divisor(durations.chain(starts)))
}

/// Returns the greatest common divisor of times, or a common divisor below [`COARSE_STEP`]; `None` if too few of them differ.
fn common_divisor(times: impl Iterator<Item = i64>) -> Option<Nanos> {
    let mut step = 0_u64;
    let mut different = BTreeSet::new();
    for time in times {
        let (mut divisor, mut rest) = (time.unsigned_abs(), step);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        step = divisor;
        if step > 0 && step < COARSE_STEP.0.unsigned_abs() {
            break;
        }
        if different.len() < STEP_EVIDENCE {
            different.insert(time);
        }
    }
    let is_known = different.len() >= STEP_EVIDENCE || step < COARSE_STEP.0.unsigned_abs();
    (is_known && step > 0).then_some(Nanos(step.cast_signed()))
}

fn below_roofline(case: &CaseRecords<'_>) -> Option<Cause> {
    let (number, shortest) = shortest_launch(case)?;
    let fastest = case.expected.fastest;
    (shortest.duration.seconds() < fastest.seconds() * PLAUSIBLE).then_some(Cause::BelowRoofline {
        launch: number,
        took_ns: shortest.duration,
        bound_ns: fastest,
    })
}

pub(super) fn first_overlap(launches: &[&RawRecord]) -> Option<Overlap> {
    launches.windows(2).enumerate().find_map(|(number, pair)| {
        let [record, next] = pair else { return None };
        let until_next = next.start.0.saturating_sub(record.start.0);
        let tolerance = record.duration.0 / OVERLAP_DIVISOR + MAX_OVERLAP.0;
        (record.duration.0.saturating_sub(until_next) > tolerance).then_some(Overlap {
            launch: number,
            took_ns: record.duration,
            next_after_ns: Nanos(until_next),
        })
    })
}

/// Simulated durations are not compared with the host's clock.
fn longer_than_the_case(case: &CaseRecords<'_>) -> Option<Cause> {
    let total = case.launches.own.iter().map(|record| record.duration.seconds()).sum::<f64>();
    let elapsed = case.line.seconds.filter(|_| case.kind == DataKind::Npu)?;
    (total > elapsed * MAX_CLOCK_RATIO).then(|| {
        let factor = total / elapsed.max(f64::MIN_POSITIVE);
        Cause::LongerThanCase { seconds: total.into(), factor: factor.into() }
    })
}

pub(super) const MAX_THROTTLED: f64 = 0.1;

/// Greatest ratio of the time of the cores to the duration. Of 2,597 recorded kernels on one kind of core and in one wave, none has
/// more than 0.9992.
pub(super) const MAX_CORE_TIME: f64 = 1.01;

/// Smallest part of the clock of a collection that a record shows whose time is not that of several waves or of a lower clock.
const SAME_CLOCK: f64 = 0.99;
/// Shortest time of the cores from which the clock is computed, in steps of these times: 1 ns by the exporter's C++ part, 10 ns by its
/// Python part, which writes two decimals (Ascend/msprof 9ba1ac7, common_func/utils.py cal_total_time).
const MIN_CORE_STEPS: f64 = 500.0;

pub(super) fn throttling(used: &[&RawRecord]) -> Option<Cause> {
    let low: Vec<LowClock> = used.iter().filter_map(|record| record.low_clock).collect();
    let lowest = low.iter().copied().min_by(|one, other| one.mhz.total_cmp(&other.mhz))?;
    let share = low.len() as f64 / used.len() as f64;
    (share > MAX_THROTTLED).then(|| Cause::LowClockLaunches {
        low: low.len(),
        launches: used.len(),
        set_mhz: lowest.set_mhz.into(),
        lowest_mhz: lowest.mhz.into(),
    })
}

#[derive(Clone, Copy, Debug)]
struct CoreWork {
    /// Nanoseconds, which the profiler computes from the cycles by the clock at the end of the task.
    time: f64,
    /// Cycles of a block per nanosecond of this time.
    clock: f64,
}

impl CoreWork {
    fn of_record(record: &RawRecord) -> Option<Self> {
        let counter = |name: &str| {
            let index = COUNTERS.iter().position(|counter| *counter == name)?;
            record.counters.get(index).copied().flatten().filter(|value| *value > 0.0)
        };
        let blocks = f64::from(record.blocks.filter(|blocks| *blocks > 0)?);
        let [time, cycles] = match (counter("aicore_time(us)"), counter("aiv_time(us)")) {
            (Some(time), None) => [time, counter("aic_total_cycles")?],
            (None, Some(time)) => [time, counter("aiv_total_cycles")?],
            _ => return None,
        };
        let time = time * 1e3;
        Some(Self { time, clock: cycles / blocks / time })
    }
}

/// Returns the highest clock in GHz with which the profiler computed the times of the cores of a collection, which is the rated one
/// only if the device ran at it; `None` without counters.
/// A kernel with more blocks than cores runs in several waves, whose number is a factor of its time: it shows a part of the
/// clock, as does one for which the profiler used a lower clock of the frequency track.
pub(super) fn highest_clock(records: &[RawRecord]) -> Option<f64> {
    let work: Vec<CoreWork> = records.iter().filter_map(CoreWork::of_record).collect();
    let has_two_decimals =
        work.iter().all(|work| (work.time / 10.0 - (work.time / 10.0).round()).abs() < 1e-6);
    let shortest = MIN_CORE_STEPS * if has_two_decimals { 10.0 } else { 1.0 };
    work.iter().filter(|work| work.time >= shortest).map(|work| work.clock).reduce(f64::max)
}

/// Returns how many times as long as the launches of a kernel the cores worked, in their median: the durations are too short, or
/// the clock is above its rating. `None` if they did not work longer, and if a launch does not show it at the clock of the collection.
pub(super) fn excess_core_time(used: &[&RawRecord], clock: Option<f64>) -> Option<Decimal<3>> {
    let clock = clock?;
    let ratio = |record: &&RawRecord| {
        let work = CoreWork::of_record(record).filter(|work| work.clock >= SAME_CLOCK * clock)?;
        (record.duration.0 > 0).then(|| work.time / record.duration.0 as f64)
    };
    let mut ratios: Vec<f64> = used.iter().map(ratio).collect::<Option<_>>()?;
    let median = median_of_floats(&mut ratios)?;
    (median > MAX_CORE_TIME).then(|| median.into())
}

pub(super) fn cycle_rate(used: &[&RawRecord]) -> Option<CycleRate> {
    let columns: Vec<usize> =
        (0..COUNTERS.len()).filter(|&index| COUNTERS[index].ends_with("_total_cycles")).collect();
    let cycles = |record: &RawRecord| {
        let cycles = columns.iter().map(|index| record.counters.get(*index).copied().flatten());
        cycles.sum::<Option<f64>>().map(|cycles| (cycles, record.duration.0))
    };
    let launches: Option<Vec<(f64, i64)>> = used.iter().map(|record| cycles(record)).collect();
    let blocks = used.iter().filter_map(|record| record.blocks).max().filter(|blocks| *blocks > 0)?;
    CycleRate::from_launches(&launches?, blocks)
}
