//! Texts of values in tables and lines.

use std::fmt::Display;

pub(crate) fn or_dash<D: Display>(value: Option<D>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

pub(crate) fn or_empty<D: Display>(value: Option<D>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

pub(crate) fn unless_zero(count: usize) -> String {
    or_empty(Some(count).filter(|count| *count > 0))
}

pub(crate) const fn yes_no(is_true: bool) -> &'static str {
    if is_true { "yes" } else { "no" }
}

pub(crate) fn joined<D: Display>(items: impl IntoIterator<Item = D>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

/// Joins numbers with their names: `3 ok, 1 hung`.
pub(crate) fn counted<N: Display, D: Display>(counts: impl IntoIterator<Item = (N, D)>) -> String {
    joined(counts.into_iter().map(|(name, count)| format!("{count} {name}")), ", ")
}

/// Joins names with their numbers: `Add 2, Mul 3`.
pub(crate) fn with_counts<N: Display, D: Display>(counts: impl IntoIterator<Item = (N, D)>) -> String {
    joined(counts.into_iter().map(|(name, count)| format!("{name} {count}")), ", ")
}

pub(crate) fn decimals3(value: f64) -> String {
    format!("{value:.3}")
}

pub(crate) fn signed(value: f64, decimals: usize) -> String {
    format!("{value:+.decimals$}")
}

/// Returns a share in percent with two decimals, `-` without one.
pub(crate) fn percent(share: Option<f64>) -> String {
    // The sum of no number is -0.
    or_dash(share.map(|share| format!("{:.2} %", share * 100.0 + 0.0)))
}

pub(crate) const fn float(value: i64) -> f64 {
    value as f64
}

pub(crate) fn micros(nanos: i64) -> String {
    decimals3(float(nanos) / 1e3)
}

pub(crate) fn millis(nanos: i64) -> String {
    decimals3(float(nanos) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_nothing_has_no_sign() {
        let nothing: f64 = [].iter().sum();
        assert_eq!([percent(Some(nothing)), percent(Some(0.125))], ["0.00 %", "12.50 %"]);
    }
}
