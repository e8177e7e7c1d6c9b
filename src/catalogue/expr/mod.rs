//! The expression language of the YAML files: whole numbers, lists of dimensions, truth values.
//!
//! Operators, loosest first: `or`, `and`, `not`, comparisons, `+ -`, `* / %`, unary `-`. `/` must
//! divide exactly, so that a shape rule such as `D/2` refuses an odd width by itself. Overflow is an
//! error, never a wrap.

use std::{collections::BTreeSet, fmt};

pub(crate) use constraints::{AlignedLists, NameEquality};
pub(crate) use functions::ExprFunction;
use functions::{FUNCTIONS, OR_MORE, call};

use super::{Bindings, ExprValue};

pub(crate) mod bindings;
pub(crate) mod compiled;
mod constraints;
mod functions;
mod parse;
pub(crate) mod shape_functions;

/// A parsed expression; prints as it was written.
#[derive(Clone, Debug)]
pub struct Expr {
    source: String,
    pub(crate) root: ExprNode,
}

/// Why an expression cannot be read or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// The text is no expression.
    #[error("`{source_text}`: {problem} at column {column}")]
    Syntax {
        /// The whole expression.
        source_text: String,
        /// What is wrong.
        problem: String,
        /// From 1.
        column: usize,
    },
    /// A name that nothing gives a value.
    #[error("`{0}` has no value here")]
    Unknown(String),
    /// An operation that its operands do not allow.
    #[error("`{source_text}`: {problem}")]
    Value {
        /// The whole expression.
        source_text: String,
        /// What is wrong.
        problem: String,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum ExprNode {
    Number(i64),
    Name(String),
    Not(Box<ExprNode>),
    Negative(Box<ExprNode>),
    Binary(BinaryOperator, Box<ExprNode>, Box<ExprNode>),
    Call(ExprFunction, Vec<ExprNode>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOperator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`ExprError::Syntax`] with the column.
    pub fn parse(source: &str) -> Result<Self, ExprError> {
        Ok(Self { source: source.trim().to_owned(), root: parse::parse(source)? })
    }

    /// Every name that needs a value.
    #[must_use]
    pub fn variable_names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        collect_names(&self.root, &mut names);
        names
    }

    /// The name, where the expression is nothing else.
    #[must_use]
    pub fn bare_name(&self) -> Option<&str> {
        if let ExprNode::Name(name) = &self.root { Some(name) } else { None }
    }

    /// The value under the given bindings.
    ///
    /// # Errors
    /// [`ExprError`] for an unbound name, a wrong operand, an inexact division or an overflow.
    pub fn evaluate_in(&self, bindings: &Bindings) -> Result<ExprValue, ExprError> {
        evaluate(&self.root, bindings).map_err(|problem| match problem {
            ExprErrorKind::Unknown(name) => ExprError::Unknown(name),
            ExprErrorKind::Value(problem) => ExprError::Value { source_text: self.source.clone(), problem },
        })
    }

    /// The value as a whole number; a list counts as the product of its dimensions.
    ///
    /// # Errors
    /// As [`Expr::value`], and where the value is a truth value.
    pub fn evaluate_number(&self, bindings: &Bindings) -> Result<i64, ExprError> {
        let value = self.evaluate_in(bindings)?;
        value.to_number().map_err(|problem| ExprError::Value { source_text: self.source.clone(), problem })
    }

    /// The value as a truth value.
    ///
    /// # Errors
    /// As [`Expr::value`], and where the value is a number or a list.
    pub fn evaluate_bool(&self, bindings: &Bindings) -> Result<bool, ExprError> {
        match self.evaluate_in(bindings)? {
            ExprValue::Bool(truth) => Ok(truth),
            other => Err(ExprError::Value {
                source_text: self.source.clone(),
                problem: format!("is {other}, expected a comparison"),
            }),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.source)
    }
}

fn collect_names<'a>(node: &'a ExprNode, names: &mut BTreeSet<&'a str>) {
    match node {
        ExprNode::Number(_) => {}
        ExprNode::Name(name) => {
            names.insert(name);
        }
        ExprNode::Not(inner) | ExprNode::Negative(inner) => collect_names(inner, names),
        ExprNode::Binary(_, left, right) => {
            collect_names(left, names);
            collect_names(right, names);
        }
        ExprNode::Call(_, arguments) => arguments.iter().for_each(|argument| collect_names(argument, names)),
    }
}

enum ExprErrorKind {
    Unknown(String),
    Value(String),
}

impl From<String> for ExprErrorKind {
    fn from(problem: String) -> Self {
        Self::Value(problem)
    }
}

fn overflow() -> String {
    "does not fit 63 bits".to_owned()
}

fn evaluate(node: &ExprNode, bindings: &Bindings) -> Result<ExprValue, ExprErrorKind> {
    match node {
        ExprNode::Number(number) => Ok(ExprValue::Number(*number)),
        ExprNode::Name(name) => {
            bindings.get(name).cloned().ok_or_else(|| ExprErrorKind::Unknown(name.clone()))
        }
        ExprNode::Not(inner) => Ok(ExprValue::Bool(!evaluate(inner, bindings)?.to_bool()?)),
        ExprNode::Negative(inner) => {
            let number = evaluate(inner, bindings)?.to_number()?;
            Ok(ExprValue::Number(number.checked_neg().ok_or_else(overflow)?))
        }
        ExprNode::Binary(operator, left, right) => binary(*operator, left, right, bindings),
        ExprNode::Call(function, arguments) => {
            let values: Vec<ExprValue> =
                arguments.iter().map(|argument| evaluate(argument, bindings)).collect::<Result<_, _>>()?;
            Ok(call(*function, &values)?)
        }
    }
}

