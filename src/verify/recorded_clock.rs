//! Clock of the cores during launches, by the frequency track and by the cycles of the records.

use super::RawRecord;
use crate::{
    profile::{COUNTERS, LowClock},
    stats::CycleRate,
};

/// Greatest share of launches at a clock below the set one.
pub(super) const MOST_THROTTLED: f64 = 0.1;

/// Returns the clock of the launches if too many of them ran below the set one.
pub(super) fn throttling(used: &[&RawRecord]) -> Option<String> {
    let low: Vec<LowClock> = used.iter().filter_map(|record| record.low_clock).collect();
    let lowest = low.iter().copied().min_by(|one, other| one.mhz.total_cmp(&other.mhz))?;
    #[expect(clippy::cast_precision_loss, reason = "counts of launches")]
    let share = low.len() as f64 / used.len() as f64;
    (share > MOST_THROTTLED).then(|| {
        format!(
            "{} of {} launches ran at a lower clock than the {:.0} MHz for which the device is set, down to {:.0} MHz",
            low.len(),
            used.len(),
            lowest.set_mhz,
            lowest.mhz
        )
    })
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
