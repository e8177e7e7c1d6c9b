//! Cases of a run with their numbers: the table of `show`, the tables at the end of `run`, and the rows before a run.

mod case_columns;
mod case_lists;
mod case_numbers;
mod earlier_rows;
mod failure_lines;
mod run_end;
mod run_summary;
mod shown_cases;

pub(crate) use case_columns::cases_table;
pub(crate) use case_lists::notable_cases;
pub(crate) use case_numbers::RunNumbers;
pub(crate) use earlier_rows::write_earlier_rows;
pub(crate) use failure_lines::failure_lines;
pub(crate) use run_end::run_end_tables;
pub(crate) use run_summary::run_summary;
pub(crate) use shown_cases::{ShownCase, shown_cases};
