//! Errors of the expression language.

use super::arithmetic::ArithmeticError;

/// An expression that cannot be parsed or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExprError {
    #[error("`{source_text}`: {problem} at column {column}")]
    Syntax { source_text: String, problem: String, column: usize },
    #[error("`{0}` has no value here")]
    Unknown(String),
    /// A value that differs between candidates in more than numbers, such as a list whose length is one of them.
    #[error("`{0}` cannot be computed before the numbers of a candidate are known")]
    NotConstant(String),
    #[error("`{source_text}`: {problem}")]
    Value { source_text: String, problem: String },
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
