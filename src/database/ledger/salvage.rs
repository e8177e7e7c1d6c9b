//! Salvage of a damaged ledger: every row that SQLite can still read is copied into a new file.
//!
//! Damage of an SQLite file is of pages: a read fails when it reaches one. Each table is therefore read in ranges of its key from
//! both ends, and around the places where a read fails. Results whose launches are not complete are left out, because the
//! rest of their samples would be another measurement.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read as _},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::Path,
};

use rusqlite::{Connection, OpenFlags, Transaction, params_from_iter, types::Value};

use super::{Ledger, LedgerError, WITH_SAMPLES, launch_lists::unreadable_launches};
use crate::kernel::{CaseId, Verdict};

/// Key of the tables with a number of each row.
const ROW_ID: &str = "rowid";
const LAUNCH_LISTS: &str = "launch_lists";
/// Tables in the order of their references, each with the column by whose ranges it is read.
const TABLES: [(&str, &str); 11] = [
    ("runs", ROW_ID),
    ("software", ROW_ID),
    ("cases", ROW_ID),
    ("planned", ROW_ID),
    ("checks", ROW_ID),
    ("collections", ROW_ID),
    ("attempts", ROW_ID),
    (LAUNCH_LISTS, ROW_ID),
    ("controls", "collection"),
    ("device_readings", ROW_ID),
    ("verdicts", ROW_ID),
];

/// Maximum number of failed reads of one table; each is a damaged page, or a range that leads to one.
const MOST_FAILURES: usize = 20_000;

/// Statements that remove rows without those that they refer to. A collection whose software was lost has unknown software.
const CLEANING: [&str; 8] = [
    "UPDATE collections SET software = NULL WHERE software NOT IN (SELECT digest FROM software)",
    "DELETE FROM planned WHERE run NOT IN (SELECT run FROM runs) OR case_id NOT IN (SELECT case_id FROM cases)",
    "DELETE FROM collections WHERE run NOT IN (SELECT run FROM runs)",
    "DELETE FROM attempts WHERE collection NOT IN (SELECT collection FROM collections)
     OR case_id NOT IN (SELECT case_id FROM cases)",
    "DELETE FROM launch_lists WHERE attempt NOT IN (SELECT attempt FROM attempts)",
    "DELETE FROM controls WHERE collection NOT IN (SELECT collection FROM collections)",
    "DELETE FROM device_readings WHERE run NOT IN (SELECT run FROM runs)",
    "DELETE FROM verdicts WHERE run NOT IN (SELECT run FROM runs) OR case_id NOT IN (SELECT case_id FROM cases)",
];

/// Result of a salvage, by table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SalvagedLedger {
    pub(crate) tables: Vec<SalvagedTable>,
}

/// Rows of one table after a salvage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SalvagedTable {
    pub(crate) name: &'static str,
    /// Number of rows in the new ledger.
    pub(crate) rows: u64,
    /// Number of rows that were read, but left out: they refer to lost ones, or their launches are not complete.
    pub(crate) incomplete: u64,
    /// False if a part of the table cannot be read.
    pub(crate) is_whole: bool,
}

impl SalvagedLedger {
    /// Returns true if nothing could be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.rows == 0)
    }
}

/// Copies the readable rows of `damaged`, whose content it may change, into the new ledger `target`. SQLite has no checksums: cells
/// may be wrong where a page was overwritten, so that attempts must be compared with their evidence.
pub(crate) fn salvage(damaged: &Path, target: &Path) -> Result<SalvagedLedger, LedgerError> {
    let mut new = Ledger::open(target)?;
    // SQLite reads a part of a page as a page with zeros.
    let _ = remove_partial_page(damaged);
    let source = open_damaged(damaged).or_else(|error| {
        replace_first_page(damaged, target).map_err(|_| error)?;
        open_damaged(damaged)
    });
    let Ok(source) = source else { return Ok(SalvagedLedger::default()) };
    let mut salvaged = Vec::new();
    // References are checked at the end, when all tables are there.
    new.connection.execute_batch("PRAGMA foreign_keys = OFF").map_err(new.sqlite_error())?;
    let mut read = Vec::new();
    for (name, key) in TABLES {
        let mut copy =
            TableCopy { source: &source, name, target: name, key, columns: Vec::new(), failures: 0 };
        let count = new.in_transaction(|tx| copy.copy_into(tx))?;
        read.push((count, copy.failures == 0));
    }
    new.in_transaction(remove_overwritten)?;
    new.in_transaction(|target| {
        remove_incomplete_results(target)?;
        CLEANING.iter().try_for_each(|sql| target.execute(sql, []).map(|_| ()))
    })?;
    for ((name, _), (count, is_whole)) in TABLES.into_iter().zip(read) {
        let rows: Vec<u64> = new.read_rows(&format!("SELECT count(*) FROM {name}"), [], |row| {
            row.get::<_, i64>(0).map(i64::cast_unsigned)
        })?;
        let rows = rows.first().copied().unwrap_or_default();
        salvaged.push(SalvagedTable { name, rows, incomplete: count.saturating_sub(rows), is_whole });
    }
    new.connection.execute_batch("PRAGMA foreign_keys = ON").map_err(new.sqlite_error())?;
    Ok(SalvagedLedger { tables: salvaged })
}

