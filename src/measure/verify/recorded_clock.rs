//! Clock of the cores during launches, by the frequency track and by the cycles of the records.

use super::RawRecord;
use crate::{
    base::stats::{CycleRate, median_of_floats},
    kernel::{Cause, Nanos, cause::Decimal},
    profile::{COUNTERS, LowClock},
};

/// Greatest share of launches at a clock below the set one.
pub(super) const MOST_THROTTLED: f64 = 0.1;

/// Greatest ratio of the time of the cores to the duration. Of 2,597 recorded kernels on one kind of core and in one wave, none has
/// more than 0.9992.
pub(super) const MOST_CORE_TIME: f64 = 1.01;

/// Smallest part of the clock of a collection that a record shows whose time is not that of several waves or of a lower clock.
const SAME_CLOCK: f64 = 0.99;
/// Shortest time of the cores from which the clock is computed; times have a step of 1 ns.
const LEAST_CORE_TIME: Nanos = Nanos(500);

/// Returns the clock of the launches if too many of them ran below the set one.
pub(super) fn throttling(used: &[&RawRecord]) -> Option<Cause> {
    let low: Vec<LowClock> = used.iter().filter_map(|record| record.low_clock).collect();
    let lowest = low.iter().copied().min_by(|one, other| one.mhz.total_cmp(&other.mhz))?;
    let share = low.len() as f64 / used.len() as f64;
    (share > MOST_THROTTLED).then(|| Cause::LowClockLaunches {
        low: low.len(),
        launches: used.len(),
        set_mhz: lowest.set_mhz.into(),
        lowest_mhz: lowest.mhz.into(),
    })
}

/// Work of the cores of one kind in a launch, by its counters.
#[derive(Clone, Copy, Debug)]
struct CoreWork {
    /// Nanoseconds, which the profiler computes from the cycles.
    time: f64,
    /// Cycles of a block per nanosecond of this time.
    clock: f64,
}

impl CoreWork {
    /// Reads the work of a record; `None` without counters, and for kernels on cores of both kinds.
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

/// Returns the clock in GHz with which the profiler computed the times of the cores of a collection; `None` without counters.
/// A kernel with more blocks than cores runs in several waves, whose number is a factor of its time: it shows a part of the
/// clock, as does one for which the profiler used a lower clock of the frequency track.
pub(super) fn rated_clock(records: &[RawRecord]) -> Option<f64> {
    let work = records.iter().filter_map(CoreWork::of_record);
    work.filter(|work| work.time >= LEAST_CORE_TIME.0 as f64).map(|work| work.clock).reduce(f64::max)
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
    (median > MOST_CORE_TIME).then(|| median.into())
}

/// Returns the cycles per time of launches; `None` if a record lacks its cycles, or none has the number of blocks.
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
