//! Errors of expressions.

use std::{fmt, ops::Range};

use super::arithmetic::ArithmeticError;

/// A text that is no expression, with the place of the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) text: String,
    /// In bytes.
    pub(crate) place: Range<usize>,
    pub(crate) problem: String,
    /// What to write instead; may be empty.
    pub(crate) hint: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {} at column {}", self.text, self.problem, self.place.start + 1)
    }
}

/// An expression that cannot be parsed or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExprError {
    #[error("{0}")]
    Syntax(SyntaxError),
    #[error("`{0}` has no value here")]
    Unknown(String),
    /// A value that differs between candidates in more than numbers, such as a list whose length is one of them.
    #[error("`{0}` cannot be computed before the numbers of a candidate are known")]
    NotConstant(String),
    #[error("`{source_text}`: {problem}")]
    Value { source_text: String, problem: String },
}

impl From<SyntaxError> for ExprError {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax(error)
    }
}

/// An [`ExprError`] without the text of the expression.
pub(crate) enum ExprErrorKind {
    Unknown(String),
    Value(String),
    NotConstant,
}

impl From<String> for ExprErrorKind {
    fn from(problem: String) -> Self {
        Self::Value(problem)
    }
}

impl From<ArithmeticError> for ExprErrorKind {
    fn from(error: ArithmeticError) -> Self {
        Self::Value(error.to_string())
    }
}

impl From<ExprErrorKind> for String {
    fn from(kind: ExprErrorKind) -> Self {
        match kind {
            ExprErrorKind::Unknown(name) => ExprError::Unknown(name).to_string(),
            ExprErrorKind::Value(problem) => problem,
            ExprErrorKind::NotConstant => "differs between candidates".to_owned(),
        }
    }
}
