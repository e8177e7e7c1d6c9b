//! Everything that is kept: atomic files, the lock, the CSV database, the ledger.
//!
//! Layer 2: imports `model`, `stats`, `spec` and `profile`. It keeps what it is given and decides
//! nothing about it.

mod atomic;
mod backfill;
mod check;
mod columns;
mod create;
mod database;
mod error;
mod grid_rows;
mod image;
mod kernel_csv;
pub mod ledger;
mod leftovers;
mod lock;
mod merge;
mod normalize;
mod numbers;
mod places;
mod points;
mod records;
mod rows;
mod write_back;
mod zeros;

pub use atomic::write_atomic;
pub use backfill::{Backfilled, FilledRow, backfill, backfill_database};
pub use check::{Checked, Remark, RemarkKind, Severity, check};
pub use columns::{COMPUTE_COLUMNS, MICROBENCH_COLUMNS};
pub use database::{Database, REHEARSAL_RUN, copy_shapes, tables_left_out};
pub use error::StoreError;
pub use grid_rows::{GridRows, Tenants, tenants};
pub use image::ImageFile;
pub use kernel_csv::KernelCsv;
pub use ledger::Ledger;
pub use lock::{Lock, LockState, Owner};
pub use merge::{Merged, merge_groups};
pub use normalize::{Change, Mended, normalize};
pub use points::for_each_point;
pub use rows::{RowCase, row_cases};
pub use write_back::{Measurement, RowResult, Written, write_back, write_back_kernel};
