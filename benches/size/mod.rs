//! Size of a benchmark's input.
//!
//! `NPUBENCH_BENCH_SMALL=1` asks for an input that a build without optimization handles in a few seconds. It shows
//! that the benchmark still runs; its figures mean nothing, and its limits are not judged.

/// Environment variable that asks for the small size; unset, empty or `0` for the full size.
const VARIABLE: &str = "NPUBENCH_BENCH_SMALL";

/// Returns true if the benchmark is to run at its small size.
pub(crate) fn is_small() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns the size that is asked for.
pub(crate) fn full_or_small<T>(full: T, small: T) -> T {
    if is_small() { small } else { full }
}

/// Returns the word for a limit that was kept or missed.
#[allow(dead_code, reason = "some benchmarks have no limit")]
pub(crate) fn judged(is_kept: bool) -> &'static str {
    match (is_small(), is_kept) {
        (true, _) => "not judged at the small size",
        (false, true) => "holds",
        (false, false) => "MISSED",
    }
}
