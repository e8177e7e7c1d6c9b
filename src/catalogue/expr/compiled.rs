//! Expressions compiled for speed: names become places in a slice of whole numbers, lists of known length
//! become their terms, and nothing is allocated when one is evaluated.
//!
//! It means what [`Expr`] means. What it cannot say (functions over lists of unknown length, or backwards from
//! an output) is refused when it is compiled, never when it runs.

use super::{BinaryOperator, Expr, ExprFunction, ExprNode};

/// A compiled expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledExpr {
    source: String,
    pub(crate) term: CompiledNode,
    is_truth: bool,
}

/// Why an expression has no value for some numbers: an inexact division, an overflow, a misfit of dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalError;

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileExprError {
    /// A name that stands for nothing.
    Unknown(String),
    /// Something that only [`Expr`] evaluates.
    Unsupported(String),
}

/// A term of whole numbers; truth values are 0 and 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompiledNode {
    Number(i64),
    Place(usize),
    Not(Box<CompiledNode>),
    Negative(Box<CompiledNode>),
    Binary(BinaryOperator, Box<CompiledNode>, Box<CompiledNode>),
    Min(Box<CompiledNode>, Box<CompiledNode>),
    Max(Box<CompiledNode>, Box<CompiledNode>),
    Align(Box<CompiledNode>, Box<CompiledNode>),
    /// One dimension of an element-wise result.
    Broadcast(Box<CompiledNode>, Box<CompiledNode>),
}

/// What a name stands for, or an expression comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoweredValue {
    Number(CompiledNode),
    List(Vec<CompiledNode>),
    Truth(CompiledNode),
}

impl CompiledExpr {
    /// Compiles an expression over numbers; `place` says where the number of a name is.
    ///
    /// # Errors
    /// [`CompileExprError`].
    pub fn compile(
        expr: &Expr,
        place: &dyn Fn(&str) -> Option<VariableSlot>,
    ) -> Result<Self, CompileExprError> {
        let meaning = |name: &str| {
            place(name).map(|place| {
                LoweredValue::Number(match place {
                    VariableSlot::At(index) => CompiledNode::Place(index),
                    VariableSlot::Is(number) => CompiledNode::Number(number),
                })
            })
        };
        let (term, is_truth) = match meaning_of(&expr.root, &meaning)? {
            LoweredValue::Number(term) => (term, false),
            LoweredValue::Truth(term) => (term, true),
            LoweredValue::List(_) => return Err(CompileExprError::Unsupported(expr.to_string())),
        };
        Ok(Self { source: expr.to_string(), term, is_truth })
    }

    /// Whether it is a comparison.
    #[must_use]
    pub const fn is_comparison(&self) -> bool {
        self.is_truth
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The value; 1 for what is true.
    ///
    /// # Errors
    /// [`EvalError`].
    pub fn evaluate_at(&self, numbers: &[i64]) -> Result<i64, EvalError> {
        self.term.value(numbers)
    }
}

/// Where the number of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableSlot {
    /// In the slice.
    At(usize),
    /// It is always that one.
    Is(i64),
}

impl CompiledNode {
    pub(crate) fn value(&self, numbers: &[i64]) -> Result<i64, EvalError> {
        let value = match self {
            Self::Number(number) => Some(*number),
            Self::Place(index) => Some(numbers[*index]),
            Self::Not(inner) => Some(i64::from(inner.value(numbers)? == 0)),
            Self::Negative(inner) => inner.value(numbers)?.checked_neg(),
            Self::Binary(operator, left, right) => return binary(*operator, left, right, numbers),
            Self::Min(left, right) => Some(left.value(numbers)?.min(right.value(numbers)?)),
            Self::Max(left, right) => Some(left.value(numbers)?.max(right.value(numbers)?)),
            Self::Align(value, step) => {
                let (value, step) = (value.value(numbers)?, step.value(numbers)?);
                if step <= 0 {
                    return Err(EvalError);
                }
                value.checked_add((step - value.rem_euclid(step)) % step)
            }
            Self::Broadcast(left, right) => match (left.value(numbers)?, right.value(numbers)?) {
                (l, r) if l == r || r == 1 => Some(l),
                (1, r) => Some(r),
                _ => None,
            },
        };
        value.ok_or(EvalError)
    }

    pub(crate) fn times(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(1), other) => other,
            (term, Self::Number(1)) => term,
            (Self::Number(l), Self::Number(r)) if l.checked_mul(r).is_some() => Self::Number(l * r),
            (left, right) => Self::Binary(BinaryOperator::Multiply, Box::new(left), Box::new(right)),
        }
    }

    pub(crate) fn compared(self, operator: BinaryOperator, other: Self) -> Self {
        Self::Binary(operator, Box::new(self), Box::new(other))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(1), other) => other,
            (term, Self::Number(1)) => term,
            (left, right) => Self::Binary(BinaryOperator::And, Box::new(left), Box::new(right)),
        }
    }

    /// Whether both are equal, known at once where they are the same term.
    pub(crate) fn equal(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Number(l), Self::Number(r)) => Self::Number(i64::from(l == r)),
            // A term without a value is found where it is evaluated as a dimension.
            (l, r) if l == r => Self::Number(1),
            _ => self.compared(BinaryOperator::Equal, other),
        }
    }
}

