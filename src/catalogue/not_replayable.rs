//! The error of a case that cannot be replayed.

/// Reason why a case cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayable {
    /// The entry does not cover such cases; the case may be valid.
    #[error("{0}")]
    NotCovered(String),
    /// The case contradicts the entry.
    #[error("{0}")]
    Contradiction(String),
}

pub(super) fn contradiction(reason: impl Into<String>) -> NotReplayable {
    NotReplayable::Contradiction(reason.into())
}

pub(super) fn missing_attribute(column: &str) -> NotReplayable {
    NotReplayable::NotCovered(format!("`{column}` is not known"))
}
