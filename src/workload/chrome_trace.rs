//! Chrome traces of a simulator: an event for each operator, with its shapes and the origin of its duration.
//!
//! Events are read one by one, since a trace may be larger than memory.

use std::{collections::HashMap, fmt, io::BufReader, path::Path};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::{
    DurationKind, UnreadableReason, Workload, WorkloadError, WorkloadQuestion,
    source_text::describe_json_error,
};
use crate::{
    domain::{Dtype, KernelName, Nanos},
    files::open_regular,
    lookup::{OpQuery, QueryTensor, parse_dtype},
};

const HINT: &str = "give the chrome trace that a simulator wrote, whose events have `simulation_shapes` or `kernel_type`; the \
                    kernels of a recorded run are in its kernel_details.csv";

/// An event; other keys are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TraceEvent {
    name: String,
    ph: String,
    dur: Option<Value>,
    pid: Option<Value>,
    args: Option<EventArguments>,
}

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

/// Text of an argument; empty if it is missing.
fn text_of(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

impl TraceEvent {
    /// Returns the duration in microseconds; 0 if it is missing, `None` if it is no number from 0 on.
    fn micros(&self) -> Option<f64> {
        let micros = match &self.dur {
            None | Some(Value::Null) => Some(0.0),
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        micros.filter(|micros| micros.is_finite() && (0.0..=3.2e14).contains(micros))
    }
}

/// Calls `on_event` for each complete event, with its number from 0.
fn for_each_event(
    path: &Path,
    on_event: &mut dyn FnMut(u64, TraceEvent) -> Result<(), String>,
) -> Result<(), WorkloadError> {
    let file = open_regular(path)
        .map_err(|error| WorkloadError::of_file(path, format!("cannot be read: {error}"), HINT))?;
    let mut parser = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 18, file));
    let mut number = 0;
    let mut is_found = false;
    let read = TraceSeed { number: &mut number, is_found: &mut is_found, on_event }.deserialize(&mut parser);
    read.and_then(|()| parser.end()).map_err(|error| {
        WorkloadError::at_line(path, error.line() as u64, describe_json_error(&error), HINT)
    })?;
    match is_found {
        true => Ok(()),
        false => Err(WorkloadError::of_file(path, "has no `traceEvents`", HINT)),
    }
}

/// Reader of the list of events, at the top or below `traceEvents`.
struct TraceSeed<'a> {
    number: &'a mut u64,
    is_found: &'a mut bool,
    on_event: &'a mut dyn FnMut(u64, TraceEvent) -> Result<(), String>,
}

impl<'de> DeserializeSeed<'de> for TraceSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TraceSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events, or an object with `traceEvents`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        *self.is_found = true;
        while let Some(event) = events.next_element::<TraceEvent>()? {
            if event.ph == "X" {
                (self.on_event)(*self.number, event).map_err(A::Error::custom)?;
            }
            *self.number += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => map.next_value_seed(TraceSeed {
                    number: self.number,
                    is_found: self.is_found,
                    on_event: self.on_event,
                })?,
                _ => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(())
    }
}

/// Operator with its shapes, types and number of process.
type EventKey = (String, String, String, Vec<Option<Dtype>>);

