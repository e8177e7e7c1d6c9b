//! Density of the values that cases of a kernel have along its axes, compared with the density standard.
//!
//! `auditor` collects the cases of a database or of grids; `kernel_audit` compares each axis over all cases and, for an
//! axis by which a lookup interpolates, such as the rows of a product, also for each combination of the numbers that a
//! lookup keeps fixed; `gaps` computes missing points. Combinations of several audited axes are not checked.

mod auditor;
mod gaps;
mod kernel_audit;

pub(crate) use auditor::GridAuditor;
pub(crate) use gaps::{AxisGap, AxisShortfall};
pub use kernel_audit::KernelAudit;
pub(crate) use kernel_audit::{AxisAudit, AxisGroup};
