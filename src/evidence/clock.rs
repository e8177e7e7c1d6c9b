//! Clock of a collection by the counters of a case: cycles of the cores in a microsecond of its duration. The time of the cores
//! is no evidence, because the profiler computes it from the cycles and the rated clock.

use serde::Serialize;

use crate::profile::COUNTERS;

/// Cycles of all cores of a unit per microsecond of the mean duration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ClockEvidence {
    /// `aic` or `aiv`: the unit with more cycles.
    pub(crate) unit: &'static str,
    pub(crate) cycles_per_us: f64,
    /// Difference from the median of the case's collections in percent; `None` with one collection.
    pub(crate) difference_percent: Option<f64>,
}

impl ClockEvidence {
    /// Computes the cycles per microsecond from the counters of an attempt and its mean duration in nanoseconds; `None`
    /// without cycles.
    pub(super) fn from_counters(counters: &[Option<f64>], mean: f64) -> Option<Self> {
        let units = [("aic", "aic_total_cycles"), ("aiv", "aiv_total_cycles")];
        let cycles = units.iter().filter_map(|(unit, counter)| {
            let index = COUNTERS.iter().position(|known| known == counter)?;
            Some((*unit, (*counters.get(index)?)?))
        });
        let (unit, cycles) = cycles.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let is_known = cycles > 0.0 && mean > 0.0;
        is_known.then(|| Self { unit, cycles_per_us: cycles / mean * 1e3, difference_percent: None })
    }

    /// Sets the differences of a case's collections from their median.
    pub(super) fn compare_all<'a>(all: impl Iterator<Item = &'a mut Self>) {
        let all: Vec<&mut Self> = all.collect();
        let mut values: Vec<f64> = all.iter().map(|clock| clock.cycles_per_us).collect();
        values.sort_by(f64::total_cmp);
        if values.len() < 2 {
            return;
        }
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        for clock in all {
            clock.difference_percent = Some(100.0 * (clock.cycles_per_us / median - 1.0));
        }
    }
}
