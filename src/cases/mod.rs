//! What is to be measured: grids, models, and the plan of a run. Starts nothing.

pub mod grid;
pub mod llm;
pub(crate) mod plan;
