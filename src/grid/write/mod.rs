//! Rows of grids and mutations in a database: existing rows are read, the selected candidates of all kernels are appended
//! in memory, on all cores, and then each kernel's CSV is written as a whole or not at all.

mod error;
mod mutation_cases;
mod rows;
mod target;
mod writer;

pub use error::MutationCasesError;
pub use mutation_cases::{CasesByKernel, MutationCases};
pub use rows::{ExistingRows, GridRows, read_existing_rows};
pub use target::TargetDatabase;
pub use writer::{RowSource, RowWriter};
