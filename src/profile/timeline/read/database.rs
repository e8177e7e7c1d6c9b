//! Runs in `ascend_pytorch_profiler_*.db` and `msprof_*.db`.
//!
//! Tables without rows are absent, and columns differ by version, so that all are optional but `TASK` and `STRING_IDS`.

use super::{
    host_events::{MODULE_PREFIX, plain_shapes},
    kernel_table::collective_kind,
    launch_queue::LaunchQueue,
};
use crate::profile::{
    DatabaseRow, NameCell, RecordPosition, StringTable,
    timeline::{
        intervals::valid_time,
        prelude::*,
        run::{HostMark, HostStep},
    },
};

/// Types of calls in `PYTORCH_API`: operators of the framework, ends of entries of its queue, and functions of Python.
/// Versions of the tables that are read. A new minor version may be incompatible, a new micro version is not.
const KNOWN_SCHEMAS: [&str; 3] = ["1.0.", "1.1.", "1.2."];
const OPERATOR: i64 = 50_001;
const QUEUE: i64 = 50_002;
const PYTHON: i64 = 50_003;
/// Types of events in `MSTX_EVENTS` with an instant only; the others have a start and an end.
const MARKS: [i64; 2] = [0, 3];

pub(super) fn read_database(file: &Path) -> Result<RunTimeline, ProfileError> {
    let database = ProfileDatabase::open(file)?;
    let missing = database
        .required_table("TASK", "nothing that ran on a device is recorded")?
        .missing_columns(&["startNs", "endNs"]);
    let mut reader = DatabaseReader {
        file,
        strings: StringTable::open(&database)?,
        database: &database,
        known: HashMap::new(),
        run: RunTimeline {
            form: Some(ProfileForm::Database),
            files: vec![file.to_owned()],
            ..RunTimeline::default()
        },
        operators: HashMap::new(),
        launches: HashMap::new(),
        queue: LaunchQueue::default(),
        copies: Vec::new(),
        mixed: MixedKernels::default(),
        collective_tasks: Vec::new(),
    };
    if !missing.is_empty() {
        return Err(ProfileError::MissingTableColumns { file: file.to_owned(), table: "TASK", missing });
    }
    reader.read_metadata()?;
    reader.read_operators()?;
    reader.read_launches()?;
    reader.read_tasks()?;
    reader.connect_copies();
    reader.leave_out_outer_tasks();
    reader.read_collectives()?;
    reader.read_steps()?;
    reader.read_mstx()?;
    Ok(reader.run)
}

struct DatabaseReader<'a> {
    file: &'a Path,
    database: &'a ProfileDatabase<'a>,
    strings: StringTable<'a>,
    known: HashMap<i64, NameId>,
    run: RunTimeline,
    operators: HashMap<i64, OperatorId>,
    launches: HashMap<i64, (TimeSpan, u64)>,
    queue: LaunchQueue,
    copies: Vec<(usize, i64)>,
    mixed: MixedKernels,
    collective_tasks: Vec<(CollectiveTask, Option<i64>)>,
}

/// Tasks by device, stream and number. A kernel on cores of both kinds has two, of which the outer one, of the
/// scheduler, has no row in `COMPUTE_TASK_INFO` and no context, and the inner one has context 0 (Ascend/msprof 9ba1ac7,
/// csrc/domain/services/association/ascend_task_association.cpp).
#[derive(Default)]
struct MixedKernels {
    /// With their places among the tasks of the run.
    outer: Vec<(TaskKey, usize)>,
    inner: HashMap<TaskKey, Vec<TimeSpan>>,
}

type TaskKey = (Option<u32>, Option<u32>, i64);

/// The context of a task without one.
const NO_CONTEXT: i64 = u32::MAX as i64;

type Row<'r, 's> = DatabaseRow<'r, 's>;

fn thread_of(row: Row<'_, '_>, column: usize) -> u64 {
    row.integer(column).map_or(0, i64::cast_unsigned)
}

