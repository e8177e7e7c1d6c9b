//! Errors of the expression language.

use super::arithmetic::ArithmeticError;

/// An expression that cannot be parsed or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// The text is not an expression.
    #[error("`{source_text}`: {problem} at column {column}")]
    Syntax {
        /// The whole expression.
        source_text: String,
        /// Expected syntax.
        problem: String,
        /// From 1.
        column: usize,
    },
    /// A name without a value.
    #[error("`{0}` has no value here")]
    Unknown(String),
    /// A value that a compiled expression cannot have, because it differs between candidates of a grid in more than
    /// numbers, such as a list whose length is one of them.
    #[error("`{0}` cannot be computed before the numbers of a candidate are known")]
    NotConstant(String),
    /// An operation that its operands do not allow.
    #[error("`{source_text}`: {problem}")]
    Value {
        /// The whole expression.
        source_text: String,
        /// Reason why there is no value.
        problem: String,
    },
}


