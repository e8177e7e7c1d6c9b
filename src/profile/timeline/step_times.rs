//! Times of a step on a device: computing, communication, their overlap, and what is free.
//!
//! With C the union of kernels and M that of collectives: communication that is not overlapped is M without C, and free
//! is the span from the first start to the last end of both without C and M. Copies, events and waits do not count.

use std::collections::BTreeMap;

use super::{
    gaps::{FreeGap, GapCause, GapFinder, LaunchedSpan, is_work},
    intervals::{TimeSet, TimeSpan, sum_lengths},
    run::{Collective, DeviceTask, RunTimeline, TaskRole},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamTimes {
    /// Number of the stream; `None` if it is not recorded.
    pub(crate) stream: Option<u32>,
    pub(crate) kernels: usize,
    /// Number of all tasks, with copies, events and those of collectives.
    pub(crate) tasks: usize,
    /// Time of kernels.
    pub(crate) computing: i64,
    /// Time of tasks that wait for an event or a notification.
    pub(crate) waiting: i64,
    /// Time of all other tasks.
    pub(crate) others: i64,
}

/// Times of one step on one device, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct StepTimes {
    /// Place of the run among those of the command: several runs may have the same rank, or none.
    pub(crate) run: usize,
    pub(crate) rank: Option<u32>,
    pub(crate) device: Option<u32>,
    /// Number of the step; `None` for tasks outside of steps, or if no steps are recorded.
    pub(crate) step: Option<u64>,
    /// First start to last end of kernels and collectives.
    pub(crate) span: TimeSpan,
    pub(crate) kernels: usize,
    pub(crate) collectives: usize,
    pub(crate) computing: i64,
    pub(crate) communication: i64,
    /// Communication without transfers between two ranks.
    pub(crate) collective: i64,
    /// Transfers between two ranks.
    pub(crate) point_to_point: i64,
    pub(crate) overlapped: i64,
    pub(crate) not_overlapped: i64,
    pub(crate) free: i64,
    /// Sum of the receiving transfers, the bubbles of pipelines.
    pub(crate) bubble: i64,
    /// Start of the step on the host until the first kernel; `None` without a host step.
    pub(crate) preparing: Option<i64>,
    /// Copies and other work of the device before the span, behind that of the row before.
    pub(crate) other_before: i64,
    /// The same behind the span, of tasks in the step or behind the last row.
    pub(crate) other_behind: i64,
    /// Free time by cause.
    pub(crate) free_by_cause: BTreeMap<GapCause, i64>,
    /// Gaps, the longest first.
    pub(crate) gaps: Vec<FreeGap>,
    pub(crate) streams: Vec<StreamTimes>,
    /// Sets of time, for lanes of a trace.
    pub(crate) sets: StepSets,
}

/// Sets of time of a step.
#[derive(Clone, Debug)]
pub(crate) struct StepSets {
    pub(crate) computing: TimeSet,
    pub(crate) communication: TimeSet,
    pub(crate) not_overlapped: TimeSet,
}

impl StepTimes {
    /// Returns span without bubbles, the vendor's `Stage`.
    pub(crate) const fn stage(&self) -> i64 {
        self.span.length().saturating_sub(self.bubble)
    }

    /// Returns communication that neither overlaps nor is a bubble.
    pub(crate) fn not_overlapped_excluding_receive(&self) -> i64 {
        self.not_overlapped.saturating_sub(self.bubble).max(0)
    }
}

/// Kernels, collectives and all tasks of one step on one device.
#[derive(Default)]
struct StepTasks<'a> {
    kernels: Vec<&'a DeviceTask>,
    collectives: Vec<&'a Collective>,
    tasks: Vec<&'a DeviceTask>,
}

/// Step, and place among the tasks outside of steps: between two steps these have a row of their own.
type RowKey = (Option<u64>, usize);

struct DeviceRows {
    /// Starts of the kernels and collectives in steps.
    in_steps: Vec<i64>,
}