/// Removes cases whose signature is not that of their id, and results with an unknown verdict.
fn remove_overwritten(target: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut statement = target.prepare("SELECT case_id, signature FROM cases")?;
    let cases = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for case in cases.collect::<rusqlite::Result<Vec<_>>>()? {
        let (id, signature) = case;
        if CaseId::of_signature(&signature).as_str() != id {
            target.execute("DELETE FROM cases WHERE case_id = ?1", [id])?;
        }
    }
    let known: Vec<String> = Verdict::ALL.iter().map(|verdict| format!("'{}'", verdict.as_str())).collect();
    for table in ["attempts", "verdicts"] {
        target.execute(&format!("DELETE FROM {table} WHERE verdict NOT IN ({})", known.join(", ")), [])?;
    }
    Ok(())
}

/// Removes results without all of their launches, and attempts whose launches were overwritten.
fn remove_incomplete_results(target: &Transaction<'_>) -> rusqlite::Result<()> {
    for (attempt, _) in unreadable_launches(target)? {
        target.execute("DELETE FROM attempts WHERE attempt = ?1", [attempt])?;
    }
    let sql = format!(
        "DELETE FROM attempts WHERE verdict IN ({WITH_SAMPLES})
         AND launched <> ifnull((SELECT length(states) FROM launch_lists l WHERE l.attempt = attempts.attempt), 0)"
    );
    target.execute(&sql, []).map(|_| ())
}

/// Cuts an incomplete page from the end of a file.
fn remove_partial_page(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let mut header = [0; 18];
    file.read_exact(&mut header)?;
    // Size of a page at offset 16, big endian; 1 is 65,536 (https://sqlite.org/fileformat.html).
    let page = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        page if page.is_power_of_two() && page >= 512 => page,
        _ => return Ok(()),
    };
    let length = file.metadata()?.len();
    file.set_len(length - length % page)
}

/// Replaces the first page of a damaged file, without which SQLite reads nothing, by that of an empty ledger: the header, and the
/// numbers of the pages with the definitions of the tables, which are the same in every ledger that was created with this layout. In
/// one that was created by an earlier version other content is found on those pages, and SQLite refuses it.
fn replace_first_page(damaged: &Path, empty: &Path) -> io::Result<()> {
    // Offsets of the header (https://sqlite.org/fileformat.html): size of a page, number of pages, list of free pages.
    const PAGE_SIZE: Range<usize> = 16..18;
    const PAGES: Range<usize> = 28..32;
    const FREE_LIST: Range<usize> = 32..40;
    let mut header = [0; 40];
    let mut empty = File::open(empty)?;
    empty.read_exact(&mut header)?;
    let size = usize::from(u16::from_be_bytes([header[PAGE_SIZE.start], header[PAGE_SIZE.start + 1]]));
    let mut page = vec![0; size];
    empty.read_exact_at(&mut page, 0)?;
    let file = File::options().write(true).open(damaged)?;
    let pages = u32::try_from(file.metadata()?.len() / size.max(1) as u64).map_err(io::Error::other)?;
    page[PAGES].copy_from_slice(&pages.to_be_bytes());
    page[FREE_LIST].fill(0);
    file.write_all_at(&page, 0)
}

/// Opens a damaged file such that a damaged index or definition does not prevent the use of other tables.
fn open_damaged(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch("PRAGMA writable_schema = ON; PRAGMA temp_store = MEMORY;")?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Copy of one table.
struct TableCopy<'a> {
    source: &'a Connection,
    name: &'static str,
    /// Its name in the new ledger.
    target: &'static str,
    /// Whole number by whose ranges the table is read.
    key: &'static str,
    /// Columns that both ledgers have.
    columns: Vec<String>,
    failures: usize,
}

/// End of the read of a range.
enum RangeEnd {
    Complete,
    /// Key of the last row before the damage; `None` if there is none.
    Damaged(Option<i64>),
}

