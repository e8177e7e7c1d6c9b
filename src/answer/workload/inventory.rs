//! Inventories of a simulator: JSON with the operators of a forward pass, their counts, and the shapes that occur.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    DurationKind, UnreadableReason, Workload, WorkloadError, WorkloadQuestion, line_of, parse_time,
    tensor_bytes,
};
use crate::{
    answer::lookup::{OpQuery, QueryTensor, parse_dims, parse_dtype},
    base::json_error::json_message,
    kernel::Nanos,
};

const HINT: &str = "docs/coverage.md describes the keys of an inventory";

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
) -> Result<Workload, WorkloadError> {
    let wrong = |part: &RawValue, error: &serde_json::Error| {
        // Lines of the error count from the start of the part.
        let line = line_of(text, part.get()) + (error.line() as u64).max(1) - 1;
        WorkloadError::at_line(path, line, json_message(error), HINT)
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
            WorkloadError::at_line(path, line, problem, HINT)
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
    let weights: Vec<f64> = questions.iter().map(weight_of_question).collect();
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

fn weight_of_question(question: &WorkloadQuestion) -> f64 {
    let query = &question.query;
    let total: f64 = query.inputs.iter().chain(&query.outputs).map(tensor_bytes).sum();
    question.count as f64 * total.clamp(1.0, 1e18)
}
