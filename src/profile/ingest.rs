//! Reads whole tables into groups, on as many cores as there are.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom},
    num::NonZero,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
};

use super::{
    Groups, Place, ProfileError, Record,
    records::{Rows, Table},
    scan::{Block, Blocks},
    split::{Irregular, Splitter},
    sqlite,
};

/// Large enough that handing one over costs nothing, small enough that a few fit the cache.
const BLOCK: usize = 1 << 20;
/// More cores than this wait for the disk.
const MOST_WORKERS: usize = 8;

/// How tables are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Whether records of the rehearsal host are accepted.
    pub accept_rehearsed: bool,
    /// Threads that parse; as many as there are cores where `None`.
    pub workers: Option<NonZero<usize>>,
}

/// Something was wrong with a block.
struct Trouble;

/// What the threads share.
struct Job<'a> {
    table: &'a Table,
    file_number: u64,
    accept_rehearsed: bool,
    stop: AtomicBool,
}

/// Adds every record of a table, CSV or database, to the groups. The result does not depend on the number of threads.
///
/// # Errors
/// [`ProfileError`] with file and place for the first record that cannot be read.
pub fn add_table(
    groups: &mut Groups,
    file: &Path,
    file_number: u64,
    options: ReadOptions,
) -> Result<(), ProfileError> {
    if sqlite::is_database(file)? {
        return sqlite::add_database(groups, file, file_number, options.accept_rehearsed);
    }
    let table = Table::open(file)?;
    let io = |source| ProfileError::Io { file: file.to_owned(), source };
    let mut input = File::open(file).map_err(io)?;
    input.seek(SeekFrom::Start(table.header_bytes)).map_err(io)?;
    let accept_rehearsed = options.accept_rehearsed;
    let job = Job { table: &table, file_number, accept_rehearsed, stop: AtomicBool::new(false) };
    let workers = options.workers.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let mut blocks = Blocks::new(input, BLOCK);
    let parts = match workers {
        1 => job.read_alone(&mut blocks).map(|part| vec![part]),
        several => job.read_in_parallel(&mut blocks, several.min(MOST_WORKERS)),
    };
    match parts {
        Ok(parts) => parts.into_iter().for_each(|part| groups.absorb(part)),
        // An error, or something irregular: the csv crate tells, and names the line.
        Err(Trouble) => {
            let mut input = File::open(file).map_err(io)?;
            input.seek(SeekFrom::Start(table.header_bytes)).map_err(io)?;
            job.read_by_csv(groups, &mut Rows::new(input, table.header_lines))?;
        }
    }
    Ok(())
}

impl Job<'_> {
    fn read_by_csv(&self, groups: &mut Groups, rows: &mut Rows<File>) -> Result<(), ProfileError> {
        while let Some(record) = rows.next(self.table)? {
            self.add(groups, &record, record.line())?;
        }
        Ok(())
    }

    fn add(&self, groups: &mut Groups, record: &Record<'_>, place: u64) -> Result<(), ProfileError> {
        if record.is_rehearsed() && !self.accept_rehearsed {
            let file = self.table.file().to_owned();
            return Err(ProfileError::Rehearsed { file, place: Place::Line(record.line()) });
        }
        groups.add(record, (self.file_number, place))
    }

    fn read_block(&self, groups: &mut Groups, block: &Block) -> Result<(), Trouble> {
        let mut rows = Splitter::new(&block.bytes, self.table.width());
        loop {
            let place = block.offset + u64::try_from(rows.position()).unwrap_or_default();
            let Some(cells) = rows.next().map_err(|Irregular| Trouble)? else { return Ok(()) };
            let record = Record::in_block(self.table, &block.bytes, cells);
            self.add(groups, &record, place).map_err(|_| Trouble)?;
        }
    }

    fn read_alone(&self, blocks: &mut Blocks<File>) -> Result<Groups, Trouble> {
        let mut groups = Groups::default();
        let mut memory = Vec::new();
        while let Some(block) = blocks.next(memory).map_err(|_| Trouble)? {
            self.read_block(&mut groups, &block)?;
            memory = block.bytes;
        }
        Ok(groups)
    }

    /// One thread cuts the table into blocks, the others parse them.
    fn read_in_parallel(&self, blocks: &mut Blocks<File>, workers: usize) -> Result<Vec<Groups>, Trouble> {
        let (sender, inbox) = mpsc::sync_channel::<Block>(workers);
        let (returned, reusable) = mpsc::channel::<Vec<u8>>();
        let inbox = Mutex::new(inbox);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|_| {
                    let returned = returned.clone();
                    let inbox = &inbox;
                    scope.spawn(move || self.work(inbox, &returned))
                })
                .collect();
            let cut = self.cut(blocks, &sender, &reusable);
            drop(sender);
            let mut parts = Vec::new();
            for thread in threads {
                match thread.join() {
                    Ok(part) => parts.push(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            cut.and_then(|()| parts.into_iter().collect())
        })
    }

    fn cut(
        &self,
        blocks: &mut Blocks<File>,
        sender: &SyncSender<Block>,
        reusable: &Receiver<Vec<u8>>,
    ) -> Result<(), Trouble> {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(block) = blocks.next(reusable.try_recv().unwrap_or_default()).map_err(|_| Trouble)?
            else {
                break;
            };
            if sender.send(block).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Parses blocks until there are no more.
    fn work(&self, inbox: &Mutex<Receiver<Block>>, returned: &Sender<Vec<u8>>) -> Result<Groups, Trouble> {
        let mut groups = Groups::default();
        let mut failed = false;
        loop {
            let received = inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
            let Ok(block) = received else { break };
            // Blocks behind an error are taken and dropped, so that the cutting thread does not wait.
            if !failed && self.read_block(&mut groups, &block).is_err() {
                failed = true;
                self.stop.store(true, Ordering::Relaxed);
            }
            // The cutting thread may have ended.
            let _ = returned.send(block.bytes);
        }
        if failed { Err(Trouble) } else { Ok(groups) }
    }
}