impl TableCopy<'_> {
    /// Copies all readable rows; returns their number.
    fn copy_into(&mut self, target: &Connection) -> rusqlite::Result<u64> {
        let columns = |connection: &Connection, table: &str| -> rusqlite::Result<Vec<String>> {
            let mut statement =
                connection.prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        let wanted = columns(target, self.target)?;
        let found = columns(self.source, self.name).unwrap_or_default();
        self.columns = wanted.into_iter().filter(|column| found.contains(column)).collect();
        if self.columns.is_empty() {
            self.failures += 1;
            return Ok(0);
        }
        let mut count = 0;
        // The widest ranges first, so that a large damage does not use up the reads of all others.
        let mut ranges = VecDeque::from([(i64::MIN, i64::MAX)]);
        while let Some((first, last)) = ranges.pop_front() {
            if self.failures >= MOST_FAILURES {
                break;
            }
            let RangeEnd::Damaged(end) = self.copy_range(target, (first, last), "ASC", &mut count)? else {
                continue;
            };
            let low = end.map_or(first, |key| self.key_behind(key));
            let RangeEnd::Damaged(end) = self.copy_range(target, (low, last), "DESC", &mut count)? else {
                continue;
            };
            let high = end.map_or(last, |key| key.saturating_sub(1)).min(self.greatest_key());
            let low = low.max(0);
            if low < high {
                let middle = low + (high - low) / 2;
                ranges.extend([(low, middle), (middle + 1, high)]);
            }
        }
        Ok(count)
    }

    /// Returns the first key of the rows that may follow a row before a damage. Rows of one attempt share a key.
    fn key_behind(&self, key: i64) -> i64 {
        if self.key == ROW_ID { key.saturating_add(1) } else { key }
    }

    /// Returns a bound of the keys of the table: the greatest one, or, if that cannot be read, the number of the shortest
    /// rows that fit into the file.
    fn greatest_key(&self) -> i64 {
        /// Length of the shortest row in bytes.
        const SHORTEST: i64 = 8;
        let number =
            |sql: &str| self.source.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten();
        let pages = number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
        number(&format!("SELECT max({}) FROM {}", self.key, self.name))
            .unwrap_or_else(|| pages.unwrap_or(i64::MAX) / SHORTEST)
    }

    /// Copies the rows of a range of keys, both included, until a row cannot be read. A row that is there already is left.
    fn copy_range(
        &mut self,
        target: &Connection,
        (first, last): (i64, i64),
        order: &str,
        count: &mut u64,
    ) -> rusqlite::Result<RangeEnd> {
        let Self { source, name, target: into, key, ref columns, .. } = *self;
        let list = columns.join(", ");
        let places: Vec<String> = (1..=columns.len()).map(|place| format!("?{place}")).collect();
        let mut insert = target.prepare_cached(&format!(
            "INSERT OR IGNORE INTO {into} ({list}) VALUES ({})",
            places.join(", ")
        ))?;
        // NOT INDEXED: an index may be damaged although the table is not.
        let hint = if key == ROW_ID { "NOT INDEXED" } else { "" };
        let sql = format!(
            "SELECT {key}, {list} FROM {name} {hint} WHERE {key} BETWEEN ?1 AND ?2 ORDER BY {key} {order}"
        );
        let Ok(mut statement) = source.prepare(&sql) else { return Ok(self.damaged_at(None)) };
        let Ok(mut rows) = statement.query([first, last]) else { return Ok(self.damaged_at(None)) };
        let mut last_key = None;
        loop {
            let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, Vec<Value>)> {
                let values = (1..=columns.len()).map(|column| row.get(column));
                Ok((row.get(0)?, values.collect::<rusqlite::Result<_>>()?))
            };
            let (found, values) = match rows.next().and_then(|row| row.map(read).transpose()) {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(RangeEnd::Complete),
                Err(_) => return Ok(self.damaged_at(last_key)),
            };
            // No program has written such a text.
            let is_overwritten =
                values.iter().any(|value| matches!(value, Value::Text(text) if text.contains('\0')));
            if is_overwritten {
                continue;
            }
            match insert.execute(params_from_iter(values)) {
                Ok(inserted) => *count += inserted as u64,
                // A cell that its column cannot have.
                Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
                }
                Err(error) => return Err(error),
            }
            last_key = Some(found);
        }
    }

    /// Counts a failed read behind the row with this key.
    fn damaged_at(&mut self, last_key: Option<i64>) -> RangeEnd {
        self.failures += 1;
        RangeEnd::Damaged(last_key)
    }
}
