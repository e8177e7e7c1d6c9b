//! Names by their ids: `STRING_IDS`.
//!
//! The table also holds every call stack and can be most of a database, so names are looked up when they
//! are first needed and a bounded number of them is kept.

use std::collections::HashMap;

use rusqlite::{Connection, Statement, types::ValueRef};

use super::schema::TableSchema;

/// What the profilers write for a name that is not there.
pub(super) const ABSENT: &[u8] = b"N/A";
/// No name is longer; a call stack or damage may be.
const LONGEST: i64 = 1 << 20;
/// Bytes of names that are kept.
const KEPT: usize = 8 << 20;

/// A cell that names something.
#[derive(Clone, Debug)]
pub(super) enum NameCell {
    /// The table has no such column.
    NoColumn,
    /// NULL, or nothing that could be a name.
    Absent,
    /// By id.
    Id(i64),
    /// In place.
    Plain(Vec<u8>),
}

impl NameCell {
    pub(super) fn from_value(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Integer(id) => Self::Id(id),
            ValueRef::Text(text) => Self::Plain(text.to_owned()),
            _ => Self::Absent,
        }
    }
}

/// Why a name cannot be given.
#[derive(Debug)]
pub(super) enum TextError {
    /// It has so many bytes.
    TooLong { id: i64, bytes: i64 },
    /// The table cannot be read.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for TextError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Looks names up.
#[derive(Debug)]
pub(super) struct StringTable<'c> {
    by_id: Statement<'c>,
    known: HashMap<i64, Box<[u8]>>,
    bytes: usize,
}

impl<'c> StringTable<'c> {
    pub(super) fn new(connection: &'c Connection, table: &TableSchema) -> rusqlite::Result<Self> {
        let (id, value) = (table.column_or_null("id"), table.column_or_null("value"));
        // The length is known without reading the value.
        let by_id = connection.prepare(&format!(
            "SELECT octet_length({value}), CASE WHEN octet_length({value}) <= {LONGEST} \
             THEN CAST({value} AS TEXT) END FROM {} WHERE {id} = ?1 LIMIT 1",
            table.table()
        ))?;
        Ok(Self { by_id, known: HashMap::new(), bytes: 0 })
    }

    /// Makes room where much is kept; what was loaded before may be gone.
    pub(super) fn make_room(&mut self) {
        if self.bytes > KEPT {
            self.known.clear();
            self.bytes = 0;
        }
    }

    /// Looks a name up for [`Self::get`].
    pub(super) fn load(&mut self, text: &NameCell) -> Result<(), TextError> {
        let NameCell::Id(id) = *text else { return Ok(()) };
        if self.known.contains_key(&id) {
            return Ok(());
        }
        let mut rows = self.by_id.query([id])?;
        let mut name: Box<[u8]> = ABSENT.into();
        if let Some(row) = rows.next()? {
            match row.get_ref(0)? {
                ValueRef::Integer(bytes) if bytes > LONGEST => return Err(TextError::TooLong { id, bytes }),
                _ => {}
            }
            if let ValueRef::Text(text) = row.get_ref(1)? {
                name = text.into();
            }
        }
        self.bytes += name.len() + size_of::<(i64, Box<[u8]>)>();
        self.known.insert(id, name);
        Ok(())
    }

    /// A name that was loaded.
    pub(super) fn get<'a>(&'a self, text: &'a NameCell) -> &'a [u8] {
        match text {
            NameCell::NoColumn => b"",
            NameCell::Absent => ABSENT,
            NameCell::Id(id) => self.known.get(id).map_or(ABSENT, |name| name),
            NameCell::Plain(name) => name,
        }
    }
}
