//! How numbers stand in cells.

/// Nanoseconds as microseconds with six decimals.
pub(super) fn micros(nanos: f64) -> String {
    decimals(nanos / 1e3)
}

/// Six decimals.
pub(super) fn decimals(value: f64) -> String {
    format!("{value:.6}")
}