impl DeviceRows {
    fn new(kernels: &[&DeviceTask], collectives: &[&Collective]) -> Self {
        let kernels = kernels.iter().filter(|task| task.step.is_some()).map(|task| task.span.start);
        let collectives = collectives.iter().filter(|one| one.step.is_some()).map(|one| one.span.start);
        let mut in_steps: Vec<i64> = kernels.chain(collectives).collect();
        in_steps.sort_unstable();
        Self { in_steps }
    }

    /// Returns the row of a task. One row for all tasks outside of steps would count the steps between them as free.
    fn row_of(&self, step: Option<u64>, start: i64) -> RowKey {
        let place = || self.in_steps.partition_point(|in_step| *in_step < start);
        (step, if step.is_some() { 0 } else { place() })
    }
}

/// Returns the times of all steps of a run, by device and start. Tasks outside of steps have rows of their own, before,
/// between and behind the steps. `number` is the place of the run among those of the command.
pub(crate) fn step_times(number: usize, run: &RunTimeline) -> Vec<StepTimes> {
    let mut rows = Vec::new();
    for device in run.devices() {
        let kernels: Vec<&DeviceTask> = run.kernels().filter(|task| task.device == device).collect();
        let collectives: Vec<&Collective> =
            run.collectives.iter().filter(|collective| collective.device == device).collect();
        let launched = kernels
            .iter()
            .map(|task| LaunchedSpan {
                span: task.span,
                name: if task.kind.is_recorded() { task.kind } else { task.name },
                operator: task.operator,
                launch: task.launch,
            })
            .chain(collectives.iter().map(|one| LaunchedSpan {
                span: one.span,
                name: one.name,
                operator: one.operator,
                launch: one.launch,
            }));
        let finder = GapFinder::new(run, device, launched.collect());
        let places = DeviceRows::new(&kernels, &collectives);
        let mut steps: BTreeMap<RowKey, StepTasks<'_>> = BTreeMap::new();
        for task in kernels {
            steps.entry(places.row_of(task.step, task.span.start)).or_default().kernels.push(task);
        }
        for collective in collectives {
            let row = places.row_of(collective.step, collective.span.start);
            steps.entry(row).or_default().collectives.push(collective);
        }
        let mut others: BTreeMap<Option<u64>, Vec<TimeSpan>> = BTreeMap::new();
        for task in run.tasks.iter().filter(|task| task.device == device) {
            if let Some(tasks) = steps.get_mut(&places.row_of(task.step, task.span.start)) {
                tasks.tasks.push(task);
            }
            if is_other_work(run, task) {
                others.entry(task.step).or_default().push(task.span);
            }
        }
        let of_step = |((step, _), tasks): (&RowKey, &StepTasks<'_>)| {
            times_of_step((number, run), device, *step, tasks, &finder)
        };
        let mut of_device: Vec<StepTimes> = steps.iter().filter_map(of_step).collect();
        of_device.sort_by_key(|own| (own.span, own.step));
        add_others(&mut of_device, others);
        rows.append(&mut of_device);
    }
    rows
}

/// Returns true for a copy or another task that works, and is neither a kernel nor part of a collective.
fn is_other_work(run: &RunTimeline, task: &DeviceTask) -> bool {
    task.role == TaskRole::Other && is_work(run.names.text(task.kind))
}

/// Adds the work outside of the spans of all rows of a device, which are in the order of their times. `others` are its tasks
/// by step. Work between two rows belongs to the first one if it started in that step, otherwise to the second one.
fn add_others(rows: &mut [StepTimes], others: BTreeMap<Option<u64>, Vec<TimeSpan>>) {
    let by_step: BTreeMap<Option<u64>, TimeSet> =
        others.into_iter().map(|(step, spans)| (step, TimeSet::union_of(spans))).collect();
    let all = TimeSet::union_of(by_step.values().flat_map(TimeSet::spans).copied());
    // Row with the latest end so far, and this end.
    let mut last: Option<(usize, i64)> = None;
    for at in 0..rows.len() {
        let span = rows[at].span;
        let gap = TimeSpan::new(last.map_or(i64::MIN, |(_, end)| end), span.start);
        if gap.start < gap.end {
            let mut behind = 0;
            if let Some((before, _)) = last {
                let step = rows[before].step.and_then(|step| by_step.get(&Some(step)));
                behind = step.map_or(0, |own| own.length_in(gap));
                rows[before].other_behind = behind;
            }
            rows[at].other_before = all.length_in(gap) - behind;
        }
        if last.is_none_or(|(_, end)| end <= span.end) {
            last = Some((at, span.end));
        }
    }
    if let Some((at, end)) = last {
        rows[at].other_behind = all.length_in(TimeSpan::new(end, i64::MAX));
    }
}

