//! Rows of grids and mutations in a database: existing rows are read, the selected candidates of all kernels are
//! appended in memory, on all cores, and then each kernel's CSV is written as a whole or not at all.

mod error;
mod mutation_cases;
mod rows;
mod target;
mod writer;

pub(crate) use error::MutationCasesError;
pub(crate) use mutation_cases::{CasesByKernel, MutationCases};
pub(crate) use rows::{GridRows, read_existing_rows};
pub(crate) use target::TargetDatabase;
pub(crate) use writer::{ListedCases, RowSource, RowWriter};
