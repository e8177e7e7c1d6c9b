//! Time of device tasks by module of the model: rules of the vendor's module statistic, with a row for what is outside.
//!
//! Ranges of modules and operators of the host are swept by start, the outer ones first; an operator belongs to the
//! innermost range that encloses it, whatever its thread. Time counts where the operator ran on the host, not where its
//! kernels ran. Operators of the backward pass belong to the module of their operator of the forward pass.

use std::cmp::Reverse;

use indexmap::{IndexMap, IndexSet};

use super::prelude::*;

pub(crate) const MODULE_DOMAIN: &str = "Module";
const BACKWARD: &str = "[Backward]";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchedTask {
    Kernel(u32),
    Collective(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct OperatorCall {
    /// The operator; `None` for a kernel that has none, such as one of a replayed graph.
    pub(crate) operator: Option<OperatorId>,
    pub(crate) tasks: Vec<LaunchedTask>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModuleRow {
    pub(crate) parent: String,
    pub(crate) module: String,
    pub(crate) operator: NameId,
    pub(crate) kernels: Vec<NameId>,
    pub(crate) total: i64,
    pub(crate) calls: Vec<OperatorCall>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleTable {
    pub(crate) rows: Vec<ModuleRow>,
    pub(crate) outside: Vec<ModuleRow>,
    pub(crate) ranges: usize,
}

impl ModuleRow {
    pub(crate) fn path(&self) -> String {
        if self.parent.is_empty() { self.module.clone() } else { format!("{}/{}", self.parent, self.module) }
    }
}

impl ModuleTable {
    pub(crate) fn attributed(&self) -> i64 {
        sum_lengths(self.rows.iter().map(|row| row.total))
    }

    pub(crate) fn device_time(&self) -> i64 {
        sum_lengths([self.attributed(), self.outside_time()])
    }

    pub(crate) fn outside_time(&self) -> i64 {
        sum_lengths(self.outside.iter().map(|row| row.total))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ModuleRange {
    span: TimeSpan,
    name: String,
    is_backward: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ModuleCallTimes {
    pub(crate) path: String,
    pub(crate) is_backward: bool,
    pub(crate) start: i64,
    /// Nanoseconds.
    pub(crate) self_time: i64,
    pub(crate) total: i64,
    pub(crate) has_work: bool,
}

struct ModuleRanges(Vec<ModuleRange>);

impl ModuleRanges {
    /// Visits operators with the places of the ranges that enclose them, the outer ones first.
    fn for_each_enclosed<T>(
        &self,
        mut operators: Vec<(TimeSpan, T)>,
        visit: &mut dyn FnMut(&[usize], TimeSpan, T),
    ) {
        operators.sort_by_key(|(span, _)| span.outer_first());
        let mut ranges = self.0.iter().enumerate().peekable();
        let mut open: Vec<usize> = Vec::new();
        let close = |open: &mut Vec<usize>, span: TimeSpan| {
            while open.last().is_some_and(|last| !self.0[*last].span.contains(span)) {
                open.pop();
            }
        };
        for (span, operator) in operators {
            let is_before = |range: &ModuleRange| range.span.outer_first() <= span.outer_first();
            while let Some((at, range)) = ranges.next_if(|(_, range)| is_before(range)) {
                close(&mut open, range.span);
                open.push(at);
            }
            close(&mut open, span);
            visit(&open, span, operator);
        }
    }

    fn path(&self, ranges: &[usize]) -> String {
        ranges.iter().map(|at| self.0[*at].name.as_str()).collect::<Vec<_>>().join("/")
    }

    fn name(&self, ranges: &[usize]) -> Option<(String, String)> {
        let (module, parents) = ranges.split_last()?;
        let prefix = if self.are_backward(ranges) { BACKWARD } else { "" };
        Some((self.path(parents), format!("{prefix}{}", self.0[*module].name)))
    }

    fn are_backward(&self, ranges: &[usize]) -> bool {
        ranges.iter().any(|at| self.0[*at].is_backward)
    }

    /// Returns the ranges of modules in the backward pass: the time of operators whose operator of the forward pass is in
    /// the module. Adjacent operators of one call of a module have one range, in one of the enclosing modules that is 1 ns
    /// wider on each side.
    fn backward_ranges(&self, run: &RunTimeline) -> Vec<ModuleRange> {
        let span_of = |id: OperatorId| run.operator(id).map(|operator| operator.span);
        let pairs = run.backward.iter();
        let forward = pairs.filter_map(|(backward, forward)| Some((span_of(*forward)?, *backward))).collect();
        let mut found: Vec<(TimeSpan, String, &ModuleRange)> = Vec::new();
        self.for_each_enclosed(forward, &mut |path, _, backward| {
            if let (Some((module, parents)), Some(span)) = (path.split_last(), span_of(backward)) {
                found.push((span, self.path(parents), &self.0[*module]));
            }
        });
        found.sort_by_key(|(span, ..)| span.start);
        let mut ranges = Vec::new();
        for calls in found.chunk_by(|one, other| (&one.1, one.2) == (&other.1, other.2)) {
            let (first, parent, module) = &calls[0];
            let end = calls.iter().map(|(span, ..)| span.end).fold(first.end, i64::max);
            let range = |more: i64, name: &str| ModuleRange {
                span: TimeSpan::new(first.start - more, end + more),
                name: name.to_owned(),
                is_backward: true,
            };
            ranges.extend((!parent.is_empty()).then(|| range(1, parent)));
            ranges.push(range(0, &module.name));
        }
        ranges
    }
}

impl RunTimeline {
    /// Returns the ranges of modules, and the number of recorded ranges: the ranges of mstx in a domain, or the modules
    /// of torch if there are none. The number of a module of torch, as in `Conv2d_0`, is left out, so that equal layers
    /// are one row.
    fn module_ranges(&self, domain: &str) -> (ModuleRanges, usize) {
        let has_mstx = || self.ranges.iter().any(|range| self.names.text(range.domain) == domain);
        let domain = if domain == MODULE_DOMAIN && !has_mstx() { "" } else { domain };
        let recorded = self.ranges.iter().filter(|range| self.names.text(range.domain) == domain);
        let forward = recorded.map(|range| {
            let name = self.names.text(range.name);
            let name = if domain.is_empty() { unnumbered_module(name) } else { name };
            ModuleRange { span: range.span, name: name.to_owned(), is_backward: false }
        });
        let mut ranges = ModuleRanges(forward.collect());
        let count = ranges.0.len();
        let backward = ranges.backward_ranges(self);
        ranges.0.extend(backward);
        // The sort is stable: a range of the forward pass precedes one of the backward pass with the same times.
        ranges.0.sort_by_key(|range| range.span.outer_first());
        (ranges, count)
    }

    /// Returns the operators that launched kernels or collectives by start, and the calls without an operator, one for
    /// each task.
    pub(crate) fn operator_calls(&self) -> (Vec<OperatorCall>, Vec<OperatorCall>) {
        let kernels = self.tasks.iter().zip(0..).filter(|(task, _)| task.role == TaskRole::Kernel);
        let kernels = kernels.map(|(task, at)| (task.span, task.operator, LaunchedTask::Kernel(at)));
        let collectives = self.collectives.iter().zip(0..);
        let collectives = collectives.map(|(one, at)| (one.span, one.operator, LaunchedTask::Collective(at)));
        let mut launched: Vec<_> = kernels.chain(collectives).collect();
        launched.sort_by_key(|(span, ..)| *span);
        let mut calls: BTreeMap<OperatorId, Vec<LaunchedTask>> = BTreeMap::new();
        let mut without = Vec::new();
        for (_, operator, task) in launched {
            match operator {
                Some(operator) => calls.entry(operator).or_default().push(task),
                None => without.push(OperatorCall { operator: None, tasks: vec![task] }),
            }
        }
        let calls =
            calls.into_iter().map(|(operator, tasks)| OperatorCall { operator: Some(operator), tasks });
        (calls.collect(), without)
    }

    fn calls_by_span(&self, calls: Vec<OperatorCall>) -> Vec<(TimeSpan, OperatorCall)> {
        calls.into_iter().filter_map(|call| Some((self.operator(call.operator?)?.span, call))).collect()
    }

    pub(crate) fn launched_name(&self, task: LaunchedTask) -> (NameId, i64) {
        let found = match task {
            LaunchedTask::Kernel(at) => self.tasks.get(at as usize).map(|task| (task.name, task.span)),
            LaunchedTask::Collective(at) => self.collectives.get(at as usize).map(|one| (one.kind, one.span)),
        };
        found.map_or((NameId::EMPTY, 0), |(name, span)| (name, span.length()))
    }

    pub(super) fn kernels_of_call<'r>(
        &'r self,
        call: &'r OperatorCall,
    ) -> impl Iterator<Item = &'r DeviceTask> {
        call.tasks.iter().filter_map(|task| match task {
            LaunchedTask::Kernel(at) => self.tasks.get(*at as usize),
            LaunchedTask::Collective(_) => None,
        })
    }

    fn names_of_call(&self, call: &OperatorCall) -> (NameId, Vec<NameId>) {
        let operator = call.operator.and_then(|id| self.operator(id));
        let launched = call.tasks.iter().map(|task| self.launched_name(*task).0).collect();
        (operator.map_or(NameId::EMPTY, |operator| operator.name), launched)
    }

    pub(crate) fn duration_of_call(&self, call: &OperatorCall) -> i64 {
        sum_lengths(call.tasks.iter().map(|task| self.launched_name(*task).1))
    }
}

fn unnumbered_module(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((module, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            module
        }
        _ => name,
    }
}

/// Returns the calls of modules by start. `time_of_call` returns the time of what an operator launched that counts, and
/// true if there is any. A range of the backward pass that only encloses others is no call.
pub(super) fn module_calls(
    run: &RunTimeline,
    domain: &str,
    time_of_call: &dyn Fn(&OperatorCall) -> (i64, bool),
) -> Vec<ModuleCallTimes> {
    let (ranges, _) = run.module_ranges(domain);
    let mut found: Vec<(ModuleCallTimes, bool)> = Vec::with_capacity(ranges.0.len());
    let places = ranges.0.iter().zip(0..).map(|(range, at)| (range.span, at)).collect();
    let mut of_range: HashMap<usize, usize> = HashMap::new();
    ranges.for_each_enclosed(places, &mut |path, span, at: usize| {
        // The path ends with the last of the ranges that have the same times.
        let depth = path.iter().position(|own| *own == at).unwrap_or(path.len());
        let path = [&path[..depth], &[at]].concat();
        let Some((parent, module)) = ranges.name(&path) else { return };
        let times = ModuleCallTimes {
            path: if parent.is_empty() { module } else { format!("{parent}/{module}") },
            is_backward: ranges.are_backward(&path),
            start: span.start,
            self_time: 0,
            total: 0,
            has_work: false,
        };
        of_range.insert(at, found.len());
        found.push((times, !ranges.0[at].is_backward));
    });
    ranges.for_each_enclosed(run.calls_by_span(run.operator_calls().0), &mut |path, _, call| {
        let (time, has_work) = time_of_call(&call);
        for (depth, at) in path.iter().rev().filter_map(|at| of_range.get(at)).enumerate() {
            let (times, is_call) = &mut found[*at];
            times.total = times.total.saturating_add(time);
            times.has_work |= has_work;
            if depth == 0 {
                times.self_time = times.self_time.saturating_add(time);
                *is_call = true;
            }
        }
    });
    found.into_iter().filter_map(|(times, is_call)| is_call.then_some(times)).collect()
}

pub(crate) fn module_table(run: &RunTimeline, domain: &str) -> ModuleTable {
    let (ranges, count) = run.module_ranges(domain);
    let (calls, without) = run.operator_calls();
    let mut modules: IndexMap<(String, String, TimeSpan), Vec<OperatorCall>> = IndexMap::new();
    let mut outside: Vec<OperatorCall> = Vec::new();
    ranges.for_each_enclosed(run.calls_by_span(calls), &mut |path, _, call| match ranges
        .name(path)
        .zip(path.last())
    {
        Some(((parent, module), last)) => {
            modules.entry((parent, module, ranges.0[*last].span)).or_default().push(call);
        }
        None => outside.push(call),
    });
    outside.extend(without);
    ModuleTable { rows: rows_of_modules(run, modules), outside: rows_outside(run, outside), ranges: count }
}

impl ModuleRow {
    fn new(parent: &str, module: &str, (operator, kernels): (NameId, Vec<NameId>)) -> Self {
        let (parent, module) = (parent.to_owned(), module.to_owned());
        Self { parent, module, operator, kernels, total: 0, calls: Vec::new() }
    }

    fn add_call(&mut self, run: &RunTimeline, call: OperatorCall) {
        self.total = sum_lengths([self.total, run.duration_of_call(&call)]);
        self.calls.push(call);
    }
}

/// Returns the rows by their first call: calls of an operator at one place of module calls with the same operators. Adjacent rows
/// of one module with different operators get numbers.
fn rows_of_modules(
    run: &RunTimeline,
    modules: IndexMap<(String, String, TimeSpan), Vec<OperatorCall>>,
) -> Vec<ModuleRow> {
    // Rows by parent, module, operators of the module's call, place of the call among these operators, and names of the
    // call.
    let mut rows: IndexMap<_, ModuleRow> = IndexMap::new();
    for ((parent, module, _), calls) in modules {
        let sequence: Vec<NameId> = calls.iter().map(|call| run.names_of_call(call).0).collect();
        for (place, call) in calls.into_iter().enumerate() {
            let names = run.names_of_call(&call);
            let key = (parent.clone(), module.clone(), sequence.clone(), place, names.clone());
            rows.entry(key).or_insert_with(|| ModuleRow::new(&parent, &module, names)).add_call(run, call);
        }
    }
    let first_start = |row: &ModuleRow| {
        let starts = row.calls.iter().filter_map(|call| Some(run.operator(call.operator?)?.span.start));
        starts.min().unwrap_or_default()
    };
    let mut sorted: Vec<(usize, Vec<NameId>, ModuleRow)> =
        rows.into_iter().map(|((_, _, sequence, place, _), row)| (place, sequence, row)).collect();
    sorted.sort_by_cached_key(|(place, _, row)| (first_start(row), *place));
    let is_same =
        |one: &ModuleRow, other: &ModuleRow| (&one.parent, &one.module) == (&other.parent, &other.module);
    for group in sorted.chunk_by_mut(|(.., one), (.., other)| is_same(one, other)) {
        let sequences: IndexSet<Vec<NameId>> =
            group.iter().map(|(_, sequence, _)| sequence.clone()).collect();
        for (_, sequence, row) in group.iter_mut().filter(|_| sequences.len() > 1) {
            let number = sequences.get_index_of(sequence);
            row.module = format!("{}_{}", row.module, number.unwrap_or_default());
        }
    }
    sorted.into_iter().map(|(.., row)| row).collect()
}

fn rows_outside(run: &RunTimeline, calls: Vec<OperatorCall>) -> Vec<ModuleRow> {
    let mut rows: IndexMap<(NameId, Vec<NameId>), ModuleRow> = IndexMap::new();
    for call in calls {
        let names = run.names_of_call(&call);
        let row = rows.entry(names.clone()).or_insert_with(|| ModuleRow::new("", "", names));
        row.add_call(run, call);
    }
    let mut rows: Vec<ModuleRow> = rows.into_values().collect();
    rows.sort_by_key(|row| Reverse(row.total));
    rows
}
