//! Reasons why no case follows from a query.

use crate::kernel::KernelName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CaseProblem {
    Parameter(String),
    /// No case of this kernel follows, for this reason.
    Unknown {
        kernel: KernelName,
        reason: String,
    },
}
