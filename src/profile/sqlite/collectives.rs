//! Collectives: `COMMUNICATION_OP`, a row for each.
//!
//! Their times depend on the other ranks, so they are not rows of a database of kernels. They are counted, as rows of
//! Task Type `COMMUNICATION` in a CSV of the same profile are.

use std::path::Path;

use rusqlite::Connection;

use super::{
    database_error,
    schema::TableSchema,
    strings::{ABSENT, NameCell, StringTable, TextError},
};
use crate::{
    domain::Nanos,
    profile::{ProfileError, REHEARSAL_PREFIX, RecordGroups, RecordPosition},
};

pub(super) const TABLE: &str = "COMMUNICATION_OP";
/// `Accelerator Core` of collectives in a CSV.
const COMMUNICATION: &[u8] = b"COMMUNICATION";

pub(super) fn has_rows(connection: &Connection, table: &TableSchema) -> rusqlite::Result<bool> {
    connection.prepare(&format!("SELECT 1 FROM {} LIMIT 1", table.quoted_name()))?.exists([])
}

/// Counts every collective as a record without shapes.
pub(super) fn add_collectives(
    groups: &mut RecordGroups,
    connection: &Connection,
    table: &TableSchema,
    strings: &mut StringTable<'_>,
    file: &Path,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    let sql = |source| database_error(file, source);
    let [kind, name, id, start, end] =
        ["opType", "opName", "opId", "startNs", "endNs"].map(|column| table.column_or_null(column));
    let query = format!("SELECT {kind}, {name}, {id}, {end} - {start} FROM {}", table.quoted_name());
    let mut operations = connection.prepare(&query).map_err(sql)?;
    let mut rows = operations.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        strings.limit_memory();
        let mut text = |column: usize| -> Result<Vec<u8>, ProfileError> {
            let text = NameCell::from_value(row.get_ref(column).map_err(sql)?);
            match strings.load_name(&text) {
                Ok(()) => Ok(strings.loaded_name(&text).trim_ascii().to_owned()),
                // No name is that long.
                Err(TextError::TooLong { .. }) => Ok(ABSENT.to_owned()),
                Err(TextError::Sqlite(error)) => Err(sql(error)),
            }
        };
        let (kind, name) = (text(0)?, text(1)?);
        if name.starts_with(REHEARSAL_PREFIX.as_bytes()) && !accept_rehearsed {
            let place = RecordPosition::Operation(row.get_ref(2).map_err(sql)?.as_i64().unwrap_or(0));
            return Err(ProfileError::Rehearsed { file: file.to_owned(), place });
        }
        let kind = if matches!(&*kind, b"" | b"N/A" | b"NA") { kind_of(&name) } else { &kind };
        let duration = row.get_ref(3).map_err(sql)?.as_i64().ok().map(Nanos);
        groups.records += 1;
        groups.rehearsed += u64::from(name.starts_with(REHEARSAL_PREFIX.as_bytes()));
        groups.add_shapeless(kind, duration, COMMUNICATION);
    }
    Ok(())
}

/// Returns the type of a collective by its name: `hcom_allReduce_` of `hcom_allReduce__534_6_1`.
fn kind_of(name: &[u8]) -> &[u8] {
    match name.windows(2).position(|pair| pair == b"__") {
        Some(at) => &name[..=at],
        None => ABSENT,
    }
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn collective_name_starts_with_type() {
        assert_eq!(kind_of(b"hcom_allReduce__534_6_1"), b"hcom_allReduce_");
        assert_eq!(kind_of(b"something"), b"N/A");
    }
}
