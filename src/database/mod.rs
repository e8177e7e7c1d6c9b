//! Database folders of kernel CSVs: folder, tables, merge of profiles, write-back of results, checks and
//! normalization.
//!
//! Layer 3: imports `domain`, `files`, `table`, `config`, `profile` and `ledger`.
//!

mod backfill;
pub(crate) mod columns;
mod create;
mod error;
pub(crate) mod folder;
mod kernel_csv;
pub(crate) mod lint;
mod measured_rows;
mod merge;
mod normalize;
mod numbers;
pub(crate) mod row_cases;
mod write_back;
mod zero_placeholders;

pub use backfill::{BackfillReport, FilledRow, backfill_database, backfill_table};
pub use columns::{COMPUTE_COLUMNS, MICROBENCH_COLUMNS};
pub use error::DatabaseError;
pub use folder::{Database, REHEARSAL_RUN, copy_shapes, tables_left_out};
pub use kernel_csv::KernelCsv;
pub use lint::{IssueSeverity, LintIssue, LintIssueKind, LintReport, lint_database};
pub use measured_rows::for_each_measured_case;
pub use merge::{MergeReport, merge_groups};
pub use normalize::{NormalizeChange, NormalizeReport, normalize_database};
pub use row_cases::{RowCase, row_cases};
pub use write_back::{WriteBackReport, write_back, write_back_kernel};
