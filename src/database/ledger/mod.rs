//! Ledger: one SQLite file with every run, attempt and launch of a database.
//!
//! A result exists when its transaction is committed; CSVs, screens and reports are derived from it. The journal is a
//! rollback journal, which works on NFS; there is one writer, which holds the lock.
//!
//! A change of a table in `ledger.sql` needs a higher `LAYOUT` in this file: ledgers of another layout are refused.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rusqlite::{
    Connection, Error, ErrorCode, OpenFlags, OptionalExtension as _, Params, Row, Transaction,
    TransactionBehavior, params, types::FromSql,
};

use crate::base::{
    files::is_missing,
    sqlite::{StatementLimit, definitions, open_sqlite},
};
use crate::kernel::{CacheState, CaseId, CaseOutcome, CollectionPurpose, DataKind, IdentifiedCase, Nanos};

mod attempts;
mod checks;
mod clock;
mod controls;
mod copy;
mod error;
mod evidence;
mod launch_lists;
mod measurements;
mod merge;
pub(crate) mod runs;
mod software;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use attempts::{AttemptChange, AttemptState, AttemptedCollection, StoredAttempt};
pub(crate) use checks::StoredCheck;
pub(crate) use clock::{ClockOfRun, EqualAttempt, StoredCycleRate};
pub(crate) use controls::StoredControl;
pub(crate) use copy::{LedgerCopy, check_not_lost, copy_path, copy_with_journal, journal_path};
pub(crate) use error::{LedgerError, set_aside_hint};
pub(crate) use evidence::{CaseAttempt, FailedAttempt, KnownCase, PlannedVerdict};
use launch_lists::unreadable_launches;
pub(crate) use merge::{LedgerSize, merge_ledgers};
pub(crate) use runs::{CaseRecord, CollectionRecord, RunRecord};
pub(crate) use software::{OtherKernelAttempt, SoftwareGeneration};
use values::{Json, fields, unreadable_outcomes};

/// SQL list of the verdicts with samples, see [`Verdict::has_samples`](crate::kernel::Verdict::has_samples).
const WITH_SAMPLES: &str = "'ok', 'noisy', 'suspicious'";

/// SQL condition: a collection `c` has the same software and the same state of the cache as the collection `?1`.
const SAME_SOFTWARE: &str = "c.software IS (SELECT software FROM collections WHERE collection = ?1)
                             AND c.cache = (SELECT cache FROM collections WHERE collection = ?1)";

/// Settings of a connection that reads: temporary tables in memory, and 8 MiB of pages, so that the indexes of 100,000 cases are read
/// once.
const READ_PRAGMAS: &str = "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192";

/// Version of [`SCHEMA`], which each ledger has in `user_version`. It grows with every change of the tables and of the
/// JSON of an existing cause; a new cause or verdict needs no other layout.
const LAYOUT: i64 = 14;
/// Length of a ledger: 100 times that of a run of 100,000 cases.
const MAX_BYTES: u64 = 10 << 30;
const SCHEMA: &str = include_str!("ledger.sql");

#[derive(Debug)]
pub struct Ledger {
    pub(crate) path: PathBuf,
    connection: Connection,
    limit: StatementLimit,
}

#[derive(Clone, Debug)]
pub struct NewRun<'a> {
    pub run: &'a str,
    pub kind: DataKind,
    pub seed: u64,
    /// Effective options, as JSON.
    pub options: &'a str,
    /// Fingerprint of host and software, as JSON.
    pub host: &'a str,
    pub started: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub struct NewCollection<'a> {
    pub run: &'a str,
    pub number: u32,
    pub devices: &'a [u32],
    pub purpose: CollectionPurpose,
    pub(crate) cache: CacheState,
    /// Predicted duration in seconds.
    pub predicted: f64,
    pub started: Nanos,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReading {
    pub device: u32,
    pub at: Nanos,
    /// `OK`, or the problem.
    pub health: String,
    pub temperature: Option<i64>,
    pub power: Option<f64>,
    /// Device memory in use, MiB.
    pub memory_used_mb: Option<u64>,
}

fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if read_layout(&transaction)? == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.execute_batch(&format!("PRAGMA user_version = {LAYOUT}"))?;
    }
    transaction.commit()
}

