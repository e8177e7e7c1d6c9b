//! Evaluation of a filter for one case.

use super::{
    names::{FilterType, parse_number, type_of_name},
    text_of, word,
};
use crate::kernel::{
    Case, CaseAttributes, CaseId, Dtype,
    catalogue::CatalogueEntry,
    expression::{BinaryOperator, Bindings, Expr, ExprError, ExprKind, ExprNode, ExprValue, evaluate},
};

/// A value of a case as text, with its number if it is none that a text gives. A name may have several, such as the types of all
/// tensors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilterValue {
    text: String,
    number: Option<f64>,
}

impl FilterValue {
    fn of_text<T: ToString + ?Sized>(text: &T) -> Self {
        Self { text: text.to_string(), number: None }
    }

    fn of_number(number: f64) -> Self {
        Self { text: number.to_string(), number: Some(number) }
    }
}

/// Returns true if a condition is true for a case. A name without a value makes each comparison false, also `!=` and `!~`. Nothing
/// around a part without a value, such as a division with a remainder, is true, as in a condition of a grid.
pub(super) fn is_true(expr: &Expr, node: &ExprNode, case: &CaseValues<'_>) -> Result<bool, ExprError> {
    match &node.kind {
        ExprKind::Not(inner) => is_true(expr, inner, case).map(|inner| !inner),
        ExprKind::Binary(BinaryOperator::And, left, right) => {
            Ok(is_true(expr, left, case)? && is_true(expr, right, case)?)
        }
        ExprKind::Binary(BinaryOperator::Or, left, right) => {
            Ok(is_true(expr, left, case)? || is_true(expr, right, case)?)
        }
        ExprKind::Has(name) => Ok(word(name).is_some_and(|name| !case.lookup(name).is_empty())),
        ExprKind::Binary(operator, left, right) if word(left).is_some() => {
            let name = word(left).unwrap_or_default();
            let (of, text, found) = (type_of_name(name), text_of(expr, right), case.lookup(name));
            let mut expected = Expected { of, text, number: parse_number(of, text) };
            let is_computed = expected.number.is_none() && operator.compares();
            if is_computed && matches!(of, FilterType::Number | FilterType::Cell) {
                expected.number = number(right, case)?;
            }
            // A negated comparison must be true for all values.
            let all = |is_true: &dyn Fn(&FilterValue) -> bool| !found.is_empty() && found.iter().all(is_true);
            Ok(match operator {
                BinaryOperator::Contains => found.iter().any(|one| expected.is_part(one)),
                BinaryOperator::ContainsNot => all(&|one| !expected.is_part(one)),
                BinaryOperator::Equal => found.iter().any(|one| expected.is_equal(one)),
                BinaryOperator::NotEqual => all(&|one| !expected.is_equal(one)),
                _ => found.iter().any(|one| expected.is_ordered(one, *operator)),
            })
        }
        _ => match evaluate(node, &bindings(node, case)).and_then(|value| value.to_bool()) {
            Err(ExprError::Unknown(_)) => Ok(false),
            truth => Ok(truth? != 0),
        },
    }
}

fn number(node: &ExprNode, case: &CaseValues<'_>) -> Result<Option<f64>, ExprError> {
    if let ExprKind::Text(_) = node.kind {
        return Ok(None);
    }
    match evaluate(node, &bindings(node, case)).and_then(|value| value.to_number()) {
        Err(ExprError::Unknown(_)) => Ok(None),
        number => Ok(Some(number? as f64)),
    }
}

fn bindings(node: &ExprNode, case: &CaseValues<'_>) -> Bindings {
    let mut bindings = Bindings::default();
    for name in node.names() {
        let numbers = case.lookup(name).into_iter().map(|FilterValue { text, number }| {
            number.or_else(|| parse_number(FilterType::Cell, &text)).and_then(whole_number)
        });
        match numbers.collect::<Option<Vec<i64>>>().as_deref() {
            None | Some([]) => {}
            Some([number]) => bindings.set(name, ExprValue::Number(*number)),
            Some(several) => bindings.set(name, ExprValue::List(several.to_vec())),
        }
    }
    bindings
}

fn whole_number(number: f64) -> Option<i64> {
    const MAX_EXACT: f64 = 9e15;
    (number.fract() == 0.0 && number.abs() < MAX_EXACT).then_some(number as i64)
}

struct Expected<'a> {
    of: FilterType,
    text: &'a str,
    number: Option<f64>,
}

