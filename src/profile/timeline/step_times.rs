//! Times of a step on a device: computing, communication, their overlap, and what is free.
//!
//! With C the union of kernels and M the union of collectives: communication that is not overlapped is M without C, and
//! free is the span from the first start to the last end of both without C and M. Copies, events and waits do not
//! count.

use super::{
    gaps::{FreeGap, GapCause, GapFinder, is_work},
    prelude::*,
};

/// Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct StreamTimes {
    pub(crate) stream: Option<u32>,
    #[serde(rename = "computing_ns")]
    pub(crate) computing: i64,
    #[serde(rename = "waiting_ns")]
    pub(crate) waiting: i64,
    #[serde(rename = "other_ns")]
    pub(crate) others: i64,
    pub(crate) kernels: usize,
    pub(crate) tasks: usize,
}

/// Times of one step on one device, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct StepTimes {
    /// Place of the run among the runs of the command: several runs may have the same rank, or none.
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
    pub(crate) collective: i64,
    pub(crate) point_to_point: i64,
    pub(crate) overlapped: i64,
    pub(crate) not_overlapped: i64,
    pub(crate) free: i64,
    /// Sum of the receiving transfers, the bubbles of pipelines.
    pub(crate) bubble: i64,
    /// Start of the step on the host until the first kernel; `None` without a host step.
    pub(crate) preparing: Option<i64>,
    /// Copies and other work of the device between the span of the previous row and this span.
    pub(crate) other_before: i64,
    /// The same behind the span, of tasks in the step or behind the last row.
    pub(crate) other_behind: i64,
    pub(crate) free_by_cause: BTreeMap<GapCause, i64>,
    pub(crate) gaps: Vec<FreeGap>,
    pub(crate) streams: Vec<StreamTimes>,
    pub(crate) sets: StepSets,
}

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

    pub(crate) fn not_overlapped_excluding_receive(&self) -> i64 {
        self.not_overlapped.saturating_sub(self.bubble).max(0)
    }
}

#[derive(Default)]
struct StepTasks<'a> {
    tasks: Vec<&'a DeviceTask>,
    collectives: Vec<&'a Collective>,
}

/// Returns the times of all steps of a run, by device and start. Tasks outside of steps have rows of their own, before,
/// between and behind the steps. `number` is the place of the run among the runs of the command.
pub(crate) fn step_times(number: usize, run: &RunTimeline) -> Vec<StepTimes> {
    let mut rows = Vec::new();
    for device in run.devices() {
        let launched: Vec<LaunchedSpan> = run.launched_on(device).collect();
        let in_steps = launched.iter().filter(|one| one.step.is_some()).map(|one| one.span.start);
        let mut in_steps: Vec<i64> = in_steps.collect();
        in_steps.sort_unstable();
        // One row for all tasks outside of steps would count the steps between them as free.
        let row_of = |step: Option<u64>, start: i64| match step {
            Some(_) => (step, 0),
            None => (step, in_steps.partition_point(|in_step| *in_step < start)),
        };
        let mut steps: BTreeMap<(Option<u64>, usize), StepTasks<'_>> =
            launched.iter().map(|one| (row_of(one.step, one.span.start), StepTasks::default())).collect();
        for collective in run.collectives.iter().filter(|collective| collective.device == device) {
            if let Some(step) = steps.get_mut(&row_of(collective.step, collective.span.start)) {
                step.collectives.push(collective);
            }
        }
        let mut others: BTreeMap<Option<u64>, Vec<TimeSpan>> = BTreeMap::new();
        for task in run.tasks.iter().filter(|task| task.device == device) {
            if let Some(step) = steps.get_mut(&row_of(task.step, task.span.start)) {
                step.tasks.push(task);
            }
            if task.role == TaskRole::Other && is_work(run.names.text(task.kind)) {
                others.entry(task.step).or_default().push(task.span);
            }
        }
        let finder = GapFinder::new(run, device, launched);
        let of_step = |((step, _), tasks): (&(Option<u64>, usize), &StepTasks<'_>)| {
            times_of_step((number, run), device, *step, tasks, &finder)
        };
        let mut of_device: Vec<StepTimes> = steps.iter().filter_map(of_step).collect();
        of_device.sort_by_key(|own| (own.span, own.step));
        add_others(&mut of_device, others);
        rows.append(&mut of_device);
    }
    rows
}

/// Adds the work outside of the spans of all rows of a device, which are in the order of their times. `others` are its copies
/// and other tasks that work by step. Work between two rows belongs to the first one if it started in that step, otherwise to the second one.
fn add_others(rows: &mut [StepTimes], others: BTreeMap<Option<u64>, Vec<TimeSpan>>) {
    let by_step: BTreeMap<Option<u64>, TimeSet> =
        others.into_iter().map(|(step, spans)| (step, TimeSet::union_of(spans))).collect();
    let all = TimeSet::union_of(by_step.values().flat_map(TimeSet::spans).copied());
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
    StepTasks { tasks, collectives }: &StepTasks<'_>,
    finder: &GapFinder<'_>,
) -> Option<StepTimes> {
    let kernels = || tasks.iter().filter(|task| task.role == TaskRole::Kernel);
    let computing = TimeSet::union_of(kernels().map(|task| task.span));
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
        kernels: kernels().count(),
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