fn read_layout(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Fails if a ledger has another layout, or another object than npubench creates: a view in place of a table, or a trigger, would
/// execute what others wrote.
fn check_layout(connection: &Connection, path: &Path) -> Result<(), LedgerError> {
    let fail = |source| LedgerError::from_sqlite(path, source);
    let found = read_layout(connection).map_err(fail)?;
    if found != LAYOUT {
        return Err(LedgerError::OtherLayout { path: path.to_owned(), found, expected: LAYOUT });
    }
    static EXPECTED: OnceLock<Vec<(String, String, String)>> = OnceLock::new();
    let expected = EXPECTED.get_or_init(|| {
        let empty = Connection::open_in_memory().expect("memory");
        empty.execute_batch(SCHEMA).and_then(|()| definitions(&empty)).expect("the schema is valid")
    });
    let found = definitions(connection).map_err(fail)?;
    let kinds = |objects: &[(String, String, String)]| -> BTreeSet<(String, String)> {
        objects.iter().map(|(kind, name, _)| (kind.clone(), name.clone())).collect()
    };
    let (is, should_be) = (kinds(&found), kinds(expected));
    let problem = if let Some((kind, name)) = is.difference(&should_be).last() {
        format!("`{name}` is a {kind} that npubench does not write")
    } else if let Some((kind, name)) = should_be.difference(&is).next() {
        format!("it has no {kind} `{name}`")
    } else if let Some((kind, name, _)) = found.iter().find(|object| !expected.contains(object)) {
        format!("the {kind} `{name}` has another definition than npubench writes")
    } else {
        return Ok(());
    };
    Err(LedgerError::Damaged { path: path.to_owned(), problem })
}

/// Opens an existing ledger for reading. A transaction that a kill interrupted is rolled back first, which a connection for
/// reading cannot do; committed content does not change.
fn open_read_only(path: &Path) -> rusqlite::Result<(Connection, StatementLimit)> {
    let open = |access: OpenFlags| {
        let (connection, limit) = open_sqlite(path, path, access)?;
        connection.query_row("PRAGMA user_version", [], |_| Ok(()))?;
        connection.execute_batch(READ_PRAGMAS)?;
        Ok((connection, limit))
    };
    match open(OpenFlags::SQLITE_OPEN_READ_ONLY) {
        Err(Error::SqliteFailure(error, _)) if error.code == ErrorCode::ReadOnly => {
            open(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            open(OpenFlags::SQLITE_OPEN_READ_ONLY)
        }
        opened => opened,
    }
}

/// Returns the length of a ledger in bytes; `None` if there is none. Opening a pipe would wait for its other end, and a link that
/// leads nowhere is no missing ledger.
pub(super) fn file_length(path: &Path) -> Result<Option<u64>, LedgerError> {
    let unreadable = |problem: String| LedgerError::Unreadable { path: path.to_owned(), problem };
    let found = is_missing(path)
        .and_then(|is_missing| if is_missing { Ok(None) } else { fs::metadata(path).map(Some) });
    match found.map_err(|error| unreadable(error.to_string()))? {
        None => Ok(None),
        Some(found) if !found.is_file() => Err(unreadable("it is not a regular file".to_owned())),
        Some(found) if found.len() > MAX_BYTES => {
            Err(unreadable(format!("it has more than {MAX_BYTES} bytes")))
        }
        Some(found) => Ok(Some(found.len())),
    }
}

impl Ledger {
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let fail = |source| LedgerError::from_sqlite(path, source);
        file_length(path)?;
        let (connection, limit) =
            open_sqlite(path, path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
                .map_err(fail)?;
        // Temporary tables in memory: a read needs no disk space.
        let pragmas = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
                       PRAGMA temp_store = MEMORY;";
        connection.execute_batch(pragmas).map_err(fail)?;
        if read_layout(&connection).map_err(fail)? == 0 {
            create_tables(&connection).map_err(fail)?;
        }
        check_layout(&connection, path)?;
        Self { path: path.to_owned(), connection, limit }.check_run_ids()
    }

    pub(crate) fn open_to_read(path: &Path) -> Result<Self, LedgerError> {
        let fail = |source| LedgerError::from_sqlite(path, source);
        file_length(path)?;
        let (connection, limit) = open_read_only(path).map_err(fail)?;
        check_layout(&connection, path)?;
        Self { path: path.to_owned(), connection, limit }.check_run_ids()
    }

    /// Fails if there is a ledger that cannot be read, for commands that need none. One that is in use, or of another layout, is
    /// readable.
    pub(crate) fn require_readable(path: &Path) -> Result<(), LedgerError> {
        // A run that was killed at its start leaves an empty file.
        if matches!(file_length(path)?, None | Some(0)) {
            return Ok(());
        }
        match Self::open_to_read(path) {
            Err(error) if !error.is_temporary() && !matches!(error, LedgerError::OtherLayout { .. }) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn sqlite_error(&self) -> impl Fn(Error) -> LedgerError + use<> {
        let path = self.path.clone();
        move |source| LedgerError::from_sqlite(&path, source)
    }

    /// Checks the structure of a ledger, if there is one, the verdicts with their causes, and the lists of its launches,
    /// without changing it; returns the first problems. Fails with [`LedgerError`] if it cannot be read at all or has
    /// another layout.
    pub(crate) fn find_damage(path: &Path) -> Result<Option<String>, LedgerError> {
        let fail = |source| LedgerError::from_sqlite(path, source);
        match file_length(path)? {
            None => return Ok(None),
            // SQLite reads a file without content as a database without tables.
            Some(0) => return Ok(Some("the file is empty".to_owned())),
            Some(_) => {}
        }
        let (connection, limit) = open_read_only(path).map_err(fail)?;
        let check = || -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare("PRAGMA integrity_check(5)")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        let mut problems = check().map_err(fail)?;
        problems.retain(|problem| problem != "ok");
        if problems.is_empty() {
            check_layout(&connection, path)?;
            limit.restart();
            problems.extend(unreadable_outcomes(&connection).map_err(fail)?.into_iter().take(5));
            limit.restart();
            problems.extend(unreadable_launches(&connection).map_err(fail)?.into_iter().take(5));
        }
        Ok((!problems.is_empty()).then(|| problems.join("; ")))
    }

    fn read_rows<T, C: FromIterator<T>>(
        &self,
        sql: &str,
        parameters: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<C, LedgerError> {
        let rows = || -> rusqlite::Result<C> {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_map(parameters, read)?.collect()
        };
        self.limit.restart();
        rows().map_err(self.sqlite_error())
    }

    fn read_column<T: FromSql, C: FromIterator<T>>(
        &self,
        sql: &str,
        parameters: impl Params,
    ) -> Result<C, LedgerError> {
        self.read_rows(sql, parameters, |row| row.get(0))
    }

    fn read_first<T: FromSql>(&self, sql: &str, parameters: impl Params) -> Result<Option<T>, LedgerError> {
        let first =
            || self.connection.prepare_cached(sql)?.query_row(parameters, |row| row.get(0)).optional();
        self.limit.restart();
        first().map_err(self.sqlite_error())
    }

    fn visit_rows(
        &self,
        sql: &str,
        parameters: impl Params,
        visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), LedgerError> {
        self.read_rows(sql, parameters, visit)
    }

    fn execute(&mut self, sql: &str, parameters: impl Params) -> Result<(), LedgerError> {
        self.in_transaction(|tx| tx.execute(sql, parameters).map(|_| ()))
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, LedgerError> {
        let error = self.sqlite_error();
        self.limit.restart();
        let transaction = self.connection.transaction().map_err(&error)?;
        let value = work(&transaction).map_err(&error)?;
        transaction.commit().map_err(&error)?;
        Ok(value)
    }

    pub fn run_options(&self) -> Result<Vec<(String, String)>, LedgerError> {
        self.read_rows("SELECT run, options FROM runs ORDER BY started_ns", [], fields)
    }

    pub fn begin_run(&mut self, run: &NewRun<'_>, plan: &[IdentifiedCase]) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let NewRun { run, kind, seed, options, host, started } = *run;
            tx.execute(
                "INSERT INTO runs (run, kind, seed, options, host, started_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![run, kind, seed.cast_signed(), options, host, started],
            )?;
            let mut planned = tx.prepare("INSERT INTO planned (run, ordinal, case_id) VALUES (?1, ?2, ?3)")?;
            for (ordinal, entry) in (0_i64..).zip(plan) {
                attempts::insert_case(tx, entry)?;
                planned.execute(params![run, ordinal, entry.id()])?;
            }
            Ok(())
        })
    }

    pub fn end_run(&mut self, run: &str, ended: Nanos, exit: u8) -> Result<(), LedgerError> {
        self.execute(
            "UPDATE runs SET ended_ns = ?2, exit_code = ?3 WHERE run = ?1",
            params![run, ended, exit],
        )
    }

    pub fn begin_collection(&mut self, new: &NewCollection<'_>) -> Result<i64, LedgerError> {
        let NewCollection { run, number, devices, purpose, cache, predicted, started } = *new;
        let gang = (devices.len() > 1).then_some(Json(devices));
        let first = devices.first().copied().unwrap_or_default();
        self.in_transaction(|tx| {
            tx.execute(
                "INSERT INTO collections (run, number, device, gang, purpose, predicted_s, started_ns, cache)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![run, number, first, gang, purpose, predicted, started, cache],
            )?;
            Ok(tx.last_insert_rowid())
        })
    }

    pub(crate) fn set_archive(&mut self, collection: i64, digest: &str) -> Result<(), LedgerError> {
        self.execute("UPDATE collections SET archive = ?2 WHERE collection = ?1", params![collection, digest])
    }

    pub fn set_verdicts(
        &mut self,
        run: &str,
        at: Nanos,
        verdicts: &[(CaseId, CaseOutcome)],
    ) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut insert = tx.prepare(
                "INSERT INTO verdicts (run, case_id, verdict, cause, remarks, at_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (run, case_id) DO UPDATE
                 SET verdict = excluded.verdict, cause = excluded.cause, remarks = excluded.remarks,
                     at_ns = excluded.at_ns",
            )?;
            for (case, CaseOutcome { verdict, reason }) in verdicts {
                let [cause, remarks] = reason.to_json();
                insert.execute(params![run, case, verdict, cause, remarks, at])?;
            }
            Ok(())
        })
    }

    pub fn add_readings(&mut self, run: &str, readings: &[DeviceReading]) -> Result<(), LedgerError> {
        self.in_transaction(|tx| {
            let mut insert = tx.prepare(
                "INSERT INTO device_readings (run, device, at_ns, health, temperature_c, power_w, memory_used_mb)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            for DeviceReading { device, at, health, temperature, power, memory_used_mb } in readings {
                let memory = memory_used_mb.map(u64::cast_signed);
                insert.execute(params![run, device, at, health, temperature, power, memory])?;
            }
            Ok(())
        })
    }
}
