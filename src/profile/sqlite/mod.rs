//! Kernel records from `ascend_pytorch_profiler*.db` and `msprof_*.db`.
//!
//! A record is a row of `COMPUTE_TASK_INFO` with the times of its `TASK`; names are ids into `STRING_IDS`, counters
//! are in `TASK_PMU_INFO`. Collectives in `COMMUNICATION_OP` are counted. Other tables and columns are ignored.

mod collectives;
mod device;
mod open;
mod operators;
mod ordered_cursor;
mod pmu;
mod schema;
mod strings;
#[cfg(test)]
mod tests;
mod timed_records;

use std::path::Path;

use rusqlite::Row;

pub(super) use super::sqlite::{
    collectives::{for_each_collective, metadata},
    device::{core_usage, device_name, highest_clock},
    operators::for_each_operator,
};
pub(crate) use super::sqlite::{
    open::{database_error, is_database, open_database},
    ordered_cursor::TaskTime,
    schema::TableSchema,
    strings::{NameCell, StringTable, TextError},
    timed_records::{TimedRecord, for_each_timed_record},
};
use super::{
    ProfileError, REHEARSAL_PREFIX, RecordGroups, RecordPosition,
    columns::CELLS,
    error::ShapelessKind,
    kernel_record::{CounterSums, KernelRecord},
    sqlite::{
        ordered_cursor::OrderedCursor,
        pmu::{PmuQuery, PmuValues},
    },
};
use crate::kernel::Nanos;

/// Columns of `COMPUTE_TASK_INFO` with names; the first seven are the signature and required.
const NAMES: [&str; 10] = [
    "opType",
    "inputShapes",
    "inputDataTypes",
    "inputFormats",
    "outputShapes",
    "outputDataTypes",
    "outputFormats",
    "name",
    "taskType",
    "opState",
];
const SIGNATURE: usize = 7;

/// Tables of an `analysis.db` or `cluster_analysis.db`.
const ANALYSIS: [&str; 3] = ["StepTraceTime", "CommAnalyzerTime", "ModuleStatistic"];

const NO_TASK: &str = "nothing that ran on a device is recorded";
const NO_TASK_BUT_ANALYSIS: &str = "it holds an analysis of steps and communication, no kernels";
const NO_KERNEL: &str = "it was taken at profiler level 0, or no kernel ran";
const NO_KERNEL_BUT_COLLECTIVES: &str = "it holds collectives and no other kernel";

/// Record of one run of a kernel.
struct TaskRecord<'a> {
    file: &'a Path,
    task: i64,
    names: [&'a [u8]; NAMES.len()],
    duration: Option<Nanos>,
    counters: Option<CounterSums>,
}

/// Reader of one database.
struct ProfileDatabase<'a, 's> {
    file: &'a Path,
    file_number: u64,
    accept_rehearsed: bool,
    strings: StringTable<'s>,
    tasks: OrderedCursor<'s, (TaskTime, TaskTime)>,
    pmu: Option<PmuValues<'s>>,
}

