//! What a run would do: which cases, what they are worth, what they are thought to cost.
//!
//! Layer 3: imports `model`, `spec` and `store`. It starts nothing.

mod prior;
mod select;

pub use prior::Costs;
pub use select::{NO_ENTRY, Plan, PlanError, Planned, Selection, Update, select};
