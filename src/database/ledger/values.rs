//! Columns of the ledger as values. A value that is not of its type is an error, because it must not count as another one.

use rusqlite::{
    Connection, Error, Row, ToSql,
    types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, Type, ValueRef},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    base::stats::CycleRate,
    kernel::{
        CacheState, CaseId, CaseOutcome, CheckMethod, CheckVerdict, CollectionEnd, CollectionPurpose,
        ControlKernel, DataKind, KernelName, Nanos, Reason, Verdict,
    },
};

pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(FromSqlError::other)
    }
}

impl<T: Serialize> ToSql for Json<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text = serde_json::to_string(&self.0);
        Ok(text.map_err(|error| Error::ToSqlConversionFailure(error.into()))?.into())
    }
}

macro_rules! stored_as_words {
    ($($word:ty),*) => {$(
        impl FromSql for $word {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                value.as_str()?.parse().map_err(FromSqlError::other)
            }
        }

        impl ToSql for $word {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.to_string().into())
            }
        }
    )*};
}

stored_as_words!(
    CacheState,
    CheckMethod,
    CheckVerdict,
    CollectionEnd,
    CollectionPurpose,
    ControlKernel,
    DataKind,
    Verdict
);

impl FromSql for KernelName {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::new(value.as_str()?).map_err(FromSqlError::other)
    }
}

impl FromSql for CaseId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str().map(Self::from_stored)
    }
}

impl ToSql for CaseId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl FromSql for Nanos {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(Self)
    }
}

impl ToSql for Nanos {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.into())
    }
}

pub(super) fn fields<T>(row: &Row<'_>) -> rusqlite::Result<T>
where
    T: for<'r> TryFrom<&'r Row<'r>, Error = Error>,
{
    T::try_from(row)
}

/// Reads the devices of a collection from its columns `device` and `gang`, which follow each other.
pub(super) fn read_devices(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<u32>> {
    match row.get(column + 1)? {
        Some(Json(gang)) => Ok(gang),
        None => Ok(vec![row.get(column)?]),
    }
}

pub(super) fn read_cycle_rate(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<CycleRate>> {
    let (rate, error): (Option<f64>, Option<f64>) = (row.get(column)?, row.get(column + 1)?);
    Ok(rate.zip(error).map(|(per_microsecond, error)| CycleRate { per_microsecond, error }))
}

pub(super) fn parse_reason(cause: &str, remarks: &str) -> rusqlite::Result<Reason> {
    Reason::from_json(cause, remarks)
        .map_err(|error| Error::FromSqlConversionFailure(0, Type::Text, error.into()))
}

pub(super) fn read_reason(row: &Row<'_>, column: usize) -> rusqlite::Result<Reason> {
    parse_reason(row.get_ref(column)?.as_str()?, row.get_ref(column + 1)?.as_str()?)
}

/// Reads the columns of a verdict, its cause and its remarks, which follow each other.
pub(super) fn read_outcome(row: &Row<'_>, column: usize) -> rusqlite::Result<CaseOutcome> {
    Ok(CaseOutcome::new(row.get(column)?, read_reason(row, column + 1)?))
}

pub(super) fn unreadable_rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    describe: impl Fn(&Row<'_>) -> rusqlite::Result<String>,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(sql)?;
    let unreadable = statement.query_map([], |row| match read(row) {
        Ok(_) => Ok(None),
        Err(problem) => Ok(Some(format!("{}: {problem}", describe(row)?))),
    })?;
    unreadable.filter_map(Result::transpose).collect()
}

pub(super) fn unreadable_outcomes(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut unreadable = Vec::new();
    for (table, key) in [("attempts", "attempt"), ("verdicts", "case_id")] {
        let sql =
            format!("SELECT verdict, cause, remarks, CAST(min({key}) AS TEXT) FROM {table} GROUP BY 1, 2, 3");
        let describe =
            |row: &Row<'_>| Ok(format!("verdict or cause in `{table}`, {}", row.get::<_, String>(3)?));
        unreadable.extend(unreadable_rows(connection, &sql, |row| read_outcome(row, 0), describe)?);
    }
    Ok(unreadable)
}
