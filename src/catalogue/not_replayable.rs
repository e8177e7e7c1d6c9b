//! The error of a case that cannot be replayed.

/// Reason why a case cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayable {
    /// No form of the entry covers such slots, types, numbers of dimensions or attributes; the case may be valid.
    #[error("{0}")]
    NotCovered(String),
    /// A form covers such cases, and the dimensions of this one contradict each other or a condition of the kernel.
    #[error("{0}")]
    Contradiction(String),
}

pub(super) fn contradiction(reason: impl Into<String>) -> NotReplayable {
    NotReplayable::Contradiction(reason.into())
}

pub(super) fn not_covered(reason: impl Into<String>) -> NotReplayable {
    NotReplayable::NotCovered(reason.into())
}

pub(super) fn missing_attribute(column: &str) -> NotReplayable {
    not_covered(format!("`{column}` is not known"))
}
