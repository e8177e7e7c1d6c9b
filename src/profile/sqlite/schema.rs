//! Tables and columns of a database by name.

use rusqlite::{Connection, OptionalExtension as _};

/// Name and columns of a table.
#[derive(Debug)]
pub(crate) struct TableSchema {
    name: String,
    /// Names and declared types.
    columns: Vec<(String, String)>,
}

impl TableSchema {
    /// Reads the schema of a table. Views are ignored, because they could compute anything.
    pub(crate) fn read_schema(connection: &Connection, table: &str) -> rusqlite::Result<Option<Self>> {
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

    /// Returns the quoted name of the table for SQL.
    pub(crate) fn quoted_name(&self) -> String {
        quote_name(&self.name)
    }

    /// Returns the quoted name of a column for SQL. Case and underscores are ignored: versions differ in both.
    pub(crate) fn quoted_column(&self, name: &str) -> Option<String> {
        Some(quote_name(&self.find_column(name)?.0))
    }

    /// Returns the quoted name of a column, or `NULL` if it does not exist.
    pub(crate) fn column_or_null(&self, name: &str) -> String {
        self.quoted_column(name).unwrap_or_else(|| "NULL".to_owned())
    }

    /// Returns an SQL expression for a column of whole numbers that may be stored as text.
    pub(crate) fn integer_column(&self, name: &str) -> Option<String> {
        self.integer_expression("", name)
    }

    /// Returns the same expression for a table that a query names by an alias.
    pub(crate) fn integer_column_of(&self, alias: &str, name: &str) -> Option<String> {
        self.integer_expression(&format!("{alias}."), name)
    }

    fn integer_expression(&self, prefix: &str, name: &str) -> Option<String> {
        let (name, kind) = self.find_column(name)?;
        let column = format!("{prefix}{}", quote_name(name));
        // Without a cast if possible, so that an index or the order of rows can be used.
        let is_integer = kind.to_ascii_uppercase().contains("INT");
        Some(if is_integer { column } else { format!("CAST({column} AS INTEGER)") })
    }

    /// Returns the columns that do not exist.
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
