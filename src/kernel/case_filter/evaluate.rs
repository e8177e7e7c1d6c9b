//! Evaluation of a filter for one case.

use super::{
    expr::{FilterExpr, FilterOperator},
    names::{FilterType, parse_number, type_of_name},
};
use crate::kernel::Dtype;

/// A value of a case. A name may have several, such as the types of all tensors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FilterValue {
    Text(String),
    Number(f64),
}

/// Returns true if a filter is true for the values that `lookup` returns. A name without a value makes each comparison
/// false, also `!=` and `!~`.
pub(super) fn matches(expr: &FilterExpr, lookup: &impl Fn(&str) -> Vec<FilterValue>) -> bool {
    match expr {
        FilterExpr::Comparison { name, operator, value } => {
            compare(&name.text, *operator, &value.text, &lookup(&name.text))
        }
        FilterExpr::Has(name) => !lookup(&name.text).is_empty(),
        FilterExpr::Not(inner) => !matches(inner, lookup),
        FilterExpr::And(left, right) => matches(left, lookup) && matches(right, lookup),
        FilterExpr::Or(left, right) => matches(left, lookup) || matches(right, lookup),
    }
}

/// Compares the values of a name: one that fits is enough, but `!=` and `!~` must be true for all.
fn compare(name: &str, operator: FilterOperator, value: &str, found: &[FilterValue]) -> bool {
    let expected = Expected { of: type_of_name(name), text: value };
    match operator {
        FilterOperator::NotEqual => !found.is_empty() && found.iter().all(|one| !expected.is_equal(one)),
        FilterOperator::NotContains => !found.is_empty() && found.iter().all(|one| !expected.is_part(one)),
        FilterOperator::Equal => found.iter().any(|one| expected.is_equal(one)),
        FilterOperator::Contains => found.iter().any(|one| expected.is_part(one)),
        FilterOperator::Less => found.iter().any(|one| expected.is_ordered(one, |a, b| a < b)),
        FilterOperator::LessOrEqual => found.iter().any(|one| expected.is_ordered(one, |a, b| a <= b)),
        FilterOperator::Greater => found.iter().any(|one| expected.is_ordered(one, |a, b| a > b)),
        FilterOperator::GreaterOrEqual => found.iter().any(|one| expected.is_ordered(one, |a, b| a >= b)),
    }
}

/// The value that a filter gives.
struct Expected<'a> {
    of: FilterType,
    text: &'a str,
}

impl Expected<'_> {
    fn number(&self) -> Option<f64> {
        parse_number(self.of, self.text)
    }

    fn is_equal(&self, found: &FilterValue) -> bool {
        match (found, self.number()) {
            (FilterValue::Number(found), Some(number)) => *found == number,
            (FilterValue::Number(_), None) => false,
            (FilterValue::Text(found), _) if self.of == FilterType::Dtype => self.is_dtype(found),
            (FilterValue::Text(found), _) if self.of == FilterType::CaseId => {
                found.starts_with(&self.text.to_ascii_lowercase())
            }
            (FilterValue::Text(found), Some(number)) if self.of == FilterType::Cell => {
                parse_number(self.of, found).map_or(found == self.text, |found| found == number)
            }
            (FilterValue::Text(found), _) => found == self.text,
        }
    }

    /// Returns true if both are names of one type.
    fn is_dtype(&self, found: &str) -> bool {
        let dtype = |text: &str| Dtype::parse(&text.to_ascii_uppercase());
        dtype(found) == dtype(self.text)
    }

    /// Returns true if the text contains the value, whatever the case of the letters; a type contains all of its names.
    fn is_part(&self, found: &FilterValue) -> bool {
        match found {
            FilterValue::Text(found) => {
                found.to_lowercase().contains(&self.text.to_lowercase())
                    || self.of == FilterType::Dtype && self.is_dtype(found)
            }
            FilterValue::Number(found) => found.to_string().contains(self.text),
        }
    }

    fn is_ordered(&self, found: &FilterValue, is_in_order: impl Fn(f64, f64) -> bool) -> bool {
        let found = match found {
            FilterValue::Number(found) => Some(*found),
            FilterValue::Text(found) => parse_number(self.of, found),
        };
        found.zip(self.number()).is_some_and(|(found, number)| is_in_order(found, number))
    }
}
