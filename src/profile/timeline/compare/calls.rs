//! Single calls of operators and modules of one run.

use super::selected_steps::SelectedSteps;
use crate::profile::timeline::{modules::module_calls, prelude::*};

pub(super) const WITHOUT_OPERATOR: &str = "[outside operators]";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CallKind {
    OperatorCall,
    ModuleCall,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum CallGroup {
    Thread(u64),
    #[default]
    OutsideOperators,
    ForwardModules,
    BackwardModules,
}

impl CallGroup {
    pub(super) const fn kind(self) -> CallKind {
        match self {
            Self::Thread(_) | Self::OutsideOperators => CallKind::OperatorCall,
            Self::ForwardModules | Self::BackwardModules => CallKind::ModuleCall,
        }
    }
}

/// Call of an operator or a module, or a kernel without an operator. Times are nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedCall<'r> {
    pub(crate) name: Cow<'r, str>,
    pub(crate) shapes: &'r str,
    /// Step of the host in which the call starts, of a kernel without an operator its own; `None` outside of steps.
    pub(crate) step: Option<u64>,
    pub(crate) number: usize,
    pub(crate) start: i64,
    /// Time of the kernels below; of modules the time of all that was launched within, also collectives.
    pub(crate) total: i64,
    /// Part of the time of a module that is in no inner one; `None` for operators.
    pub(crate) self_time: Option<i64>,
    pub(crate) kernels: Vec<(&'r str, i64)>,
    /// Time of the copies below an operator, which are no kernels; `None` if it is not recorded, and for modules.
    pub(crate) copies: Option<i64>,
    /// True if the name of the call, or of an operator or kernel in it, contains the text that the user looks for.
    pub(crate) is_wanted: bool,
    pub(super) group: CallGroup,
}

impl RecordedCall<'_> {
    pub(super) fn matched_name(&self) -> &str {
        match self.kernels.first() {
            Some((kernel, _)) if self.group == CallGroup::OutsideOperators => kernel,
            _ => &self.name,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RunCalls<'r> {
    pub(super) calls: Vec<RecordedCall<'r>>,
    pub(super) steps: Vec<u64>,
    pub(super) has_operators: bool,
    pub(super) has_modules: bool,
}

impl<'r> RunCalls<'r> {
    /// Lists the calls of the selected steps: those that start in one on the host, and those with work in one. Those whose
    /// names contain `wanted`, in any case, are marked; an empty text is in all.
    pub(super) fn new(run: &'r RunTimeline, selected: &SelectedSteps, domain: &str, wanted: &str) -> Self {
        let wanted = wanted.to_lowercase();
        let mut calls = operator_calls(run, selected, &wanted);
        let modules = module_calls(run, domain, &|call| selected.time_of_call(run, call));
        let has_modules = !modules.is_empty();
        let modules =
            modules.into_iter().filter(|own| own.has_work || selected.includes_call(run, own.start));
        calls.extend(modules.map(|own| RecordedCall {
            is_wanted: own.path.to_lowercase().contains(&wanted),
            name: Cow::Owned(own.path),
            step: run.host_step_number(own.start),
            start: own.start,
            total: own.total,
            self_time: Some(own.self_time),
            group: if own.is_backward { CallGroup::BackwardModules } else { CallGroup::ForwardModules },
            ..RecordedCall::default()
        }));
        // The sort is stable: the outer ones of modules that start together stay the first.
        calls.sort_by_key(|call| call.start);
        let mut numbers: HashMap<(CallKind, Option<u64>, String), usize> = HashMap::new();
        for call in &mut calls {
            let key = (call.group.kind(), call.step, call.name.clone().into_owned());
            let number = numbers.entry(key).or_default();
            *number += 1;
            call.number = *number;
        }
        Self { calls, steps: selected.numbers(), has_operators: !run.operators.is_empty(), has_modules }
    }
}

fn operator_calls<'r>(run: &'r RunTimeline, selected: &SelectedSteps, wanted: &str) -> Vec<RecordedCall<'r>> {
    if run.operators.is_empty() {
        return Vec::new();
    }
    let nesting = run.nesting();
    let is_wanted_name = |name: NameId| run.names.text(name).to_lowercase().contains(wanted);
    let with_wanted: HashSet<OperatorId> = (run.operators.iter().zip(0..))
        .filter(|(operator, _)| is_wanted_name(operator.name))
        .map(|(_, at)| nesting.outermost(OperatorId(at)))
        .collect();
    let mut kernels_of: BTreeMap<OperatorId, Vec<&DeviceTask>> = BTreeMap::new();
    let mut calls = Vec::new();
    for task in run.kernels().filter(|task| selected.includes_step(task.step)) {
        match task.operator {
            Some(operator) => kernels_of.entry(nesting.outermost(operator)).or_default().push(task),
            None => {
                let shapes = task.signature.map_or("", |signature| run.signature_cells(signature)[0]);
                calls.push(RecordedCall {
                    name: Cow::Borrowed(WITHOUT_OPERATOR),
                    shapes: shapes.trim_matches('"'),
                    step: task.step,
                    start: task.span.start,
                    total: task.span.length(),
                    kernels: vec![recorded_kernel(run, task)],
                    is_wanted: is_wanted_name(task.name) || is_wanted_name(task.kind),
                    ..RecordedCall::default()
                });
            }
        }
    }
    let copies_of = copies_by_operator(run, &nesting);
    for (operator, at) in run.operators.iter().zip(0..) {
        let id = OperatorId(at);
        let kernels = kernels_of.remove(&id).unwrap_or_default();
        let is_selected = nesting.is_outermost(id) && selected.includes_call(run, operator.span.start);
        if kernels.is_empty() && !is_selected {
            continue;
        }
        calls.push(RecordedCall {
            name: Cow::Borrowed(run.names.text(operator.name)),
            shapes: run.names.text(operator.shapes),
            step: run.host_step_number(operator.span.start),
            is_wanted: with_wanted.contains(&id)
                || kernels.iter().any(|task| is_wanted_name(task.name) || is_wanted_name(task.kind)),
            start: operator.span.start,
            total: sum_lengths(kernels.iter().map(|task| task.span.length())),
            kernels: kernels.into_iter().map(|task| recorded_kernel(run, task)).collect(),
            copies: copies_of.as_ref().map(|copies| copies.get(&id).copied().unwrap_or_default()),
            group: CallGroup::Thread(operator.thread),
            ..RecordedCall::default()
        });
    }
    calls
}

