//! Formats of numbers in cells.

/// Formats nanoseconds as microseconds with six decimals.
pub(crate) fn format_micros(nanos: f64) -> String {
    format_decimals(nanos / 1e3)
}

/// Formats a number with six decimals.
pub(crate) fn format_decimals(value: f64) -> String {
    format!("{value:.6}")
}
