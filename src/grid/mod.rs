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

pub use audit::{Audit, Auditor, AxisAudit, Gap, Group, Shortfall};
pub use case_builder::Draft;
pub use expand::{Candidates, Unfit};
pub use memory::{Footprint, default_budget};
pub use rejection::{Refusals, Refused};
pub use select::{Grown, Known, Order, Range, grow};
pub use write::{
    Cases, DeclaredRows, Grew, GridRows, GrowthError, MutantRows, Target, Tenants, cases_of_profiles,
    in_parallel, tenants,
};