/// Adds every kernel record of a database to the groups.
pub(super) fn add_database(
    groups: &mut RecordGroups,
    file: &Path,
    file_number: u64,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    let connection = open_database(file)?;
    let sql = |source| database_error(file, source);
    let table = |name, without| {
        let found = TableSchema::read_schema(&connection, name).map_err(sql)?;
        found.ok_or_else(|| ProfileError::MissingTable { file: file.to_owned(), table: name, without })
    };
    let analysis = ANALYSIS.iter().map(|name| TableSchema::read_schema(&connection, name));
    let is_analysis = analysis.collect::<Result<Vec<_>, _>>().map_err(sql)?.iter().any(Option::is_some);
    let runs = table("TASK", if is_analysis { NO_TASK_BUT_ANALYSIS } else { NO_TASK })?;
    let operations = TableSchema::read_schema(&connection, collectives::TABLE).map_err(sql)?;
    let has_collectives = match &operations {
        Some(table) => collectives::has_rows(&connection, table).map_err(sql)?,
        None => false,
    };
    let without = if has_collectives { NO_KERNEL_BUT_COLLECTIVES } else { NO_KERNEL };
    let kernels = table("COMPUTE_TASK_INFO", without)?;
    let names = table("STRING_IDS", "the names of its kernels are unknown")?;
    check_columns(file, &runs, &kernels)?;
    let mut strings = StringTable::new(&connection, &names).map_err(sql)?;
    if let Some(operations) = &operations {
        collectives::add_collectives(groups, &connection, operations, &mut strings, file, accept_rehearsed)?;
    }
    let mut pmu = PmuQuery::new(&connection, &mut strings).map_err(sql)?;
    let mut of_tasks = connection.prepare(&tasks_query(&runs)).map_err(sql)?;
    let mut of_kernels = connection.prepare(&kernels_query(&kernels)).map_err(sql)?;
    let has_column = NAMES.map(|name| kernels.quoted_column(name).is_some());
    let mut reader = ProfileDatabase {
        file,
        file_number,
        accept_rehearsed,
        strings,
        tasks: OrderedCursor::new(of_tasks.query([]).map_err(sql)?, |row| {
            Ok((TaskTime::from_value(row.get_ref(1)?), TaskTime::from_value(row.get_ref(2)?)))
        }),
        pmu: pmu.as_mut().map(PmuQuery::query_values).transpose().map_err(sql)?,
    };
    let mut rows = of_kernels.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        reader.add_kernel(groups, row, has_column)?;
    }
    Ok(())
}

fn check_columns(file: &Path, runs: &TableSchema, kernels: &TableSchema) -> Result<(), ProfileError> {
    let shapes = &NAMES[1..SIGNATURE];
    if kernels.quoted_column(NAMES[0]).is_some() && kernels.missing_columns(shapes).len() == shapes.len() {
        return Err(ProfileError::NoShapes { file: file.to_owned(), why: ShapelessKind::Level0 });
    }
    let mut missing = kernels.missing_columns(&["globalTaskId"]);
    missing.extend(kernels.missing_columns(&NAMES[..SIGNATURE]));
    let of_runs = runs.missing_columns(&["globalTaskId", "startNs", "endNs"]);
    for (table, missing) in [("COMPUTE_TASK_INFO", missing), ("TASK", of_runs)] {
        if !missing.is_empty() {
            return Err(ProfileError::MissingTableColumns { file: file.to_owned(), table, missing });
        }
    }
    Ok(())
}

fn tasks_query(runs: &TableSchema) -> String {
    let (start, end) = (runs.column_or_null("startNs"), runs.column_or_null("endNs"));
    let id = runs.integer_column("globalTaskId").unwrap_or_default();
    format!("SELECT {id}, {start}, {end} FROM {} ORDER BY 1", runs.quoted_name())
}

fn kernels_query(kernels: &TableSchema) -> String {
    let id = kernels.integer_column("globalTaskId").unwrap_or_default();
    let names = NAMES.map(|name| kernels.column_or_null(name));
    format!("SELECT {id}, {} FROM {} ORDER BY 1", names.join(", "), kernels.quoted_name())
}

