//! What simulators write: chrome traces with an event for each operator, with its shapes and the origin of its duration, and inventories
//! in JSON with the operators of a forward pass, their counts, and the shapes that occur.
//!
//! Events are read one by one, since a trace may be larger than memory.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{DurationKind, UnreadableReason, Workload, WorkloadQuestion, line_of, parse_time, tensor_bytes};
use crate::{
    answer::lookup::{OpQuery, QueryTensor, parse_dims, parse_dtype},
    base::{command_error::CommandError, json_error::json_message},
    kernel::{Dtype, KernelName, Nanos},
    profile::{TraceError, TraceEvent, for_each_trace_event},
};

const TRACE_HINT: &str = "give the chrome trace that a simulator wrote, whose events have `simulation_shapes` or `kernel_type`; the \
                    kernels of a recorded run are in its kernel_details.csv";

/// Arguments of an event, all of which simulators write as text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EventArguments {
    #[serde(rename = "Inputs")]
    inputs: Option<Value>,
    simulation_shapes: Option<Value>,
    source: Option<Value>,
    kernel_type: Option<Value>,
    sub_kernel_durations: Option<Value>,
}

fn text_of(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Returns the duration of an event in microseconds; 0 if it is missing, `None` if it is no number from 0 on.
fn micros_of_event(event: &TraceEvent<'_>) -> Option<f64> {
    if !event.has_duration() {
        return Some(0.0);
    }
    let micros = event.duration()?.seconds() * 1e6;
    (0.0..=3.2e14).contains(&micros).then_some(micros)
}

type OperatorKey = (String, String, Vec<Option<Dtype>>);

#[derive(Clone, Copy, Debug)]
struct OperatorEvents {
    order: usize,
    count: u64,
    time: Nanos,
}

#[derive(Default)]
struct TraceProcess {
    operators: HashMap<OperatorKey, OperatorEvents>,
    is_from_database: bool,
    predicted: PredictedTime,
}

impl TraceProcess {
    fn has_operators_of(&self, other: &Self) -> bool {
        let count = |process: &Self, key| process.operators.get(key).map(|events| events.count);
        self.operators.len() == other.operators.len()
            && self.operators.keys().all(|key| count(self, key) == count(other, key))
    }
}

#[derive(Default)]
struct TraceProcesses {
    by_name: BTreeMap<String, TraceProcess>,
    others: u64,
}

impl TraceProcesses {
    /// Reads the operators of a trace, and sums the durations that come from a database. Events without shapes, inputs,
    /// kernel and source are no operators: such events enclose others.
    fn read(path: &Path, measured_only: bool) -> Result<Self, CommandError> {
        let mut found = Self::default();
        let mut order = 0;
        let mut number = 0;
        let read = for_each_trace_event(path, &mut |event| {
            number += 1;
            if event.ph != "X" {
                return Ok(());
            }
            let micros = micros_of_event(event)
                .ok_or_else(|| format!("the event {} has a wrong `dur`", number - 1))?;
            let args: EventArguments = event.arguments();
            let [shapes, source, kernel, inputs] =
                [&args.simulation_shapes, &args.source, &args.kernel_type, &args.inputs]
                    .map(|value| text_of(value.as_ref()));
            if [&shapes, &source, &kernel, &inputs].iter().all(|text| text.is_empty()) {
                found.others += 1;
                return Ok(());
            }
            let process = found.by_name.entry(event.process().to_owned()).or_default();
            process.is_from_database |= !source.is_empty();
            let time = Nanos::from_seconds(micros * 1e-6);
            let is_answered = source == "MEASURED" || source == "INTERPOLATED" && !measured_only;
            let share = communication_share(&kernel, &text_of(args.sub_kernel_durations.as_ref()));
            let share = Some(share).filter(|_| is_answered && !kernel.is_empty());
            process.predicted.add_event(time, share);
            let key = (event.name.clone().into_owned(), shapes, dtypes_of_inputs(&inputs));
            order += 1;
            let events =
                process.operators.entry(key).or_insert(OperatorEvents { order, count: 0, time: Nanos(0) });
            events.count += 1;
            events.time += time;
            Ok(())
        });
        read.map_err(|error| match error {
            TraceError::Text { line, problem, .. } => {
                CommandError::in_file(path, Some(line), problem, TRACE_HINT)
            }
            other => CommandError::in_file(path, None, other.to_string(), TRACE_HINT),
        })?;
        match found.by_name.is_empty() {
            true => Err(CommandError::in_file(path, None, "no event is of a simulator", TRACE_HINT)),
            false => Ok(found),
        }
    }

    /// Returns one of the processes with the same operators, and all with others. A simulator with several models of
    /// time repeats each operator for each of them, in processes of their own.
    fn distinct(self, is_from_database: bool) -> Vec<(String, TraceProcess)> {
        let mut sorted: Vec<(String, TraceProcess)> = self.by_name.into_iter().collect();
        sorted.sort_by_key(|(_, process)| process.is_from_database != is_from_database);
        let mut kept: Vec<(String, TraceProcess)> = Vec::new();
        for (name, process) in sorted {
            if kept.iter().all(|(_, other)| !process.has_operators_of(other)) {
                kept.push((name, process));
            }
        }
        kept
    }
}

/// Reads the operators of a trace. Of several processes with the same operators, one whose durations do not come from a
/// database counts; those with other operators are added.
pub(super) fn read_trace(path: &Path) -> Result<Workload, CommandError> {
    let processes = TraceProcesses::read(path, false)?;
    let (all, others) = (processes.by_name.len(), processes.others);
    let kept = processes.distinct(false);
    let (file, mut notes) = (path.display(), Vec::new());
    match kept.as_slice() {
        [(name, _)] if all > 1 => {
            notes.push(format!(
                "`{file}` has {all} processes with the same operators: process {name} is read"
            ));
        }
        [_] | [] => {}
        kept => {
            let count = kept.len();
            notes.push(format!("`{file}` has {all} processes: {count} with different operators are added"));
        }
    }
    if others > 0 {
        notes.push(format!(
            "`{file}`: {others} events without shapes, inputs, kernel and source are left out"
        ));
    }
    let operators = kept.into_iter().flat_map(|(_, process)| process.operators);
    let mut operators: Vec<(OperatorKey, OperatorEvents)> = operators.collect();
    operators.sort_by_key(|(_, events)| events.order);
    let question = |((op, shapes, dtypes), events): (OperatorKey, OperatorEvents)| WorkloadQuestion {
        time: Some(events.time),
        ..question_of_event(&op, &shapes, &dtypes, events.count)
    };
    let questions = operators.into_iter().map(question).collect();
    let mut workload = Workload::new(String::new(), DurationKind::Predicted, questions);
    workload.notes = notes;
    Ok(workload)
}

fn question_of_event(op: &str, shapes: &str, dtypes: &[Option<Dtype>], count: u64) -> WorkloadQuestion {
    // The list of a simulator has brackets only, as JSON does.
    match serde_json::from_str::<Vec<Vec<u64>>>(if shapes.is_empty() { "[]" } else { shapes }) {
        // Lists of tensors are no part of the shapes.
        Ok(shapes) if shapes.is_empty() => {
            WorkloadQuestion::unreadable(op, count, UnreadableReason::NoShapes)
        }
        Ok(shapes) => {
            let is_complete = dtypes.len() == shapes.len();
            let inputs = shapes.into_iter().enumerate().map(|(at, dims)| QueryTensor {
                dims,
                dtype: dtypes.get(at).filter(|_| is_complete).cloned().flatten(),
                format: None,
            });
            let query = OpQuery { op: op.to_owned(), inputs: inputs.collect(), ..OpQuery::default() };
            WorkloadQuestion::new(query, count)
        }
        Err(_) => WorkloadQuestion::unreadable(op, count, UnreadableReason::Shape(shapes.to_owned())),
    }
}

/// Returns the types in the text of the arguments of an operator, such as
/// `(tensor(..., device='meta', size=(8, 4), dtype=torch.float16), 2)`.
fn dtypes_of_inputs(inputs: &str) -> Vec<Option<Dtype>> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let parts = inputs.split("dtype=torch.").skip(1);
    parts.map(|part| parse_dtype(part.split(|letter| !is_word(letter)).next().unwrap_or_default())).collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredictedTime {
    pub compute: Nanos,
    pub communication: Nanos,
    /// Number of events with a latency of a database.
    pub events: u64,
    /// Number of events with a duration from elsewhere, and their time.
    pub others: u64,
    pub others_time: Nanos,
}

impl PredictedTime {
    /// Adds an event by the share of collectives in it; `None` for one whose duration is from elsewhere.
    fn add_event(&mut self, time: Nanos, communication_share: Option<f64>) {
        match communication_share {
            _ if time.0 <= 0 => {}
            Some(share) => {
                let communication = Nanos::from_seconds(time.seconds() * share).0.clamp(0, time.0);
                self.events += 1;
                self.communication += Nanos(communication);
                self.compute += Nanos(time.0 - communication);
            }
            None => {
                self.others += 1;
                self.others_time += time;
            }
        }
    }
}

/// Sums the durations of a trace that come from a database: events whose `source` is `MEASURED` or `INTERPOLATED`, or
/// only the former, with a `kernel_type` and a duration above 0. The duration of several kernels is divided in
/// proportion to `sub_kernel_durations`; without them it counts as compute unless all kernels are collectives. Of
/// several processes with the same operators, one whose durations come from a database counts.
pub fn read_predicted_time(path: &Path, measured_only: bool) -> Result<PredictedTime, CommandError> {
    let mut predicted = PredictedTime::default();
    for (_, process) in TraceProcesses::read(path, measured_only)?.distinct(true) {
        let PredictedTime { compute, communication, events, others, others_time } = process.predicted;
        predicted.compute += compute;
        predicted.communication += communication;
        predicted.others_time += others_time;
        predicted.events += events;
        predicted.others += others;
    }
    Ok(predicted)
}

/// Returns the share of collectives in the duration of one or several kernels. Durations are a list of Python, such as
/// `[('MatMulV2', 30.0), ('hcom_allReduce_', 10.0)]`.
fn communication_share(kernels: &str, durations: &str) -> f64 {
    let pairs: Vec<(bool, f64)> = durations
        .split('(')
        .skip(1)
        .filter_map(|pair| {
            let (name, rest) = pair.split_once(',')?;
            let number = rest.split(')').next()?.trim().parse::<f64>().ok()?;
            let name = name.trim().trim_matches(['\'', '"']);
            (number.is_finite() && number >= 0.0).then(|| (KernelName::is_collective_name(name), number))
        })
        .collect();
    let total: f64 = pairs.iter().map(|(_, duration)| duration).sum();
    let communication: f64 =
        pairs.iter().map(|(is_collective, time)| if *is_collective { *time } else { 0.0 }).sum();
    match total > 0.0 && pairs.len() == kernels.split(',').count() {
        true => communication / total,
        false if kernels.split(',').all(|kernel| KernelName::is_collective_name(kernel.trim())) => 1.0,
        false => 0.0,
    }
}

const INVENTORY_HINT: &str = "docs/coverage.md describes the keys of an inventory";

/// An operator. Keys that the coverage does not need are ignored.
#[derive(Deserialize)]
struct InventoryOperator<'t> {
    op_name: String,
    count: u64,
    #[serde(default)]
    total_duration_us: Option<f64>,
    #[serde(borrow, default)]
    shape_variants: Vec<&'t RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ShapeVariant {
    /// Number of invocations; in files of simulators all variants share the count of their operator.
    count: Option<u64>,
    input_shapes: Vec<String>,
    input_dtypes: Vec<String>,
    output_shapes: Vec<String>,
    output_dtypes: Vec<String>,
}

