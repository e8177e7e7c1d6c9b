//! Parsed expressions and their evaluation.

use std::{collections::BTreeSet, fmt};

use super::{
    functions::call,
    parse::{ExprKind, ExprNode, SyntaxError, parse},
    value::{BinaryOperator, Bindings, ExprError, ExprNumber, ExprValue},
};
use serde::Deserialize;

/// A parsed expression; prints the text that it was parsed from.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Expr {
    source: String,
    pub(crate) root: ExprNode,
}

/// A text with a list such as `X...` is parsed again when the names in the list are known.
impl TryFrom<String> for Expr {
    type Error = String;

    fn try_from(source: String) -> Result<Self, String> {
        let parsed = if source.contains("...") { Self::parse_any(&source) } else { Self::parse(&source) };
        parsed.map_err(|error| error.to_string())
    }
}

impl Expr {
    /// Parses an expression of names with numbers, as YAML files have them; texts are errors.
    pub(crate) fn parse(source: &str) -> Result<Self, SyntaxError> {
        let expr = Self::parse_any(source)?;
        expr.refuse_texts(&expr.root)?;
        Ok(expr)
    }

    /// Parses an expression whose names may have texts, as `--filter` has them.
    pub(crate) fn parse_any(source: &str) -> Result<Self, SyntaxError> {
        let source = source.trim();
        Ok(Self { source: source.to_owned(), root: parse(source)? })
    }

    fn refuse_texts(&self, node: &ExprNode) -> Result<(), SyntaxError> {
        let problem = match &node.kind {
            ExprKind::Text(text) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                "expected a whole number".to_owned()
            }
            ExprKind::Text(text) => format!("`{text}` is a text, expected a number or a name"),
            ExprKind::Binary(BinaryOperator::Contains | BinaryOperator::ContainsNot, ..) => {
                "`~` compares texts, but each name is a number here".to_owned()
            }
            ExprKind::Has(_) => "`has` is for filters, but each name has a value here".to_owned(),
            _ => return node.children().into_iter().try_for_each(|child| self.refuse_texts(child)),
        };
        Err(self.syntax_error(node, problem, ""))
    }

    pub(crate) fn syntax_error(
        &self,
        node: &ExprNode,
        problem: impl Into<String>,
        hint: &str,
    ) -> SyntaxError {
        SyntaxError::new(&self.source, node.place.clone(), problem, hint)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.source
    }

    pub(crate) fn variable_names(&self) -> BTreeSet<&str> {
        self.root.names()
    }

    pub(crate) fn bare_name(&self) -> Option<&str> {
        self.root.name()
    }

    /// Evaluates the expression on numbers or on nodes; inexact divisions and overflows are errors.
    pub(crate) fn evaluate<N: ExprNumber>(&self, bindings: &Bindings<N>) -> Result<ExprValue<N>, ExprError> {
        self.evaluate_as(bindings, |value| Ok(value.clone()))
    }

    /// Evaluates the expression to a whole number; a list gives the product of its dimensions.
    pub(crate) fn evaluate_number<N: ExprNumber>(&self, bindings: &Bindings<N>) -> Result<N, ExprError> {
        self.evaluate_as(bindings, ExprValue::to_number)
    }

    pub(crate) fn evaluate_as<N: ExprNumber, T>(
        &self,
        bindings: &Bindings<N>,
        convert: impl FnOnce(&ExprValue<N>) -> Result<T, ExprError>,
    ) -> Result<T, ExprError> {
        let converted = evaluate(&self.root, bindings).and_then(|value| convert(&value));
        converted.map_err(|error| error.within(&self.source))
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.source)
    }
}

pub(crate) fn evaluate<N: ExprNumber>(
    node: &ExprNode,
    bindings: &Bindings<N>,
) -> Result<ExprValue<N>, ExprError> {
    match &node.kind {
        ExprKind::Number(number) => Ok(ExprValue::Number(N::from(*number))),
        ExprKind::Name(name) => bindings.get(name).cloned().ok_or_else(|| ExprError::Unknown(name.clone())),
        ExprKind::Text(text) => Err(format!("`{text}` is a text, expected a number").into()),
        ExprKind::Has(_) => Err("compares texts".to_owned().into()),
        ExprKind::Not(inner) => {
            let truth = evaluate(inner, bindings)?.to_bool()?;
            Ok(ExprValue::Bool(N::apply(BinaryOperator::Equal, truth, N::from(0))?))
        }
        ExprKind::Negative(inner) => {
            let number = evaluate(inner, bindings)?.to_number()?;
            Ok(ExprValue::Number(N::apply(BinaryOperator::Subtract, N::from(0), number)?))
        }
        ExprKind::Binary(operator, left, right) => evaluate_binary(*operator, left, right, bindings),
        ExprKind::Call(function, arguments) => {
            let values = arguments.iter().map(|argument| evaluate(argument, bindings));
            call(*function, &values.collect::<Result<Vec<_>, _>>()?)
        }
    }
}

