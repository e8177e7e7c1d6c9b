//! Databases grow: candidates of grids and mutants of cases become rows without measurements; audits say where rows or
//! candidates lie too far apart.
//!
//! Layer 4: imports `model`, `spec`, `profile`, `grid` and `store`, and brings them together on all cores. What becomes a
//! row, and what is missing, is decided in `grid`; how a row is read and written, in `store`. It never prints, and never
//! changes a row that is there.

mod error;
mod grid_rows;
mod mutant_rows;
mod parallel;
mod rows;
mod target;

pub use error::GridWriteError;
pub use grid_rows::GridWriter;
pub use mutant_rows::{CasesByKernel, MutantWriter, cases_of_profiles};
pub use parallel::in_parallel;
pub use rows::{ExistingRows, GridRows, tenants};
pub use target::{GrownTable, TargetDatabase};
