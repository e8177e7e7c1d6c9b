//! Collectives: `COMMUNICATION_OP`, a row for each.
//!
//! Their times depend on the other ranks, so they are no records of kernels. They are counted, as rows of Task Type
//! `COMMUNICATION` in a CSV of the same profile are. `ENUM_HCCL_DATA_TYPE` has the names of their element types.

use std::{collections::HashMap, path::Path};

use rusqlite::Connection;

use super::{
    open::{database_error, open_database},
    schema::TableSchema,
    strings::{ABSENT, NameCell, StringTable, TextError},
};
use crate::{
    kernel::{Dtype, Nanos},
    profile::{
        ProfileError, REHEARSAL_PREFIX, RecordGroups, RecordPosition,
        collective_benchmark::parse_element_type, recorded_collectives::CollectiveRecord,
    },
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

/// Visits every collective of a database with its size; none without the table.
pub(in crate::profile) fn for_each_collective(
    file: &Path,
    visit: &mut dyn FnMut(CollectiveRecord),
) -> Result<(), ProfileError> {
    let sql = |source| database_error(file, source);
    let connection = open_database(file)?;
    let schema = |name| TableSchema::read_schema(&connection, name).map_err(sql);
    let (Some(table), Some(names)) = (schema(TABLE)?, schema("STRING_IDS")?) else { return Ok(()) };
    let dtypes = element_types(&connection);
    let mut strings = StringTable::new(&connection, &names).map_err(sql)?;
    let columns = ["opType", "opName", "groupName", "algType", "dataType", "count", "startNs", "endNs"];
    let [kind, name, group, algorithm, dtype, count, start, end] =
        columns.map(|column| table.column_or_null(column));
    let query = format!(
        "SELECT {kind}, {name}, {group}, {algorithm}, {dtype}, {count}, {end} - {start} FROM {}",
        table.quoted_name()
    );
    let mut operations = connection.prepare(&query).map_err(sql)?;
    let mut rows = operations.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        strings.limit_memory();
        let mut text = |column: usize| -> Result<String, ProfileError> {
            let text = NameCell::from_value(row.get_ref(column).map_err(sql)?);
            match strings.load_name(&text) {
                Ok(()) => Ok(String::from_utf8_lossy(strings.loaded_name(&text).trim_ascii()).into_owned()),
                Err(TextError::TooLong { .. }) => Ok(String::new()),
                Err(TextError::Sqlite(error)) => Err(sql(error)),
            }
        };
        let [kind, name, group, algorithm] = [text(0)?, text(1)?, text(2)?, text(3)?];
        let number = |column: usize| row.get_ref(column).ok().and_then(|cell| cell.as_i64().ok());
        let kernel = match &*kind {
            "" | "N/A" | "NA" => String::from_utf8_lossy(kind_of(name.as_bytes())).into_owned(),
            _ => kind,
        };
        visit(CollectiveRecord {
            kernel,
            group: Some(group).filter(|group| !matches!(&**group, "" | "N/A" | "NA")),
            count: number(5).and_then(|count| u64::try_from(count).ok()),
            dtype: number(4).and_then(|id| dtypes.get(&id).cloned()),
            algorithm,
            duration: number(6).map(Nanos),
            name,
        });
    }
    Ok(())
}

/// Returns the element types of HCCL by their numbers in `dataType`; those of `HcclDataType` in the vendor's headers if the
/// table of their names is missing.
fn element_types(connection: &Connection) -> HashMap<i64, Dtype> {
    const NUMBERS: [&str; 12] = [
        "INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32", "FP64",
        "BFP16",
    ];
    let read = || -> rusqlite::Result<Vec<(i64, String)>> {
        let mut statement = connection.prepare("SELECT id, name FROM ENUM_HCCL_DATA_TYPE")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    };
    let names = read().unwrap_or_else(|_| (0..).zip(NUMBERS.map(str::to_owned)).collect());
    names.into_iter().filter_map(|(id, name)| Some((id, parse_element_type(&name)?))).collect()
}

/// Returns a value of the table `META_DATA`; `None` without it.
pub(in crate::profile) fn metadata(file: &Path, name: &str) -> Option<String> {
    let connection = open_database(file).ok()?;
    connection.query_row("SELECT value FROM META_DATA WHERE name = ?1", [name], |row| row.get(0)).ok()
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
