//! Names and order of the columns of a kernel's CSV. The counters are in the order of `profile/columns.rs`; existing
//! files keep the order that they have.

use std::sync::LazyLock;

pub(crate) use crate::profile::CELLS as SIGNATURE;
use crate::{
    kernel::{CacheState, EP_SIZE, RUNTIME},
    profile::COUNTERS,
};

pub(crate) const STATE: &str = "OP State";
pub(crate) const CORE: &str = "Accelerator Core";
pub(crate) const VERDICT: &str = "MicroBench Verdict";
pub(crate) const SAMPLES: &str = "MicroBench Samples";
pub(crate) const COLLECTIONS: &str = "MicroBench Collections";
pub(crate) const MEDIAN: &str = "MicroBench Median Duration(us)";
pub(crate) const STD: &str = "MicroBench Std Duration(us)";
pub(crate) const MIN: &str = "MicroBench Min Duration(us)";
pub(crate) const P95: &str = "MicroBench P95 Duration(us)";
pub(crate) const CI95_LOW: &str = "MicroBench CI95 Low(us)";
pub(crate) const CI95_HIGH: &str = "MicroBench CI95 High(us)";
/// Centre of the interval, its method, and the effect of the collections that the joint fit removed from the estimate.
pub(crate) const ESTIMATE: &str = "MicroBench Estimate(us)";
pub(crate) const CI95_METHOD: &str = "MicroBench CI95 Method";
pub(crate) const CORRECTION: &str = "MicroBench Correction(%)";
pub(crate) const REASON: &str = "MicroBench Reason";
pub(crate) const CASE: &str = "MicroBench Case";
pub(crate) const RUN: &str = "MicroBench Run";
/// Software of the measurement, with the digest of its fingerprint in parentheses at the end.
pub(crate) const SOFTWARE: &str = "MicroBench Software";
/// The replay's measurement: mean of the accepted samples.
pub(crate) const AVERAGE: &str = "Average Duration(us)";
/// From production profiles: mean, median, sample standard deviation.
pub(crate) const PROFILING: [&str; 3] =
    ["Profiling Average Duration(us)", "Profiling Median Duration(us)", "Profiling Std Duration(us)"];

/// Evidence of the profiling columns: the number of production records, and the ranks and profiles of these records.
pub(crate) const PROFILING_RECORDS: &str = "Profiling Records";
pub(crate) const PROFILING_RANKS: &str = "Profiling Ranks";
pub(crate) const PROFILING_PROFILES: &str = "Profiling Profiles";
pub(crate) const EVIDENCE_COLUMNS: [&str; 3] = [PROFILING_RECORDS, PROFILING_RANKS, PROFILING_PROFILES];

pub(super) const DECIMALS: usize = 6;

pub(super) fn format_micros(nanos: f64) -> String {
    format_decimals(nanos / 1e3)
}

pub(super) fn format_decimals(value: f64) -> String {
    format!("{value:.DECIMALS$}")
}

/// The 62 columns that existing readers of kernel tables expect, in order.
pub static COMPUTE_COLUMNS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut columns: Vec<String> = vec![STATE.into(), CORE.into()];
    columns.extend(SIGNATURE.map(String::from));
    columns.push(AVERAGE.into());
    columns.extend(PROFILING.map(String::from));
    for counters in microbench_counters().zip(profiling_counters()) {
        columns.extend(<[&str; 2]>::from(counters).map(String::from));
    }
    columns
});

pub(crate) const MICROBENCH_COLUMNS: [&str; 16] = [
    MEDIAN,
    STD,
    MIN,
    P95,
    CI95_LOW,
    CI95_HIGH,
    SAMPLES,
    COLLECTIONS,
    VERDICT,
    REASON,
    CASE,
    RUN,
    SOFTWARE,
    ESTIMATE,
    CI95_METHOD,
    CORRECTION,
];

/// Columns of a result with a hot cache and with a cold cache, in pairs. The order is the one in which the columns of a
/// cold cache are appended to a file.
const COLD_COLUMNS: [(&str, &str); 13] = [
    (MEDIAN, "MicroBench Cold Median Duration(us)"),
    (AVERAGE, "MicroBench Cold Average Duration(us)"),
    (CI95_LOW, "MicroBench Cold CI95 Low(us)"),
    (CI95_HIGH, "MicroBench Cold CI95 High(us)"),
    (SAMPLES, "MicroBench Cold Samples"),
    (COLLECTIONS, "MicroBench Cold Collections"),
    (VERDICT, "MicroBench Cold Verdict"),
    (REASON, "MicroBench Cold Reason"),
    (RUN, "MicroBench Cold Run"),
    (SOFTWARE, "MicroBench Cold Software"),
    (ESTIMATE, "MicroBench Cold Estimate(us)"),
    (CI95_METHOD, "MicroBench Cold CI95 Method"),
    (CORRECTION, "MicroBench Cold Correction(%)"),
];

