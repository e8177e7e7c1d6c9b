//! Numbers with their noun.

use std::fmt::Display;

/// Returns a count with its noun: `1 case`, `2 cases`.
pub(crate) fn format_count<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|count: u64| format_count(count, "case")), ["0 cases", "1 case", "2 cases"]);
    }
}
