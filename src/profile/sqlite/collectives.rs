//! Collectives: `COMMUNICATION_OP`, a row for each.
//!
//! Their times depend on the other ranks, so they are no records of kernels. They are counted, as rows of Task Type
//! `COMMUNICATION` in a CSV of the same profile are. `ENUM_HCCL_DATA_TYPE` has the names of their element types.

use super::{database::ProfileDatabase, strings::StringTable};
use crate::profile::{
    collective_benchmark::parse_element_type, columns::is_recorded, kernel_record::check_rehearsed,
    prelude::*, recorded_collectives::CollectiveRecord,
};

pub(super) const TABLE: &str = "COMMUNICATION_OP";
const COMMUNICATION: &[u8] = b"COMMUNICATION";

pub(super) fn add_collectives(
    groups: &mut RecordGroups,
    database: &ProfileDatabase<'_>,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    for_each_collective(database, &mut |id, record| {
        let (name, place) = (record.name.as_bytes(), RecordPosition::Operation(id));
        groups.rehearsed += u64::from(check_rehearsed(name, accept_rehearsed, database.file, place)?);
        groups.records += 1;
        groups.add_shapeless(record.kernel.as_bytes(), record.duration, COMMUNICATION);
        Ok(())
    })
}

pub(in crate::profile) fn read_collectives(file: &Path) -> Result<Vec<CollectiveRecord>, ProfileError> {
    let mut records = Vec::new();
    for_each_collective(&ProfileDatabase::open(file)?, &mut |_, record| {
        records.push(record);
        Ok(())
    })?;
    Ok(records)
}

fn for_each_collective(
    database: &ProfileDatabase<'_>,
    visit: &mut dyn FnMut(i64, CollectiveRecord) -> Result<(), ProfileError>,
) -> Result<(), ProfileError> {
    let Some(table) = database.table(TABLE)? else { return Ok(()) };
    let dtypes = element_types(database);
    let mut strings = StringTable::open(database)?;
    let columns =
        ["opType", "opName", "groupName", "algType", "dataType", "count", "opId", "startNs", "endNs"];
    let [kind, name, group, algorithm, dtype, count, id, start, end] =
        columns.map(|column| table.column_or_null("", column));
    let query = format!(
        "SELECT {kind}, {name}, {group}, {algorithm}, {dtype}, {count}, {id}, {end} - {start} FROM {}",
        table.quoted_name()
    );
    database.for_each_row(&query, &mut |row| {
        let mut text = |column| strings.text(&row.name(column));
        let [kind, name, group, algorithm] = [text(0)?, text(1)?, text(2)?, text(3)?];
        let record = CollectiveRecord {
            kernel: if is_recorded(kind.as_bytes()) { kind } else { kind_of(&name).to_owned() },
            group: Some(group).filter(|group| is_recorded(group.as_bytes())),
            count: row.unsigned(5),
            dtype: row.integer(4).and_then(|id| dtypes.get(&id).cloned()),
            algorithm,
            duration: row.integer(7).map(Nanos),
            name,
        };
        visit(row.integer(6).unwrap_or(0), record)
    })
}

/// Returns the element types of HCCL by their numbers in `dataType`; those of `HcclDataType` in the vendor's headers if the
/// table of their names is missing.
fn element_types(database: &ProfileDatabase<'_>) -> HashMap<i64, Dtype> {
    const NUMBERS: [&str; 12] = [
        "INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32", "FP64",
        "BFP16",
    ];
    let read = || -> rusqlite::Result<Vec<(i64, String)>> {
        let mut statement = database.connection.prepare("SELECT id, name FROM ENUM_HCCL_DATA_TYPE")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    };
    let names = read().unwrap_or_else(|_| (0..).zip(NUMBERS.map(str::to_owned)).collect());
    names.into_iter().filter_map(|(id, name)| Some((id, parse_element_type(&name)?))).collect()
}

/// Returns the type of a collective by its name: `hcom_allReduce_` of `hcom_allReduce__534_6_1`.
fn kind_of(name: &str) -> &str {
    name.find("__").map_or("N/A", |at| &name[..=at])
}

pub(in crate::profile) fn metadata(file: &Path, name: &str) -> Option<String> {
    let database = ProfileDatabase::open(file).ok()?;
    let query = "SELECT value FROM META_DATA WHERE name = ?1";
    database.connection.query_row(query, [name], |row| row.get(0)).ok()
}
