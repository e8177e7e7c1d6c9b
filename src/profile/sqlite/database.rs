//! An open database of a profiler: its tables and columns by name, and its rows.

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::{
    open::{database_error, open_connection},
    strings::NameCell,
};
use crate::{base::sqlite::StatementLimit, profile::prelude::*};

#[derive(Debug)]
pub(crate) struct ProfileDatabase<'f> {
    pub(super) file: &'f Path,
    pub(super) connection: Connection,
    limit: StatementLimit,
}

#[derive(Debug)]
pub(crate) struct TableSchema {
    name: String,
    columns: Vec<(String, String)>,
}

#[derive(Clone, Copy)]
pub(crate) struct DatabaseRow<'r, 's> {
    file: &'r Path,
    row: &'r Row<'s>,
    pub(crate) number: u64,
}

impl<'f> ProfileDatabase<'f> {
    pub(crate) fn open(file: &'f Path) -> Result<Self, ProfileError> {
        let (connection, limit) = open_connection(file)?;
        Ok(Self { file, connection, limit })
    }

    pub(super) fn error(&self, source: rusqlite::Error) -> ProfileError {
        database_error(self.file, source)
    }

    /// Reads the schema of a table; `None` if it does not exist. There are no views, see [`open_connection`].
    pub(crate) fn table(&self, name: &str) -> Result<Option<TableSchema>, ProfileError> {
        let read = || -> rusqlite::Result<Option<TableSchema>> {
            let find = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
            let name = self.connection.query_row(find, [name], |row| row.get::<_, String>(0)).optional()?;
            let Some(name) = name else { return Ok(None) };
            let mut columns = self.connection.prepare("SELECT name, type FROM pragma_table_info(?1)")?;
            let columns = columns.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(Some(TableSchema { columns: columns.collect::<rusqlite::Result<_>>()?, name }))
        };
        read().map_err(|source| self.error(source))
    }

    pub(crate) fn required_table(
        &self,
        table: &'static str,
        without: &'static str,
    ) -> Result<TableSchema, ProfileError> {
        self.table(table)?.ok_or_else(|| ProfileError::MissingTable {
            file: self.file.to_owned(),
            table,
            without,
        })
    }

    pub(crate) fn for_each_row(
        &self,
        query: &str,
        visit: &mut dyn FnMut(DatabaseRow<'_, '_>) -> Result<(), ProfileError>,
    ) -> Result<(), ProfileError> {
        let sql = |source| self.error(source);
        self.limit.restart();
        let mut statement = self.connection.prepare(query).map_err(sql)?;
        let mut rows = statement.query([]).map_err(sql)?;
        let mut number = 0;
        while let Some(row) = rows.next().map_err(sql)? {
            number += 1;
            visit(DatabaseRow { file: self.file, row, number })?;
        }
        Ok(())
    }

    /// Visits the rows of a table by its columns; missing columns are NULL. Returns false if there is no such table.
    pub(crate) fn for_each_row_of(
        &self,
        table: &str,
        columns: &[&str],
        visit: &mut dyn FnMut(DatabaseRow<'_, '_>) -> Result<(), ProfileError>,
    ) -> Result<bool, ProfileError> {
        let Some(schema) = self.table(table)? else { return Ok(false) };
        let columns: Vec<String> = columns.iter().map(|column| schema.column_or_null("", column)).collect();
        let query = format!("SELECT {} FROM {}", columns.join(", "), schema.quoted_name());
        self.for_each_row(&query, visit)?;
        Ok(true)
    }
}

impl TableSchema {
    pub(crate) fn quoted_name(&self) -> String {
        quote_name(&self.name)
    }

    /// Returns the quoted name of a column for SQL. Case and underscores are ignored: versions differ in both.
    pub(crate) fn quoted_column(&self, name: &str) -> Option<String> {
        Some(quote_name(&self.find_column(name)?.0))
    }

    /// Returns a column of a table that a query names by `prefix`, such as `t.`; `NULL` if it does not exist.
    pub(crate) fn column_or_null(&self, prefix: &str, name: &str) -> String {
        self.quoted_column(name).map_or_else(|| "NULL".to_owned(), |name| format!("{prefix}{name}"))
    }

    /// Returns an SQL expression for a column of whole numbers that may be stored as text.
    pub(crate) fn integer_column(&self, prefix: &str, name: &str) -> Option<String> {
        let (name, kind) = self.find_column(name)?;
        let column = format!("{prefix}{}", quote_name(name));
        // A cast is left out if possible, so that SQLite can use an index or the order of rows.
        let is_integer = kind.to_ascii_uppercase().contains("INT");
        Some(if is_integer { column } else { format!("CAST({column} AS INTEGER)") })
    }

    pub(crate) fn missing_columns(&self, names: &[&'static str]) -> Vec<&'static str> {
        names.iter().copied().filter(|name| self.find_column(name).is_none()).collect()
    }

    fn find_column(&self, name: &str) -> Option<&(String, String)> {
        let folded = |name: &str| name.replace('_', "").to_ascii_lowercase();
        self.columns.iter().find(|(column, _)| folded(column) == folded(name))
    }
}

fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl<'r> DatabaseRow<'r, '_> {
    pub(super) fn value(self, column: usize) -> ValueRef<'r> {
        self.row.get_ref(column).expect("the query has the column")
    }

    pub(crate) fn integer(self, column: usize) -> Option<i64> {
        self.value(column).as_i64().ok()
    }

    pub(crate) fn unsigned<T: TryFrom<i64>>(self, column: usize) -> Option<T> {
        T::try_from(self.integer(column)?).ok()
    }

    pub(crate) fn number(self, column: usize) -> Option<f64> {
        match self.value(column) {
            ValueRef::Integer(value) => Some(value as f64),
            ValueRef::Real(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn text(self, column: usize) -> String {
        match self.value(column) {
            ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => number.to_string(),
            ValueRef::Null | ValueRef::Blob(_) => String::new(),
        }
    }

    pub(crate) fn name(self, column: usize) -> NameCell {
        NameCell::from_value(self.value(column))
    }

    /// Reads a time in nanoseconds; `None` if it is missing. `name` and `place` are for errors.
    pub(crate) fn time(
        self,
        column: usize,
        name: &'static str,
        place: RecordPosition,
    ) -> Result<Option<i64>, ProfileError> {
        let wrong = |cell: &str, problem: &str| {
            Err(ProfileError::bad_cell(self.file, place, name, cell.as_bytes(), problem.to_owned()))
        };
        match self.value(column) {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(time) => Ok(Some(time)),
            ValueRef::Real(time) => wrong(
                &time.to_string(),
                "is a floating point number, which does not hold nanoseconds since 1970",
            ),
            ValueRef::Blob(_) => wrong("a blob", "is not a number of nanoseconds"),
            // torch_npu also writes whole numbers as text.
            ValueRef::Text(text) => {
                let text = String::from_utf8_lossy(text.trim_ascii());
                match (text.parse(), &*text) {
                    (Ok(time), _) => Ok(Some(time)),
                    (_, "" | "N/A" | "NA" | "-") => Ok(None),
                    _ => wrong(&text, "is not a whole number of nanoseconds"),
                }
            }
        }
    }
}
