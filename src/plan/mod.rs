//! What a run would do: which cases, what they are worth, what they are thought to cost.
//!
//! Layer 3: imports `model`, `spec` and `store`. It starts nothing.

mod cost_model;
mod select;

pub use cost_model::InitialCosts;
pub use select::{CaseSelection, NO_ENTRY, PlanError, PlannedCase, RunPlan, UpdateMode, select_cases};
