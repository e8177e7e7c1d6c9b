//! Evaluation of a filter for one case.

use super::{
    CaseValues,
    names::{FilterType, parse_number, type_of_name},
    text_of, word,
};
use crate::kernel::{
    Dtype,
    expression::{BinaryOperator, Bindings, Expr, ExprError, ExprKind, ExprNode, ExprValue, evaluate},
};

/// A value of a case. A name may have several, such as the types of all tensors.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterValue {
    Text(String),
    Number(f64),
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

/// Computes a number from names of the case; `None` if one of them has no number.
#[expect(clippy::cast_precision_loss, reason = "a comparison of sizes above 2^53 may round")]
fn number(node: &ExprNode, case: &CaseValues<'_>) -> Result<Option<f64>, ExprError> {
    if let ExprKind::Text(_) = node.kind {
        return Ok(None);
    }
    match evaluate(node, &bindings(node, case)).and_then(|value| value.to_number()) {
        Err(ExprError::Unknown(_)) => Ok(None),
        number => Ok(Some(number? as f64)),
    }
}

/// Returns the names of an expression that have whole numbers.
fn bindings(node: &ExprNode, case: &CaseValues<'_>) -> Bindings {
    let mut bindings = Bindings::default();
    for name in node.names() {
        let numbers = case.lookup(name).into_iter().map(|value| match value {
            FilterValue::Number(number) => whole_number(number),
            FilterValue::Text(text) => parse_number(FilterType::Cell, &text).and_then(whole_number),
        });
        match numbers.collect::<Option<Vec<i64>>>().as_deref() {
            None | Some([]) => {}
            Some([number]) => bindings.set(name, ExprValue::Number(*number)),
            Some(several) => bindings.set(name, ExprValue::List(several.to_vec())),
        }
    }
    bindings
}

#[expect(clippy::cast_possible_truncation, reason = "a whole number far below 2^63")]
fn whole_number(number: f64) -> Option<i64> {
    const MAX_EXACT: f64 = 9e15;
    (number.fract() == 0.0 && number.abs() < MAX_EXACT).then_some(number as i64)
}

/// What a comparison has on its right.
struct Expected<'a> {
    of: FilterType,
    text: &'a str,
    number: Option<f64>,
}

impl Expected<'_> {
    fn is_equal(&self, found: &FilterValue) -> bool {
        match (found, self.number) {
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

    fn is_ordered(&self, found: &FilterValue, operator: BinaryOperator) -> bool {
        let found = match found {
            FilterValue::Number(found) => Some(*found),
            FilterValue::Text(found) => parse_number(self.of, found),
        };
        let Some((found, number)) = found.zip(self.number) else { return false };
        match operator {
            BinaryOperator::Less => found < number,
            BinaryOperator::LessEqual => found <= number,
            BinaryOperator::Greater => found > number,
            BinaryOperator::GreaterEqual => found >= number,
            _ => false,
        }
    }
}