/// Returns the time of the copies below outermost operators, in and outside of the steps of the device: those of inputs run
/// before the first kernel. `None` if the profile does not record which operators copy.
fn copies_by_operator(run: &RunTimeline, nesting: &OperatorNesting<'_>) -> Option<HashMap<OperatorId, i64>> {
    // A collective begins with a copy of its own, which has the same launch where its tasks are not recorded as such.
    // Tables and traces round starts differently, by up to 1 ns.
    let collectives: HashSet<i64> = run.collectives.iter().map(|collective| collective.span.start).collect();
    let is_own = |task: &&DeviceTask| {
        task.role == TaskRole::Other
            && is_copy(run.names.text(task.kind))
            && (-1..=1).all(|more| !collectives.contains(&task.span.start.saturating_add(more)))
    };
    let mut copies: HashMap<OperatorId, i64> = HashMap::new();
    let mut has_copies = false;
    for task in run.tasks.iter().filter(is_own) {
        has_copies = true;
        if let Some(operator) = task.operator {
            let time = copies.entry(nesting.outermost(operator)).or_default();
            *time = time.saturating_add(task.span.length());
        }
    }
    (!has_copies || !copies.is_empty()).then_some(copies)
}

fn recorded_kernel<'r>(run: &'r RunTimeline, task: &DeviceTask) -> (&'r str, i64) {
    let name = if task.name.is_recorded() { task.name } else { task.kind };
    (run.names.text(name), task.span.length())
}
