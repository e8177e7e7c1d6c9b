//! Grids expanded: candidates, what refuses them, and which of the rest are worth a row.
//!
//! Layer 2: imports `model` and `spec`, and does no IO. What a grid may hold is the business of `spec::grid`;
//! where rows are kept, that of `store`.
//!
//! A candidate is refused by the first of: a constraint, a dimension that has no whole value, the memory it
//! needs, the catalogue's shape rule, a row that is there already, another candidate of the same signature. Only
//! of what is left is a sample taken.

mod audit;
mod draft;
mod expand;
mod grow;
mod memory;
pub mod mutate;
mod refused;
mod sample;

pub use audit::{Audit, AxisAudit, Gap, Group, Shortfall};
pub use draft::Draft;
pub use expand::{Candidates, Unfit};
pub use grow::{Grown, Known, Order, Range, grow};
pub use memory::{Footprint, default_budget};
pub use refused::{Refusals, Refused};
