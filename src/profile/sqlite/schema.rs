//! Tables and columns of a database by name.

use rusqlite::{Connection, OptionalExtension as _};

/// A table with the columns that it has, whichever those are.
#[derive(Debug)]
pub(super) struct TableSchema {
    name: String,
    /// Names and declared types.
    columns: Vec<(String, String)>,
}

impl TableSchema {
    /// Looks a table up. Views are none: they could compute anything.
    pub(super) fn read_schema(connection: &Connection, table: &str) -> rusqlite::Result<Option<Self>> {
        let name: Option<String> = connection
            .query_row(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE",
                [table],
                |row| row.get(0),
            )
            .optional()?;
        let Some(name) = name else { return Ok(None) };
        let mut statement = connection.prepare("SELECT name, type FROM pragma_table_info(?1)")?;
        let columns = statement.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Some(Self { columns: columns.collect::<rusqlite::Result<_>>()?, name }))
    }

    /// The table's name for use in SQL.
    pub(super) fn table(&self) -> String {
        quoted(&self.name)
    }

    /// A column for use in SQL. Case and underscores do not count: versions differ in both.
    pub(super) fn column(&self, name: &str) -> Option<String> {
        Some(quoted(&self.find(name)?.0))
    }

    /// As [`Self::column`], with `NULL` for one that is not there.
    pub(super) fn column_or_null(&self, name: &str) -> String {
        self.column(name).unwrap_or_else(|| "NULL".to_owned())
    }

    /// A column of whole numbers that may be stored as text.
    pub(super) fn integer(&self, name: &str) -> Option<String> {
        let (name, kind) = self.find(name)?;
        let column = quoted(name);
        // Bare where possible, so that an index or the order of rows can serve.
        let is_integer = kind.to_ascii_uppercase().contains("INT");
        Some(if is_integer { column } else { format!("CAST({column} AS INTEGER)") })
    }

    /// Which of some columns are not there.
    pub(super) fn missing(&self, names: &[&'static str]) -> Vec<&'static str> {
        names.iter().copied().filter(|name| self.find(name).is_none()).collect()
    }

    fn find(&self, name: &str) -> Option<&(String, String)> {
        let folded = |name: &str| name.replace('_', "").to_ascii_lowercase();
        self.columns.iter().find(|(column, _)| folded(column) == folded(name))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
