//! Dimensions of a case by the names of its catalogue entry.

use crate::kernel::{
    Case,
    catalogue::{CatalogueEntry, ExprValue},
};

/// Returns the numbers of a dimension of a case, whatever the case of its letters; empty for a case that fits no form of
/// the entry.
pub(super) fn dimension_values(entry: &CatalogueEntry, case: &Case, name: &str) -> Vec<f64> {
    let names = entry.bindable_names().into_iter().filter(|bound| bound.eq_ignore_ascii_case(name));
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return Vec::new();
    }
    let Ok((_, bindings)) = entry.bound_names(case) else { return Vec::new() };
    let numbers = names.into_iter().filter_map(|name| bindings.get(name)).flat_map(|value| match value {
        ExprValue::Number(number) => vec![*number],
        ExprValue::List(numbers) => numbers.clone(),
        ExprValue::Bool(_) => Vec::new(),
    });
    #[expect(clippy::cast_precision_loss, reason = "dimensions are far below 2^53")]
    numbers.map(|number| number as f64).collect()
}
