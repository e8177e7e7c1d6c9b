//! Reasons why candidates do not become rows, with a count and an example of each.

use crate::base::suggest::truncate_for_message;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub enum RejectReason {
    #[error("`{}` does not hold", truncate_for_message(.0))]
    Constraint(String),
    /// A derived number or a constraint of the grid has no whole value: an inexact division or an overflow.
    #[error("`{}` has no whole value", truncate_for_message(.0))]
    NoValue(String),
    #[error("`{}` is not a dimension of at least 1", truncate_for_message(.0))]
    Dimension(String),
    #[error("needs more memory than the device has")]
    Memory,
    #[error("the kernel has no catalogue entry")]
    NoEntry,
    #[error("rejected by the shape rule")]
    ShapeRule,
    #[error("does not match the filter")]
    Filter,
    #[error("a row exists")]
    Existing,
    #[error("the same case as another candidate")]
    Duplicate,
    #[error("not part of the sample")]
    NotSelected,
}

impl RejectReason {
    pub(crate) fn label(&self) -> &'static str {
        self.into()
    }

    /// Returns the expression of the grid that rejects the candidate, if the reason is one.
    pub(crate) fn expression(&self) -> Option<&str> {
        match self {
            Self::Constraint(source) | Self::NoValue(source) | Self::Dimension(source) => Some(source),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectCount {
    pub count: u64,
    /// Message of the shape rule for the first one; otherwise its axis values or, for a mutant, its origin.
    pub(crate) example: Option<String>,
}

impl RejectCount {
    pub(crate) fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.count == 1 {
            self.example = Some(example());
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.count += other.count;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }
}
