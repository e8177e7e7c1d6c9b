//! Sums of one run per step, by kernel, operator, collective, module and memory.

use super::{
    ComparedPart,
    calls::{RunCalls, WITHOUT_OPERATOR},
    communication::CollectiveTasks,
    selected_steps::SelectedSteps,
};
use crate::profile::timeline::{
    kernel_class::KernelClassifier,
    modules::module_table,
    prelude::*,
    run::{MissingPart, RunMemory},
};

pub(crate) const OVERALL: [&str; 13] = [
    SPAN,
    COMPUTING,
    "communication",
    "of it transfers between two ranks",
    "overlapped communication",
    NOT_OVERLAPPED,
    WAITING,
    TRANSMITTING,
    FREE,
    COPIES,
    OUTSIDE_SPAN,
    OUTSIDE_STEPS,
    STEPS,
];
/// Overall times that some profiles do not have, with the records that they need unless these have a table of their own.
pub(crate) const OPTIONAL_OVERALL: [(&str, Option<&str>); 4] = [
    (WAITING, Some("waits and transmission of collectives")),
    (TRANSMITTING, None),
    (COPIES, Some("copies of the device")),
    (OUTSIDE_SPAN, None),
];
pub(crate) const SPAN: &str = "span of the step";
pub(crate) const COMPUTING: &str = "computing";
pub(crate) const NOT_OVERLAPPED: &str = "communication, not overlapped";
pub(crate) const WAITING: &str = "of it waits for other ranks";
pub(crate) const TRANSMITTING: &str = "of it transmission";
pub(crate) const FREE: &str = "free";
pub(crate) const COPIES: &str = "copies in the free time";
pub(crate) const OUTSIDE_SPAN: &str = "copies and other work outside the span";
/// Time of kernels or collectives that belong to no step, for the whole run, not per step.
pub(crate) const OUTSIDE_STEPS: &str = "outside of all steps, whole run";
pub(crate) const STEPS: &str = "steps";
const OUTSIDE: &str = "[outside modules]";
const WITHOUT_COLLECTIVE: &str = "[outside collectives]";

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TimeSum {
    /// Nanoseconds, or bytes of memory.
    pub(crate) total: f64,
    pub(crate) calls: f64,
    /// Shortest and longest record; `None` for sums of other kinds.
    pub(crate) shortest: Option<i64>,
    pub(crate) longest: Option<i64>,
    /// Part of the total in which no call inside runs; `None` for others than calls of the host.
    pub(crate) self_total: Option<f64>,
}

impl TimeSum {
    pub(super) fn add(&mut self, time: i64) {
        self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        self.longest = self.longest.max(Some(time));
        self.total += time as f64;
        self.calls += 1.0;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
        self.total += other.total;
        self.calls += other.calls;
    }

    fn of_total(total: f64) -> Self {
        Self { total, ..Self::default() }
    }

    fn per_step(self, steps: f64) -> Self {
        let self_total = self.self_total.map(|time| time / steps);
        Self { total: self.total / steps, calls: self.calls / steps, self_total, ..self }
    }
}

pub(super) type Sums = BTreeMap<(String, String), TimeSum>;

static NO_SUMS: Sums = Sums::new();

