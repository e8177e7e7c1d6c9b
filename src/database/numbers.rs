//! How numbers stand in cells.

/// Nanoseconds as microseconds with six decimals.
pub(crate) fn micros(nanos: f64) -> String {
    decimals(nanos / 1e3)
}

/// Six decimals.
pub(crate) fn decimals(value: f64) -> String {
    format!("{value:.6}")
}
