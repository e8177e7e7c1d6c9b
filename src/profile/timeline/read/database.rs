//! Runs in `ascend_pytorch_profiler_*.db` and `msprof_*.db`.
//!
//! Tables without rows are absent, and columns differ by version, so that all are optional but `TASK` and `STRING_IDS`.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use rusqlite::{Connection, Row, types::ValueRef};

use super::{kernel_table::collective_kind, launch_queue::LaunchQueue, operator_shapes::plain_shapes};
use crate::profile::{
    NameCell, ProfileError, RecordPosition, StringTable, TableSchema, TaskTime, TextError, database_error,
    open_database,
    timeline::{
        intervals::{TimeSpan, valid_time},
        names::NameId,
        nesting::OperatorNesting,
        run::{
            BackwardOperator, Collective, CollectiveId, CollectiveTask, DeviceTask, HostMark, HostOperator,
            HostRange, HostStep, OperatorId, ProfileForm, RunTimeline, TaskRole, is_collective_kernel,
            is_copy,
        },
    },
};

/// Types of calls in `PYTORCH_API`: operators of the framework, ends of entries of its queue, and functions of Python.
const OPERATOR: i64 = 50_001;
const QUEUE: i64 = 50_002;
const PYTHON: i64 = 50_003;
/// Prefix of the calls of modules among the functions of Python.
pub(super) const MODULE_PREFIX: &str = "nn.Module: ";
/// Types of events in `MSTX_EVENTS` with an instant only; the others have a start and an end.
const MARKS: [i64; 2] = [0, 3];

pub(super) fn read_database(file: &Path) -> Result<RunTimeline, ProfileError> {
    let connection = open_database(file)?;
    let sql = |source| database_error(file, source);
    let table = |name, without| {
        let found = TableSchema::read_schema(&connection, name).map_err(sql)?;
        found.ok_or_else(|| ProfileError::MissingTable { file: file.to_owned(), table: name, without })
    };
    let tasks = table("TASK", "nothing that ran on a device is recorded")?;
    let strings = table("STRING_IDS", "the names of its kernels are unknown")?;
    let missing = tasks.missing_columns(&["startNs", "endNs"]);
    if !missing.is_empty() {
        return Err(ProfileError::MissingTableColumns { file: file.to_owned(), table: "TASK", missing });
    }
    let mut reader = DatabaseReader {
        file,
        connection: &connection,
        strings: StringTable::new(&connection, &strings).map_err(sql)?,
        known: HashMap::new(),
        run: RunTimeline { form: Some(ProfileForm::Database), ..RunTimeline::default() },
        operators: HashMap::new(),
        launches: HashMap::new(),
        queue: LaunchQueue::default(),
        copies: Vec::new(),
        collective_tasks: Vec::new(),
    };
    reader.run.files.push(file.to_owned());
    reader.read_schema_version()?;
    reader.read_operators()?;
    reader.read_launches()?;
    reader.read_tasks(&tasks)?;
    reader.connect_copies();
    reader.read_collectives()?;
    reader.read_steps()?;
    reader.read_mstx()?;
    reader.read_rank()?;
    Ok(reader.run)
}

struct DatabaseReader<'a> {
    file: &'a Path,
    connection: &'a Connection,
    strings: StringTable<'a>,
    /// Names by their ids in `STRING_IDS`.
    known: HashMap<i64, NameId>,
    run: RunTimeline,
    /// Innermost operator by the connection of what it launched.
    operators: HashMap<i64, OperatorId>,
    /// Calls of CANN by connection, with their threads.
    launches: HashMap<i64, (TimeSpan, u64)>,
    queue: LaunchQueue,
    /// Places of the copies without an operator among the tasks, with their connections.
    copies: Vec<(usize, i64)>,
    collective_tasks: Vec<(CollectiveTask, Option<i64>)>,
}

/// Description of a task in `COMMUNICATION_TASK_INFO`.
struct CollectiveTaskInfo {
    kind: NameId,
    plane: Option<u32>,
    operation: Option<i64>,
}