pub(super) fn key(name: &str) -> (String, String) {
    (name.to_owned(), String::new())
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RunSums {
    /// Number of steps; 1 without recorded steps.
    pub(crate) steps: usize,
    selected: SelectedSteps,
    /// Sums that a profile does not have are missing.
    parts: BTreeMap<ComparedPart, Sums>,
    pub(super) kernels_by_name: Sums,
    pub(super) uncovered: Sums,
    pub(super) free_by_cause: Sums,
    pub(super) has_kernel_types: bool,
    pub(super) has_cores: bool,
}

/// Returns the sums of kernels by type alone, for a comparison with a run that has no types of cores.
pub(super) fn without_cores(kernel_types: &Sums) -> Sums {
    let mut sums = Sums::new();
    for ((kind, _), sum) in kernel_types {
        sums.entry(key(kind)).or_default().merge(*sum);
    }
    sums
}

impl RunSums {
    pub(super) fn part(&self, part: ComparedPart) -> Option<&Sums> {
        self.parts.get(&part)
    }

    pub(super) fn known_part(&self, part: ComparedPart) -> &Sums {
        self.part(part).unwrap_or(&NO_SUMS)
    }

    fn sum_of(&mut self, part: ComparedPart, name: &str, detail: &str) -> &mut TimeSum {
        self.parts.entry(part).or_default().entry((name.to_owned(), detail.to_owned())).or_default()
    }

    /// Sums up a run. `times` are the times of the `selected` steps, or of all steps if none is selected; what belongs
    /// to other steps does not count. If steps are recorded, work outside of them has a row of its own. Memory concerns
    /// the whole run.
    pub(crate) fn new(
        run: &RunTimeline,
        times: &[StepTimes],
        selected: &[u64],
        memory: Option<&RunMemory>,
        domain: &str,
    ) -> Self {
        let (in_steps, outside): (Vec<&StepTimes>, Vec<&StepTimes>) =
            times.iter().partition(|own| own.step.is_some());
        let recorded = in_steps.len();
        let (times, outside) = if recorded == 0 { (outside, in_steps) } else { (in_steps, outside) };
        let mut sums = Self {
            steps: recorded.max(1),
            selected: SelectedSteps::new(run, &times, selected.is_empty(), recorded),
            has_kernel_types: run.kernels().any(|task| task.kind.is_recorded()),
            has_cores: run.kernels().any(|task| task.core.is_recorded()),
            ..Self::default()
        };
        sums.add_steps(run, &times);
        sums.add_kernels_and_operators(run);
        let is_selected = |operator: &HostOperator| sums.selected.includes_call(run, operator.span.start);
        let host_calls = host_call_sums(run, &is_selected);
        sums.parts.extend(host_calls.map(|calls| (ComparedPart::HostCall, calls)));
        let modules = module_sums(run, domain, &sums.selected);
        sums.parts.extend(modules.map(|modules| (ComparedPart::Module, modules)));
        let steps = sums.steps as f64;
        let others = [&mut sums.kernels_by_name, &mut sums.uncovered, &mut sums.free_by_cause];
        for sum in sums.parts.values_mut().chain(others).flat_map(BTreeMap::values_mut) {
            *sum = sum.per_step(steps);
        }
        sums.sum_of(ComparedPart::Overall, STEPS, "").calls = recorded as f64;
        if !outside.is_empty() {
            let busy = outside.iter().map(|own| own.computing.saturating_add(own.not_overlapped));
            let sum = sums.sum_of(ComparedPart::Overall, OUTSIDE_STEPS, "");
            sum.total = sum_lengths(busy) as f64;
            sum.calls = outside.iter().map(|own| own.kernels + own.collectives).sum::<usize>() as f64;
        }
        sums.parts.extend(memory.map(|memory| (ComparedPart::Memory, memory_sums(memory, run))));
        sums
    }

    /// Returns the single calls of operators and modules in the steps that are summed up, with a mark at those that contain
    /// `wanted` in a name.
    pub(crate) fn calls<'r>(&self, run: &'r RunTimeline, domain: &str, wanted: &str) -> RunCalls<'r> {
        RunCalls::new(run, &self.selected, domain, wanted)
    }

    pub(crate) fn includes_task(&self, task: &DeviceTask) -> bool {
        self.selected.includes_step(task.step)
    }

    fn add_kernels_and_operators(&mut self, run: &RunTimeline) {
        let nesting = run.nesting();
        let classifier = KernelClassifier::new(run, &nesting);
        let has_counters = run.kernels().any(|task| task.uses_cube.is_some());
        let mut operators = Sums::new();
        for (operator, at) in run.operators.iter().zip(0..) {
            let is_selected = self.selected.includes_call(run, operator.span.start);
            if is_selected && nesting.is_outermost(OperatorId(at)) {
                operators.entry(key(run.names.text(operator.name))).or_default().calls += 1.0;
            }
        }
        for task in run.kernels() {
            if !self.includes_task(task) {
                continue;
            }
            let time = task.span.length();
            let shapes = task.signature.map_or("", |signature| run.signature_cells(signature)[0]);
            let [kind, name, core] = [task.kind, task.name, task.core].map(|id| run.names.text(id));
            let kind = if kind.is_empty() { name } else { kind };
            self.sum_of(ComparedPart::Kernel, kind, shapes.trim_matches('"')).add(time);
            self.kernels_by_name.entry(key(name)).or_default().add(time);
            self.sum_of(ComparedPart::KernelType, kind, core).add(time);
            // Kernels of other units, such as random numbers, have no counters.
            let unit = match task.uses_cube {
                Some(true) => "cube",
                _ if has_counters => "vector",
                _ => "",
            };
            self.sum_of(ComparedPart::KernelClass, classifier.class_of(task), unit).add(time);
            let outermost = task.operator.and_then(|operator| run.operator(nesting.outermost(operator)));
            let name = outermost.map_or(WITHOUT_OPERATOR, |operator| run.names.text(operator.name));
            operators.entry(key(name)).or_default().total += time as f64;
        }
        if !run.operators.is_empty() {
            self.parts.insert(ComparedPart::Operator, operators);
        }
    }

    fn add_steps(&mut self, run: &RunTimeline, times: &[&StepTimes]) {
        let mut copies_of: HashMap<Option<u32>, Vec<TimeSpan>> = HashMap::new();
        let others = run.tasks.iter().filter(|task| task.role == TaskRole::Other);
        for task in others.filter(|task| is_copy(run.names.text(task.kind))) {
            copies_of.entry(task.device).or_default().push(task.span);
        }
        let copies_of: HashMap<Option<u32>, TimeSet> =
            copies_of.into_iter().map(|(device, spans)| (device, TimeSet::union_of(spans))).collect();
        let mut collectives_of: HashMap<_, Vec<(CollectiveId, &Collective)>> = HashMap::new();
        for (collective, at) in run.collectives.iter().zip(0..) {
            let place = (collective.step, collective.device);
            collectives_of.entry(place).or_default().push((CollectiveId(at), collective));
        }
        let tasks = CollectiveTasks::new(run);
        let mut task_sums = Sums::new();
        // A task without a collective has no step: its start decides.
        let has_no_steps = self.selected.includes_step(None);
        let is_counted = |task: &CollectiveTask| {
            let start = task.span.start;
            has_no_steps || times.iter().any(|own| own.span.start <= start && start < own.span.end)
        };
        let mut add_tasks = |kind: &str, id: Option<CollectiveId>| {
            let of_collective = tasks.as_ref().map_or(&[][..], |tasks| tasks.of_collective(id));
            for task in of_collective.iter().filter(|task| id.is_some() || is_counted(task)) {
                let key = (kind.to_owned(), run.names.text(task.kind).to_owned());
                task_sums.entry(key).or_default().add(task.span.length());
            }
        };
        add_tasks(WITHOUT_COLLECTIVE, None);
        // A table of kernels has no copies, so that their time is unknown.
        let has_copies = !run.missing.contains(&MissingPart::OtherTasks);
        for own in times {
            let computing = &own.sets.computing;
            // Copies before the first or behind the last kernel are no part of the step; those that started in another
            // step are.
            let copies = copies_of.get(&own.device).map_or_else(TimeSet::default, |all| all.clip(own.span));
            let outside = copies.difference(computing).difference(&own.sets.communication);
            let collectives = collectives_of.remove(&(own.step, own.device)).unwrap_or_default();
            let ids: Vec<CollectiveId> = collectives.iter().map(|(id, _)| *id).collect();
            let divided =
                tasks.as_ref().and_then(|tasks| tasks.divide_uncovered(&ids, &own.sets.not_overlapped));
            for (name, time) in OVERALL.into_iter().zip([
                Some(own.span.length()),
                Some(own.computing),
                Some(own.communication),
                Some(own.point_to_point),
                Some(own.overlapped),
                Some(own.not_overlapped),
                divided.map(|(waiting, _)| waiting),
                divided.map(|(_, transmitting)| transmitting),
                Some(own.free),
                has_copies.then(|| outside.length()),
                has_copies.then(|| own.other_before.saturating_add(own.other_behind)),
            ]) {
                if let Some(time) = time {
                    self.sum_of(ComparedPart::Overall, name, "").total += time as f64;
                }
            }
            for (cause, time) in &own.free_by_cause {
                let cause = cause.to_string().replace('_', " ");
                self.free_by_cause.entry(key(&cause)).or_default().total += *time as f64;
            }
            for (id, collective) in collectives {
                let kind = run.names.text(collective.kind);
                self.sum_of(ComparedPart::Collective, kind, "").add(collective.span.length());
                let uncovered = collective.span.length() - computing.length_in(collective.span);
                self.uncovered.entry(key(kind)).or_default().total += uncovered as f64;
                add_tasks(kind, Some(id));
            }
        }
        if tasks.is_some() {
            self.parts.insert(ComparedPart::CollectiveTask, task_sums);
        }
    }
}

