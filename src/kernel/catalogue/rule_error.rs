//! Errors of shape rules: texts that are no rule, and shapes that a rule does not fit.

use super::{ExprError, ExprValue};
use crate::kernel::expression::{ExprErrorKind, ExprNumber};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("`{0}` has no `->` between inputs and outputs")]
    NoArrow(String),
    #[error("`{term}` in `{rule}` is not a name, a number or `*NAME`")]
    Term { term: String, rule: String },
    #[error("slot `{0}` has more than one `*NAME`, so that their lengths are ambiguous")]
    TwoSequences(String),
    #[error(transparent)]
    Expr(#[from] ExprError),
}

/// Reason why a rule does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleMismatch {
    /// It has other slots, or other numbers of dimensions.
    #[error("{0}")]
    Structure(String),
    /// It does not fit these dimensions, or no candidate.
    #[error("{0}")]
    Dimensions(String),
    /// The dimensions agree with each other and exceed a limit of the form.
    #[error("{0}")]
    Limit(String),
    /// It cannot be compiled: it needs more of a candidate than ranks and types.
    #[error("differs between candidates")]
    NotConstant,
}

impl RuleMismatch {
    /// Returns a conflict of dimensions as a limit of the form.
    pub(super) fn into_limit(self) -> Self {
        match self {
            Self::Dimensions(reason) => Self::Limit(reason),
            other => other,
        }
    }

    pub(super) fn prefixed(self, place: &str) -> Self {
        match self {
            Self::Structure(reason) => Self::Structure(format!("{place}: {reason}")),
            Self::Dimensions(reason) => Self::Dimensions(format!("{place}: {reason}")),
            Self::Limit(reason) => Self::Limit(format!("{place}: {reason}")),
            Self::NotConstant => self,
        }
    }
}

impl From<String> for RuleMismatch {
    fn from(reason: String) -> Self {
        Self::Dimensions(reason)
    }
}

impl From<RuleMismatch> for String {
    fn from(mismatch: RuleMismatch) -> Self {
        mismatch.to_string()
    }
}

impl From<ExprError> for RuleMismatch {
    fn from(error: ExprError) -> Self {
        match error {
            ExprError::NotConstant(_) => Self::NotConstant,
            error => Self::Dimensions(error.to_string()),
        }
    }
}

impl From<ExprErrorKind> for RuleMismatch {
    fn from(kind: ExprErrorKind) -> Self {
        match kind {
            ExprErrorKind::NotConstant => Self::NotConstant,
            kind => Self::Dimensions(kind.into()),
        }
    }
}

/// Checks a condition, or adds it to `conditions` where it depends on the numbers of a candidate.
pub(crate) fn require<N: ExprNumber>(
    condition: N,
    conditions: &mut Vec<N>,
    reason: impl FnOnce() -> String,
) -> Result<(), RuleMismatch> {
    match condition.constant() {
        Some(0) => return Err(reason().into()),
        Some(_) => {}
        None => conditions.push(condition),
    }
    Ok(())
}

/// Requires that a value can be computed: no overflow, no inexact division.
pub(crate) fn require_value<N: ExprNumber>(
    value: &ExprValue<N>,
    conditions: &mut Vec<N>,
) -> Result<(), RuleMismatch> {
    let numbers = match value {
        ExprValue::Number(number) | ExprValue::Bool(number) => std::slice::from_ref(number),
        ExprValue::List(numbers) => numbers,
    };
    numbers.iter().try_for_each(|number| require(number.has_value(), conditions, String::new))
}
