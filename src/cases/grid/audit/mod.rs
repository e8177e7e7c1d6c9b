//! Density of the values that cases of a kernel have along its axes, compared with the density standard: over all cases
//! and, for an axis by which a lookup interpolates, for each combination of the numbers that the lookup keeps fixed.
//! Combinations of several audited axes are not checked.

mod auditor;
mod gaps;

pub use auditor::KernelAudit;
pub(crate) use auditor::{AxisAudit, AxisGroup, GridAuditor, SparseAxis};
pub(crate) use gaps::{AxisGap, AxisShortfall};
