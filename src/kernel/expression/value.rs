//! Values of the expression language, their arithmetic, and the errors of an evaluation.

use std::{collections::BTreeMap, fmt};

use crate::kernel::Dims;

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
    Contains,
    ContainsNot,
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExprError {
    #[error("`{0}` has no value here")]
    Unknown(String),
    /// A value that differs between candidates in more than numbers, such as a list whose length is one of them.
    #[error("`{0}` cannot be computed before the numbers of a candidate are known")]
    NotConstant(String),
    #[error("{0}")]
    Value(String),
}

impl ExprError {
    pub(super) fn within(self, source: &str) -> Self {
        match self {
            Self::Unknown(_) => self,
            Self::NotConstant(_) => Self::NotConstant(source.to_owned()),
            Self::Value(problem) => Self::Value(format!("`{source}`: {problem}")),
        }
    }

    pub(super) const fn not_constant() -> Self {
        Self::NotConstant(String::new())
    }
}

impl From<String> for ExprError {
    fn from(problem: String) -> Self {
        Self::Value(problem)
    }
}

impl From<ArithmeticError> for ExprError {
    fn from(error: ArithmeticError) -> Self {
        Self::Value(error.to_string())
    }
}

/// An `i64`, or a node of a compiled expression whose number follows from a candidate of a grid.
pub(crate) trait ExprNumber: Clone + fmt::Display + PartialEq + From<i64> {
    fn constant(&self) -> Option<i64>;

    fn apply(operator: BinaryOperator, left: Self, right: Self) -> Result<Self, ArithmeticError>;

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
pub(super) fn calculate(operator: BinaryOperator, left: i64, right: i64) -> Result<i64, ArithmeticError> {
    use BinaryOperator as Is;
    let value = match operator {
        Is::Or => Some(i64::from(left != 0 || right != 0)),
        Is::And => Some(i64::from(left != 0 && right != 0)),
        Is::Equal => Some(i64::from(left == right)),
        Is::NotEqual => Some(i64::from(left != right)),
        Is::Less => Some(i64::from(left < right)),
        Is::LessEqual => Some(i64::from(left <= right)),
        Is::Greater => Some(i64::from(left > right)),
        Is::GreaterEqual => Some(i64::from(left >= right)),
        Is::Contains | Is::ContainsNot => None,
        Is::Add => left.checked_add(right),
        Is::Subtract => left.checked_sub(right),
        Is::Multiply => left.checked_mul(right),
        Is::Divide | Is::Remainder if right == 0 => return Err(ArithmeticError::ZeroDivisor),
        Is::Divide if left.checked_rem(right).is_some_and(|rest| rest != 0) => {
            return Err(ArithmeticError::InexactDivision(left, right));
        }
        Is::Divide => left.checked_div(right),
        Is::Remainder => left.checked_rem_euclid(right),
        Is::Min => Some(left.min(right)),
        Is::Max => Some(left.max(right)),
        Is::Align if right <= 0 => return Err(ArithmeticError::AlignStep(right)),
        Is::Align => left.checked_add((right - left.rem_euclid(right)) % right),
        Is::Broadcast if left == right || right == 1 => Some(left),
        Is::Broadcast if left == 1 => Some(right),
        Is::Broadcast => return Err(ArithmeticError::Broadcast(left, right)),
    };
    value.ok_or(ArithmeticError::Overflow)
}

/// A value of the expression language. `N` is `i64`, or a node of a compiled expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExprValue<N = i64> {
    Number(N),
    /// Dimensions of a shape or of a part of one.
    List(Vec<N>),
    /// Result of a comparison: 1 if it is true, 0 if it is false.
    Bool(N),
}

impl<N: ExprNumber> ExprValue<N> {
    pub(crate) fn to_number(&self) -> Result<N, ExprError> {
        match self {
            Self::Number(number) => Ok(number.clone()),
            Self::List(dims) => Ok(product(dims)?),
            Self::Bool(_) => Err(format!("{self} is not a number").into()),
        }
    }

    pub(crate) fn as_list(&self) -> Result<&[N], ExprError> {
        match self {
            Self::List(dims) => Ok(dims),
            other => Err(format!("{other} is not a list of dimensions").into()),
        }
    }

    /// Returns the numbers of a list, or the one number: an attribute of a single sequence is read as a number.
    pub(crate) fn to_items(&self) -> Result<Vec<N>, ExprError> {
        match self {
            Self::List(items) => Ok(items.clone()),
            other => Ok(vec![other.to_number()?]),
        }
    }

    pub(crate) fn to_bool(&self) -> Result<N, ExprError> {
        match self {
            Self::Bool(truth) => Ok(truth.clone()),
            other => Err(format!("{other} is not a comparison").into()),
        }
    }

    /// Compares two values; values of different types or lengths are not equal.
    pub(crate) fn equals(&self, other: &Self) -> Result<N, ArithmeticError> {
        let equal = |left: &N, right: &N| N::apply(BinaryOperator::Equal, left.clone(), right.clone());
        match (self, other) {
            (Self::Number(left), Self::Number(right)) | (Self::Bool(left), Self::Bool(right)) => {
                equal(left, right)
            }
            (Self::List(left), Self::List(right)) if left.len() == right.len() => {
                left.iter().zip(right).try_fold(N::from(1), |all, (left, right)| {
                    N::apply(BinaryOperator::And, all, equal(left, right)?)
                })
            }
            _ => Ok(N::from(0)),
        }
    }
}

impl<N: fmt::Display + From<i64> + PartialEq> fmt::Display for ExprValue<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(truth) => write!(f, "{}", *truth != N::from(0)),
            Self::List(dims) => write!(f, "[{}]", Dims(dims)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bindings<N = i64>(BTreeMap<String, ExprValue<N>>);

impl<N> Default for Bindings<N> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<N> Bindings<N> {
    pub(crate) fn get(&self, name: &str) -> Option<&ExprValue<N>> {
        self.0.get(name)
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn set(&mut self, name: impl Into<String>, value: ExprValue<N>) {
        self.0.insert(name.into(), value);
    }
}