/// Returns the column of a result in a state of the cache; `column` is the column for a hot cache. `None` if rows have
/// no such column for this state.
pub(crate) fn result_column(cache: CacheState, column: &'static str) -> Option<&'static str> {
    match cache {
        CacheState::Hot => Some(column),
        // The id of a case does not depend on the state of the cache.
        CacheState::Cold if column == CASE => Some(CASE),
        CacheState::Cold => COLD_COLUMNS.iter().find(|(hot, _)| *hot == column).map(|(_, cold)| *cold),
    }
}

pub(crate) fn appended_columns(cache: CacheState) -> Vec<&'static str> {
    match cache {
        CacheState::Hot => MICROBENCH_COLUMNS.to_vec(),
        CacheState::Cold => COLD_COLUMNS.iter().map(|(_, cold)| *cold).chain(std::iter::once(CASE)).collect(),
    }
}

/// Returns the column of a hot cache for a column of a cold cache; other columns are returned unchanged.
pub(crate) fn hot_column(column: &str) -> &str {
    COLD_COLUMNS.iter().find(|(_, cold)| *cold == column).map_or(column, |(hot, _)| hot)
}

pub(crate) fn is_cold_column(column: &str) -> bool {
    hot_column(column) != column
}

static MICROBENCH_COUNTERS: LazyLock<[String; COUNTERS.len()]> =
    LazyLock::new(|| COUNTERS.map(|counter| format!("MicroBench {counter}")));
static PROFILING_COUNTERS: LazyLock<[String; COUNTERS.len()]> =
    LazyLock::new(|| COUNTERS.map(profiling_column));

pub(crate) fn microbench_counters() -> impl Iterator<Item = &'static str> {
    MICROBENCH_COUNTERS.iter().map(String::as_str)
}

pub(super) fn profiling_counters() -> impl Iterator<Item = &'static str> {
    PROFILING_COUNTERS.iter().map(String::as_str)
}

pub(crate) fn profiling_column(counter: &str) -> String {
    format!("Profiling Average {counter}")
}

pub(crate) const COMPLETENESS: &str = "Runtime metadata_completeness";
pub(crate) const SOURCE: &str = "Runtime source_profile";

/// Grid from which a row without profile records comes. Rows with a [`SOURCE`] name the grid in that column.
pub(crate) const GRID: &str = "Grid";
pub(crate) const FROM_GRID: &str = "grid ";
pub(crate) const FROM_MUTATION: &str = "mutation ";

/// Name of [`AVERAGE`] in tables of older tools.
pub(crate) const OLD_AVERAGE: &str = "MicroBench Duration(us)";

/// Column of the latency in tables that repeat a profile.
pub(crate) const OLD_DURATION: &str = "Duration(us)";

pub(crate) fn is_contract_column(column: &str) -> bool {
    COMPUTE_COLUMNS.iter().any(|known| known == column)
        || MICROBENCH_COLUMNS.contains(&column)
        || is_cold_column(column)
        || EVIDENCE_COLUMNS.contains(&column)
        || column.starts_with(RUNTIME)
        || column == EP_SIZE
        || column == GRID
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasureKind {
    /// Microseconds, never 0.
    Duration,
    /// Deviation in microseconds, which may be 0.
    Deviation,
    Counter,
    Count,
}

/// Returns the kind of a measured column, under its own or an older name; `None` for other columns.
pub(crate) fn measured_kind(column: &str) -> Option<MeasureKind> {
    let counter = || {
        let bare = ["MicroBench ", "Profiling Average ", "Average "]
            .iter()
            .find_map(|prefix| column.strip_prefix(prefix));
        bare.is_some_and(|bare| COUNTERS.contains(&bare)).then_some(MeasureKind::Counter)
    };
    match hot_column(column) {
        "MicroBench Samples" | "MicroBench Collections" => Some(MeasureKind::Count),
        _ if EVIDENCE_COLUMNS.contains(&column) => Some(MeasureKind::Count),
        CI95_LOW | CI95_HIGH | ESTIMATE => Some(MeasureKind::Duration),
        _ if column.ends_with("Std Duration(us)") => Some(MeasureKind::Deviation),
        _ if column.ends_with("Duration(us)") => Some(MeasureKind::Duration),
        _ => counter(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_csv_has_62_columns() {
        assert_eq!(COMPUTE_COLUMNS.len(), 62);
        assert_eq!(COMPUTE_COLUMNS[8], "Average Duration(us)");
        assert_eq!(COMPUTE_COLUMNS[12], "MicroBench aicore_time(us)");
        assert_eq!(COMPUTE_COLUMNS[61], "Profiling Average cube_utilization(%)");
    }
}