fn module_sums(run: &RunTimeline, domain: &str, selected: &SelectedSteps) -> Option<Sums> {
    let table = module_table(run, domain);
    if table.ranges == 0 {
        return None;
    }
    let mut modules = Sums::new();
    let time_of_call = |call: &OperatorCall| selected.time_of_call(run, call);
    for row in &table.rows {
        let path = row.path();
        for (time, _) in row.calls.iter().map(time_of_call).filter(|(_, is_selected)| *is_selected) {
            let sum = modules.entry(key(&path)).or_default();
            sum.total += time as f64;
            sum.calls += 1.0;
        }
    }
    let outside = table.outside.iter().flat_map(|row| &row.calls).map(|call| time_of_call(call).0);
    modules.insert(key(OUTSIDE), TimeSum::of_total(outside.fold(0.0, |sum, time| sum + time as f64)));
    Some(modules)
}

fn memory_sums(memory: &RunMemory, run: &RunTimeline) -> Sums {
    let mut sums = Sums::new();
    for (name, peak) in [("peak reserved", memory.peak_reserved), ("peak allocated", memory.peak_allocated)] {
        if let Some(peak) = peak {
            sums.insert(key(name), TimeSum::of_total(peak as f64));
        }
    }
    for (operator, (bytes, count)) in memory.by_operator(run) {
        let name = if operator.is_empty() { WITHOUT_OPERATOR } else { &operator };
        let sum = TimeSum { total: bytes as f64, calls: count as f64, ..TimeSum::default() };
        sums.insert(key(&format!("allocated by {name}")), sum);
    }
    sums
}

