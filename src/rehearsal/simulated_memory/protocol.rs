//! Protocol between the stand-in of torch and the simulated NPU: one line of JSON in each direction.
//!
//! `{"call": "torch.mm", "args": […], "kwargs": {…}, "freed": [handle, …]}` is answered by
//! `{"value": …}` or `{"error": {"type": "TypeError", "message": "…"}}`. Arguments are JSON as they
//! are, or objects of one key for what JSON lacks: `{"tensor": handle}`, `{"dtype": "bfloat16"}`,
//! `{"generator": "npu:0"}`, `{"float": "inf"}`, `{"object": "slice"}`. An answer may have an `action`, the
//! action of a fault.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{kernel::Dims, rehearsal::fault_plan::GrandchildLocation};

/// Number by which Python refers to a tensor.
pub(crate) type TensorHandle = u64;

/// One call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiRequest {
    /// The function's full name.
    pub(crate) call: String,
    #[serde(default)]
    args: Vec<Value>,
    #[serde(default)]
    kwargs: BTreeMap<String, Value>,
    /// Tensors freed by Python since the last call.
    #[serde(default)]
    pub(crate) freed: Vec<TensorHandle>,
    /// Variables of torch_npu in the environment of the process; sent with its first call.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
}

/// One argument as Python gave it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PyValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<PyValue>),
    Tensor(TensorHandle),
    Dtype(String),
    /// A generator and its device.
    Generator(String),
    /// Anything else, by the name of its Python type.
    Object(String),
}

/// The arguments of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PyArguments {
    pub(crate) positional: Vec<PyValue>,
    pub(crate) keyword: BTreeMap<String, PyValue>,
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum ApiReply {
    Nothing,
    Bool(bool),
    Int(u64),
    Text(String),
    /// A tensor that is new to Python.
    Tensor {
        tensor: TensorDescription,
    },
    /// A tensor that Python has already.
    Same {
        same: TensorHandle,
    },
    Tuple(Vec<ApiReply>),
}

/// Description of a tensor for Python.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TensorDescription {
    pub(crate) handle: TensorHandle,
    pub(crate) shape: Vec<u64>,
    /// Name in torch.
    pub(crate) dtype: Option<String>,
    pub(crate) device: String,
}

/// Python exception raised by a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PyError {
    #[serde(rename = "type")]
    pub(crate) class: PyErrorClass,
    pub(crate) message: String,
}

/// Classes of exceptions of the stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::enum_variant_names, reason = "names of Python's classes")]
pub(crate) enum PyErrorClass {
    AttributeError,
    OutOfMemoryError,
    RuntimeError,
    TypeError,
}

impl PyError {
    pub(crate) fn new(class: PyErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}

pub(crate) fn runtime(message: impl Into<String>) -> PyError {
    PyError::new(PyErrorClass::RuntimeError, message)
}

impl ApiRequest {
    pub(crate) fn parse(line: &str) -> Result<Self, PyError> {
        serde_json::from_str(line).map_err(|error| runtime(format!("rehearsal: not a call: {error}")))
    }

    pub(crate) fn arguments(&mut self) -> PyArguments {
        let keyword = std::mem::take(&mut self.kwargs).into_iter();
        PyArguments {
            positional: self.args.drain(..).map(parse_value).collect(),
            keyword: keyword.map(|(name, value)| (name, parse_value(value))).collect(),
        }
    }
}

fn parse_value(value: Value) -> PyValue {
    match value {
        Value::Null => PyValue::None,
        Value::Bool(truth) => PyValue::Bool(truth),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| PyValue::Float(number.as_f64().unwrap_or(f64::NAN)), PyValue::Int)
        }
        Value::String(text) => PyValue::Text(text),
        Value::Array(items) => PyValue::List(items.into_iter().map(parse_value).collect()),
        Value::Object(object) => {
            parse_tagged(&object).unwrap_or_else(|| PyValue::Object("object".to_owned()))
        }
    }
}

fn parse_tagged(object: &serde_json::Map<String, Value>) -> Option<PyValue> {
    let (key, value) = object.iter().next()?;
    Some(match key.as_str() {
        "tensor" => PyValue::Tensor(value.as_u64()?),
        "dtype" => PyValue::Dtype(value.as_str()?.to_owned()),
        "generator" => PyValue::Generator(value.as_str()?.to_owned()),
        "float" => PyValue::Float(value.as_str()?.parse().ok()?),
        _ => PyValue::Object(value.as_str()?.to_owned()),
    })
}

impl PyValue {
    /// The name of its Python type, as error messages have it.
    pub(crate) fn python_type(&self) -> &str {
        match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::List(_) => "list",
            Self::Tensor(_) => "Tensor",
            Self::Dtype(_) => "torch.dtype",
            Self::Generator(_) => "torch.Generator",
            Self::Object(name) => name,
        }
    }
}

impl fmt::Display for PyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(truth) => f.write_str(if *truth { "True" } else { "False" }),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::List(items) => write!(f, "[{}]", Dims(items)),
            other => f.write_str(other.python_type()),
        }
    }
}

/// Action of the Python process when it has the answer, during its call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PyAction {
    /// End with this code.
    Exit(u8),
    /// End by this signal.
    Signal(i32),
    /// Run the action when Python ends.
    AtExit(Box<PyAction>),
    Hang {
        ignores_sigterm: bool,
        grandchild: GrandchildLocation,
        /// Real seconds.
        seconds: f64,
    },
}

/// Formats the answer to a call as a line.
pub(crate) fn answer(result: &Result<ApiReply, PyError>, action: Option<PyAction>) -> String {
    let mut line = match result {
        Ok(reply) => json!({ "value": reply }),
        Err(raised) => json!({ "error": raised }),
    };
    if let Some(action) = action {
        line["action"] = json!(action);
    }
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_json_lacks_are_objects_of_one_key() {
        let line = r#"{"call": "f", "args": [{"tensor": 3}, {"dtype": "int8"}, {"float": "-inf"}, 2, 2.0, [1, null]],
                       "kwargs": {"x": {"object": "slice"}}}"#;
        let arguments = ApiRequest::parse(line).expect("a call").arguments();
        let list = PyValue::List(vec![PyValue::Int(1), PyValue::None]);
        let dtype = PyValue::Dtype("int8".to_owned());
        let expected = [
            PyValue::Tensor(3),
            dtype,
            PyValue::Float(f64::NEG_INFINITY),
            PyValue::Int(2),
            PyValue::Float(2.0),
            list,
        ];
        assert_eq!(arguments.positional, expected);
        assert_eq!(arguments.keyword["x"].python_type(), "slice");
    }

    #[test]
    fn each_answer_is_one_line() {
        let raised = PyError::new(PyErrorClass::TypeError, "a\nb");
        let line = answer(&Err(raised), None);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.contains(r#""type":"TypeError""#), "{line}");
        assert!(ApiRequest::parse("{}").expect_err("no call").message.contains("call"));
    }
}