impl DatabaseReader<'_> {
    fn sql(&self, source: rusqlite::Error) -> ProfileError {
        database_error(self.file, source)
    }

    fn schema(&self, table: &str) -> Result<Option<TableSchema>, ProfileError> {
        TableSchema::read_schema(self.connection, table).map_err(|source| self.sql(source))
    }

    /// Visits the rows of a query.
    fn for_each_row(
        &mut self,
        query: &str,
        visit: &mut dyn FnMut(&mut Self, &Row<'_>) -> Result<(), ProfileError>,
    ) -> Result<(), ProfileError> {
        let connection = self.connection;
        let mut statement = connection.prepare(query).map_err(|source| self.sql(source))?;
        let mut rows = statement.query([]).map_err(|source| self.sql(source))?;
        while let Some(row) = rows.next().map_err(|source| self.sql(source))? {
            visit(self, row)?;
        }
        Ok(())
    }

    /// Visits the rows of a table by its columns; missing columns are NULL.
    fn for_each_row_of(
        &mut self,
        table: &str,
        columns: &[&str],
        visit: &mut dyn FnMut(&mut Self, &Row<'_>) -> Result<(), ProfileError>,
    ) -> Result<(), ProfileError> {
        let Some(schema) = self.schema(table)? else { return Ok(()) };
        let columns: Vec<String> = columns.iter().map(|column| schema.column_or_null(column)).collect();
        self.for_each_row(&format!("SELECT {} FROM {}", columns.join(", "), schema.quoted_name()), visit)
    }

    fn integer(row: &Row<'_>, column: usize) -> Option<i64> {
        row.get_ref(column).ok().and_then(|cell| cell.as_i64().ok())
    }

    fn unsigned(row: &Row<'_>, column: usize) -> Option<u32> {
        Self::integer(row, column).and_then(|value| u32::try_from(value).ok())
    }

    fn name(&mut self, row: &Row<'_>, column: usize) -> Result<NameId, ProfileError> {
        let cell = NameCell::from_value(row.get_ref(column).map_err(|source| self.sql(source))?);
        if let NameCell::Id(id) = cell
            && let Some(name) = self.known.get(&id)
        {
            return Ok(*name);
        }
        self.strings.limit_memory();
        let name = match self.strings.load_name(&cell) {
            Ok(()) => self.run.names.insert_bytes(self.strings.loaded_name(&cell).trim_ascii()),
            // No name is that long.
            Err(TextError::TooLong { .. }) => NameId::EMPTY,
            Err(TextError::Sqlite(source)) => return Err(self.sql(source)),
        };
        if let NameCell::Id(id) = cell {
            self.known.insert(id, name);
        }
        Ok(name)
    }

    /// Reads a time; `None` if it is missing.
    fn time(
        &self,
        row: &Row<'_>,
        column: usize,
        name: &'static str,
        place: RecordPosition,
    ) -> Result<Option<i64>, ProfileError> {
        match TaskTime::from_value(row.get_ref(column).map_err(|source| self.sql(source))?) {
            TaskTime::Absent => Ok(None),
            TaskTime::At(time) => Ok(Some(time)),
            TaskTime::Bad { cell, problem } => {
                Err(ProfileError::bad_cell(self.file, place, name, cell.as_bytes(), problem.to_owned()))
            }
        }
    }

    /// Reads start and end; `None` and counted if one is missing, or if they are not [valid](TimeSpan::recorded).
    fn span(
        &mut self,
        row: &Row<'_>,
        [start, end]: [usize; 2],
        place: RecordPosition,
    ) -> Result<Option<TimeSpan>, ProfileError> {
        let times = (self.time(row, start, "startNs", place)?, self.time(row, end, "endNs", place)?);
        let span = match times {
            (Some(start), Some(end)) => TimeSpan::recorded(start, end),
            _ => None,
        };
        self.run.untimed += u64::from(span.is_none());
        Ok(span)
    }

    /// Reads start and end of a call of the host. One without an end was running when the profile ended, and is not counted.
    fn call_span(
        &mut self,
        row: &Row<'_>,
        columns: [usize; 2],
        place: RecordPosition,
    ) -> Result<Option<TimeSpan>, ProfileError> {
        match self.time(row, columns[1], "endNs", place)? {
            Some(_) => self.span(row, columns, place),
            None => Ok(None),
        }
    }

    /// Reads operators and modules, and the connections to what the operators launched.
    fn read_operators(&mut self) -> Result<(), ProfileError> {
        let mut connections: Vec<(Option<i64>, HostOperator)> = Vec::new();
        let columns =
            ["startNs", "endNs", "globalTid", "connectionId", "name", "type", "inputShapes", "inputDtypes"];
        let mut number = 0;
        self.for_each_row_of("PYTORCH_API", &columns, &mut |reader, row| {
            number += 1;
            let kind = Self::integer(row, 5);
            if !matches!(kind, Some(OPERATOR | QUEUE | PYTHON)) {
                return Ok(());
            }
            let name = reader.name(row, 4)?;
            let is_module = reader.run.names.text(name).starts_with(MODULE_PREFIX);
            if kind == Some(PYTHON) && !is_module {
                return Ok(());
            }
            let Some(span) = reader.call_span(row, [0, 1], RecordPosition::Row("PYTORCH_API", number))?
            else {
                return Ok(());
            };
            let thread = Self::integer(row, 2).map_or(0, i64::cast_unsigned);
            if kind == Some(QUEUE) {
                if let Some(id) = Self::integer(row, 3) {
                    reader.queue.add_end(reader.run.names.text(name), id, thread, span);
                }
            } else if is_module {
                let module = reader.run.names.text(name)[MODULE_PREFIX.len()..].to_owned();
                let name = reader.run.names.insert(&module);
                reader.run.ranges.push(HostRange { span, thread, name, domain: NameId::EMPTY });
            } else if !reader.run.names.text(name).starts_with("ProfilerStep#") {
                let shapes = reader.operator_shapes(row, [6, 7])?;
                connections.push((Self::integer(row, 3), HostOperator { span, thread, name, shapes }));
            }
            Ok(())
        })?;
        connections.sort_by_key(|(_, operator)| (operator.span.start, -operator.span.end));
        let mut by_id: HashMap<i64, Vec<OperatorId>> = HashMap::new();
        for ((id, operator), at) in connections.into_iter().zip(0..) {
            if let Some(id) = id {
                by_id.entry(id).or_default().push(OperatorId(at));
            }
            self.run.operators.push(operator);
        }
        self.read_connections(&by_id)
    }

    /// Returns the shapes of an operator's inputs: some versions store them in the column of the types.
    fn operator_shapes(&mut self, row: &Row<'_>, columns: [usize; 2]) -> Result<NameId, ProfileError> {
        for column in columns {
            let cell = self.name(row, column)?;
            let text = self.run.names.text(cell);
            if cell.is_recorded() && !text.contains(|c: char| c.is_ascii_alphabetic()) {
                let text = plain_shapes(text);
                return Ok(self.run.names.insert(&text));
            }
        }
        Ok(NameId::EMPTY)
    }

    /// Reads the connections of operators. A connection of two operators is one from the forward to the backward pass.
    fn read_connections(&mut self, by_id: &HashMap<i64, Vec<OperatorId>>) -> Result<(), ProfileError> {
        let mut of_connection: HashMap<i64, Vec<(i64, OperatorId)>> = HashMap::new();
        self.for_each_row_of("CONNECTION_IDS", &["id", "connectionId"], &mut |reader, row| {
            let (Some(id), Some(connection)) = (Self::integer(row, 0), Self::integer(row, 1)) else {
                return Ok(());
            };
            match by_id.get(&id) {
                Some(operators) => {
                    let entry = of_connection.entry(connection).or_default();
                    entry.extend(operators.iter().map(|operator| (id, *operator)));
                }
                None => reader.queue.add_connection(id, connection),
            }
            Ok(())
        })?;
        self.queue.connect_ends();
        for (connection, mut operators) in of_connection {
            operators.sort_unstable();
            // The last one that started is the innermost.
            if let Some((_, innermost)) = operators.iter().max_by_key(|(_, operator)| *operator) {
                self.operators.insert(connection, *innermost);
            }
            if let ([(first, forward), ..], Some((last, backward))) = (&*operators, operators.last())
                && first != last
            {
                self.run.backward.push(BackwardOperator { backward: *backward, forward: *forward });
            }
        }
        Ok(())
    }

    fn read_launches(&mut self) -> Result<(), ProfileError> {
        let mut number = 0;
        let columns = ["startNs", "endNs", "connectionId", "globalTid"];
        self.for_each_row_of("CANN_API", &columns, &mut |reader, row| {
            number += 1;
            let Some(connection) = Self::integer(row, 2) else { return Ok(()) };
            if let Some(span) = reader.call_span(row, [0, 1], RecordPosition::Row("CANN_API", number))? {
                let thread = Self::integer(row, 3).map_or(0, i64::cast_unsigned);
                // Of several levels of calls, the innermost one starts last.
                let launch = reader.launches.entry(connection).or_insert((span, thread));
                if launch.0.start < span.start {
                    *launch = (span, thread);
                }
            }
            Ok(())
        })
    }

    fn read_tasks(&mut self, tasks: &TableSchema) -> Result<(), ProfileError> {
        let mut of_collectives: HashMap<i64, CollectiveTaskInfo> = HashMap::new();
        let columns = ["globalTaskId", "taskType", "planeId", "opId"];
        self.for_each_row_of("COMMUNICATION_TASK_INFO", &columns, &mut |reader, row| {
            let Some(id) = Self::integer(row, 0) else { return Ok(()) };
            let (kind, plane) = (reader.name(row, 1)?, Self::unsigned(row, 2));
            of_collectives.insert(id, CollectiveTaskInfo { kind, plane, operation: Self::integer(row, 3) });
            Ok(())
        })?;
        let cube = self.cube_tasks()?;
        let kernels = self.schema("COMPUTE_TASK_INFO")?;
        let columns =
            ["startNs", "endNs", "deviceId", "streamId", "connectionId", "taskType", "globalTaskId"];
        let of_task = |column: &str| {
            tasks.quoted_column(column).map_or_else(|| "NULL".to_owned(), |column| format!("t.{column}"))
        };
        let mut selected: Vec<String> = columns.iter().map(|column| of_task(column)).collect();
        let names = [
            "name",
            "opType",
            "inputShapes",
            "inputDataTypes",
            "inputFormats",
            "outputShapes",
            "outputDataTypes",
            "outputFormats",
            "taskType",
        ];
        let mut join = String::new();
        let ids = kernels.as_ref().and_then(|kernels| {
            Some((
                kernels.integer_column_of("k", "globalTaskId")?,
                tasks.integer_column_of("t", "globalTaskId")?,
            ))
        });
        match (&kernels, ids) {
            (Some(kernels), Some((kernel_id, task_id))) => {
                selected.push(kernel_id.clone());
                selected.extend(names.map(|name| {
                    let column = kernels.quoted_column(name);
                    column.map_or_else(|| "NULL".to_owned(), |column| format!("k.{column}"))
                }));
                join = format!(" LEFT JOIN {} k ON {} = {}", kernels.quoted_name(), kernel_id, task_id);
            }
            _ => selected.extend(std::iter::repeat_n("NULL".to_owned(), names.len() + 1)),
        }
        let query = format!("SELECT {} FROM {} t{join}", selected.join(", "), tasks.quoted_name());
        self.for_each_row(&query, &mut |reader, row| {
            let id = Self::integer(row, 6);
            let Some(span) = reader.span(row, [0, 1], RecordPosition::Task(id.unwrap_or(0)))? else {
                return Ok(());
            };
            let is_kernel = Self::integer(row, 7).is_some();
            let [name, kind] = match is_kernel {
                true => [reader.name(row, 8)?, reader.name(row, 9)?],
                false => [NameId::EMPTY, reader.name(row, 5)?],
            };
            let mut cells = [NameId::EMPTY; 6];
            if is_kernel {
                for (cell, column) in cells.iter_mut().zip(10..) {
                    *cell = reader.name(row, column)?;
                }
            }
            let has_cells = cells.iter().any(|cell| cell.is_recorded());
            let is_collective =
                [kind, name].iter().any(|id| is_collective_kernel(reader.run.names.text(*id)));
            let connection = Self::integer(row, 4);
            let info = id.and_then(|id| of_collectives.get(&id));
            if let Some(CollectiveTaskInfo { kind, plane, operation }) = info {
                let task = CollectiveTask { span, kind: *kind, plane: *plane, collective: None };
                reader.collective_tasks.push((task, *operation));
            }
            let role = match (is_kernel, info.is_some()) {
                (true, _) if is_collective => TaskRole::CollectiveKernel,
                (true, _) => TaskRole::Kernel,
                (false, true) => TaskRole::CollectiveTask,
                (false, false) => TaskRole::Other,
            };
            let task = DeviceTask {
                span,
                device: Self::unsigned(row, 2),
                stream: Self::unsigned(row, 3),
                name,
                kind,
                core: if is_kernel { reader.name(row, 16)? } else { NameId::EMPTY },
                role,
                signature: if has_cells { reader.run.insert_signature(cells) } else { None },
                uses_cube: cube.as_ref().map(|cube| id.is_some_and(|id| cube.contains(&id))),
                operator: connection.and_then(|connection| reader.operators.get(&connection).copied()),
                launch: connection.and_then(|connection| Some(reader.launches.get(&connection)?.0)),
                step: None,
            };
            reader.add_copy(&task, connection);
            reader.run.tasks.push(task);
            Ok(())
        })
    }

    /// Remembers the next task if it is a copy whose operator no id gives.
    fn add_copy(&mut self, task: &DeviceTask, connection: Option<i64>) {
        let is_open = task.operator.is_none() && task.role == TaskRole::Other;
        if is_open && is_copy(self.run.names.text(task.kind)) {
            self.copies.extend(connection.map(|connection| (self.run.tasks.len(), connection)));
        }
    }

    /// Sets the operators of copies, which no id connects with them, by the calls of CANN that made them.
    fn connect_copies(&mut self) {
        let nesting = OperatorNesting::new(&self.run.operators);
        for (at, connection) in std::mem::take(&mut self.copies) {
            let call = self.launches.get(&connection);
            let place = call.map(|(span, thread)| (*thread, span.start));
            self.run.tasks[at].operator =
                place.and_then(|place| self.queue.operator_of_call(place, &nesting));
        }
    }

    /// Returns the tasks during which the cube unit was busy; `None` if it is not recorded.
    fn cube_tasks(&mut self) -> Result<Option<HashSet<i64>>, ProfileError> {
        let mut tasks: Option<HashSet<i64>> = None;
        self.for_each_row_of("TASK_PMU_INFO", &["globalTaskId", "name", "value"], &mut |reader, row| {
            let name = reader.name(row, 1)?;
            if reader.run.names.text(name) == "aic_mac_time" {
                let tasks = tasks.get_or_insert_default();
                let value = row
                    .get_ref(2)
                    .ok()
                    .and_then(|cell| cell.as_f64().or_else(|_| cell.as_i64().map(|_| 1.0)).ok());
                let is_busy =
                    Self::integer(row, 2).map_or(value.is_some_and(|value| value > 0.0), |value| value > 0);
                if is_busy {
                    tasks.extend(Self::integer(row, 0));
                }
            }
            Ok(())
        })?;
        Ok(tasks)
    }

    fn read_collectives(&mut self) -> Result<(), ProfileError> {
        let devices = self.run.devices();
        let only_device = if let [device] = *devices { device } else { None };
        let columns =
            ["startNs", "endNs", "deviceId", "connectionId", "opName", "opType", "groupName", "opId"];
        let mut by_number: HashMap<i64, CollectiveId> = HashMap::new();
        self.for_each_row_of("COMMUNICATION_OP", &columns, &mut |reader, row| {
            let place = RecordPosition::Operation(Self::integer(row, 7).unwrap_or(0));
            let Some(span) = reader.span(row, [0, 1], place)? else { return Ok(()) };
            let (name, mut kind, group) = (reader.name(row, 4)?, reader.name(row, 5)?, reader.name(row, 6)?);
            if !kind.is_recorded() {
                let text = collective_kind(reader.run.names.text(name).as_bytes()).to_owned();
                kind = reader.run.names.insert_bytes(&text);
            }
            let connection = Self::integer(row, 3);
            let collective = Collective {
                span,
                device: Self::unsigned(row, 2).or(only_device),
                name,
                kind,
                group,
                operator: connection.and_then(|connection| reader.operators.get(&connection).copied()),
                launch: connection.and_then(|connection| Some(reader.launches.get(&connection)?.0)),
                step: None,
            };
            let id = u32::try_from(reader.run.collectives.len()).ok().map(CollectiveId);
            by_number.extend(Self::integer(row, 7).zip(id));
            reader.run.collectives.push(collective);
            Ok(())
        })?;
        let tasks = std::mem::take(&mut self.collective_tasks).into_iter();
        self.run.collective_tasks.extend(tasks.map(|(task, number)| CollectiveTask {
            collective: number.and_then(|number| by_number.get(&number).copied()),
            ..task
        }));
        Ok(())
    }

    fn read_steps(&mut self) -> Result<(), ProfileError> {
        let mut number = 0;
        self.for_each_row_of("STEP_TIME", &["id", "startNs", "endNs"], &mut |reader, row| {
            number += 1;
            let place = RecordPosition::Row("STEP_TIME", number);
            let Some(step) = Self::integer(row, 0).and_then(|step| u64::try_from(step).ok()) else {
                let problem = "is not the number of a step".to_owned();
                let cell = Self::cell_text(row, 0);
                return Err(ProfileError::bad_cell(reader.file, place, "id", cell.as_bytes(), problem));
            };
            if let Some(span) = reader.span(row, [1, 2], place)? {
                reader.run.steps.push(HostStep { span, number: step });
            }
            Ok(())
        })
    }

    /// Reads the version of the tables. Minor versions add columns; the next major one may give them another meaning.
    fn read_schema_version(&mut self) -> Result<(), ProfileError> {
        self.for_each_row_of("META_DATA", &["name", "value"], &mut |reader, row| {
            let version = Self::cell_text(row, 1);
            if Self::cell_text(row, 0) == "SCHEMA_VERSION" && !version.starts_with("1.") {
                reader.run.unknown_schema = Some(version);
            }
            Ok(())
        })
    }

    /// Returns a cell for comparisons and messages.
    fn cell_text(row: &Row<'_>, column: usize) -> String {
        match row.get_ref(column) {
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Ok(ValueRef::Integer(number)) => number.to_string(),
            Ok(ValueRef::Real(number)) => number.to_string(),
            _ => String::new(),
        }
    }

    fn read_mstx(&mut self) -> Result<(), ProfileError> {
        let columns = ["startNs", "endNs", "globalTid", "eventType", "message", "domainId"];
        let mut number = 0;
        self.for_each_row_of("MSTX_EVENTS", &columns, &mut |reader, row| {
            number += 1;
            let place = RecordPosition::Row("MSTX_EVENTS", number);
            let (name, domain) = (reader.name(row, 4)?, reader.name(row, 5)?);
            let start = reader.time(row, 0, "startNs", place)?;
            if Self::integer(row, 3).is_some_and(|kind| MARKS.contains(&kind)) {
                match start.and_then(valid_time) {
                    Some(at) => reader.run.marks.push(HostMark { at, name, domain }),
                    None => reader.run.untimed += 1,
                }
                return Ok(());
            }
            let times = start.zip(reader.time(row, 1, "endNs", place)?);
            let Some(span) = times.and_then(|(start, end)| TimeSpan::recorded(start, end)) else {
                reader.run.unfinished_ranges += 1;
                return Ok(());
            };
            let thread = Self::integer(row, 2).map_or(0, i64::cast_unsigned);
            reader.run.ranges.push(HostRange { span, thread, name, domain });
            Ok(())
        })
    }

    fn read_rank(&mut self) -> Result<(), ProfileError> {
        let mut ranks = Vec::new();
        self.for_each_row_of("RANK_DEVICE_MAP", &["rankId"], &mut |_, row| {
            ranks.extend(Self::unsigned(row, 0));
            Ok(())
        })?;
        self.run.rank = if let [rank] = *ranks { Some(rank) } else { None };
        Ok(())
    }
}
