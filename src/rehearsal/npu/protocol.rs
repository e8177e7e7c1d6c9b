//! What travels between the stand-in of torch and the pretend NPU: one line of JSON each way.
//!
//! `{"call": "torch.mm", "args": […], "kwargs": {…}, "freed": [handle, …]}` is answered by
//! `{"value": …}` or `{"error": {"type": "TypeError", "message": "…"}}`. Arguments are JSON as they
//! are, or objects of one key for what JSON lacks: `{"tensor": handle}`, `{"dtype": "bfloat16"}`,
//! `{"generator": "npu:0"}`, `{"float": "inf"}`, `{"object": "slice"}`. An answer may carry an `order`, which a fault
//! gives.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::{Value, json};

use super::tensors::Handle;
use crate::{domain::Dtype, rehearsal::fault_plan::Grandchild};

/// One call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// The function's full name.
    pub(super) call: String,
    #[serde(default)]
    args: Vec<Value>,
    #[serde(default)]
    kwargs: BTreeMap<String, Value>,
    /// Tensors that Python has let go of since the last call.
    #[serde(default)]
    pub(super) freed: Vec<Handle>,
}

/// One argument as Python gave it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Given>),
    Tensor(Handle),
    Dtype(String),
    /// A generator and its device.
    Generator(String),
    /// Anything else, by the name of its Python type.
    Object(String),
}

/// The arguments of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Given>,
    pub(super) keyword: BTreeMap<String, Given>,
}

/// What a call gives back.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Nothing,
    Bool(bool),
    Int(u64),
    Text(String),
    /// A tensor that is new to Python.
    Tensor(Described),
    /// A tensor that Python holds already.
    Same(Handle),
    Tuple(Vec<Reply>),
}

/// A tensor as Python sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Described {
    pub(super) handle: Handle,
    pub(super) shape: Vec<u64>,
    pub(super) dtype: Dtype,
    pub(super) device: String,
}

/// The Python exception that a call ends in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raised {
    pub(super) class: Class,
    pub(super) message: String,
}

/// Classes of exceptions that the stand-in knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Attribute,
    OutOfMemory,
    Runtime,
    Type,
}

impl Raised {
    pub(super) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}

pub(super) fn runtime(message: impl Into<String>) -> Raised {
    Raised::new(Class::Runtime, message)
}

impl Request {
    /// Reads one line.
    pub(super) fn parse(line: &str) -> Result<Self, Raised> {
        serde_json::from_str(line).map_err(|error| runtime(format!("rehearsal: not a call: {error}")))
    }

    /// The arguments.
    pub(super) fn arguments(&mut self) -> Arguments {
        Arguments {
            positional: self.args.drain(..).map(given).collect(),
            keyword: std::mem::take(&mut self.kwargs)
                .into_iter()
                .map(|(name, value)| (name, given(value)))
                .collect(),
        }
    }
}

fn given(value: Value) -> Given {
    match value {
        Value::Null => Given::None,
        Value::Bool(truth) => Given::Bool(truth),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Given::Float(number.as_f64().unwrap_or(f64::NAN)), Given::Int)
        }
        Value::String(text) => Given::Text(text),
        Value::Array(items) => Given::List(items.into_iter().map(given).collect()),
        Value::Object(object) => special(&object).unwrap_or_else(|| Given::Object("object".to_owned())),
    }
}

fn special(object: &serde_json::Map<String, Value>) -> Option<Given> {
    let (key, value) = object.iter().next()?;
    Some(match key.as_str() {
        "tensor" => Given::Tensor(value.as_u64()?),
        "dtype" => Given::Dtype(value.as_str()?.to_owned()),
        "generator" => Given::Generator(value.as_str()?.to_owned()),
        "float" => Given::Float(value.as_str()?.parse().ok()?),
        _ => Given::Object(value.as_str()?.to_owned()),
    })
}

impl Given {
    /// The name of its Python type, as error messages have it.
    pub(super) fn python_type(&self) -> &str {
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

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(truth) => f.write_str(if *truth { "True" } else { "False" }),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(","))
            }
            other => f.write_str(other.python_type()),
        }
    }
}

impl Reply {
    fn json(&self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Bool(truth) => json!(truth),
            Self::Int(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::Same(handle) => json!({ "same": handle }),
            Self::Tensor(tensor) => json!({ "tensor": {
                "handle": tensor.handle,
                "shape": tensor.shape,
                "dtype": tensor.dtype.torch_name(),
                "device": tensor.device,
            }}),
            Self::Tuple(items) => items.iter().map(Self::json).collect(),
        }
    }
}

/// What Python is to do when it has an answer, in the middle of its call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// End with this code.
    Exit(u8),
    /// End by this signal.
    Signal(i32),
    /// Do that when Python ends.
    AtExit(Box<Order>),
    /// Sleep.
    Hang {
        ignores_sigterm: bool,
        grandchild: Grandchild,
        /// Real ones.
        seconds: f64,
    },
}

impl Order {
    fn json(&self) -> Value {
        match self {
            Self::Exit(code) => json!({ "exit": code }),
            Self::Signal(number) => json!({ "signal": number }),
            Self::AtExit(order) => json!({ "at_exit": order.json() }),
            Self::Hang { ignores_sigterm, grandchild, seconds } => {
                json!({ "hang": seconds, "ignores_sigterm": ignores_sigterm, "grandchild": grandchild })
            }
        }
    }
}

/// The line that answers a call.
pub(super) fn answer(result: &Result<Reply, Raised>, order: Option<Order>) -> String {
    let mut line = match result {
        Ok(reply) => json!({ "value": reply.json() }),
        Err(raised) => {
            let class = match raised.class {
                Class::Attribute => "AttributeError",
                Class::OutOfMemory => "OutOfMemoryError",
                Class::Runtime => "RuntimeError",
                Class::Type => "TypeError",
            };
            json!({ "error": { "type": class, "message": raised.message } })
        }
    };
    if let Some(order) = order {
        line["order"] = order.json();
    }
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_lacks_travels_as_objects_of_one_key() {
        let line = r#"{"call": "f", "args": [{"tensor": 3}, {"dtype": "int8"}, {"float": "-inf"}, 2, 2.0, [1, null]],
                       "kwargs": {"x": {"object": "slice"}}}"#;
        let arguments = Request::parse(line).expect("a call").arguments();
        let list = Given::List(vec![Given::Int(1), Given::None]);
        let dtype = Given::Dtype("int8".to_owned());
        let expected = [
            Given::Tensor(3),
            dtype,
            Given::Float(f64::NEG_INFINITY),
            Given::Int(2),
            Given::Float(2.0),
            list,
        ];
        assert_eq!(arguments.positional, expected);
        assert_eq!(arguments.keyword["x"].python_type(), "slice");
    }

    #[test]
    fn answers_are_lines() {
        let raised = Raised::new(Class::Type, "a\nb");
        let line = answer(&Err(raised), None);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.contains(r#""type":"TypeError""#), "{line}");
        assert!(Request::parse("{}").expect_err("no call").message.contains("call"));
    }
}
