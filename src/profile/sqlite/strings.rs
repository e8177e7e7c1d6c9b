//! Names by id: `STRING_IDS`.
//!
//! The table also contains every call stack and can be most of a database, so names are read on first use and a
//! bounded number of them is cached.

use std::collections::HashMap;

use rusqlite::{Connection, Statement, types::ValueRef};

use super::schema::TableSchema;

/// Text of the profilers for a missing name.
pub(crate) const ABSENT: &[u8] = b"N/A";
/// Maximum length of a name; call stacks or damaged data may be longer.
const LONGEST: i64 = 1 << 20;
/// Maximum bytes of cached names.
const KEPT: usize = 8 << 20;

#[derive(Clone, Debug)]
pub(crate) enum NameCell {
    /// Missing column.
    NoColumn,
    /// NULL, or a value that cannot be a name.
    Absent,
    Id(i64),
    /// The name itself.
    Plain(Vec<u8>),
}

impl NameCell {
    pub(crate) fn from_value(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Integer(id) => Self::Id(id),
            ValueRef::Text(text) => Self::Plain(text.to_owned()),
            _ => Self::Absent,
        }
    }
}

/// Name that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TextError {
    #[error("a name of {bytes} bytes")]
    TooLong { id: i64, bytes: i64 },
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Reader of names with a cache.
#[derive(Debug)]
pub(crate) struct StringTable<'c> {
    by_id: Statement<'c>,
    known: HashMap<i64, Box<[u8]>>,
    bytes: usize,
}

impl<'c> StringTable<'c> {
    pub(crate) fn new(connection: &'c Connection, table: &TableSchema) -> rusqlite::Result<Self> {
        let (id, value) = (table.column_or_null("id"), table.column_or_null("value"));
        // The length is read without the value.
        let by_id = connection.prepare(&format!(
            "SELECT octet_length({value}), CASE WHEN octet_length({value}) <= {LONGEST} \
             THEN CAST({value} AS TEXT) END FROM {} WHERE {id} = ?1 LIMIT 1",
            table.quoted_name()
        ))?;
        Ok(Self { by_id, known: HashMap::new(), bytes: 0 })
    }

    /// Clears the cache if it is full; loaded names may be removed.
    pub(crate) fn limit_memory(&mut self) {
        if self.bytes > KEPT {
            self.known.clear();
            self.bytes = 0;
        }
    }

    /// Loads a name for [`Self::loaded_name`].
    pub(crate) fn load_name(&mut self, text: &NameCell) -> Result<(), TextError> {
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

    pub(crate) fn loaded_name<'a>(&'a self, text: &'a NameCell) -> &'a [u8] {
        match text {
            NameCell::NoColumn => b"",
            NameCell::Absent => ABSENT,
            NameCell::Id(id) => self.known.get(id).map_or(ABSENT, |name| name),
            NameCell::Plain(name) => name,
        }
    }
}
