//! Time of device tasks by module of the model: rules of the vendor's module statistic, with a row for what is outside.
//!
//! Ranges of modules and operators of the host are swept by start, the outer ones first; an operator belongs to the
//! innermost range that encloses it, whatever its thread. Time counts where the operator ran on the host, not where its
//! kernels ran. Operators of the backward pass belong to the module of their operator of the forward pass.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::{
    intervals::{TimeSpan, sum_lengths},
    names::NameId,
    run::{OperatorId, RunTimeline, TaskRole},
};

/// Domain of mstx with the ranges of modules.
pub(crate) const MODULE_DOMAIN: &str = "Module";
/// Prefix of modules in the backward pass.
const BACKWARD: &str = "[Backward]";

/// Kernel or collective that an operator launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchedTask {
    /// Index into [`RunTimeline::tasks`].
    Kernel(u32),
    /// Index into [`RunTimeline::collectives`].
    Collective(u32),
}

/// Call of an operator with what it launched, by start.
#[derive(Clone, Debug)]
pub(crate) struct OperatorCall {
    /// The operator; `None` for a kernel that has none, such as one of a replayed graph.
    pub(crate) operator: Option<OperatorId>,
    pub(crate) tasks: Vec<LaunchedTask>,
}

/// Row of the table: the calls of an operator at one place of a module.
#[derive(Clone, Debug)]
pub(crate) struct ModuleRow {
    /// Enclosing modules, separated by `/`.
    pub(crate) parent: String,
    pub(crate) module: String,
    pub(crate) operator: NameId,
    /// Kernels of each call.
    pub(crate) kernels: Vec<NameId>,
    /// Sum of the durations of kernels, in nanoseconds.
    pub(crate) total: i64,
    pub(crate) calls: Vec<OperatorCall>,
}

/// Time by module of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleTable {
    pub(crate) rows: Vec<ModuleRow>,
    /// Operators outside of all modules, and kernels without an operator.
    pub(crate) outside: Vec<ModuleRow>,
    pub(crate) ranges: usize,
}

impl ModuleTable {
    /// Returns the time in modules, in nanoseconds.
    pub(crate) fn attributed(&self) -> i64 {
        sum_lengths(self.rows.iter().map(|row| row.total))
    }

    /// Returns the time in and outside of modules, in nanoseconds.
    pub(crate) fn device_time(&self) -> i64 {
        sum_lengths([self.attributed(), self.outside_time()])
    }

    /// Returns the time outside of modules, in nanoseconds.
    pub(crate) fn outside_time(&self) -> i64 {
        sum_lengths(self.outside.iter().map(|row| row.total))
    }
}

/// Range of a module on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModuleRange {
    span: TimeSpan,
    name: String,
    is_backward: bool,
}

/// Call of a module with its times on the device.
#[derive(Clone, Debug)]
pub(crate) struct ModuleCallTimes {
    /// Enclosing modules and the module, separated by `/`.
    pub(crate) path: String,
    pub(crate) is_backward: bool,
    pub(crate) start: i64,
    /// Time of the operators that are in no inner module, in nanoseconds.
    pub(crate) self_time: i64,
    /// Time of all operators within, in nanoseconds.
    pub(crate) total: i64,
    /// True if an operator within launched something that counts.
    pub(crate) has_work: bool,
}

