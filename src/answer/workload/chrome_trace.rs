//! Chrome traces of a simulator: an event for each operator, with its shapes and the origin of its duration.
//!
//! Events are read one by one, since a trace may be larger than memory.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use serde::Deserialize;
use serde_json::Value;

use super::{DurationKind, UnreadableReason, Workload, WorkloadError, WorkloadQuestion};
use crate::{
    answer::lookup::{OpQuery, QueryTensor, parse_dtype},
    kernel::{Dtype, KernelName, Nanos},
    profile::{TraceError, TraceEvent, for_each_trace_event},
};

const HINT: &str = "give the chrome trace that a simulator wrote, whose events have `simulation_shapes` or `kernel_type`; the \
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
    /// Returns true if the other process has the same operators as often.
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
    fn read(path: &Path, measured_only: bool) -> Result<Self, WorkloadError> {
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
            TraceError::Text { line, problem, .. } => WorkloadError::at_line(path, line, problem, HINT),
            other => WorkloadError::of_file(path, other.to_string(), HINT),
        })?;
        match found.by_name.is_empty() {
            true => Err(WorkloadError::of_file(path, "no event is of a simulator", HINT)),
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
pub(super) fn read_trace(path: &Path) -> Result<Workload, WorkloadError> {
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
pub fn read_predicted_time(path: &Path, measured_only: bool) -> Result<PredictedTime, WorkloadError> {
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
