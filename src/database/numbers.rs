//! Formats of numbers in cells.

/// Number of decimals.
pub(super) const DECIMALS: usize = 6;

/// Formats nanoseconds as microseconds with [`DECIMALS`].
pub(crate) fn format_micros(nanos: f64) -> String {
    format_decimals(nanos / 1e3)
}

/// Formats a number with [`DECIMALS`].
pub(crate) fn format_decimals(value: f64) -> String {
    format!("{value:.DECIMALS$}")
}