impl ProfileDatabase<'_, '_> {
    /// Adds a record for each run of a kernel; a kernel without a run is a record without a duration.
    fn add_kernel(
        &mut self,
        groups: &mut RecordGroups,
        row: &Row<'_>,
        has_column: [bool; NAMES.len()],
    ) -> Result<(), ProfileError> {
        let file = self.file;
        let sql = |source| database_error(file, source);
        let id = row.get_ref(0).map_err(sql)?.as_i64().ok();
        let task = id.unwrap_or_default();
        let mut texts = NAMES.map(|_| NameCell::NoColumn);
        self.strings.limit_memory();
        for (index, text) in texts.iter_mut().enumerate().filter(|(index, _)| has_column[*index]) {
            *text = NameCell::from_value(row.get_ref(index + 1).map_err(sql)?);
            self.strings.load_name(text).map_err(|error| match error {
                TextError::Sqlite(source) => sql(source),
                TextError::TooLong { id, bytes } => {
                    let (position, cell) = (RecordPosition::Task(task), id.to_string());
                    let problem =
                        format!("stands for a text of {bytes} bytes, longer than any profiler writes");
                    ProfileError::bad_cell(file, position, NAMES[index], cell.as_bytes(), problem)
                }
            })?;
        }
        let names = texts.each_ref().map(|text| self.strings.loaded_name(text));
        let mut record = TaskRecord { file, task, names, duration: None, counters: None };
        if names[7].starts_with(REHEARSAL_PREFIX.as_bytes()) && !self.accept_rehearsed {
            return Err(ProfileError::Rehearsed { file: file.to_owned(), place: RecordPosition::Task(task) });
        }
        let mut counters = match (&mut self.pmu, id) {
            (Some(pmu), Some(id)) => Some(pmu.sums_of_task(id).map_err(sql)?),
            _ => None,
        };
        let mut run = id.map_or(Ok(None), |id| self.tasks.next_of(id)).map_err(sql)?;
        if run.is_none() {
            return groups.add_record(&record, (self.file_number, u64::MAX));
        }
        while let Some((start, end)) = run {
            let start = record.nanoseconds(start, "startNs")?;
            let end = record.nanoseconds(end, "endNs")?;
            record.duration = record.between(start, end)?;
            // The counters are added to the first run with a duration; the choice does not change the group's means.
            record.counters = if record.duration.is_some_and(|d| d.0 > 0) { counters.take() } else { None };
            let position = start.and_then(|start| u64::try_from(start).ok()).unwrap_or_default();
            groups.add_record(&record, (self.file_number, position))?;
            run = self.tasks.next_of(task).map_err(sql)?;
        }
        Ok(())
    }
}

impl TaskRecord<'_> {
    fn nanoseconds(&self, stamp: TaskTime, column: &'static str) -> Result<Option<i64>, ProfileError> {
        match stamp {
            TaskTime::Absent => Ok(None),
            TaskTime::At(time) => Ok(Some(time)),
            TaskTime::Bad { cell, problem } => {
                Err(self.bad_cell(column, cell.as_bytes(), problem.to_owned()))
            }
        }
    }

    fn between(&self, start: Option<i64>, end: Option<i64>) -> Result<Option<Nanos>, ProfileError> {
        let (Some(start), Some(end)) = (start, end) else { return Ok(None) };
        let duration = end.checked_sub(start).ok_or_else(|| {
            let problem = format!("is out of range of startNs {start}");
            self.bad_cell("endNs", end.to_string().as_bytes(), problem)
        })?;
        Ok(Some(Nanos(duration)))
    }
}

impl KernelRecord for TaskRecord<'_> {
    fn kernel(&self) -> &[u8] {
        self.names[0].trim_ascii()
    }

    fn name(&self) -> &[u8] {
        self.names[7]
    }

    fn cells(&self) -> [&[u8]; 6] {
        let [_, inputs @ .., _, _, _] = self.names;
        inputs
    }

    fn state(&self) -> &[u8] {
        self.names[9]
    }

    fn core(&self) -> &[u8] {
        self.names[8]
    }

    fn duration(&self) -> Result<Option<Nanos>, ProfileError> {
        Ok(self.duration)
    }

    fn add_counters(&self, sums: &mut CounterSums) {
        if let Some(counters) = &self.counters {
            sums.merge_sums(counters);
        }
    }

    fn bad_cell(&self, column: &'static str, cell: &[u8], problem: String) -> ProfileError {
        let signature = CELLS.iter().zip(&NAMES[1..SIGNATURE]).find(|(csv, _)| **csv == column);
        let column = match (column, signature) {
            ("Type", _) => "opType",
            ("Duration(us)", _) => "endNs - startNs",
            (_, Some((_, name))) => name,
            (other, None) => other,
        };
        ProfileError::bad_cell(self.file, RecordPosition::Task(self.task), column, cell, problem)
    }
}