pub(super) fn parse_inventory(
    path: &Path,
    text: &str,
    keys: &BTreeMap<String, &RawValue>,
) -> Result<Workload, CommandError> {
    let wrong = |part: &RawValue, error: &serde_json::Error| {
        // Lines of the error count from the start of the part.
        let line = line_of(text, part.get()) + (error.line() as u64).max(1) - 1;
        CommandError::in_file(path, Some(line), json_message(error), INVENTORY_HINT)
    };
    let name = |key: &str| keys.get(key).and_then(|value| serde_json::from_str::<String>(value.get()).ok());
    let operators: Vec<&RawValue> = match keys.get("ops") {
        Some(ops) => serde_json::from_str(ops.get()).map_err(|error| wrong(ops, &error))?,
        None => Vec::new(),
    };
    let mut questions = Vec::new();
    let mut shared = Vec::new();
    for part in operators {
        let operator: InventoryOperator<'_> =
            serde_json::from_str(part.get()).map_err(|error| wrong(part, &error))?;
        let line = line_of(text, part.get());
        let time = operator.total_duration_us.map(|micros| parse_time(path, line, micros)).transpose()?;
        let mut variants = Vec::new();
        for variant in &operator.shape_variants {
            let parsed: ShapeVariant =
                serde_json::from_str(variant.get()).map_err(|error| wrong(variant, &error))?;
            variants.push((parsed, line_of(text, variant.get())));
        }
        if variants.is_empty() {
            let question =
                WorkloadQuestion::unreadable(&operator.op_name, operator.count, UnreadableReason::NoShapes);
            questions.push(WorkloadQuestion { time, line: Some(line), ..question });
            continue;
        }
        let counts = counts_of_variants(&variants, operator.count).ok_or_else(|| {
            let problem = format!(
                "the counts of the shapes of `{}` do not add up to {}",
                operator.op_name, operator.count
            );
            CommandError::in_file(path, Some(line), problem, INVENTORY_HINT)
        })?;
        if variants.len() > 1 && variants.iter().any(|(variant, _)| variant.count.is_none()) {
            shared.push(operator.op_name.clone());
        }
        let parsed = variants.into_iter().zip(counts).map(|((variant, line), count)| WorkloadQuestion {
            line: Some(line),
            ..question_of_variant(&operator.op_name, &variant, count)
        });
        questions.extend(share_time(parsed.filter(|question| question.count > 0).collect(), time));
    }
    questions.retain(|question| question.count > 0);
    let mut workload = Workload::new(String::new(), DurationKind::Predicted, questions);
    if let (Some(model), Some(scenario)) = (name("model"), name("scenario")) {
        workload.name = format!("{model} {scenario} ({})", path.display());
    }
    if !shared.is_empty() {
        workload.notes.push(format!(
            "`{}` has one count for all shapes of an operator: it is divided equally between the shapes of {}, and the time by \
             their bytes",
            path.display(),
            shared.join(", ")
        ));
    }
    Ok(workload)
}