/// Visits operators with the ranges that enclose them, the outer ones first.
fn for_each_enclosed<'r, T>(
    ranges: &'r [ModuleRange],
    mut operators: Vec<(TimeSpan, T)>,
    visit: &mut dyn FnMut(&[&'r ModuleRange], TimeSpan, T),
) {
    operators.sort_by_key(|(span, _)| span.outer_first());
    let mut ranges = ranges.iter().peekable();
    let mut open: Vec<&ModuleRange> = Vec::new();
    let close = |open: &mut Vec<&ModuleRange>, span: TimeSpan| {
        while open.last().is_some_and(|last| !last.span.contains(span)) {
            open.pop();
        }
    };
    for (span, operator) in operators {
        let key = span.outer_first();
        while let Some(range) = ranges.next_if(|range| range.span.outer_first() <= key) {
            close(&mut open, range.span);
            open.push(range);
        }
        close(&mut open, span);
        visit(&open, span, operator);
    }
}

fn path_of(ranges: &[&ModuleRange]) -> String {
    ranges.iter().map(|range| range.name.as_str()).collect::<Vec<_>>().join("/")
}

impl RunTimeline {
    /// Returns the ranges of modules by start: those of mstx in a domain, or the modules of torch if there are none. The
    /// number of a module of torch, as in `Conv2d_0`, is left out, so that equal layers are one row.
    fn module_ranges(&self, domain: &str) -> Vec<ModuleRange> {
        let of_domain = |domain: &str| -> Vec<ModuleRange> {
            let ranges = self.ranges.iter().filter(|range| self.names.text(range.domain) == domain);
            let range = |name: &str, span| ModuleRange { span, name: name.to_owned(), is_backward: false };
            ranges
                .map(|own| match self.names.text(own.name) {
                    name if domain.is_empty() => range(unnumbered_module(name), own.span),
                    name => range(name, own.span),
                })
                .collect()
        };
        let of_mstx = of_domain(domain);
        if of_mstx.is_empty() && domain == MODULE_DOMAIN { of_domain("") } else { of_mstx }
    }

    /// Returns the operators that launched kernels or collectives by start, and the calls without an operator, one for
    /// each task.
    pub(crate) fn operator_calls(&self) -> (Vec<OperatorCall>, Vec<OperatorCall>) {
        let kernels = self.tasks.iter().zip(0..).filter(|(task, _)| task.role == TaskRole::Kernel);
        let kernels = kernels.map(|(task, at)| (task.span, task.operator, LaunchedTask::Kernel(at)));
        let collectives = self.collectives.iter().zip(0..);
        let collectives = collectives.map(|(one, at)| (one.span, one.operator, LaunchedTask::Collective(at)));
        let mut launched: Vec<(TimeSpan, Option<OperatorId>, LaunchedTask)> =
            kernels.chain(collectives).collect();
        launched.sort_by_key(|(span, ..)| *span);
        let mut calls: HashMap<OperatorId, Vec<LaunchedTask>> = HashMap::new();
        let mut without = Vec::new();
        for (_, operator, task) in launched {
            match operator {
                Some(operator) => calls.entry(operator).or_default().push(task),
                None => without.push(OperatorCall { operator: None, tasks: vec![task] }),
            }
        }
        let mut calls: Vec<OperatorCall> = calls
            .into_iter()
            .map(|(operator, tasks)| OperatorCall { operator: Some(operator), tasks })
            .collect();
        calls.sort_by_key(|call| call.operator);
        (calls, without)
    }

    /// Returns name and duration of a kernel, or type and duration of a collective.
    pub(crate) fn launched_name(&self, task: LaunchedTask) -> (NameId, i64) {
        match task {
            LaunchedTask::Kernel(at) => {
                self.tasks.get(at as usize).map(|task| (task.name, task.span.length()))
            }
            LaunchedTask::Collective(at) => {
                self.collectives.get(at as usize).map(|one| (one.kind, one.span.length()))
            }
        }
        .unwrap_or((NameId::EMPTY, 0))
    }

    /// Returns the type of a kernel; `None` for a collective.
    pub(super) fn launched_kernel(&self, task: LaunchedTask) -> Option<&str> {
        match task {
            LaunchedTask::Kernel(at) => Some(self.names.text(self.tasks.get(at as usize)?.kind)),
            LaunchedTask::Collective(_) => None,
        }
    }

    fn name_of_call(&self, call: &OperatorCall) -> NameId {
        call.operator.and_then(|id| self.operator(id)).map_or(NameId::EMPTY, |operator| operator.name)
    }

    pub(crate) fn duration_of_call(&self, call: &OperatorCall) -> i64 {
        sum_lengths(call.tasks.iter().map(|task| self.launched_name(*task).1))
    }
}

/// Returns the name of a module of torch without its number.
fn unnumbered_module(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((module, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            module
        }
        _ => name,
    }
}

/// Returns the ranges of modules in the backward pass: the time of operators whose operator of the forward pass is in
/// the module. Adjacent operators of one call of a module have one range, in one of the enclosing modules that is 1 ns
/// wider on each side.
fn backward_ranges(run: &RunTimeline, ranges: &[ModuleRange]) -> Vec<ModuleRange> {
    let span_of = |id: OperatorId| run.operator(id).map(|operator| operator.span);
    let forward: Vec<(TimeSpan, OperatorId)> =
        run.backward.iter().filter_map(|pair| Some((span_of(pair.forward)?, pair.backward))).collect();
    let mut found: Vec<(TimeSpan, String, &ModuleRange)> = Vec::new();
    for_each_enclosed(ranges, forward, &mut |path, _, backward| {
        if let (Some((module, parents)), Some(span)) = (path.split_last(), span_of(backward)) {
            found.push((span, path_of(parents), module));
        }
    });
    found.sort_by_key(|(span, ..)| span.start);
    let mut merged: Vec<(TimeSpan, String, &ModuleRange)> = Vec::new();
    for (span, parent, module) in found {
        match merged.last_mut() {
            Some((last, last_parent, last_module)) if *last_parent == parent && *last_module == module => {
                *last = TimeSpan::new(last.start.min(span.start), last.end.max(span.end));
            }
            _ => merged.push((span, parent, module)),
        }
    }
    let mut backward = Vec::new();
    for (span, parent, module) in merged {
        if !parent.is_empty() {
            let wider = TimeSpan::new(span.start - 1, span.end + 1);
            backward.push(ModuleRange { span: wider, name: parent, is_backward: true });
        }
        backward.push(ModuleRange { span, name: module.name.clone(), is_backward: true });
    }
    backward
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ModuleCall {
    parent: String,
    module: String,
    span: TimeSpan,
}

/// Returns the ranges of modules in the forward and the backward pass by start, and the number of those recorded.
fn ranges_of_both_passes(run: &RunTimeline, domain: &str) -> (Vec<ModuleRange>, usize) {
    let mut ranges = run.module_ranges(domain);
    let forward_count = ranges.len();
    let backward = backward_ranges(run, &ranges);
    ranges.extend(backward);
    // The sort is stable: a range of the forward pass precedes one of the backward pass with the same times.
    ranges.sort_by_key(|range| range.span.outer_first());
    (ranges, forward_count)
}

/// Returns the operators with the times of their calls on the host.
fn calls_by_span(run: &RunTimeline, calls: Vec<OperatorCall>) -> Vec<(TimeSpan, OperatorCall)> {
    calls.into_iter().filter_map(|call| Some((run.operator(call.operator?)?.span, call))).collect()
}

/// Returns the calls of modules by start. `time_of_call` returns the time of what an operator launched that counts, and
/// true if there is any. A range of the backward pass that only encloses others is no call.
pub(super) fn module_calls(
    run: &RunTimeline,
    domain: &str,
    time_of_call: &dyn Fn(&OperatorCall) -> (i64, bool),
) -> Vec<ModuleCallTimes> {
    let (ranges, _) = ranges_of_both_passes(run, domain);
    let mut found: Vec<(ModuleCallTimes, bool)> = Vec::with_capacity(ranges.len());
    let places = ranges.iter().zip(0..).map(|(range, at)| (range.span, at)).collect();
    let mut of_range: HashMap<*const ModuleRange, usize> = HashMap::new();
    for_each_enclosed(&ranges, places, &mut |path, _, at: usize| {
        let range = &ranges[at];
        // The path ends with the last of the ranges that have the same times.
        let depth = path.iter().position(|own| std::ptr::eq(*own, range)).unwrap_or(path.len());
        let path = &path[..depth];
        let is_backward = range.is_backward || path.iter().any(|own| own.is_backward);
        let module = format!("{}{}", if is_backward { BACKWARD } else { "" }, range.name);
        let parent = path_of(path);
        let path = if parent.is_empty() { module } else { format!("{parent}/{module}") };
        let times = ModuleCallTimes {
            path,
            is_backward,
            start: range.span.start,
            self_time: 0,
            total: 0,
            has_work: false,
        };
        of_range.insert(range, found.len());
        found.push((times, !range.is_backward));
    });
    let leaves = calls_by_span(run, run.operator_calls().0);
    for_each_enclosed(&ranges, leaves, &mut |path, _, call| {
        let (time, has_work) = time_of_call(&call);
        let enclosing = path.iter().rev().filter_map(|range| of_range.get(&std::ptr::from_ref(*range)));
        for (depth, at) in enclosing.enumerate() {
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

/// Returns the time by module, of the ranges of a domain.
pub(crate) fn module_table(run: &RunTimeline, domain: &str) -> ModuleTable {
    let (ranges, forward_count) = ranges_of_both_passes(run, domain);
    let (calls, without) = run.operator_calls();
    let leaves = calls_by_span(run, calls);
    let mut by_module: IndexMap<ModuleCall, Vec<OperatorCall>> = IndexMap::new();
    let mut outside: Vec<OperatorCall> = Vec::new();
    for_each_enclosed(&ranges, leaves, &mut |path, _, call| {
        let Some((module, parents)) = path.split_last() else {
            outside.push(call);
            return;
        };
        let prefix = if path.iter().any(|range| range.is_backward) { BACKWARD } else { "" };
        let module = ModuleCall {
            parent: path_of(parents),
            module: format!("{prefix}{}", module.name),
            span: module.span,
        };
        by_module.entry(module).or_default().push(call);
    });
    outside.extend(without);
    ModuleTable {
        rows: rows_of_modules(run, by_module),
        outside: rows_outside(run, outside),
        ranges: forward_count,
    }
}

/// Identity of a row: calls of an operator at one place of module calls with the same operators.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RowKey {
    parent: String,
    module: String,
    operator: NameId,
    place: usize,
    kernels: Vec<NameId>,
    /// Operators of the module's call.
    sequence: Vec<NameId>,
}

/// Returns the rows by their first call. Adjacent rows of one module with different operators get numbers.
fn rows_of_modules(run: &RunTimeline, modules: IndexMap<ModuleCall, Vec<OperatorCall>>) -> Vec<ModuleRow> {
    let mut rows: IndexMap<RowKey, ModuleRow> = IndexMap::new();
    let operator_of = |call: &OperatorCall| run.name_of_call(call);
    for (module, calls) in modules {
        let sequence: Vec<NameId> = calls.iter().map(operator_of).collect();
        for (place, call) in calls.into_iter().enumerate() {
            let key = RowKey {
                parent: module.parent.clone(),
                module: module.module.clone(),
                operator: operator_of(&call),
                place,
                kernels: call.tasks.iter().map(|task| run.launched_name(*task).0).collect(),
                sequence: sequence.clone(),
            };
            let row = rows.entry(key).or_insert_with_key(|key| ModuleRow {
                parent: key.parent.clone(),
                module: key.module.clone(),
                operator: key.operator,
                kernels: key.kernels.clone(),
                total: 0,
                calls: Vec::new(),
            });
            row.total = sum_lengths([row.total, run.duration_of_call(&call)]);
            row.calls.push(call);
        }
    }
    let first_start = |row: &ModuleRow| {
        let starts = row.calls.iter().filter_map(|call| Some(run.operator(call.operator?)?.span.start));
        starts.min().unwrap_or_default()
    };
    let mut sorted: Vec<(RowKey, ModuleRow)> = rows.into_iter().collect();
    sorted.sort_by_cached_key(|(key, row)| (first_start(row), key.place));
    for group in sorted.chunk_by_mut(|(a, _), (b, _)| a.parent == b.parent && a.module == b.module) {
        let mut sequences: Vec<Vec<NameId>> = Vec::new();
        for (key, _) in &*group {
            if !sequences.contains(&key.sequence) {
                sequences.push(key.sequence.clone());
            }
        }
        if sequences.len() > 1 {
            for (key, row) in group {
                let number = sequences.iter().position(|sequence| *sequence == key.sequence);
                row.module = format!("{}_{}", key.module, number.unwrap_or_default());
            }
        }
    }
    sorted.into_iter().map(|(_, row)| row).collect()
}

/// Returns the operators outside of modules, by name and kernels, those with the most time first.
fn rows_outside(run: &RunTimeline, calls: Vec<OperatorCall>) -> Vec<ModuleRow> {
    let mut rows: IndexMap<(NameId, Vec<NameId>), ModuleRow> = IndexMap::new();
    for call in calls {
        let operator = run.name_of_call(&call);
        let kernels: Vec<NameId> = call.tasks.iter().map(|task| run.launched_name(*task).0).collect();
        let row = rows.entry((operator, kernels)).or_insert_with_key(|(operator, kernels)| ModuleRow {
            parent: String::new(),
            module: String::new(),
            operator: *operator,
            kernels: kernels.clone(),
            total: 0,
            calls: Vec::new(),
        });
        row.total = sum_lengths([row.total, run.duration_of_call(&call)]);
        row.calls.push(call);
    }
    let mut rows: Vec<ModuleRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.total));
    rows
}