impl Expected<'_> {
    fn is_equal(&self, found: &FilterValue) -> bool {
        let FilterValue { text, number } = found;
        match self.of {
            FilterType::Dtype => self.is_dtype(text),
            FilterType::CaseId => text.starts_with(&self.text.to_ascii_lowercase()),
            of => match (number.or_else(|| parse_number(of, text)), self.number) {
                (Some(found), Some(expected)) => found == expected,
                _ => text == self.text,
            },
        }
    }

    fn is_dtype(&self, found: &str) -> bool {
        let dtype = |text: &str| Dtype::parse(&text.to_ascii_uppercase());
        dtype(found) == dtype(self.text)
    }

    /// Returns true if the text contains the value, whatever the case of the letters; a type contains all of its names.
    fn is_part(&self, FilterValue { text, .. }: &FilterValue) -> bool {
        text.to_lowercase().contains(&self.text.to_lowercase())
            || self.of == FilterType::Dtype && self.is_dtype(text)
    }

    fn is_ordered(&self, FilterValue { text, number }: &FilterValue, operator: BinaryOperator) -> bool {
        let found = number.or_else(|| parse_number(self.of, text));
        let order = found.zip(self.number).and_then(|(found, expected)| found.partial_cmp(&expected));
        order.is_some_and(|order| match operator {
            BinaryOperator::Less => order.is_lt(),
            BinaryOperator::LessEqual => order.is_le(),
            BinaryOperator::Greater => order.is_gt(),
            _ => order.is_ge(),
        })
    }
}

/// A case with what is known about it. A value that is `None` or empty is missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseValues<'a> {
    pub(crate) case: Option<&'a Case>,
    pub(crate) id: Option<&'a CaseId>,
    pub(crate) entry: Option<&'a CatalogueEntry>,
    pub(crate) verdict: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) cause: Option<&'static str>,
    pub(crate) run: Option<String>,
    /// Time since the start of the run in seconds.
    pub(crate) age: Option<f64>,
    pub(crate) host: Option<String>,
    pub(crate) devices: Vec<u32>,
    /// In microseconds.
    pub(crate) median: Option<f64>,
    /// In microseconds.
    pub(crate) mean: Option<f64>,
    /// In microseconds.
    pub(crate) production: Option<f64>,
    pub(crate) collections: Option<usize>,
    pub(crate) cells: Vec<(String, String)>,
}

impl CaseValues<'_> {
    pub(super) fn lookup(&self, name: &str) -> Vec<FilterValue> {
        let text = |text: Option<&str>| text.map(FilterValue::of_text).into_iter().collect();
        let number = |number: Option<f64>| number.map(FilterValue::of_number).into_iter().collect();
        let Some(case) = self.case else { return Vec::new() };
        match name {
            "kernel" => text(Some(case.kernel.as_str())),
            "case" => vec![self.id.map_or_else(|| FilterValue::of_text(&case.id()), FilterValue::of_text)],
            "shape" => text(Some(&case.shapes())),
            "dim" => case.tensors().flat_map(|tensor| &tensor.dims).map(|dim| of_size(*dim)).collect(),
            "dtype" => case.tensors().map(|tensor| FilterValue::of_text(&tensor.dtype)).collect(),
            "format" => case.tensors().map(|tensor| FilterValue::of_text(&tensor.format)).collect(),
            "bytes" => vec![of_size(case.bytes())],
            "verdict" => text(self.verdict.as_deref()),
            "reason" => text(self.reason.as_deref()),
            "cause" => text(self.cause),
            "run" => text(self.run.as_deref()),
            "age" => number(self.age),
            "host" => text(self.host.as_deref()),
            "device" => self.devices.iter().map(|device| of_size(u64::from(*device))).collect(),
            "median" => number(self.median),
            "mean" => number(self.mean),
            "production" => number(self.production),
            "deviation" => number(self.deviation()),
            "collections" => self.collections.map(|count| of_size(count as u64)).into_iter().collect(),
            _ => self.other_values(case, name),
        }
    }

    fn deviation(&self) -> Option<f64> {
        let (median, production) = self.median.zip(self.production)?;
        (production > 0.0).then(|| (median / production - 1.0) * 100.0)
    }

    fn other_values(&self, case: &Case, name: &str) -> Vec<FilterValue> {
        let dimensions = self.entry.map(|entry| dimension_values(entry, case, name)).unwrap_or_default();
        if !dimensions.is_empty() {
            return dimensions.into_iter().map(FilterValue::of_number).collect();
        }
        let is_named =
            |column: &str| column == name || CaseAttributes::variable_name(column).eq_ignore_ascii_case(name);
        if let Some((_, value)) = case.attributes.iter().find(|(column, _)| is_named(column)) {
            return vec![FilterValue::of_text(value)];
        }
        let cell = self.cells.iter().find(|(column, cell)| column == name && CaseAttributes::has_value(cell));
        cell.map(|(_, cell)| FilterValue::of_text(cell.trim())).into_iter().collect()
    }
}

/// Returns the numbers of a dimension, whatever the case of its letters; empty for a case that fits no form.
fn dimension_values(entry: &CatalogueEntry, case: &Case, name: &str) -> Vec<f64> {
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
    numbers.map(|number| number as f64).collect()
}

fn of_size(number: u64) -> FilterValue {
    FilterValue::of_number(number as f64)
}
