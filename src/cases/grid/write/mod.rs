//! Rows of grids and mutations in a database: existing rows are read, the selected candidates of all kernels are
//! appended in memory, on all cores, and then each kernel's CSV is written as a whole or not at all.

mod mutation_cases;
mod rows;
mod writer;

pub(crate) use mutation_cases::{CasesByKernel, MutationCases, MutationCasesError};
pub(crate) use rows::{GridRows, read_existing_rows};
pub(crate) use writer::{ListedCases, RowSource, RowWriter, TargetDatabase};