fn binary(
    operator: BinaryOperator,
    left: &ExprNode,
    right: &ExprNode,
    bindings: &Bindings,
) -> Result<ExprValue, ExprErrorKind> {
    let left = evaluate(left, bindings)?;
    match operator {
        BinaryOperator::Or if left.to_bool()? => return Ok(ExprValue::Bool(true)),
        BinaryOperator::And if !left.to_bool()? => return Ok(ExprValue::Bool(false)),
        _ => {}
    }
    let right = evaluate(right, bindings)?;
    Ok(match operator {
        BinaryOperator::Or | BinaryOperator::And => ExprValue::Bool(right.to_bool()?),
        BinaryOperator::Equal => ExprValue::Bool(left == right),
        BinaryOperator::NotEqual => ExprValue::Bool(left != right),
        BinaryOperator::Less => ExprValue::Bool(left.to_number()? < right.to_number()?),
        BinaryOperator::LessEqual => ExprValue::Bool(left.to_number()? <= right.to_number()?),
        BinaryOperator::Greater => ExprValue::Bool(left.to_number()? > right.to_number()?),
        BinaryOperator::GreaterEqual => ExprValue::Bool(left.to_number()? >= right.to_number()?),
        _ => ExprValue::Number(arithmetic(operator, left.to_number()?, right.to_number()?)?),
    })
}

fn arithmetic(operator: BinaryOperator, left: i64, right: i64) -> Result<i64, String> {
    let value = match operator {
        BinaryOperator::Add => left.checked_add(right),
        BinaryOperator::Subtract => left.checked_sub(right),
        BinaryOperator::Multiply => left.checked_mul(right),
        _ if right == 0 => return Err("divides by zero".to_owned()),
        BinaryOperator::Divide if left.checked_rem(right).is_some_and(|rest| rest != 0) => {
            return Err(format!("{left} is not a multiple of {right}"));
        }
        BinaryOperator::Divide => left.checked_div(right),
        _ => left.checked_rem_euclid(right),
    };
    value.ok_or_else(overflow)
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
        Expr::parse(source)?.evaluate_in(&bindings)
    }

    #[test]
    fn operators_bind_as_in_arithmetic() {
        assert_eq!(value("2 + 3 * 4 - 6 / 2"), Ok(ExprValue::Number(11)));
        assert_eq!(value("-(2 + 3) * 4"), Ok(ExprValue::Number(-20)));
        assert_eq!(value("10 - 4 - 3"), Ok(ExprValue::Number(3)));
        assert_eq!(value("-7 % 4"), Ok(ExprValue::Number(1)));
        assert_eq!(value("not M < 5 and M >= 4096 or 1 == 2"), Ok(ExprValue::Bool(true)));
        assert_eq!(value("align(M + 1, 16)"), Ok(ExprValue::Number(4112)));
    }

    #[test]
    fn lists_are_shapes() {
        assert_eq!(value("broadcast(X, Y)"), Ok(ExprValue::List(vec![4, 6, 8])));
        assert_eq!(value("rank(X) + numel(Y)"), Ok(ExprValue::Number(9)));
        assert_eq!(value("zeros(rank(X))"), Ok(ExprValue::List(vec![0, 0, 0])));
        assert_eq!(value("within(Y, X)"), Ok(ExprValue::Bool(false)));
    }

    #[test]
    fn lists_are_lengths_of_sequences_and_a_number_is_a_list_of_one() {
        assert_eq!(value("sum(X) + count(X) + last(X) + lowest(X) + highest(X)"), Ok(ExprValue::Number(33)));
        assert_eq!(value("differences(accumulated(X))"), Ok(ExprValue::List(vec![4, 1, 8])));
        assert_eq!(value("shares(10, 3)"), Ok(ExprValue::List(vec![4, 3, 3])));
        assert_eq!(value("dot(blocks(X, 4), repeated(2, 3))"), Ok(ExprValue::Number(8)));
        assert_eq!(value("sum(M) + count(M) + last(accumulated(M))"), Ok(ExprValue::Number(8193)));
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("dot(X, Y)"), "`dot(X, Y)`: lists of 3 and 2 numbers");
        assert_eq!(text("shares(4, 0)"), "`shares(4, 0)`: 4 items in 0 shares");
        assert_eq!(text("blocks(X, 0)"), "`blocks(X, 0)`: blocks of 0, expected a positive size");
        assert!(text("repeated(1, 9999999)").contains("a list of 9999999 numbers"));
    }

    #[test]
    fn what_has_no_value_says_why() {
        let text = |source: &str| value(source).expect_err("no value").to_string();
        assert_eq!(text("M / 3"), "`M / 3`: 4096 is not a multiple of 3");
        assert_eq!(text("N + 1"), "`N` has no value here");
        assert_eq!(text("M +"), "`M +`: expected a number, a name or `(` at column 4");
        assert_eq!(text("1 / 0"), "`1 / 0`: divides by zero");
        assert_eq!(text("9223372036854775807 + 1"), "`9223372036854775807 + 1`: does not fit 63 bits");
        assert!(text("median(M)").contains("there is no function `median`"));
        assert!(text("import os").contains("expected an operator"));
        assert!(text(&"(".repeat(500)).contains("nested too deeply"));
    }

    proptest! {
        #[test]
        fn any_text_is_handled(source in "[-+*/%()<>=!, a-zA-Z0-9_]{0,40}") {
            let _ = value(&source);
        }

        #[test]
        fn sums_and_products_agree_with_rust(a in -1000_i64..1000, b in -1000_i64..1000, c in 1_i64..50) {
            let source = format!("({a}) * ({b}) + {c} - ({a}) % {c}");
            prop_assert_eq!(value(&source), Ok(ExprValue::Number(a * b + c - a.rem_euclid(c))));
        }
    }
}
