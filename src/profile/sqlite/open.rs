//! Read-only access to databases of profilers, which creates no files.
//!
//! MindStudio Insight switches databases to WAL mode. Opening one of those read-only creates `-wal` and `-shm` beside
//! it, or fails in a folder without write permission; `immutable=1` does neither, and takes no locks. It also ignores
//! changes that are only in a log, so a log with changes is refused.

use std::{ffi::OsString, io::Read as _, os::unix::ffi::OsStrExt as _, path::absolute};

use rusqlite::{Connection, OpenFlags};

use crate::{
    base::sqlite::{StatementLimit, broken_limit, computed_object, open_sqlite},
    profile::prelude::*,
};

const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER: u64 = 100;
const MIN_BYTES: u64 = 512;

/// Returns true for a database, by name or by content. The name also identifies empty or damaged databases.
pub(crate) fn is_database(file: &Path) -> Result<bool, ProfileError> {
    let is_named = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("db"));
    Ok(is_named || read_header(file)?.starts_with(MAGIC))
}

pub(super) fn open_connection(file: &Path) -> Result<(Connection, StatementLimit), ProfileError> {
    check_header(file)?;
    check_closed(file)?;
    let uri = immutable_uri(&absolute(file).map_err(ProfileError::io(file))?);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connect = || {
        let (connection, limit) = open_sqlite(file, Path::new(&uri), flags)?;
        // Sorting uses temporary files beyond 8 MB, so that a database of any size needs little memory.
        connection.execute_batch("PRAGMA cache_size=-8192; PRAGMA temp_store=FILE")?;
        let computed = computed_object(&connection)?;
        Ok((connection, limit, computed))
    };
    let (connection, limit, computed) = connect().map_err(|source| database_error(file, source))?;
    match computed {
        Some(object) => {
            let problem = format!("it has {object}, and only plain tables are read");
            Err(ProfileError::ForeignDatabase { file: file.to_owned(), problem })
        }
        None => Ok((connection, limit)),
    }
}

pub(super) fn database_error(file: &Path, source: rusqlite::Error) -> ProfileError {
    let file = file.to_owned();
    if let Some(problem) = broken_limit(&source) {
        return ProfileError::ForeignDatabase { file, problem: problem.to_owned() };
    }
    match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => ProfileError::NotDatabase(file),
        _ => ProfileError::Database { file, source },
    }
}

fn read_header(file: &Path) -> Result<Vec<u8>, ProfileError> {
    let mut bytes = Vec::new();
    open_regular(file)
        .and_then(|input| input.take(HEADER).read_to_end(&mut bytes))
        .map_err(ProfileError::io(file))?;
    Ok(bytes)
}

fn check_header(path: &Path) -> Result<(), ProfileError> {
    let header = read_header(path)?;
    let file = path.to_owned();
    if header.is_empty() {
        return Err(ProfileError::Empty(file));
    }
    if header.starts_with(b"version https://git-lfs") {
        return Err(ProfileError::LfsPointer(file));
    }
    if !header.starts_with(MAGIC) {
        return Err(ProfileError::NotDatabase(file));
    }
    let found = fs::metadata(path).map_err(ProfileError::io(path))?.len();
    let expected = length_by_header(&header).unwrap_or_default().max(MIN_BYTES);
    if found < expected { Err(ProfileError::Truncated { file, expected, found }) } else { Ok(()) }
}

fn length_by_header(header: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let page_size = match u16::from_be_bytes(header.get(16..18)?.try_into().ok()?) {
        1 => 65536,
        size => u64::from(size),
    };
    let (changes, pages, pages_are_of) = (word(24)?, word(28)?, word(92)?);
    (changes == pages_are_of).then(|| page_size * u64::from(pages))
}

/// Refuses a database with a log of changes or the journal of an interrupted write.
fn check_closed(file: &Path) -> Result<(), ProfileError> {
    for suffix in ["-wal", "-journal"] {
        let mut name = OsString::from(file);
        name.push(suffix);
        let beside = PathBuf::from(name);
        // A completed journal that is kept starts with zeros.
        let mut first = [0];
        if open_regular(&beside).is_ok_and(|mut input| input.read_exact(&mut first).is_ok()) && first != [0] {
            return Err(ProfileError::NotClosed { file: file.to_owned(), beside });
        }
    }
    Ok(())
}

fn immutable_uri(file: &Path) -> String {
    let mut uri = String::from("file://");
    for &byte in file.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri.push_str("?immutable=1");
    uri
}
