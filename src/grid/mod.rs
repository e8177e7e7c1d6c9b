//! Grids expanded: candidates, what refuses them, and which of the rest are worth a row.
//!
//! Layer 2: imports `model` and `spec`, and does no IO. What a grid may hold is the business of `spec::grid`;
//! where rows are kept, that of `store`.
//!
//! A candidate is refused by the first of: a constraint, a dimension that has no whole value, the memory it
//! needs, the catalogue's shape rule, a row that is there already, another candidate of the same signature. Only
//! of what is left is a sample taken.

mod audit;
mod case_builder;
pub mod definition;
mod expand;
mod memory;
pub mod mutate;
mod rejection;
mod sample;
mod select;
mod write;

pub use audit::{AxisAudit, AxisGap, AxisGroup, AxisShortfall, GridAuditor, KernelAudit};
pub use case_builder::CaseBuilder;
pub use expand::{Candidates, ConstraintViolation};
pub use memory::{MemoryFootprint, default_budget};
pub use rejection::{RejectCount, RejectReason};
pub use select::{AxisRange, ExistingCases, SelectedCandidates, SelectionRequest, select_candidates};
pub use write::{
    CasesByKernel, ExistingRows, GridRows, GridWriteError, GridWriter, GrownTable, MutantWriter,
    TargetDatabase, cases_of_profiles, in_parallel, tenants,
};
