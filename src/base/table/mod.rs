//! CSV mechanics: an index over cells, blocks that end with a record, raw records, decimals, files that are no tables.

pub(crate) mod blocks;
pub(crate) mod cell_index;
pub(crate) mod decimal;
pub(crate) mod format;
pub(crate) mod raw_records;
pub(crate) mod row_ranges;

pub(crate) use blocks::split_blocks;
pub(crate) use cell_index::{CsvIndex, NeedsFullParser};