/// Reads the operators of a trace. A simulator with several models of time repeats each operator for each of them, in
/// processes of their own: the one whose durations do not come from a database counts.
pub(super) fn read_trace(path: &Path) -> Result<Workload, WorkloadError> {
    let mut groups: HashMap<EventKey, (usize, u64, Nanos)> = HashMap::new();
    let mut from_database: HashMap<String, bool> = HashMap::new();
    let mut is_simulated = false;
    for_each_event(path, &mut |number, event| {
        let micros = event.micros().ok_or_else(|| format!("the event {number} has a wrong `dur`"))?;
        let args = event.args.unwrap_or_default();
        let shapes = text_of(args.simulation_shapes.as_ref());
        let (source, kernel) = (text_of(args.source.as_ref()), text_of(args.kernel_type.as_ref()));
        is_simulated |= !shapes.is_empty() || !kernel.is_empty() || !source.is_empty();
        let process = text_of(event.pid.as_ref());
        *from_database.entry(process.clone()).or_default() |= !source.is_empty();
        let dtypes = dtypes_of_inputs(&text_of(args.inputs.as_ref()));
        let order = groups.len();
        let group = groups.entry((process, event.name, shapes, dtypes)).or_insert((order, 0, Nanos(0)));
        group.1 += 1;
        group.2 = Nanos(group.2.0.saturating_add(Nanos::from_seconds(micros * 1e-6).0));
        Ok(())
    })?;
    if !is_simulated {
        return Err(WorkloadError::of_file(path, "no event is of a simulator", HINT));
    }
    let mut processes: Vec<(bool, &String)> =
        from_database.iter().map(|(process, is_from_database)| (*is_from_database, process)).collect();
    processes.sort();
    let chosen = processes.first().map(|(_, process)| (*process).clone()).unwrap_or_default();
    let mut questions: Vec<(usize, WorkloadQuestion)> = groups
        .into_iter()
        .filter(|((process, ..), _)| *process == chosen)
        .map(|((_, op, shapes, dtypes), (order, count, time))| {
            let question = question_of_event(&op, &shapes, &dtypes, count);
            (order, WorkloadQuestion { time: Some(time), ..question })
        })
        .collect();
    questions.sort_by_key(|(order, _)| *order);
    let questions = questions.into_iter().map(|(_, question)| question).collect();
    let mut workload = Workload::new(String::new(), DurationKind::Predicted, questions);
    if processes.len() > 1 {
        workload.notes.push(format!(
            "`{}` has {} processes with the same operators: process {chosen} is read",
            path.display(),
            processes.len()
        ));
    }
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

/// Predicted time of a forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredictedTime {
    /// Time of operators without collectives.
    pub compute: Nanos,
    /// Time of collectives.
    pub communication: Nanos,
    /// Number of events with a latency of a database.
    pub events: u64,
    /// Number of events with a duration from elsewhere, and their time.
    pub others: u64,
    /// Time of these.
    pub others_time: Nanos,
}

/// Sums the durations of a trace that come from a database: events whose `source` is `MEASURED` or `INTERPOLATED`, or
/// only the former, with a `kernel_type` and a duration above 0. The duration of several kernels is divided in
/// proportion to `sub_kernel_durations`; without them it counts as compute unless all kernels are collectives.
pub fn read_predicted_time(path: &Path, measured_only: bool) -> Result<PredictedTime, WorkloadError> {
    let mut predicted = PredictedTime::default();
    for_each_event(path, &mut |number, event| {
        let micros = event.micros().ok_or_else(|| format!("the event {number} has a wrong `dur`"))?;
        let args = event.args.unwrap_or_default();
        let kernels = text_of(args.kernel_type.as_ref());
        let source = text_of(args.source.as_ref());
        let time = Nanos::from_seconds(micros * 1e-6);
        if time.0 <= 0 {
            return Ok(());
        }
        let add = |sum: &mut Nanos, time: i64| *sum = Nanos(sum.0.saturating_add(time));
        let is_answered = source == "MEASURED" || source == "INTERPOLATED" && !measured_only;
        if !is_answered || kernels.is_empty() {
            predicted.others += 1;
            add(&mut predicted.others_time, time.0);
            return Ok(());
        }
        predicted.events += 1;
        let share = communication_share(&kernels, &text_of(args.sub_kernel_durations.as_ref()));
        let communication = Nanos::from_seconds(time.seconds() * share).0.clamp(0, time.0);
        add(&mut predicted.communication, communication);
        add(&mut predicted.compute, time.0 - communication);
        Ok(())
    })?;
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
            (number.is_finite() && number >= 0.0).then(|| (is_collective(name), number))
        })
        .collect();
    let total: f64 = pairs.iter().map(|(_, duration)| duration).sum();
    match total > 0.0 && pairs.len() == kernels.split(',').count() {
        true => {
            pairs
                .iter()
                .filter(|(is_collective, _)| *is_collective)
                .map(|(_, duration)| duration)
                .sum::<f64>()
                / total
        }
        false if kernels.split(',').all(|kernel| is_collective(kernel.trim())) => 1.0,
        false => 0.0,
    }
}

fn is_collective(kernel: &str) -> bool {
    KernelName::new(kernel).is_ok_and(|kernel| kernel.is_collective())
}
