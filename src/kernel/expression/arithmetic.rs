//! Arithmetic of the expression language, for 64-bit integers and for the nodes of compiled expressions.

use std::fmt;

/// An operation on two numbers. Comparisons and logical operations give 1 for true and 0 for false.
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
    Min,
    Max,
    /// `align(a, b)`: the least multiple of `b` that is not below `a`
    Align,
    /// One dimension of an element-wise result, by numpy's rule.
    Broadcast,
}

impl BinaryOperator {
    pub(crate) const fn compares(self) -> bool {
        use BinaryOperator::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }
}

/// An operation without a result; prints the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArithmeticError {
    #[error("does not fit 63 bits")]
    Overflow,
    #[error("divides by zero")]
    ZeroDivisor,
    #[error("{0} is not a multiple of {1}")]
    InexactDivision(i64, i64),
    #[error("align to {0}, expected a positive step")]
    AlignStep(i64),
    #[error("{0} and {1} do not broadcast")]
    Broadcast(i64, i64),
}

/// An `i64`, or a node of a compiled expression whose number follows from a candidate of a grid.
pub(crate) trait ExprNumber: Clone + fmt::Display + PartialEq + From<i64> {
    /// Returns the number if it is the same for all candidates.
    fn constant(&self) -> Option<i64>;

    fn apply(operator: BinaryOperator, left: Self, right: Self) -> Result<Self, ArithmeticError>;

    /// Returns a condition that holds if the number can be computed.
    fn has_value(&self) -> Self;
}

impl ExprNumber for i64 {
    fn constant(&self) -> Option<i64> {
        Some(*self)
    }

    fn apply(operator: BinaryOperator, left: Self, right: Self) -> Result<Self, ArithmeticError> {
        calculate(operator, left, right)
    }

    fn has_value(&self) -> Self {
        1
    }
}

/// Multiplies dimensions: a list counts as the number of its elements where a number is expected.
pub(crate) fn product<N: ExprNumber>(dims: &[N]) -> Result<N, ArithmeticError> {
    dims.iter().cloned().try_fold(N::from(1), |product, dim| N::apply(BinaryOperator::Multiply, product, dim))
}

#[inline]
pub(crate) fn calculate(operator: BinaryOperator, left: i64, right: i64) -> Result<i64, ArithmeticError> {
    let value = match operator {
        BinaryOperator::Or => Some(i64::from(left != 0 || right != 0)),
        BinaryOperator::And => Some(i64::from(left != 0 && right != 0)),
        BinaryOperator::Equal => Some(i64::from(left == right)),
        BinaryOperator::NotEqual => Some(i64::from(left != right)),
        BinaryOperator::Less => Some(i64::from(left < right)),
        BinaryOperator::LessEqual => Some(i64::from(left <= right)),
        BinaryOperator::Greater => Some(i64::from(left > right)),
        BinaryOperator::GreaterEqual => Some(i64::from(left >= right)),
        BinaryOperator::Add => left.checked_add(right),
        BinaryOperator::Subtract => left.checked_sub(right),
        BinaryOperator::Multiply => left.checked_mul(right),
        BinaryOperator::Divide | BinaryOperator::Remainder if right == 0 => {
            return Err(ArithmeticError::ZeroDivisor);
        }
        BinaryOperator::Divide if left.checked_rem(right).is_some_and(|rest| rest != 0) => {
            return Err(ArithmeticError::InexactDivision(left, right));
        }
        BinaryOperator::Divide => left.checked_div(right),
        BinaryOperator::Remainder => left.checked_rem_euclid(right),
        BinaryOperator::Min => Some(left.min(right)),
        BinaryOperator::Max => Some(left.max(right)),
        BinaryOperator::Align if right <= 0 => return Err(ArithmeticError::AlignStep(right)),
        BinaryOperator::Align => left.checked_add((right - left.rem_euclid(right)) % right),
        BinaryOperator::Broadcast if left == right || right == 1 => Some(left),
        BinaryOperator::Broadcast if left == 1 => Some(right),
        BinaryOperator::Broadcast => return Err(ArithmeticError::Broadcast(left, right)),
    };
    value.ok_or(ArithmeticError::Overflow)
}