fn times_of_step(
    (number, run): (usize, &RunTimeline),
    device: Option<u32>,
    step: Option<u64>,
    StepTasks { kernels, collectives, tasks }: &StepTasks<'_>,
    finder: &GapFinder<'_>,
) -> Option<StepTimes> {
    let computing = TimeSet::union_of(kernels.iter().map(|task| task.span));
    let communication = TimeSet::union_of(collectives.iter().map(|one| one.span));
    let not_overlapped = communication.difference(&computing);
    let busy = computing.union(&communication);
    let span = busy.hull()?;
    let (pairs, groups): (Vec<&Collective>, Vec<&Collective>) =
        collectives.iter().copied().partition(|one| one.is_point_to_point(&run.names));
    let length = |all: &[&Collective]| TimeSet::union_of(all.iter().map(|one| one.span)).length();
    let receives = collectives
        .iter()
        .filter(|one| run.names.text(one.name).to_ascii_lowercase().starts_with("hcom_receive"));
    let gaps = finder.find_gaps(&busy, span);
    let mut free_by_cause = BTreeMap::new();
    for gap in &gaps {
        *free_by_cause.entry(gap.cause).or_insert(0) += gap.span.length();
    }
    let host = run.steps.iter().find(|host| Some(host.number) == step);
    Some(StepTimes {
        run: number,
        rank: run.rank,
        device,
        step,
        span,
        kernels: kernels.len(),
        collectives: collectives.len(),
        computing: computing.length(),
        communication: communication.length(),
        collective: length(&groups),
        point_to_point: length(&pairs),
        overlapped: communication.length() - not_overlapped.length(),
        not_overlapped: not_overlapped.length(),
        free: span.length() - busy.length(),
        bubble: sum_lengths(receives.map(|one| one.span.length())),
        preparing: host.map(|host| span.start - host.span.start),
        other_before: 0,
        other_behind: 0,
        free_by_cause,
        gaps,
        streams: stream_times(run, tasks),
        sets: StepSets { computing, communication, not_overlapped },
    })
}

fn stream_times(run: &RunTimeline, tasks: &[&DeviceTask]) -> Vec<StreamTimes> {
    let mut streams: BTreeMap<Option<u32>, Vec<&DeviceTask>> = BTreeMap::new();
    for task in tasks {
        streams.entry(task.stream).or_default().push(task);
    }
    let of_stream = |(stream, tasks): (Option<u32>, Vec<&DeviceTask>)| {
        let is_wait = |task: &DeviceTask| {
            task.role != TaskRole::Kernel && run.names.text(task.kind).to_ascii_uppercase().contains("WAIT")
        };
        let is_kernel = |task: &DeviceTask| task.role == TaskRole::Kernel;
        let length = |of: &dyn Fn(&DeviceTask) -> bool| {
            TimeSet::union_of(tasks.iter().filter(|task| of(task)).map(|task| task.span)).length()
        };
        StreamTimes {
            stream,
            kernels: tasks.iter().filter(|task| is_kernel(task)).count(),
            tasks: tasks.len(),
            computing: length(&is_kernel),
            waiting: length(&is_wait),
            others: length(&|task| !is_kernel(task) && !is_wait(task)),
        }
    };
    streams.into_iter().map(of_stream).collect()
}
