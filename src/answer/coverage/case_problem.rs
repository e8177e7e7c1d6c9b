//! Reasons why no case follows from a query.

use crate::kernel::KernelName;

/// Case that does not follow from a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CaseProblem {
    /// The query lacks a parameter.
    Parameter(String),
    /// No case of this kernel follows, for this reason.
    Unknown { kernel: KernelName, reason: String },
}