fn binary(
    operator: BinaryOperator,
    left: &CompiledNode,
    right: &CompiledNode,
    numbers: &[i64],
) -> Result<i64, EvalError> {
    let left = left.value(numbers)?;
    match operator {
        BinaryOperator::Or if left != 0 => return Ok(1),
        BinaryOperator::And if left == 0 => return Ok(0),
        _ => {}
    }
    let right = right.value(numbers)?;
    let value = match operator {
        BinaryOperator::Or | BinaryOperator::And => Some(right),
        BinaryOperator::Equal => Some(i64::from(left == right)),
        BinaryOperator::NotEqual => Some(i64::from(left != right)),
        BinaryOperator::Less => Some(i64::from(left < right)),
        BinaryOperator::LessEqual => Some(i64::from(left <= right)),
        BinaryOperator::Greater => Some(i64::from(left > right)),
        BinaryOperator::GreaterEqual => Some(i64::from(left >= right)),
        BinaryOperator::Add => left.checked_add(right),
        BinaryOperator::Subtract => left.checked_sub(right),
        BinaryOperator::Multiply => left.checked_mul(right),
        BinaryOperator::Divide => left.checked_rem(right).filter(|rest| *rest == 0).map(|_| left / right),
        BinaryOperator::Remainder => left.checked_rem_euclid(right),
    };
    value.ok_or(EvalError)
}

/// The product of dimensions, as a list counts where a number is wanted.
pub(crate) fn product(terms: &[CompiledNode]) -> CompiledNode {
    terms.iter().cloned().fold(CompiledNode::Number(1), CompiledNode::times)
}

fn number(meaning: LoweredValue) -> Result<CompiledNode, CompileExprError> {
    match meaning {
        LoweredValue::Number(term) => Ok(term),
        LoweredValue::List(terms) => Ok(product(&terms)),
        LoweredValue::Truth(_) => {
            Err(CompileExprError::Unsupported("a comparison where a number is wanted".to_owned()))
        }
    }
}

fn truth(meaning: LoweredValue) -> Result<CompiledNode, CompileExprError> {
    match meaning {
        LoweredValue::Truth(term) => Ok(term),
        _ => Err(CompileExprError::Unsupported("a number where a comparison is wanted".to_owned())),
    }
}

fn list(meaning: LoweredValue) -> Result<Vec<CompiledNode>, CompileExprError> {
    match meaning {
        LoweredValue::List(terms) => Ok(terms),
        _ => Err(CompileExprError::Unsupported("a number where a list is wanted".to_owned())),
    }
}

/// What an expression comes to where its names have meanings.
pub(crate) fn meaning_of(
    node: &ExprNode,
    names: &dyn Fn(&str) -> Option<LoweredValue>,
) -> Result<LoweredValue, CompileExprError> {
    Ok(match node {
        ExprNode::Number(number) => LoweredValue::Number(CompiledNode::Number(*number)),
        ExprNode::Name(name) => names(name).ok_or_else(|| CompileExprError::Unknown(name.clone()))?,
        ExprNode::Not(inner) => {
            LoweredValue::Truth(CompiledNode::Not(Box::new(truth(meaning_of(inner, names)?)?)))
        }
        ExprNode::Negative(inner) => {
            LoweredValue::Number(CompiledNode::Negative(Box::new(number(meaning_of(inner, names)?)?)))
        }
        ExprNode::Binary(operator, left, right) => {
            comparison_or_sum(*operator, meaning_of(left, names)?, meaning_of(right, names)?)?
        }
        ExprNode::Call(function, arguments) => {
            let meanings = arguments.iter().map(|argument| meaning_of(argument, names));
            call(*function, meanings.collect::<Result<_, _>>()?)?
        }
    })
}

fn comparison_or_sum(
    operator: BinaryOperator,
    left: LoweredValue,
    right: LoweredValue,
) -> Result<LoweredValue, CompileExprError> {
    Ok(match operator {
        BinaryOperator::Or | BinaryOperator::And => {
            LoweredValue::Truth(truth(left)?.compared(operator, truth(right)?))
        }
        BinaryOperator::Equal | BinaryOperator::NotEqual => {
            let same = match (left, right) {
                (LoweredValue::List(left), LoweredValue::List(right)) if left.len() == right.len() => {
                    let pairs = left.into_iter().zip(right);
                    pairs.map(|(l, r)| l.equal(r)).fold(CompiledNode::Number(1), CompiledNode::and)
                }
                (LoweredValue::Number(left), LoweredValue::Number(right)) => left.equal(right),
                (LoweredValue::Truth(left), LoweredValue::Truth(right)) => {
                    left.compared(BinaryOperator::Equal, right)
                }
                _ => CompiledNode::Number(0),
            };
            LoweredValue::Truth(if operator == BinaryOperator::Equal {
                same
            } else {
                CompiledNode::Not(Box::new(same))
            })
        }
        BinaryOperator::Less
        | BinaryOperator::LessEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterEqual => {
            LoweredValue::Truth(number(left)?.compared(operator, number(right)?))
        }
        _ => LoweredValue::Number(number(left)?.compared(operator, number(right)?)),
    })
}

