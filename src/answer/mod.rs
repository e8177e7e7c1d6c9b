//! What performance models ask: op_mapping.yaml, queries and lookups, coverage and what closes its gaps, adaptive grids,
//! analysis of recorded runs.

pub(crate) mod adapt;
pub mod adaptive;
mod attention_call;
pub(crate) mod compat;
pub mod coverage;
pub(crate) mod coverage_change;
pub(crate) mod fill;
pub(crate) mod kernel_gaps;
pub mod lookup;
pub(crate) mod lookup_database;
pub mod op_mapping;
pub(crate) mod recorded_runs;
pub(crate) mod step_cases;
pub mod workload;