impl DatabaseReader<'_> {
    fn name(&mut self, row: Row<'_, '_>, column: usize) -> Result<NameId, ProfileError> {
        let cell = row.name(column);
        let NameCell::Id(id) = cell else {
            return Ok(self.run.names.insert_bytes(self.strings.name(&cell)?));
        };
        if let Some(name) = self.known.get(&id) {
            return Ok(*name);
        }
        let name = self.run.names.insert_bytes(self.strings.name(&cell)?);
        self.known.insert(id, name);
        Ok(name)
    }

    /// Reads start and end, the first two columns; `None` and counted if one is missing, or if they are not [valid](TimeSpan::recorded).
    fn span(&mut self, row: Row<'_, '_>, place: RecordPosition) -> Result<Option<TimeSpan>, ProfileError> {
        let times = row.time(0, "startNs", place)?.zip(row.time(1, "endNs", place)?);
        let span = times.and_then(|(start, end)| TimeSpan::recorded(start, end));
        self.run.untimed += u64::from(span.is_none());
        Ok(span)
    }

    /// Reads start and end of a call of the host. One without an end was running when the profile ended, and is not counted.
    fn call_span(
        &mut self,
        row: Row<'_, '_>,
        place: RecordPosition,
    ) -> Result<Option<TimeSpan>, ProfileError> {
        match row.time(1, "endNs", place)? {
            Some(_) => self.span(row, place),
            None => Ok(None),
        }
    }

    /// Reads the rank, and the version of the tables, `major.minor.micro`: a new minor version is incompatible (Ascend/msprof 9ba1ac7,
    /// analysis/csrc/application/database/db_constant.h).
    fn read_metadata(&mut self) -> Result<(), ProfileError> {
        self.database.for_each_row_of("META_DATA", &["name", "value"], &mut |row| {
            let version = row.text(1);
            if row.text(0) == "SCHEMA_VERSION"
                && !KNOWN_SCHEMAS.iter().any(|known| version.starts_with(known))
            {
                self.run.unknown_schema = Some(version);
            }
            Ok(())
        })?;
        let mut ranks = Vec::new();
        self.database.for_each_row_of("RANK_DEVICE_MAP", &["rankId"], &mut |row| {
            ranks.extend(row.unsigned::<u32>(0));
            Ok(())
        })?;
        self.run.rank = if let [rank] = *ranks { Some(rank) } else { None };
        Ok(())
    }

    fn read_operators(&mut self) -> Result<(), ProfileError> {
        let mut connections: Vec<(Option<i64>, HostOperator)> = Vec::new();
        let columns =
            ["startNs", "endNs", "globalTid", "connectionId", "name", "type", "inputShapes", "inputDtypes"];
        self.database.for_each_row_of("PYTORCH_API", &columns, &mut |row| {
            let kind = row.integer(5);
            if !matches!(kind, Some(OPERATOR | QUEUE | PYTHON)) {
                return Ok(());
            }
            let name = self.name(row, 4)?;
            let text = self.run.names.text(name);
            let module = text.strip_prefix(MODULE_PREFIX).map(str::to_owned);
            if kind == Some(PYTHON) && module.is_none() {
                return Ok(());
            }
            let place = RecordPosition::Row("PYTORCH_API", row.number);
            let Some(span) = self.call_span(row, place)? else { return Ok(()) };
            let (thread, id) = (thread_of(row, 2), row.integer(3));
            let text = self.run.names.text(name);
            if kind == Some(QUEUE) {
                if let Some(id) = id {
                    self.queue.add_end(text, id, thread, span);
                }
            } else if let Some(module) = module {
                let name = self.run.names.insert(&module);
                self.run.ranges.push(HostRange { span, thread, name, domain: NameId::EMPTY });
            } else if !text.starts_with("ProfilerStep#") {
                let shapes = self.operator_shapes(row, [6, 7])?;
                connections.push((id, HostOperator { span, thread, name, shapes }));
            }
            Ok(())
        })?;
        connections.sort_by_key(|(_, operator)| operator.span.outer_first());
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
    fn operator_shapes(&mut self, row: Row<'_, '_>, columns: [usize; 2]) -> Result<NameId, ProfileError> {
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
        self.database.for_each_row_of("CONNECTION_IDS", &["id", "connectionId"], &mut |row| {
            let (Some(id), Some(connection)) = (row.integer(0), row.integer(1)) else { return Ok(()) };
            match by_id.get(&id) {
                Some(operators) => {
                    let entry = of_connection.entry(connection).or_default();
                    entry.extend(operators.iter().map(|operator| (id, *operator)));
                }
                None => self.queue.add_connection(id, connection),
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
                self.run.backward.push((*backward, *forward));
            }
        }
        Ok(())
    }

    fn read_launches(&mut self) -> Result<(), ProfileError> {
        let columns = ["startNs", "endNs", "connectionId", "globalTid"];
        self.database.for_each_row_of("CANN_API", &columns, &mut |row| {
            let Some(connection) = row.integer(2) else { return Ok(()) };
            if let Some(span) = self.call_span(row, RecordPosition::Row("CANN_API", row.number))? {
                // If calls are nested, the innermost call starts last.
                let launch = self.launches.entry(connection).or_insert((span, thread_of(row, 3)));
                if launch.0.start < span.start {
                    *launch = (span, thread_of(row, 3));
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    fn launched_by(&self, connection: Option<i64>) -> (Option<OperatorId>, Option<TimeSpan>) {
        let Some(connection) = connection else { return (None, None) };
        (self.operators.get(&connection).copied(), self.launches.get(&connection).map(|(span, _)| *span))
    }

    fn read_tasks(&mut self) -> Result<(), ProfileError> {
        let mut of_collectives: HashMap<i64, (NameId, Option<u32>, Option<i64>)> = HashMap::new();
        let columns = ["globalTaskId", "taskType", "planeId", "opId"];
        self.database.for_each_row_of("COMMUNICATION_TASK_INFO", &columns, &mut |row| {
            if let Some(id) = row.integer(0) {
                of_collectives.insert(id, (self.name(row, 1)?, row.unsigned(2), row.integer(3)));
            }
            Ok(())
        })?;
        let cube = self.cube_tasks()?;
        let query = self.task_query()?;
        self.database.for_each_row(&query, &mut |row| {
            let id = row.integer(6);
            let Some(span) = self.span(row, RecordPosition::Task(id.unwrap_or(0)))? else {
                return Ok(());
            };
            let is_kernel = row.integer(7).is_some();
            let (mut name, mut core, mut cells) = (NameId::EMPTY, NameId::EMPTY, [NameId::EMPTY; 6]);
            let kind = self.name(row, if is_kernel { 9 } else { 5 })?;
            if !span.is_of_task(self.run.names.text(kind)) {
                self.run.untimed += 1;
                return Ok(());
            }
            if is_kernel {
                (name, core) = (self.name(row, 8)?, self.name(row, 16)?);
                for (cell, column) in cells.iter_mut().zip(10..) {
                    *cell = self.name(row, column)?;
                }
            }
            let is_collective = [kind, name].iter().any(|id| is_collective_kernel(self.run.names.text(*id)));
            let info = id.and_then(|id| of_collectives.get(&id));
            if let Some((kind, plane, number)) = info {
                let task = CollectiveTask { span, kind: *kind, plane: *plane, collective: None };
                self.collective_tasks.push((task, *number));
            }
            let role = match (is_kernel, info.is_some()) {
                (true, _) if is_collective => TaskRole::CollectiveKernel,
                (true, _) => TaskRole::Kernel,
                (false, true) => TaskRole::CollectiveTask,
                (false, false) => TaskRole::Other,
            };
            let connection = row.integer(4);
            let (operator, launch) = self.launched_by(connection);
            // No id connects a copy with its operator.
            if operator.is_none() && role == TaskRole::Other && is_copy(self.run.names.text(kind)) {
                self.copies.extend(connection.map(|connection| (self.run.tasks.len(), connection)));
            }
            let (context, place) = (row.integer(18), self.run.tasks.len());
            if let Some(number) = row.integer(17) {
                let key = (row.unsigned(2), row.unsigned(3), number);
                match (role, context) {
                    (TaskRole::Kernel, Some(context)) if context != NO_CONTEXT => {
                        self.mixed.inner.entry(key).or_default().push(span);
                    }
                    (TaskRole::Other, Some(NO_CONTEXT)) => self.mixed.outer.push((key, place)),
                    _ => {}
                }
            }
            let task = DeviceTask {
                device: row.unsigned(2),
                stream: row.unsigned(3),
                core,
                signature: self.run.insert_signature(cells),
                uses_cube: cube.as_ref().map(|cube| id.is_some_and(|id| cube.contains(&id))),
                operator,
                launch,
                span,
                name,
                kind,
                role,
                ..DeviceTask::default()
            };
            self.run.tasks.push(task);
            Ok(())
        })
    }

    fn task_query(&self) -> Result<String, ProfileError> {
        const OF_TASK: [&str; 7] =
            ["startNs", "endNs", "deviceId", "streamId", "connectionId", "taskType", "globalTaskId"];
        const OF_KERNEL: [&str; 9] = [
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
        let tasks = self.database.required_table("TASK", "nothing that ran on a device is recorded")?;
        let kernels = self.database.table("COMPUTE_TASK_INFO")?;
        let ids = kernels.as_ref().and_then(|kernels| {
            Some((kernels.integer_column("k.", "globalTaskId")?, tasks.integer_column("t.", "globalTaskId")?))
        });
        let mut selected: Vec<String> = OF_TASK.map(|column| tasks.column_or_null("t.", column)).into();
        let mut join = String::new();
        match (&kernels, ids) {
            (Some(kernels), Some((kernel_id, task_id))) => {
                selected.push(kernel_id.clone());
                selected.extend(OF_KERNEL.map(|name| kernels.column_or_null("k.", name)));
                join = format!(" LEFT JOIN {} k ON {kernel_id} = {task_id}", kernels.quoted_name());
            }
            _ => selected.extend(std::iter::repeat_n("NULL".to_owned(), OF_KERNEL.len() + 1)),
        }
        selected.extend(["taskId", "contextId"].map(|column| tasks.column_or_null("t.", column)));
        Ok(format!("SELECT {} FROM {} t{join}", selected.join(", "), tasks.quoted_name()))
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

    /// Leaves out the outer tasks of kernels on cores of both kinds, and adds up by how much they are longer than the kernels.
    fn leave_out_outer_tasks(&mut self) {
        let MixedKernels { outer, mut inner } = std::mem::take(&mut self.mixed);
        inner.values_mut().for_each(|spans| spans.sort_unstable());
        let mut is_outer = HashSet::new();
        for (key, place) in outer {
            // Numbers of tasks repeat after 65,536.
            let span = self.run.tasks[place].span;
            let inside = inner
                .get(&key)
                .and_then(|spans| spans.get(spans.partition_point(|kernel| kernel.start < span.start)));
            if let Some(kernel) = inside.filter(|kernel| span.contains(**kernel)) {
                is_outer.insert(place);
                self.run.mixed_kernels += 1;
                self.run.scheduling = self.run.scheduling.saturating_add(span.length() - kernel.length());
            }
        }
        let mut places = 0..;
        self.run.tasks.retain(|_| places.next().is_none_or(|place| !is_outer.contains(&place)));
    }

    fn cube_tasks(&mut self) -> Result<Option<HashSet<i64>>, ProfileError> {
        let mut tasks: Option<HashSet<i64>> = None;
        let columns = ["globalTaskId", "name", "value"];
        self.database.for_each_row_of("TASK_PMU_INFO", &columns, &mut |row| {
            let name = self.name(row, 1)?;
            if self.run.names.text(name) == "aic_mac_time" {
                let is_busy = row.number(2).is_some_and(|value| value > 0.0);
                tasks.get_or_insert_default().extend(row.integer(0).filter(|_| is_busy));
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
        self.database.for_each_row_of("COMMUNICATION_OP", &columns, &mut |row| {
            let number = row.integer(7);
            let place = RecordPosition::Operation(number.unwrap_or(0));
            let Some(span) = self.span(row, place)? else { return Ok(()) };
            if !span.is_of_task("") {
                self.run.untimed += 1;
                return Ok(());
            }
            let (name, mut kind, group) = (self.name(row, 4)?, self.name(row, 5)?, self.name(row, 6)?);
            if !kind.is_recorded() {
                let text = collective_kind(self.run.names.text(name).as_bytes()).to_owned();
                kind = self.run.names.insert_bytes(&text);
            }
            let (operator, launch) = self.launched_by(row.integer(3));
            let device = row.unsigned(2).or(only_device);
            let id = u32::try_from(self.run.collectives.len()).ok().map(CollectiveId);
            by_number.extend(number.zip(id));
            let collective =
                Collective { device, group, operator, launch, span, name, kind, ..Collective::default() };
            self.run.collectives.push(collective);
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
        self.database.for_each_row_of("STEP_TIME", &["startNs", "endNs", "id"], &mut |row| {
            let place = RecordPosition::Row("STEP_TIME", row.number);
            let Some(number) = row.unsigned(2) else {
                let (problem, cell) = ("is not the number of a step".to_owned(), row.text(2));
                return Err(ProfileError::bad_cell(self.file, place, "id", cell.as_bytes(), problem));
            };
            if let Some(span) = self.span(row, place)? {
                self.run.steps.push(HostStep { span, number });
            }
            Ok(())
        })?;
        Ok(())
    }

    fn read_mstx(&mut self) -> Result<(), ProfileError> {
        let columns = ["startNs", "endNs", "globalTid", "eventType", "message", "domainId"];
        self.database.for_each_row_of("MSTX_EVENTS", &columns, &mut |row| {
            let place = RecordPosition::Row("MSTX_EVENTS", row.number);
            let (name, domain) = (self.name(row, 4)?, self.name(row, 5)?);
            let start = row.time(0, "startNs", place)?;
            if row.integer(3).is_some_and(|kind| MARKS.contains(&kind)) {
                match start.and_then(valid_time) {
                    Some(at) => self.run.marks.push(HostMark { at, name, domain }),
                    None => self.run.untimed += 1,
                }
                return Ok(());
            }
            let times = start.zip(row.time(1, "endNs", place)?);
            match times.and_then(|(start, end)| TimeSpan::recorded(start, end)) {
                Some(span) => {
                    self.run.ranges.push(HostRange { span, thread: thread_of(row, 2), name, domain });
                }
                None => self.run.unfinished_ranges += 1,
            }
            Ok(())
        })?;
        Ok(())
    }
}
