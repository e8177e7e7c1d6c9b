//! Runs in `trace_view.json` of torch_npu and `msprof_*.json` of msprof.
//!
//! Lanes are processes: `Python` (operators of the framework), `CANN` (launches), `Ascend Hardware` (device tasks by
//! stream), `HCCL` or `Communication` (collectives and their tasks). Flows of the category `async_npu` lead from an
//! operator to what it launched, those of `fwdbwd` from the forward to the backward pass.

use serde_json::value::RawValue;

use super::{
    host_events::{OperatorShapes, add_module, thread_of},
    kernel_table::collective_kind,
};
use crate::profile::{
    for_each_trace_event, plain_text,
    timeline::{prelude::*, run::HostMark},
};

const KERNEL_TASKS: [&str; 9] = [
    "AI_CORE",
    "AI_VECTOR_CORE",
    "AIV_SQE",
    "AI_CPU",
    "MIX_AIC",
    "MIX_AIV",
    "MIX_AICORE",
    "DSA_SQE",
    "FFTS_PLUS",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TraceLane {
    Host,
    Launches,
    Hardware,
    Collectives,
    Other,
}

impl TraceLane {
    fn of_name(name: &str) -> Self {
        match name {
            "Python" => Self::Host,
            "CANN" => Self::Launches,
            "Ascend Hardware" => Self::Hardware,
            "HCCL" | "Communication" => Self::Collectives,
            _ => Self::Other,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetadataArguments<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    labels: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskArguments<'a> {
    #[serde(rename = "Task Type", borrow)]
    task_type: Option<Cow<'a, str>>,
    #[serde(rename = "Physic Stream Id", borrow)]
    physical_stream: Option<&'a RawValue>,
    #[serde(rename = "Stream Id", borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    connection_id: Option<&'a RawValue>,
}

impl TaskArguments<'_> {
    fn stream(&self) -> Option<u32> {
        let number = |value| plain_text(value)?.parse().ok();
        number(self.physical_stream).or_else(|| number(self.stream))
    }

    fn connection(&self) -> Option<i64> {
        plain_text(self.connection_id)?.parse().ok()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MstxArguments<'a> {
    #[serde(borrow)]
    event_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    domain: Option<Cow<'a, str>>,
}

type ThreadKey = (String, String);

type HostPlace = (u64, i64);

#[derive(Debug, Default)]
struct TraceReader {
    run: RunTimeline,
    lanes: HashMap<String, TraceLane>,
    devices: HashMap<String, u32>,
    /// Names of the threads with collectives; others of their process have the tasks of collectives.
    groups: HashMap<ThreadKey, String>,
    planes: HashMap<ThreadKey, u32>,
    unnamed: HashMap<String, u64>,
    /// Threads with an event in the lane of collectives before their name.
    unnamed_threads: HashSet<ThreadKey>,
    is_late: bool,
    tasks: Vec<(DeviceTask, Option<i64>)>,
    collectives: Vec<(Collective, Option<i64>)>,
    transfers: HashSet<i64>,
    plane_threads: IndexSet<ThreadKey>,
    plane_tasks: Vec<(CollectiveTask, usize)>,
    launches: HashMap<i64, TimeSpan>,
    launched: HashMap<i64, HostPlace>,
    forward: HashMap<i64, HostPlace>,
    backward: Vec<(i64, HostPlace)>,
    shapes: OperatorShapes,
}

pub(super) fn read_trace(file: &Path, tables: &[PathBuf]) -> Result<RunTimeline, ProfileError> {
    let mut reader = TraceReader::default();
    reader.read_events(file)?;
    if reader.is_late {
        // Then a second pass has all names.
        let TraceReader { lanes, devices, groups, planes, .. } = reader;
        reader = TraceReader { lanes, devices, groups, planes, ..TraceReader::default() };
        reader.read_events(file)?;
    }
    if reader.lanes.values().all(|lane| *lane == TraceLane::Other)
        && let Some(run) = super::gpu_trace::read_gpu_trace(file)?
    {
        return Ok(run);
    }
    let unnamed = reader.unnamed.iter().filter(|(process, _)| !reader.lanes.contains_key(*process));
    reader.run.unnamed = unnamed.map(|(_, count)| count).sum();
    reader.run.form = Some(ProfileForm::Trace);
    reader.run.files.push(file.to_owned());
    reader.run.operators.sort_by_key(|operator| operator.span.outer_first());
    if !tables.is_empty() {
        reader.run.form = Some(ProfileForm::TraceAndTable);
        super::kernel_table::add_kernel_tables(&mut reader.run, tables)?;
    }
    Ok(reader.join_tasks())
}

impl TraceReader {
    fn read_events(&mut self, file: &Path) -> Result<(), ProfileError> {
        let read = for_each_trace_event(file, &mut |event| {
            match &*event.ph {
                "X" => self.add_complete(event),
                "M" => self.add_metadata(event),
                "s" | "f" => self.add_flow(event),
                _ => {}
            }
            Ok(())
        });
        read.map_err(|source| ProfileError::Trace { file: file.to_owned(), source })
    }

    fn add_metadata(&mut self, event: &TraceEvent<'_>) {
        let arguments: MetadataArguments<'_> = event.arguments();
        let process = event.process();
        match (&*event.name, arguments.name, arguments.labels) {
            ("process_name", Some(name), _) => {
                let lane = TraceLane::of_name(&name);
                self.is_late |= lane != TraceLane::Other && self.unnamed.contains_key(process);
                self.lanes.insert(process.to_owned(), lane);
                if matches!(lane, TraceLane::Hardware | TraceLane::Collectives)
                    && let Ok(number) = process.parse::<u64>()
                {
                    // The lowest five bits of such a number are the device.
                    self.devices.entry(process.to_owned()).or_insert((number & 31) as u32);
                }
            }
            ("process_labels", _, Some(labels)) => {
                if let Some(Ok(device)) = labels.strip_prefix("NPU ").map(str::parse) {
                    let known = self.devices.insert(process.to_owned(), device);
                    self.is_late |= known.is_some_and(|known| known != device);
                }
            }
            ("thread_name", Some(name), _) => {
                let thread = (process.to_owned(), event.thread().to_owned());
                let is_unnamed = self.unnamed_threads.contains(&thread);
                if let Some(Ok(plane)) = name.strip_prefix("Plane ").map(str::parse) {
                    self.is_late |= is_unnamed;
                    self.planes.insert(thread, plane);
                } else if name.starts_with("Group ") {
                    self.is_late |= is_unnamed;
                    self.groups.insert(thread, name.into_owned());
                }
            }
            _ => {}
        }
    }

    fn add_complete(&mut self, event: &TraceEvent<'_>) {
        let Some(lane) = self.lanes.get(event.process()).copied() else {
            match self.unnamed.get_mut(event.process()) {
                Some(count) => *count += 1,
                None => drop(self.unnamed.insert(event.process().to_owned(), 1)),
            }
            return;
        };
        if lane == TraceLane::Other {
            return;
        }
        let Some(span) = event.span() else {
            // A call of the host without a duration was running when the profile ended.
            let is_open = matches!(lane, TraceLane::Host | TraceLane::Launches) && !event.has_duration();
            self.run.untimed += u64::from(!is_open);
            return;
        };
        match lane {
            TraceLane::Host => self.add_host(event, span),
            TraceLane::Launches => {
                let arguments: TaskArguments<'_> = event.arguments();
                if let Some(connection) = arguments.connection() {
                    let launch = self.launches.entry(connection).or_insert(span);
                    if launch.start < span.start {
                        *launch = span;
                    }
                }
            }
            TraceLane::Hardware => {
                let arguments: TaskArguments<'_> = event.arguments();
                if !span.is_of_task(arguments.task_type.as_deref().unwrap_or_default()) {
                    self.run.untimed += 1;
                    return;
                }
                let name = self.run.names.insert(&event.name);
                let kind = self.run.names.insert(arguments.task_type.as_deref().unwrap_or_default());
                let task = DeviceTask {
                    device: self.devices.get(event.process()).copied(),
                    stream: arguments.stream().or_else(|| event.thread().parse().ok()),
                    span,
                    name,
                    kind,
                    ..DeviceTask::default()
                };
                self.tasks.push((task, arguments.connection()));
            }
            TraceLane::Collectives if span.is_of_task("") => self.add_collective(event, span),
            TraceLane::Collectives => self.run.untimed += 1,
            TraceLane::Other => {}
        }
    }

    fn add_host(&mut self, event: &TraceEvent<'_>, span: TimeSpan) {
        match &*event.cat {
            "cpu_op" => self.shapes.add_operator(&mut self.run, event, span),
            "python_function" => add_module(&mut self.run, event, span),
            "enqueue" | "dequeue" => {}
            _ => {
                let arguments: MstxArguments<'_> = event.arguments();
                if let Some(kind) = arguments.event_type {
                    let name = self.run.names.insert(&event.name);
                    let domain = self.run.names.insert(arguments.domain.as_deref().unwrap_or_default());
                    match kind.starts_with("marker") {
                        true => self.run.marks.push(HostMark { at: span.start, name, domain }),
                        false => {
                            self.run.ranges.push(HostRange { span, thread: thread_of(event), name, domain });
                        }
                    }
                }
            }
        }
    }

    fn add_collective(&mut self, event: &TraceEvent<'_>, span: TimeSpan) {
        let thread = (event.process().to_owned(), event.thread().to_owned());
        let Some(group) = self.groups.get(&thread) else {
            self.transfers.insert(span.start);
            if let Some(plane) = self.planes.get(&thread).copied() {
                let kind = self.run.names.insert(&event.name);
                let task = CollectiveTask { span, kind, plane: Some(plane), collective: None };
                self.plane_tasks.push((task, self.plane_threads.insert_full(thread).0));
            } else {
                self.unnamed_threads.insert(thread);
            }
            return;
        };
        let group = self.run.names.insert(group);
        let arguments: TaskArguments<'_> = event.arguments();
        let name = self.run.names.insert(&event.name);
        let kind = self.run.names.insert_bytes(collective_kind(event.name.as_bytes()));
        let device = self.devices.get(event.process()).copied();
        let collective = Collective { device, group, span, name, kind, ..Collective::default() };
        self.collectives.push((collective, arguments.connection()));
    }

    fn add_flow(&mut self, event: &TraceEvent<'_>) {
        let (Some(start), Ok(id)) = (event.start(), event.flow().parse::<i64>()) else { return };
        let place = || (thread_of(event), start.0);
        match (&*event.cat, &*event.ph) {
            // The id is the start of the task.
            ("async_npu", "s") => drop(self.launched.insert(id, place())),
            ("fwdbwd", "s") => drop(self.forward.insert(id, place())),
            ("fwdbwd", "f") => self.backward.push((id, place())),
            _ => {}
        }
    }

    fn join_tasks(mut self) -> RunTimeline {
        let places = self.run.operators.iter().zip(0..);
        // The innermost of operators that start together is the last one.
        let by_place: HashMap<HostPlace, OperatorId> =
            places.map(|(operator, at)| ((operator.thread, operator.span.start), OperatorId(at))).collect();
        for (id, place) in &self.backward {
            let forward = self.forward.get(id).and_then(|place| by_place.get(place));
            if let (Some(backward), Some(forward)) = (by_place.get(place), forward) {
                self.run.backward.push((*backward, *forward));
            }
        }
        let operator_of =
            |start: i64| self.launched.get(&start).and_then(|place| by_place.get(place)).copied();
        let launch_of = |connection: Option<i64>| self.launches.get(&connection?).copied();
        let has_table = self.run.form == Some(ProfileForm::TraceAndTable);
        let mut of_table: HashMap<i64, Vec<usize>> = HashMap::new();
        for (at, task) in self.run.tasks.iter().enumerate() {
            of_table.entry(task.span.start).or_default().push(at);
        }
        for (mut task, connection) in self.tasks {
            (task.operator, task.launch) = (operator_of(task.span.start), launch_of(connection));
            let rows = of_table.get_mut(&task.span.start);
            // Names of tasks that are no kernels of a core differ between trace and table.
            let row = rows.and_then(|rows| {
                let same = rows.iter().position(|at| self.run.tasks[*at].name == task.name);
                (!rows.is_empty()).then(|| rows.swap_remove(same.unwrap_or_default()))
            });
            if let Some(at) = row {
                let row = &mut self.run.tasks[at];
                (row.operator, row.launch) = (task.operator, task.launch);
                row.device = row.device.or(task.device);
                row.stream = row.stream.or(task.stream);
                continue;
            }
            let is_transfer = self.transfers.contains(&task.span.start);
            let kind = self.run.names.text(task.kind);
            // A table that was cut lacks kernels. Their time is recorded, and without them it would count as free.
            if is_transfer {
                task.role = TaskRole::CollectiveTask;
            } else if KERNEL_TASKS.contains(&kind) || kind.starts_with("KERNEL_") {
                self.run.without_row += u64::from(has_table);
                let is_collective = is_collective_kernel(self.run.names.text(task.name));
                task.role = if is_collective { TaskRole::CollectiveKernel } else { TaskRole::Kernel };
                // The type of the task is neither the type of the kernel nor the type of its core.
                task.kind = NameId::EMPTY;
            }
            self.run.tasks.push(task);
        }
        let of_table: HashMap<(NameId, i64), usize> = (self.run.collectives.iter().enumerate())
            .map(|(at, collective)| ((collective.name, collective.span.start), at))
            .collect();
        let add_all = self.run.collectives.is_empty();
        for (collective, connection) in self.collectives {
            let (operator, launch) = (operator_of(collective.span.start), launch_of(connection));
            // The table cuts digits that the trace rounds, so that starts differ by up to 1 ns.
            let row = [0, -1, 1].into_iter().find_map(|more| {
                of_table.get(&(collective.name, collective.span.start.saturating_add(more)))
            });
            match row {
                Some(at) => {
                    let row = &mut self.run.collectives[*at];
                    (row.operator, row.launch, row.group) = (operator, launch, collective.group);
                    row.device = row.device.or(collective.device);
                }
                None => {
                    self.run.without_row += u64::from(has_table && !add_all);
                    self.run.collectives.push(Collective { operator, launch, ..collective });
                }
            }
        }
        self.run.collective_tasks = tasks_of_collectives(
            (&self.groups, &self.devices),
            &self.plane_threads,
            self.plane_tasks,
            &mut self.run,
        );
        self.run.set_only_device();
        self.run
    }
}

/// Returns tasks with their collectives: a task belongs to the collective of the same group that runs when the task
/// starts. The threads of the planes of a group stand behind the thread of the group.
fn tasks_of_collectives(
    (groups, devices): (&HashMap<ThreadKey, String>, &HashMap<String, u32>),
    threads: &IndexSet<ThreadKey>,
    tasks: Vec<(CollectiveTask, usize)>,
    run: &mut RunTimeline,
) -> Vec<CollectiveTask> {
    let mut by_group: HashMap<(Option<u32>, NameId), Vec<(TimeSpan, CollectiveId)>> = HashMap::new();
    for (collective, at) in run.collectives.iter().zip(0..) {
        let of_group = by_group.entry((collective.device, collective.group)).or_default();
        of_group.push((collective.span, CollectiveId(at)));
    }
    by_group.values_mut().for_each(|all| all.sort_unstable());
    let of_threads: Vec<&[(TimeSpan, CollectiveId)]> = threads
        .iter()
        .map(|(process, thread)| {
            let number = |thread: &str| thread.parse::<u64>().ok();
            let before = groups.iter().filter(|((own, first), _)| {
                own == process && number(first).is_some_and(|first| Some(first) < number(thread))
            });
            let group = before.max_by_key(|((_, first), _)| number(first)).map(|(_, name)| name);
            let group = group.map_or(NameId::EMPTY, |name| run.names.insert(name));
            by_group.get(&(devices.get(process).copied(), group)).map_or(&[][..], Vec::as_slice)
        })
        .collect();
    let found = tasks.into_iter().map(|(task, thread)| {
        let collectives = of_threads.get(thread).copied().unwrap_or_default();
        let before = collectives.partition_point(|(span, _)| span.start <= task.span.start);
        let last = before.checked_sub(1).and_then(|at| collectives.get(at));
        let own = last.filter(|(span, _)| task.span.start <= span.end);
        CollectiveTask { collective: own.map(|(_, id)| *id), ..task }
    });
    found.collect()
}
