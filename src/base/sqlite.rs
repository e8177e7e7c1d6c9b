//! The one place that opens SQLite files. Others may have made them, so that a schema is not trusted, texts have a limit, and a
//! statement ends after as many steps as a file of its size can need.

use std::{
    ffi::c_int,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rusqlite::{
    Connection, Error, ErrorCode, OpenFlags, OptionalExtension as _, config::DbConfig, limits::Limit,
};

/// Steps of SQLite's virtual machine of a statement: 20 million take about a second. The queries of a ledger with 100,000 cases, which
/// has 106 MB, take a few steps for each byte.
const MIN_STEPS: u64 = 20_000_000;
const STEPS_PER_BYTE: u64 = 20;
const STEPS_BETWEEN_CHECKS: c_int = 10_000;
/// Bytes of a text or a row. npubench writes lists of the launches of one case, and profilers names, shapes and call stacks.
const MAX_TEXT: i32 = 16 << 20;

/// Limit of the steps of a statement.
#[derive(Clone, Debug)]
pub(crate) struct StatementLimit {
    file: PathBuf,
    taken: Arc<AtomicU64>,
    attached: Arc<AtomicU64>,
}

impl StatementLimit {
    /// Begins the count for another statement or transaction.
    pub(crate) fn restart(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Raises the limit for a file that is attached.
    pub(crate) fn add_file(&self, file: &Path) {
        self.attached.fetch_add(stored_bytes(file), Ordering::Relaxed);
    }

    /// Bytes of all files; the file may grow.
    fn bytes(&self) -> u64 {
        stored_bytes(&self.file) + self.attached.load(Ordering::Relaxed)
    }
}

/// Returns the bytes of a file without holes, which would raise the limit for nothing.
fn stored_bytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |found| found.len().min(found.blocks().saturating_mul(512)))
}

/// Opens a file. Its `name` is its path, or a URI if the flags say so.
pub(crate) fn open_sqlite(
    file: &Path,
    name: &Path,
    flags: OpenFlags,
) -> rusqlite::Result<(Connection, StatementLimit)> {
    let mut connection = Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_TEXT)?;
    let limit = StatementLimit { file: file.to_owned(), taken: Arc::default(), attached: Arc::default() };
    let (counted, mut max) = (limit.clone(), MIN_STEPS);
    let is_over = move || {
        let steps =
            counted.taken.fetch_add(u64::from(STEPS_BETWEEN_CHECKS.unsigned_abs()), Ordering::Relaxed);
        if steps > max {
            max = MIN_STEPS + counted.bytes().saturating_mul(STEPS_PER_BYTE);
        }
        steps > max
    };
    connection.progress_handler(STEPS_BETWEEN_CHECKS, Some(is_over))?;
    let is_read = flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY);
    connection.execute_batch(&format!("PRAGMA cell_size_check = ON; PRAGMA query_only = {is_read}"))?;
    Ok((connection, limit))
}

/// Returns why a statement was ended, if a limit of this module ended it.
pub(crate) fn broken_limit(error: &Error) -> Option<&'static str> {
    match error.sqlite_error_code()? {
        ErrorCode::OperationInterrupted => {
            Some("a query was stopped, because it took longer than a file of this size needs")
        }
        ErrorCode::TooBig => Some("a text has more than 16 MiB"),
        _ => None,
    }
}

/// Returns an object that is no plain table or index, such as "the view `name`": its definition would be executed.
pub(crate) fn computed_object(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let first = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).optional();
    let object =
        "SELECT 'the ' || iif(type = 'table', 'virtual table', type) || ' `' || substr(name, 1, 200) || '`'
        FROM sqlite_schema WHERE type NOT IN ('table', 'index') OR type = 'table' AND (rootpage = 0 OR sql LIKE 'CREATE VIRTUAL%')";
    let column = "SELECT 'the computed column `' || substr(c.name, 1, 200) || '` of `' || substr(t.name, 1, 200) || '`'
        FROM sqlite_schema t, pragma_table_xinfo(t.name) c WHERE t.type = 'table' AND c.hidden <> 0";
    // Reading the columns of a virtual table would start it.
    Ok(match first(object)? {
        None => first(column)?,
        object => object,
    })
}

/// Returns kind, name and definition of the objects of a schema, but of the statistics of `ANALYZE`. Definitions are without comments
/// and line breaks; indexes that SQLite creates have none.
pub(crate) fn definitions(connection: &Connection) -> rusqlite::Result<Vec<(String, String, String)>> {
    let mut statement = connection.prepare(
        "SELECT type, name, ifnull(sql, '') FROM sqlite_schema WHERE name NOT GLOB 'sqlite_stat*'",
    )?;
    let objects = statement.query_map([], |row| {
        let text: String = row.get(2)?;
        let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        Ok((row.get(0)?, row.get(1)?, words.join(" ")))
    })?;
    objects.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_and_texts_without_end_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.db");
        let (connection, limit) = open_sqlite(&file, &file, OpenFlags::default()).expect("created");
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let endless =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let problem = count(endless).expect_err("it has no end");
        assert!(broken_limit(&problem).is_some(), "{problem}");
        limit.restart();
        assert_eq!(count("SELECT 1").expect("a new statement"), 1);
        let problem = count("SELECT length(zeroblob(20000000))").expect_err("too long");
        assert!(broken_limit(&problem).is_some_and(|text| text.contains("16 MiB")), "{problem}");
    }

    #[test]
    fn objects_that_compute_are_found() {
        for (sql, expected) in [
            ("CREATE TABLE a (b, c); CREATE INDEX d ON a (b)", None),
            ("CREATE TABLE a (b); CREATE VIEW v AS SELECT * FROM a", Some("the view `v`")),
            (
                "CREATE TABLE a (b); CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END",
                Some("the trigger `t`"),
            ),
            ("CREATE VIRTUAL TABLE f USING fts5(x)", Some("the virtual table `f`")),
            ("CREATE TABLE a (b, c AS (b + 1))", Some("the computed column `c` of `a`")),
        ] {
            let connection = Connection::open_in_memory().expect("opened");
            connection.execute_batch(sql).expect("valid");
            assert_eq!(computed_object(&connection).expect("read").as_deref(), expected, "{sql}");
        }
    }
}