fn evaluate_binary<N: ExprNumber>(
    operator: BinaryOperator,
    left: &ExprNode,
    right: &ExprNode,
    bindings: &Bindings<N>,
) -> Result<ExprValue<N>, ExprError> {
    let left = evaluate(left, bindings)?;
    if let BinaryOperator::Or | BinaryOperator::And = operator {
        let left = left.to_bool()?;
        let decides = i64::from(operator == BinaryOperator::Or);
        if left.constant() == Some(decides) {
            return Ok(ExprValue::Bool(left));
        }
        let right = evaluate(right, bindings).and_then(|right| right.to_bool());
        // Where the left side differs between candidates, some of them may not need the right one.
        let right = right.map_err(|error| left.constant().map_or(ExprError::not_constant(), |_| error));
        return Ok(ExprValue::Bool(N::apply(operator, left, right?)?));
    }
    let right = evaluate(right, bindings)?;
    let numbers = || Ok::<_, ExprError>(N::apply(operator, left.to_number()?, right.to_number()?)?);
    Ok(match operator {
        BinaryOperator::Equal => ExprValue::Bool(left.equals(&right)?),
        BinaryOperator::NotEqual => {
            ExprValue::Bool(N::apply(BinaryOperator::Equal, left.equals(&right)?, N::from(0))?)
        }
        BinaryOperator::Contains | BinaryOperator::ContainsNot => {
            return Err("compares texts".to_owned().into());
        }
        operator if operator.compares() => ExprValue::Bool(numbers()?),
        _ => ExprValue::Number(numbers()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(source: &str) -> Result<ExprValue, ExprError> {
        let mut bindings = Bindings::default();
        bindings.set("M", ExprValue::Number(4096));
        bindings.set("X", ExprValue::List(vec![4, 1, 8]));
        bindings.set("Y", ExprValue::List(vec![6, 1]));
        let parsed = Expr::parse(source).map_err(|error| ExprError::Value(error.to_string()));
        parsed?.evaluate(&bindings)
    }

    #[test]
    fn operators_have_the_precedence_of_arithmetic() {
        assert_eq!(value("2 + 3 * 4 - 6 / 2"), Ok(ExprValue::Number(11)));
        assert_eq!(value("-(2 + 3) * 4"), Ok(ExprValue::Number(-20)));
        assert_eq!(value("10 - 4 - 3"), Ok(ExprValue::Number(3)));
        assert_eq!(value("-7 % 4"), Ok(ExprValue::Number(1)));
        assert_eq!(value("not M < 5 and M >= 4096 or 1 == 2"), Ok(ExprValue::Bool(1)));
        assert_eq!(value("align(M + 1, 16)"), Ok(ExprValue::Number(4112)));
    }

    #[test]
    fn shape_functions_take_lists() {
        assert_eq!(value("broadcast(X, Y)"), Ok(ExprValue::List(vec![4, 6, 8])));
        assert_eq!(value("rank(X) + numel(Y)"), Ok(ExprValue::Number(9)));
        assert_eq!(value("full(rank(X), 0)"), Ok(ExprValue::List(vec![0, 0, 0])));
        assert_eq!(value("all_le(Y, X)"), Ok(ExprValue::Bool(0)));
    }

    #[test]
    fn list_functions_take_a_number_as_a_list_of_one() {
        assert_eq!(value("sum(X) + len(X) + last(X) + min(X) + max(X)"), Ok(ExprValue::Number(33)));
        assert_eq!(value("diff(cumsum(X))"), Ok(ExprValue::List(vec![4, 1, 8])));
        assert_eq!(value("split_evenly(10, 3)"), Ok(ExprValue::List(vec![4, 3, 3])));
        assert_eq!(value("dot(ceil_div(X, 4), full(3, 2))"), Ok(ExprValue::Number(8)));
        assert_eq!(value("sum(M) + len(M) + last(cumsum(M))"), Ok(ExprValue::Number(8193)));
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("dot(X, Y)"), "`dot(X, Y)`: lists of 3 and 2 numbers");
        assert_eq!(text("split_evenly(4, 0)"), "`split_evenly(4, 0)`: 4 items in 0 parts");
        assert_eq!(text("ceil_div(X, 0)"), "`ceil_div(X, 0)`: a divisor of 0, expected a positive one");
        assert!(text("full(9999999, 1)").contains("a list of 9999999 numbers"));
    }

    #[test]
    fn errors_quote_the_expression_and_the_reason() {
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("M / 3"), "`M / 3`: 4096 is not a multiple of 3");
        assert_eq!(text("N + 1"), "`N` has no value here");
        assert_eq!(text("M +"), "`M +`: expected a number, a name or `(` at column 4");
        assert_eq!(text("1 / 0"), "`1 / 0`: divides by zero");
        assert_eq!(text("9223372036854775807 + 1"), "`9223372036854775807 + 1`: does not fit 63 bits");
        assert!(text("median(M)").contains("there is no function `median`"));
        assert!(text("import os").contains("expected an operator"));
        assert!(text(&"(".repeat(500)).contains("nested too deeply, the limit is 64 levels"));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(source in "[-+*/%()<>=!, a-zA-Z0-9_]{0,40}") {
            let _ = value(&source);
        }

        #[test]
        fn sums_and_products_agree_with_rust(a in -1000_i64..1000, b in -1000_i64..1000, c in 1_i64..50) {
            let source = format!("({a}) * ({b}) + {c} - ({a}) % {c}");
            prop_assert_eq!(value(&source), Ok(ExprValue::Number(a * b + c - a.rem_euclid(c))));
        }
    }
}
