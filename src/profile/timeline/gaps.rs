//! Causes of free time: what kept a device from computing and communicating in a gap.
//!
//! The next task of a gap was launched by the host. If the launch was complete before the gap began, the task waited on
//! the device. Otherwise the host was late: its framework if the distance between operator and launch is that of the
//! task before the gap, and the launch by CANN if the distance grew by 50 us or more, as the vendor's analysis has it.

use super::prelude::*;

/// Growth of the distance between operator and launch, in nanoseconds, from which the launch is the cause.
const SLOW_LAUNCH: i64 = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum GapCause {
    DeviceTask,
    Framework,
    Launch,
    /// The next task was launched before the gap and did not start, for example because it waits for an event.
    Wait,
    Host,
    NotRecorded,
}

#[derive(Clone, Debug)]
pub(crate) struct FreeGap {
    pub(crate) span: TimeSpan,
    pub(crate) cause: GapCause,
    /// Time of other device tasks in the gap, and the type of those with the most of it.
    pub(crate) other_tasks: Option<(NameId, i64)>,
    pub(crate) before: NameId,
    pub(crate) after: NameId,
}

pub(super) struct GapFinder<'a> {
    run: &'a RunTimeline,
    by_start: Vec<LaunchedSpan>,
    by_end: Vec<LaunchedSpan>,
    others: BTreeMap<NameId, TimeSet>,
}

/// Returns true for the type of another device task that is work; a wait for an event or its record is none.
pub(super) fn is_work(kind: &str) -> bool {
    let kind = kind.to_ascii_uppercase();
    !["EVENT", "WAIT", "NOTIFY", "PROFILING", "PLACE_HOLDER"].iter().any(|word| kind.contains(word))
}

impl<'a> GapFinder<'a> {
    pub(super) fn new(run: &'a RunTimeline, device: Option<u32>, mut tasks: Vec<LaunchedSpan>) -> Self {
        tasks.sort_by_key(|task| (task.span.start, task.span.end));
        let mut by_end = tasks.clone();
        by_end.sort_by_key(|task| (task.span.end, task.span.start));
        let mut others: BTreeMap<NameId, Vec<TimeSpan>> = BTreeMap::new();
        for task in run.tasks.iter().filter(|task| task.device == device && task.role == TaskRole::Other) {
            if is_work(run.names.text(task.kind)) {
                others.entry(task.kind).or_default().push(task.span);
            }
        }
        let others = others.into_iter().map(|(kind, spans)| (kind, TimeSet::union_of(spans))).collect();
        Self { run, by_start: tasks, by_end, others }
    }

    pub(super) fn find_gaps(&self, busy: &TimeSet, span: TimeSpan) -> Vec<FreeGap> {
        let free = TimeSet::union_of([span]).difference(busy);
        let mut gaps: Vec<FreeGap> = free.spans().iter().map(|gap| self.explain_gap(*gap)).collect();
        gaps.sort_by_key(|gap| (-gap.span.length(), gap.span.start));
        gaps
    }

    fn explain_gap(&self, gap: TimeSpan) -> FreeGap {
        let before = self.by_end.partition_point(|task| task.span.end <= gap.start);
        let before = before.checked_sub(1).and_then(|at| self.by_end.get(at));
        let after = self.by_start.get(self.by_start.partition_point(|task| task.span.start < gap.end));
        let other_tasks = self
            .others
            .iter()
            .map(|(kind, spans)| (*kind, spans.length_in(gap)))
            .filter(|(_, time)| *time > 0)
            .max_by_key(|(_, time)| *time);
        let covered = TimeSet::union_of(self.others.values().flat_map(|set| set.parts_in(gap)));
        let cause = match after {
            _ if covered.length() >= gap.length() - covered.length() => GapCause::DeviceTask,
            Some(after) => self.cause_by_launch(gap, before, after),
            None => GapCause::NotRecorded,
        };
        let name = |task: Option<&LaunchedSpan>| task.map_or(NameId::EMPTY, |task| task.name);
        FreeGap { span: gap, cause, other_tasks, before: name(before), after: name(after) }
    }

    fn cause_by_launch(
        &self,
        gap: TimeSpan,
        before: Option<&LaunchedSpan>,
        after: &LaunchedSpan,
    ) -> GapCause {
        let Some(launch) = after.launch else {
            // An operator that began in the gap was late, whenever its launch was.
            let operator = after.operator.and_then(|id| self.run.operator(id));
            return match operator.is_some_and(|operator| operator.span.start >= gap.start) {
                true => GapCause::Framework,
                false => GapCause::NotRecorded,
            };
        };
        if launch.end <= gap.start {
            return GapCause::Wait;
        }
        let distance = |task: &LaunchedSpan| {
            let operator = self.run.operator(task.operator?)?;
            Some(task.launch?.start.saturating_sub(operator.span.end))
        };
        match (distance(after), before.and_then(distance)) {
            (Some(after), Some(before)) if after.saturating_sub(before) >= SLOW_LAUNCH => GapCause::Launch,
            (Some(_), _) => GapCause::Framework,
            (None, _) => GapCause::Host,
        }
    }
}