/// Returns total and self time of the calls that are selected, by name; `None` if no calls are recorded. The self time is
/// the time of a call in which none of the calls within it runs, on the same thread.
fn host_call_sums(run: &RunTimeline, is_selected: &dyn Fn(&HostOperator) -> bool) -> Option<Sums> {
    let mut calls = run.operators.clone();
    calls.extend_from_slice(&run.runtime_calls);
    calls.sort_by_key(|call| call.span.outer_first());
    let nesting = OperatorNesting::new(&calls);
    // Length of the calls within a call, and the end of the last one: calls may overlap where times are rounded.
    let mut inside: HashMap<OperatorId, (i64, i64)> = HashMap::new();
    for (call, at) in calls.iter().zip(0..) {
        if let Some(parent) = nesting.chain(OperatorId(at)).nth(1) {
            let (length, end) = inside.entry(parent).or_insert((0, i64::MIN));
            *length += call.span.end.saturating_sub(call.span.start.max(*end)).max(0);
            *end = call.span.end.max(*end);
        }
    }
    let mut sums = Sums::new();
    for (call, at) in calls.iter().zip(0..).filter(|(call, _)| is_selected(call)) {
        let sum: &mut TimeSum = sums.entry(key(run.names.text(call.name))).or_default();
        let (within, _) = inside.get(&OperatorId(at)).copied().unwrap_or_default();
        sum.add(call.span.length());
        *sum.self_total.get_or_insert(0.0) += call.span.length().saturating_sub(within) as f64;
    }
    (!calls.is_empty()).then_some(sums)
}
