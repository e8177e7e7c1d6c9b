//! Values of the names in expressions and shape rules.

use std::{collections::BTreeMap, fmt};

use super::{
    arithmetic::{ExprNumber, product},
    error::ExprErrorKind,
};
use crate::kernel::Dims;

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
    /// Returns the number, or the product of a list.
    pub(crate) fn to_number(&self) -> Result<N, ExprErrorKind> {
        match self {
            Self::Number(number) => Ok(number.clone()),
            Self::List(dims) => Ok(product(dims)?),
            Self::Bool(_) => Err(format!("{self} is not a number").into()),
        }
    }

    pub(crate) fn as_list(&self) -> Result<&[N], ExprErrorKind> {
        match self {
            Self::List(dims) => Ok(dims),
            other => Err(format!("{other} is not a list of dimensions").into()),
        }
    }

    /// Returns the numbers of a list, or the one number: an attribute of a single sequence is read as a number.
    pub(crate) fn to_items(&self) -> Result<Vec<N>, ExprErrorKind> {
        match self {
            Self::List(items) => Ok(items.clone()),
            other => Ok(vec![other.to_number()?]),
        }
    }

    pub(crate) fn to_bool(&self) -> Result<N, ExprErrorKind> {
        match self {
            Self::Bool(truth) => Ok(truth.clone()),
            other => Err(format!("{other} is not a comparison").into()),
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

    pub(crate) fn set(&mut self, name: &str, value: ExprValue<N>) {
        self.0.insert(name.to_owned(), value);
    }
}
