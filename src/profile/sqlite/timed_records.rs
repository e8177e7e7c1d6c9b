//! Kernels and collectives of a database with their times, for analyses of the order in which they ran.

use std::{collections::BTreeSet, path::Path};

use rusqlite::types::ValueRef;

use super::{
    collectives,
    open::{database_error, open_database},
    ordered_cursor::TaskTime,
    schema::TableSchema,
    strings::{NameCell, StringTable, TextError},
};
use crate::{
    kernel::Nanos,
    profile::{ProfileError, RecordPosition},
};

/// Column by which a kernel and its task are of one run.
const TASK_ID: &str = "globalTaskId";

/// Kernel or collective of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedRecord {
    /// Type, such as `MatMulV2` or `hcom_allReduce_`.
    pub(crate) kernel: String,
    /// Number of the device; empty if it is not recorded.
    pub(crate) device: String,
    /// Task type of a kernel; empty for a collective.
    pub(crate) core: String,
    /// Input shapes as recorded; empty for a collective.
    pub(crate) shapes: String,
    /// Start and duration; `None` for a record without them.
    pub(crate) time: Option<(Nanos, Nanos)>,
    pub(crate) is_collective: bool,
}

/// Visits every run of a kernel and every collective, in the order of the tables.
pub(crate) fn for_each_timed_record(
    file: &Path,
    visit: &mut dyn FnMut(TimedRecord),
) -> Result<(), ProfileError> {
    let sql = |source| database_error(file, source);
    let connection = open_database(file)?;
    let table = |name, without| {
        let found = TableSchema::read_schema(&connection, name).map_err(sql)?;
        found.ok_or_else(|| ProfileError::MissingTable { file: file.to_owned(), table: name, without })
    };
    let runs = table("TASK", super::NO_TASK)?;
    let kernels = table("COMPUTE_TASK_INFO", super::NO_KERNEL)?;
    let names = table("STRING_IDS", "the names of its kernels are unknown")?;
    let operations = TableSchema::read_schema(&connection, collectives::TABLE).map_err(sql)?;
    let task_id = |schema: &TableSchema, alias: &str, table| {
        let missing =
            || ProfileError::MissingTableColumns { file: file.to_owned(), table, missing: vec![TASK_ID] };
        schema.integer_column_of(alias, TASK_ID).ok_or_else(missing)
    };
    let (task, kernel_task) = (task_id(&runs, "t", "TASK")?, task_id(&kernels, "k", "COMPUTE_TASK_INFO")?);
    let mut strings = StringTable::new(&connection, &names).map_err(sql)?;
    let qualified = |alias: &str, table: &TableSchema, column: &str| {
        table.quoted_column(column).map_or_else(|| "NULL".to_owned(), |name| format!("{alias}.{name}"))
    };
    let [kind, shapes, core] =
        ["opType", "inputShapes", "taskType"].map(|column| qualified("k", &kernels, column));
    let [device, start, end] = ["deviceId", "startNs", "endNs"].map(|column| qualified("t", &runs, column));
    let query = format!(
        "SELECT {kind}, {shapes}, {core}, {device}, {start}, {end}, {task} FROM {} t JOIN {} k ON {task} = {kernel_task}",
        runs.quoted_name(),
        kernels.quoted_name()
    );
    let mut devices: BTreeSet<String> = BTreeSet::new();
    let mut read =
        |query: &str, is_collective: bool, devices: &mut BTreeSet<String>| -> Result<(), ProfileError> {
            let mut statement = connection.prepare(query).map_err(sql)?;
            let mut rows = statement.query([]).map_err(sql)?;
            while let Some(row) = rows.next().map_err(sql)? {
                strings.limit_memory();
                let mut text = |column: usize| -> Result<String, ProfileError> {
                    let text = NameCell::from_value(row.get_ref(column).map_err(sql)?);
                    match strings.load_name(&text) {
                        Ok(()) => {
                            Ok(String::from_utf8_lossy(strings.loaded_name(&text).trim_ascii()).into_owned())
                        }
                        Err(TextError::TooLong { .. }) => Ok(String::new()),
                        Err(TextError::Sqlite(error)) => Err(sql(error)),
                    }
                };
                let [kernel, shapes, core] = [text(0)?, text(1)?, text(2)?];
                let device = match row.get_ref(3).map_err(sql)? {
                    ValueRef::Integer(device) => device.to_string(),
                    // Collectives of older databases have no device; those of a rank are on its only one.
                    _ if is_collective && devices.len() == 1 => devices.first().cloned().unwrap_or_default(),
                    _ => String::new(),
                };
                if !is_collective {
                    devices.insert(device.clone());
                }
                let stamp = |column: usize, name: &'static str| match TaskTime::from_value(
                    row.get_ref(column).map_err(sql)?,
                ) {
                    TaskTime::Absent => Ok(None),
                    TaskTime::At(time) => Ok(Some(time)),
                    TaskTime::Bad { cell, problem } => {
                        let id = row.get_ref(6).map_err(sql)?.as_i64().unwrap_or_default();
                        let place = match is_collective {
                            true => RecordPosition::Operation(id),
                            false => RecordPosition::Task(id),
                        };
                        Err(ProfileError::bad_cell(file, place, name, cell.as_bytes(), problem.to_owned()))
                    }
                };
                let times = stamp(4, "startNs")?.zip(stamp(5, "endNs")?);
                let time =
                    times.and_then(|(start, end)| Some((Nanos(start), Nanos(end.checked_sub(start)?))));
                let time = time.filter(|(_, duration)| (0..=Nanos::LONGEST_KERNEL.0).contains(&duration.0));
                visit(TimedRecord { kernel, device, core, shapes, time, is_collective });
            }
            Ok(())
        };
    read(&query, false, &mut devices)?;
    if let Some(table) = operations {
        let [kind, device, start, end, id] =
            ["opType", "deviceId", "startNs", "endNs", "opId"].map(|column| table.column_or_null(column));
        let query =
            format!("SELECT {kind}, NULL, NULL, {device}, {start}, {end}, {id} FROM {}", table.quoted_name());
        read(&query, true, &mut devices)?;
    }
    Ok(())
}
