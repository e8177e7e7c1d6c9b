//! Operators with the shapes of their inputs, steps and modules in the events of traces.

use serde_json::{Value, value::RawValue};

use crate::profile::timeline::{prelude::*, run::HostStep};

pub(super) const MODULE_PREFIX: &str = "nn.Module: ";

pub(super) fn thread_of(event: &TraceEvent<'_>) -> u64 {
    event.thread().parse().unwrap_or_default()
}

pub(super) fn add_module(run: &mut RunTimeline, event: &TraceEvent<'_>, span: TimeSpan) {
    if let Some(module) = event.name.strip_prefix(MODULE_PREFIX) {
        let name = run.names.insert(module);
        run.ranges.push(HostRange { span, thread: thread_of(event), name, domain: NameId::EMPTY });
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OperatorArguments<'a> {
    #[serde(rename = "Input Dims", borrow)]
    shapes: Option<&'a RawValue>,
}

/// Shapes of a trace by their text in it, which few operators have for themselves.
#[derive(Debug, Default)]
pub(super) struct OperatorShapes(HashMap<Box<str>, NameId>);

impl OperatorShapes {
    pub(super) fn add_operator(&mut self, run: &mut RunTimeline, event: &TraceEvent<'_>, span: TimeSpan) {
        if let Some(Ok(number)) = event.name.strip_prefix("ProfilerStep#").map(str::parse) {
            run.steps.push(HostStep { span, number });
        } else {
            let (thread, name) = (thread_of(event), run.names.insert(&event.name));
            let shapes = self.insert_shapes(event, &mut run.names);
            run.operators.push(HostOperator { span, thread, name, shapes });
        }
    }

    fn insert_shapes(&mut self, event: &TraceEvent<'_>, names: &mut NameTable) -> NameId {
        let arguments: OperatorArguments<'_> = event.arguments();
        let Some(text) = arguments.shapes.map(RawValue::get) else { return NameId::EMPTY };
        if let Some(known) = self.0.get(text) {
            return *known;
        }
        let shapes = shapes_of_argument(text);
        let id = names.insert(&shapes);
        self.0.insert(text.into(), id);
        id
    }
}

/// Returns the shapes of an argument in JSON: a text of NPUs, or a list of shapes of GPUs. Other values have none.
fn shapes_of_argument(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(Value::String(text)) => plain_shapes(&text),
        Ok(Value::Array(shapes)) => {
            plain_shapes(&shapes.iter().map(shape_of_list).collect::<Vec<_>>().join(";"))
        }
        _ => String::new(),
    }
}

/// Returns the text of a shape in the trace of a GPU, a list of numbers; a list of tensors keeps its brackets.
fn shape_of_list(shape: &Value) -> String {
    let text = shape.to_string();
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or_default().to_owned()
}

/// Returns shapes without line breaks and without the empty ones at the end: scalars and missing arguments have none.
pub(super) fn plain_shapes(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text.trim_end_matches(';').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_npus_and_gpus_have_one_form() {
        for (json, expected) in [
            (r#""32,5;\r\n1,32;\r\n;\r\n""#, "32,5;1,32"),
            (r#""32,5""#, "32,5"),
            (r#"";\r\n;""#, ""),
            (r#"";\r\n4""#, ";4"),
            ("[[32, 5], [1, 32], [], []]", "32,5;1,32"),
            ("[[], [4]]", ";4"),
            ("[[[2, 3], [4]], [5]]", "[2,3],[4];5"),
            ("[]", ""),
            ("5", ""),
            ("null", ""),
            (r#"{"a": [1]}"#, ""),
            (r#"[null, "x", [4]]"#, ";;4"),
        ] {
            assert_eq!(shapes_of_argument(json), expected, "{json}");
        }
    }
}
