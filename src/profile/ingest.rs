//! Parallel reader of tables into groups.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom},
    num::NonZero,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rayon::prelude::*;

use super::{
    KernelRow, ProfileError, RecordGroups, RecordPosition, RecordReader,
    records::{RecordRows, RecordTable},
    sqlite,
};
use crate::base::{
    files::open_regular,
    table::{
        blocks::{CsvBlock, CsvBlocks},
        simd_index::{CsvIndex, NeedsFullParser},
    },
};

/// Bytes of a block: large enough for a negligible overhead, small enough for the cache of a core.
const BLOCK: usize = 1 << 18;
/// Maximum number of workers; more wait for the disk.
const MOST_WORKERS: usize = 8;

/// Options of reading.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// True if records of the rehearsal host are accepted.
    pub accept_rehearsed: bool,
    /// Number of workers; one per core if `None`.
    pub workers: Option<NonZero<usize>>,
}

/// Block that could not be read or parsed.
struct BlockFailed;

/// State shared by the workers.
struct IngestJob<'a> {
    table: &'a RecordTable,
    file_number: u64,
    accept_rehearsed: bool,
    stop: AtomicBool,
}

/// Adds every record of a table, CSV or database, to the groups; returns the error of the first invalid record. The
/// result does not depend on the number of threads.
pub fn add_table(
    groups: &mut RecordGroups,
    file: &Path,
    file_number: u64,
    options: ReadOptions,
) -> Result<(), ProfileError> {
    if sqlite::is_database(file)? {
        return sqlite::add_database(groups, file, file_number, options.accept_rehearsed);
    }
    let table = RecordTable::open(file)?;
    let open_after_header = || {
        let io = |source| ProfileError::Io { file: file.to_owned(), source };
        let mut input = open_regular(file).map_err(io)?;
        input.seek(SeekFrom::Start(table.header_bytes)).map_err(io)?;
        Ok(input)
    };
    let input = open_after_header()?;
    let accept_rehearsed = options.accept_rehearsed;
    let job = IngestJob { table: &table, file_number, accept_rehearsed, stop: AtomicBool::new(false) };
    let workers = options.workers.map_or_else(rayon::current_num_threads, NonZero::get);
    match job.read_blocks(CsvBlocks::new(input, BLOCK), workers.min(MOST_WORKERS)) {
        Ok(parts) => parts.into_iter().for_each(|part| groups.merge_groups(part)),
        // After an error or an unusual form, the csv crate reads the table again and finds the line.
        Err(BlockFailed) => {
            let mut rows = RecordRows::new(open_after_header()?, table.header_lines);
            while let Some(record) = rows.next_row(&table)? {
                job.add_record(groups, &record, record.line())?;
            }
        }
    }
    Ok(())
}

/// Returns the problems of all records of a table in text; none if its header cannot be read. Records behind one that is no row
/// of a table are not read.
pub(crate) fn record_problems(file: &Path) -> Vec<ProfileError> {
    let Ok(mut reader) = RecordReader::open(file) else { return Vec::new() };
    let mut groups = RecordGroups::default();
    let mut problems = Vec::new();
    loop {
        match reader.read_record() {
            Ok(Some(record)) => problems.extend(groups.add_record(&record, (0, record.line())).err()),
            Ok(None) => return problems,
            Err(error @ ProfileError::Ragged { .. }) => problems.push(error),
            Err(error) => {
                problems.push(error);
                return problems;
            }
        }
    }
}

impl IngestJob<'_> {
    fn add_record(
        &self,
        groups: &mut RecordGroups,
        record: &KernelRow<'_>,
        position: u64,
    ) -> Result<(), ProfileError> {
        if record.is_rehearsed() && !self.accept_rehearsed {
            let file = self.table.file.clone();
            return Err(ProfileError::Rehearsed { file, place: RecordPosition::Line(record.line()) });
        }
        groups.add_record(record, (self.file_number, position))
    }

    /// Parses all blocks. Each worker takes a block, reads and parses it, and takes the next.
    fn read_blocks(&self, blocks: CsvBlocks<File>, workers: usize) -> Result<Vec<RecordGroups>, BlockFailed> {
        let blocks = Mutex::new(blocks);
        (0..workers).into_par_iter().with_max_len(1).map(|_| self.run_worker(&blocks)).collect()
    }

    /// Parses blocks until the end of the table or a failure of a worker.
    fn run_worker(&self, blocks: &Mutex<CsvBlocks<File>>) -> Result<RecordGroups, BlockFailed> {
        let mut groups = RecordGroups::default();
        let (mut index, mut memory) = (CsvIndex::default(), Vec::new());
        while !self.stop.load(Ordering::Relaxed) {
            let next = blocks.lock().unwrap_or_else(PoisonError::into_inner).next_block(memory);
            let Some(block) = next.map_err(|_| self.stop_workers())? else { break };
            self.read_block(&mut groups, &mut index, &block).map_err(|BlockFailed| self.stop_workers())?;
            memory = block.into_memory();
        }
        groups.sort_groups();
        Ok(groups)
    }

    /// Stops the other workers.
    fn stop_workers(&self) -> BlockFailed {
        self.stop.store(true, Ordering::Relaxed);
        BlockFailed
    }

    fn read_block(
        &self,
        groups: &mut RecordGroups,
        index: &mut CsvIndex,
        block: &CsvBlock,
    ) -> Result<(), BlockFailed> {
        index.index_rows(block.bytes(), self.table.header.len()).map_err(|NeedsFullParser| BlockFailed)?;
        for cells in index.rows(block.bytes()) {
            let position = block.offset + u64::from(cells.begin());
            self.add_record(groups, &KernelRow::in_block(self.table, cells), position)
                .map_err(|_| BlockFailed)?;
        }
        Ok(())
    }
}
