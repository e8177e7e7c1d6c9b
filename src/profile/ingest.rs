//! Parallel reader of tables into groups.

use std::{
    fs::File,
    num::NonZero,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rayon::prelude::*;

use super::{
    COUNTERS, KernelRow, ProfileError, RecordGroups, RecordReader, columns::NeededColumns,
    groups::RecordOrder, records::RecordTable, sqlite,
};
use crate::base::table::{CsvIndex, NeedsFullParser, blocks::CsvBlocks};

/// Bytes of a block: large enough for a negligible overhead, small enough for the cache of a core.
const BLOCK: usize = 1 << 18;
/// Maximum number of workers; more wait for the disk.
const MAX_WORKERS: usize = 8;

/// Options of reading.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// True if records of the rehearsal host are accepted.
    pub accept_rehearsed: bool,
    /// Number of workers; one per core if `None`.
    pub workers: Option<NonZero<usize>>,
}

/// Adds every record of a table, CSV or database, to the groups; returns the error of the first invalid record. The
/// result does not depend on the number of threads.
pub fn add_table(
    groups: &mut RecordGroups,
    file: &Path,
    file_number: u64,
    options: ReadOptions,
) -> Result<(), ProfileError> {
    let ReadOptions { accept_rehearsed, workers } = options;
    if sqlite::is_database(file)? {
        return sqlite::add_database(groups, file, file_number, accept_rehearsed);
    }
    let table = RecordTable::open(file, NeededColumns::Signatures)?;
    let blocks = Mutex::new(CsvBlocks::new(table.open_rows()?, BLOCK));
    let workers = workers.map_or_else(rayon::current_num_threads, NonZero::get).min(MAX_WORKERS);
    let has_failed = AtomicBool::new(false);
    let parts: Result<Vec<RecordGroups>, NeedsFullParser> = (0..workers)
        .into_par_iter()
        .with_max_len(1)
        .map(|_| {
            let part = read_blocks(&table, &blocks, &has_failed, file_number, accept_rehearsed);
            part.inspect_err(|NeedsFullParser| has_failed.store(true, Ordering::Relaxed))
        })
        .collect();
    match parts {
        Ok(parts) => parts.into_iter().for_each(|part| groups.merge_groups(part)),
        // After an error or an unusual form, the csv crate reads the table again and finds the line.
        Err(NeedsFullParser) => {
            let mut reader = RecordReader::of_table(table)?;
            while let Some(record) = reader.read_record()? {
                add_row(groups, &record, (file_number, record.line()), accept_rehearsed)?;
            }
        }
    }
    Ok(())
}

/// Adds the records of blocks, each of which it takes, reads and parses, until the end of the table or a failure of a worker.
fn read_blocks(
    table: &RecordTable,
    blocks: &Mutex<CsvBlocks<File>>,
    has_failed: &AtomicBool,
    file_number: u64,
    accept_rehearsed: bool,
) -> Result<RecordGroups, NeedsFullParser> {
    let mut groups = RecordGroups::default();
    let (mut index, mut memory) = (CsvIndex::default(), Vec::new());
    while !has_failed.load(Ordering::Relaxed) {
        let next = blocks.lock().unwrap_or_else(PoisonError::into_inner).next_block(memory)?;
        let Some(block) = next else { break };
        index.index_rows(block.bytes(), table.header.len())?;
        for cells in index.rows(block.bytes()) {
            let position = (file_number, block.offset + u64::from(cells.begin()));
            add_row(&mut groups, &KernelRow::in_block(table, cells), position, accept_rehearsed)
                .map_err(|_| NeedsFullParser)?;
        }
        memory = block.into_memory();
    }
    Ok(groups)
}

fn add_row(
    groups: &mut RecordGroups,
    row: &KernelRow<'_>,
    position: RecordOrder,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    groups.add_record(&row.as_record(), row.duration(), position, accept_rehearsed, |sums| {
        for counter in 0..COUNTERS.len() {
            if let Some(millionths) = row.counter(counter) {
                sums.add_value(counter, millionths);
            }
        }
    })
}

/// Returns the problems of all records of a table in text; none if its header cannot be read. Records behind one that is no row
/// of a table are not read.
pub(crate) fn record_problems(file: &Path) -> Vec<ProfileError> {
    let Ok(mut reader) = RecordReader::open(file) else { return Vec::new() };
    let mut groups = RecordGroups::default();
    let mut problems = Vec::new();
    loop {
        match reader.read_record() {
            Ok(Some(record)) => {
                problems.extend(add_row(&mut groups, &record, (0, record.line()), true).err());
            }
            Ok(None) => return problems,
            Err(error @ ProfileError::Ragged { .. }) => problems.push(error),
            Err(error) => {
                problems.push(error);
                return problems;
            }
        }
    }
}
