//! Values of the names in expressions and shape rules.

use std::{collections::BTreeMap, fmt};

use crate::domain::Dims;

/// A value of the expression language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprValue {
    /// A whole number, such as a dimension.
    Number(i64),
    /// Dimensions of a shape or part of one.
    List(Vec<i64>),
    /// The value of a comparison.
    Bool(bool),
}

impl ExprValue {
    /// The number; a list counts as the product of its dimensions.
    pub(crate) fn number(&self) -> Result<i64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::List(dims) => dims
                .iter()
                .try_fold(1_i64, |product, dim| product.checked_mul(*dim))
                .ok_or_else(|| "does not fit 63 bits".to_owned()),
            Self::Bool(_) => Err(format!("{self} is not a number")),
        }
    }

    pub(crate) fn list(&self) -> Result<&[i64], String> {
        match self {
            Self::List(dims) => Ok(dims),
            other => Err(format!("{other} is not a list of dimensions")),
        }
    }

    /// The numbers of a list; a number is a list of one, as a batch of one sequence is in a row's attributes.
    pub(crate) fn items(&self) -> Result<Vec<i64>, String> {
        match self {
            Self::List(items) => Ok(items.clone()),
            other => Ok(vec![other.number()?]),
        }
    }

    pub(crate) fn truth(&self) -> Result<bool, String> {
        match self {
            Self::Bool(truth) => Ok(*truth),
            other => Err(format!("{other} is not a comparison")),
        }
    }
}

impl fmt::Display for ExprValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::List(dims) => write!(f, "[{}]", Dims(dims)),
        }
    }
}

/// Names and their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings(BTreeMap<String, ExprValue>);

impl Bindings {
    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ExprValue> {
        self.0.get(name)
    }

    /// Gives a name a value, in place of the one it had.
    pub fn set(&mut self, name: &str, value: ExprValue) {
        self.0.insert(name.to_owned(), value);
    }

    /// Gives a name a value, or reports whether it already has just that one.
    pub(crate) fn unify(&mut self, name: &str, value: ExprValue) -> Result<(), String> {
        match self.0.get(name) {
            Some(known) if *known == value => Ok(()),
            Some(known) => Err(format!("{name} is both {known} and {value}")),
            None => {
                self.set(name, value);
                Ok(())
            }
        }
    }
}
