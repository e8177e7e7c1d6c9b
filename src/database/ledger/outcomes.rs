//! Verdicts with their causes and remarks, which the ledger stores as JSON in columns of their own.

use std::error::Error;

use rusqlite::{Connection, Row, types::Type};

use crate::kernel::{CaseOutcome, Reason, Verdict};

/// Returns the error of a value that is not of its type. SQLite does not name the column of an expression.
pub(super) fn conversion_error(error: impl Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}

pub(super) fn parse_verdict(text: &str) -> rusqlite::Result<Verdict> {
    text.parse().map_err(conversion_error)
}

pub(super) fn parse_reason(cause: &str, remarks: &str) -> rusqlite::Result<Reason> {
    Reason::from_json(cause, remarks).map_err(conversion_error)
}

/// Reads the columns of a cause and its remarks, which follow each other.
pub(super) fn read_reason(row: &Row<'_>, column: usize) -> rusqlite::Result<Reason> {
    parse_reason(row.get_ref(column)?.as_str()?, row.get_ref(column + 1)?.as_str()?)
}

/// Reads the columns of a verdict, its cause and its remarks, which follow each other.
pub(super) fn read_outcome(row: &Row<'_>, column: usize) -> rusqlite::Result<CaseOutcome> {
    let verdict = parse_verdict(row.get_ref(column)?.as_str()?)?;
    Ok(CaseOutcome::new(verdict, read_reason(row, column + 1)?))
}

/// Returns the attempts and cases whose verdict or cause cannot be read, with the problem.
pub(super) fn unreadable_outcomes(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut unreadable = Vec::new();
    for (table, key) in [("attempts", "attempt"), ("verdicts", "case_id")] {
        let sql =
            format!("SELECT DISTINCT verdict, cause, remarks, min({key}) FROM {table} GROUP BY 1, 2, 3");
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Err(error) = read_outcome(row, 0) {
                let key: rusqlite::types::Value = row.get(3)?;
                unreadable.push(format!("verdict or cause in `{table}`, {key:?}: {error}"));
            }
        }
    }
    Ok(unreadable)
}
