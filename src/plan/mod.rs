//! What a run would do: which cases, what they are worth, what they are thought to cost.
//!
//! Layer 3: imports `model`, `spec` and `store`. It starts nothing.

mod cost_model;
mod select;

pub use cost_model::Costs;
pub use select::{NO_ENTRY, Plan, PlanError, Planned, Selection, Update, select};