fn call(function: ExprFunction, values: Vec<LoweredValue>) -> Result<LoweredValue, CompileExprError> {
    let mut values = values.into_iter();
    // The parser has counted the arguments.
    let mut next = || values.next().unwrap_or(LoweredValue::Number(CompiledNode::Number(0)));
    Ok(match function {
        ExprFunction::Min => {
            LoweredValue::Number(CompiledNode::Min(Box::new(number(next())?), Box::new(number(next())?)))
        }
        ExprFunction::Max => {
            LoweredValue::Number(CompiledNode::Max(Box::new(number(next())?), Box::new(number(next())?)))
        }
        ExprFunction::Align => {
            LoweredValue::Number(CompiledNode::Align(Box::new(number(next())?), Box::new(number(next())?)))
        }
        ExprFunction::Rank => {
            LoweredValue::Number(CompiledNode::Number(i64::try_from(list(next())?.len()).unwrap_or(i64::MAX)))
        }
        ExprFunction::Numel => LoweredValue::Number(product(&list(next())?)),
        ExprFunction::Broadcast => {
            let (left, right) = (list(next())?, list(next())?);
            let rank = left.len().max(right.len());
            let dim = |dims: &[CompiledNode], index: usize| {
                (index + dims.len()).checked_sub(rank).map_or(CompiledNode::Number(1), |at| dims[at].clone())
            };
            let dims = (0..rank).map(|index| match (dim(&left, index), dim(&right, index)) {
                (l, r) if l == r || r == CompiledNode::Number(1) => l,
                (l, r) => CompiledNode::Broadcast(Box::new(l), Box::new(r)),
            });
            LoweredValue::List(dims.collect())
        }
        ExprFunction::Within => {
            let (small, large) = (list(next())?, list(next())?);
            let fits = small.len() == large.len();
            let pairs = small.into_iter().zip(large).filter(|(s, l)| s != l);
            let within = pairs.map(|(s, l)| s.compared(BinaryOperator::LessEqual, l));
            LoweredValue::Truth(within.fold(CompiledNode::Number(i64::from(fits)), CompiledNode::and))
        }
        other => return Err(CompileExprError::Unsupported(format!("{other:?}").to_lowercase())),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::{Bindings, ExprValue};

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn compiled(source: &str) -> Result<CompiledExpr, CompileExprError> {
        let expr = Expr::parse(source).expect("an expression");
        CompiledExpr::compile(&expr, &|name| {
            NAMES.iter().position(|known| *known == name).map(VariableSlot::At)
        })
    }

    fn slow(source: &str, numbers: [i64; 3]) -> Option<i64> {
        let mut bindings = Bindings::default();
        for (name, number) in NAMES.into_iter().zip(numbers) {
            bindings.set(name, ExprValue::Number(number));
        }
        match Expr::parse(source).expect("an expression").evaluate_in(&bindings).ok()? {
            ExprValue::Number(number) => Some(number),
            ExprValue::Bool(truth) => Some(i64::from(truth)),
            ExprValue::List(_) => None,
        }
    }

    #[test]
    fn what_it_cannot_say_is_refused_at_once() {
        assert_eq!(compiled("x + 1"), Err(CompileExprError::Unknown("x".to_owned())));
        assert!(matches!(compiled("sum(a)"), Err(CompileExprError::Unsupported(_))));
        assert!(matches!(compiled("(a < b) + 1"), Err(CompileExprError::Unsupported(_))));
        assert!(compiled("a < b").expect("compiles").is_comparison());
    }

    proptest! {
        /// Both ways to evaluate an expression agree, also on where there is no value.
        #[test]
        fn it_means_what_the_expression_means(
            source in "[abc1-9]( ?[-+*/%<]| ==| !=| <=| >=)? ?(max\\(a, b\\)|align\\(b, c\\)|min\\(a, 7\\)|[abc]|[0-9]{1,3})( [-+*%] [abc])?",
            numbers in proptest::array::uniform3(-9_i64..9),
        ) {
            if let Ok(expr) = Expr::parse(&source) {
                let place = |name: &str| NAMES.iter().position(|known| *known == name).map(VariableSlot::At);
                if let Ok(formula) = CompiledExpr::compile(&expr, &place) {
                    prop_assert_eq!(formula.evaluate_at(&numbers).ok(), slow(&source, numbers), "{}", source);
                }
            }
        }
    }
}
