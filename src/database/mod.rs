//! Database folders of kernel CSVs: folder, tables, merge of profiles, write-back of results, checks and
//! normalization.

mod backfill;
mod collective_overheads;
pub(crate) mod collective_rows;
pub(crate) mod columns;
mod create;
pub mod database_file;
mod error;
pub(crate) mod folder;
mod interpolation_errors;
mod kernel_csv;
pub(crate) mod ledger;
pub(crate) mod lint;
mod merge;
mod merge_collectives;
mod normalize;
mod result_cells;
pub(crate) mod row_cases;
mod shard;
mod target;
mod write_back;
mod zero_placeholders;

pub(crate) use backfill::{BackfillReport, FilledRow, backfill_database};
pub(crate) use collective_overheads::CollectiveOverhead;
pub(crate) use collective_rows::{ImportedDuration, import_durations};
pub use columns::COMPUTE_COLUMNS;
pub(crate) use create::{check_new_folder, check_path};
pub(crate) use error::DatabaseError;
pub use folder::Database;
pub(crate) use folder::{REHEARSAL_RUN, collection_path, copy_rows, copy_shapes, tables_left_out};
pub(crate) use interpolation_errors::{InterpolationErrors, KernelInterpolationError};
pub use kernel_csv::KernelCsv;
pub(crate) use kernel_csv::save_tables;
pub(crate) use lint::check_ledger;
pub use lint::lint_database;
pub(crate) use lint::{FileIssues, IssueSeverity, LintIssue, LintIssueKind, LintReport};
pub(crate) use merge::MergeReport;
pub use merge::merge_groups;
pub(crate) use merge_collectives::merge_collectives;
pub(crate) use normalize::NormalizeReport;
pub use normalize::normalize_database;
pub(crate) use result_cells::{CellDifference, TableRow};
pub(crate) use row_cases::{
    RowCase, RowCells, TableCases, for_each_measured_case, for_each_row_case, row_cases,
};
pub(crate) use shard::{ShardIdentity, ShardNumber};
pub(crate) use target::TargetDatabase;
pub(crate) use write_back::{WriteBackReport, add_absent_rows, write_back_kernel};
