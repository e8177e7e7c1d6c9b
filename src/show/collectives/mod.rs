//! Output about collectives: groups, fits, comparisons with the analytic model.

mod fit;
mod groups;
mod model;
mod plot;

pub(crate) use fit::{FitReport, fit_text};
pub(crate) use groups::{GroupChoice, GroupRecord, groups_table};
pub(crate) use model::{ModelReport, model_text};
pub(crate) use plot::bandwidth_plot;

/// Returns a number with about four digits.
fn four_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 || size == 0.0 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.01234, 1.23456, 12.3456, 123.456, 12345.6].map(four_digits);
        assert_eq!(numbers, ["0.000", "0.0123", "1.235", "12.35", "123.5", "12346"]);
    }
}
