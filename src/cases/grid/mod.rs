//! Rows for kernels that are to be measured: expansion of grids, mutation of cases, selection, writing, and the audit
//! of their density.
//!
//! A candidate is rejected by the first of: a constraint, a dimension without a whole value, the memory it needs, the
//! catalogue's shape rule, the filter of the command, an existing row, another candidate of the same signature. The rest is sampled.

mod audit;
mod candidates;
pub mod definition;
pub mod mutate;
mod sample;
mod select;
mod write;

pub use audit::KernelAudit;
pub(crate) use audit::{AxisAudit, AxisGap, AxisGroup, GridAuditor, SparseAxis};
pub use candidates::{Candidates, ExistingCases};

pub(crate) use select::AxisRange;
pub use select::{
    CandidateSource, ListedCase, MutationCount, RejectCount, RejectReason, SelectedRow, SelectedRows,
    SelectionRequest, select_rows,
};
pub(crate) use write::{
    CandidatesByKernel, CasesByKernel, ListedCases, RowWriter, database_cases, mutation_sources,
    profile_cases,
};
