//! CSV mechanics: rows and their positions, decimals, files that are no tables.

pub(crate) mod decimal;
pub(crate) mod format;
pub(crate) mod raw_records;
mod row_places;

pub(crate) use row_places::{NeedsFullParser, row_places};