/// Returns the count of each variant: its own, or an equal part of the rest. `None` if they do not add up.
fn counts_of_variants(variants: &[(ShapeVariant, u64)], total: u64) -> Option<Vec<u64>> {
    let counts = || variants.iter().map(|(variant, _)| variant.count);
    let known = counts().flatten().try_fold(0_u64, u64::checked_add)?;
    let mut open = counts().filter(Option::is_none).count() as u64;
    let mut left = total.checked_sub(known).filter(|left| open > 0 || *left == 0)?;
    let parts = counts().map(|count| {
        count.unwrap_or_else(|| {
            let part = left.div_ceil(open);
            (left, open) = (left - part, open - 1);
            part
        })
    });
    Some(parts.collect())
}

fn question_of_variant(op: &str, variant: &ShapeVariant, count: u64) -> WorkloadQuestion {
    let tensors = |shapes: &[String], dtypes: &[String]| -> Result<Vec<QueryTensor>, UnreadableReason> {
        // The list of types is in the order of the tensors if it is complete.
        let is_complete = dtypes.len() == shapes.len();
        let tensor = |(at, shape): (usize, &String)| {
            let dims = parse_dims(shape).ok_or_else(|| UnreadableReason::Shape(shape.clone()))?;
            let dtype = dtypes.get(at).filter(|_| is_complete).and_then(|name| parse_dtype(name));
            Ok(QueryTensor { dims, dtype, format: None })
        };
        shapes.iter().enumerate().map(tensor).collect()
    };
    let inputs = tensors(&variant.input_shapes, &variant.input_dtypes);
    let outputs = tensors(&variant.output_shapes, &variant.output_dtypes);
    match (inputs, outputs) {
        (Ok(inputs), Ok(outputs)) => {
            let unreadable = inputs.is_empty().then_some(UnreadableReason::NoShapes);
            let query = OpQuery { op: op.to_owned(), inputs, outputs, ..OpQuery::default() };
            let question = WorkloadQuestion::new(query, count);
            WorkloadQuestion { unreadable: unreadable.or(question.unreadable.clone()), ..question }
        }
        (Err(reason), _) | (_, Err(reason)) => WorkloadQuestion::unreadable(op, count, reason),
    }
}

/// Divides a time between the variants of an operator, in proportion to their counts and bytes. The parts add up to it.
fn share_time(mut questions: Vec<WorkloadQuestion>, time: Option<Nanos>) -> Vec<WorkloadQuestion> {
    let Some(time) = time else { return questions };
    let weight = |question: &WorkloadQuestion| {
        let tensors = question.query.inputs.iter().chain(&question.query.outputs);
        question.count as f64 * tensors.map(tensor_bytes).sum::<f64>().clamp(1.0, 1e18)
    };
    let weights: Vec<f64> = questions.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mut left = time.0;
    let last = questions.len().saturating_sub(1);
    for (at, question) in questions.iter_mut().enumerate() {
        let share = Nanos::from_seconds(time.0 as f64 * 1e-9 * weights[at] / total).0;
        let part =
            if at == last || !share.is_positive() && total <= 0.0 { left } else { share.clamp(0, left) };
        question.time = Some(Nanos(part));
        left -= part;
    }
    questions
}
