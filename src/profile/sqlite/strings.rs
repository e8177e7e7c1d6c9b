//! Names by id: `STRING_IDS`.
//!
//! The table also contains every call stack and can be most of a database, so names are read on first use and a
//! bounded number of them is cached.

use rusqlite::Statement;

use super::database::ProfileDatabase;
use crate::profile::prelude::*;

pub(super) const ABSENT: &[u8] = b"N/A";
/// Maximum length of a name; call stacks or damaged data may be longer.
const MAX_LENGTH: i64 = 1 << 20;
const MAX_CACHED: usize = 8 << 20;

#[derive(Clone, Debug)]
pub(crate) enum NameCell {
    NoColumn,
    /// NULL, or a value that cannot be a name.
    Absent,
    Id(i64),
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

#[derive(Debug)]
pub(crate) struct StringTable<'c> {
    database: &'c ProfileDatabase<'c>,
    by_id: Statement<'c>,
    /// Names, or the lengths of those that are too long.
    known: HashMap<i64, Result<Box<[u8]>, i64>>,
    bytes: usize,
}

impl<'c> StringTable<'c> {
    pub(crate) fn open(database: &'c ProfileDatabase<'c>) -> Result<Self, ProfileError> {
        let table = database.required_table("STRING_IDS", "the names of its kernels are unknown")?;
        let (id, value) = (table.column_or_null("", "id"), table.column_or_null("", "value"));
        // The length is read without the value.
        let query = format!(
            "SELECT octet_length({value}), CASE WHEN octet_length({value}) <= {MAX_LENGTH} \
             THEN CAST({value} AS TEXT) END FROM {} WHERE {id} = ?1 LIMIT 1",
            table.quoted_name()
        );
        let by_id = database.connection.prepare(&query).map_err(|source| database.error(source))?;
        Ok(Self { database, by_id, known: HashMap::new(), bytes: 0 })
    }

    /// Clears the cache if it is full; loaded names may be removed.
    pub(super) fn limit_memory(&mut self) {
        if self.bytes > MAX_CACHED {
            self.known.clear();
            self.bytes = 0;
        }
    }

    pub(super) fn load_name(&mut self, cell: &NameCell) -> Result<(), ProfileError> {
        let NameCell::Id(id) = *cell else { return Ok(()) };
        if self.known.contains_key(&id) {
            return Ok(());
        }
        let mut read = || -> rusqlite::Result<Result<Box<[u8]>, i64>> {
            let mut rows = self.by_id.query([id])?;
            let Some(row) = rows.next()? else { return Ok(Ok(ABSENT.into())) };
            Ok(match (row.get_ref(0)?, row.get_ref(1)?) {
                (ValueRef::Integer(bytes), _) if bytes > MAX_LENGTH => Err(bytes),
                (_, ValueRef::Text(text)) => Ok(text.into()),
                _ => Ok(ABSENT.into()),
            })
        };
        let name = read().map_err(|source| self.database.error(source))?;
        self.bytes += name.as_ref().map_or(0, |name| name.len()) + size_of::<(i64, Box<[u8]>)>();
        self.known.insert(id, name);
        Ok(())
    }

    /// Returns a loaded name; id and length of one that is longer than any profiler writes.
    pub(super) fn loaded_name<'a>(&'a self, cell: &'a NameCell) -> Result<&'a [u8], (i64, i64)> {
        match cell {
            NameCell::NoColumn => Ok(b""),
            NameCell::Absent => Ok(ABSENT),
            NameCell::Id(id) => match self.known.get(id) {
                Some(Ok(name)) => Ok(name),
                Some(Err(bytes)) => Err((*id, *bytes)),
                None => Ok(ABSENT),
            },
            NameCell::Plain(name) => Ok(name),
        }
    }

    /// Returns a name without blanks; [`ABSENT`] for one that is missing, or longer than any profiler writes.
    pub(crate) fn name<'a>(&'a mut self, cell: &'a NameCell) -> Result<&'a [u8], ProfileError> {
        self.limit_memory();
        self.load_name(cell)?;
        Ok(self.loaded_name(cell).unwrap_or(ABSENT).trim_ascii())
    }

    pub(super) fn text(&mut self, cell: &NameCell) -> Result<String, ProfileError> {
        Ok(String::from_utf8_lossy(self.name(cell)?).into_owned())
    }
}
