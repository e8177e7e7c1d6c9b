//! Databases grow: candidates of grids and mutants of cases become rows without measurements; audits say where rows or
//! candidates lie too far apart.
//!
//! Layer 4: imports `model`, `spec`, `profile`, `grid` and `store`, and brings them together on all cores. What becomes a
//! row, and what is missing, is decided in `grid`; how a row is read and written, in `store`. It never prints, and never
//! changes a row that is there.

mod audit;
mod declared;
mod error;
mod mutants;
mod parallel;
mod target;

pub use audit::Auditor;
pub use declared::DeclaredRows;
pub use error::GrowthError;
pub use mutants::{Cases, MutantRows, cases_of_profiles};
pub use parallel::in_parallel;
pub use target::{Grew, Target};
