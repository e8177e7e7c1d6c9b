//! The keys of an entry's YAML.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{CallRequirements, DimensionRole, FillKind};
use crate::kernel::{CheckMethod, device::ComputeUnit};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEntry {
    pub(crate) kernel: String,
    pub(crate) summary: String,
    pub(crate) api: String,
    pub(crate) schema: String,
    /// Schemas of other versions of the operator.
    #[serde(default)]
    pub(crate) other_schemas: Vec<String>,
    #[serde(default)]
    pub(crate) also_named: Vec<String>,
    pub(crate) unit: ComputeUnit,
    #[serde(default)]
    pub(crate) needs: CallRequirements,
    #[serde(default)]
    pub(crate) check_method: CheckMethod,
    #[serde(deserialize_with = "input_slots")]
    pub(crate) inputs: Vec<Option<RawInput>>,
    pub(crate) outputs: Vec<RawOutput>,
    pub(crate) forms: Vec<RawForm>,
    #[serde(default)]
    pub(crate) arguments: BTreeMap<String, RawArgument>,
    #[serde(default)]
    pub(crate) cost: RawCost,
    pub(crate) assumption: Option<String>,
    /// Attributes that a row may have beside those of the call, by column.
    #[serde(default)]
    pub(crate) implied: BTreeMap<String, RawImplied>,
    #[serde(default)]
    pub(crate) also_launches: Vec<String>,
    /// Number of input slots that records show, with those of absent tensors at the end.
    pub(crate) recorded_inputs: Option<usize>,
    #[serde(default)]
    pub(crate) roles: BTreeMap<String, DimensionRole>,
    pub(crate) example: Option<RawExample>,
}

/// A case as tensors with dimensions, type and format; `~` is an empty slot.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawExample {
    pub(crate) inputs: Vec<Option<String>>,
    pub(crate) outputs: Vec<Option<String>>,
    #[serde(default)]
    pub(crate) attributes: BTreeMap<String, String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawInput {
    /// Index in the list of the file, which has no empty slots.
    #[serde(skip)]
    pub(crate) item: usize,
    /// Number of the profiler's slot, from 0, where empty slots precede it.
    pub(crate) slot: Option<usize>,
    /// Name in `shapes:` of a slot that is not an argument of the call.
    pub(crate) name: Option<String>,
    pub(crate) argument: Option<String>,
    pub(crate) values: Option<FillKind>,
    pub(crate) below: Option<String>,
    pub(crate) total: Option<String>,
    pub(crate) dtypes: Vec<String>,
    pub(crate) same_type_as: Option<String>,
    pub(crate) number_for: Vec<String>,
    pub(crate) formats: Vec<String>,
    pub(crate) shown_whole: bool,
    pub(crate) only_blocked: bool,
    pub(crate) host_dims: Option<String>,
    pub(crate) intermediate: Option<String>,
    pub(crate) used: Option<String>,
    pub(crate) items: Option<String>,
    pub(crate) queries: Option<String>,
    pub(crate) keys: Option<String>,
    pub(crate) omitted: Option<String>,
    pub(crate) same_as: Option<String>,
}

/// An argument's name, `promoted`, a type, `{recorded: [types], unlike: argument}`, or `{like: argument, format: NAME}`.
#[derive(Clone, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected an argument, a type, `{recorded: [TYPE …], unlike: ARGUMENT}` or `{like: ARGUMENT, format: NAME}`"
)]
pub(crate) enum RawOutput {
    Word(String),
    Recorded { recorded: Vec<String>, unlike: Option<String> },
    Blocked { like: String, format: String },
}

/// The value of an attribute that follows from the others: an expression or `{mean: LIST}`; or the only one that the form
/// covers: a number, `{text: WORD}` or `{only: EXPRESSION}`; or `{ignored: REASON}` for one without effect.
#[derive(Clone, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected an expression, a number, `{mean: EXPRESSION}`, `{text: WORD}`, \
                 `{only: EXPRESSION}` or `{ignored: REASON}`"
)]
pub(crate) enum RawImplied {
    Number(i64),
    Expression(String),
    Mean { mean: String },
    Text { text: String },
    Only { only: String },
    Ignored { ignored: String },
}

/// The shapes of a form: a rule, or shapes by name of the input slot.
#[derive(Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a rule such as `M,K; K,N -> M,N`, or slot names with shapes in quotes"
)]
pub(crate) enum RawShapes {
    Rule(String),
    ByName(BTreeMap<String, String>),
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawForm {
    pub(crate) name: String,
    /// In place of the entry's, beside a schema of its own.
    pub(crate) api: Option<String>,
    pub(crate) schema: Option<String>,
    /// Reason why no call launches the kernel with such tensors.
    pub(crate) unsupported: Option<String>,
    pub(crate) shapes: RawShapes,
    /// Beside shapes by name: those of the outputs.
    pub(crate) output_shapes: Option<String>,
    /// The rule as text, see [`super::named_shapes`].
    #[serde(skip)]
    pub(crate) rule: String,
    #[serde(default)]
    pub(crate) transposed: Vec<String>,
    #[serde(default, rename = "where")]
    pub(crate) conditions: Vec<String>,
    /// Conditions of the form that the operator's definition does not have.
    #[serde(default)]
    pub(crate) limits: Vec<String>,
    pub(crate) returns: Option<String>,
    /// Names that the inputs leave open, with expressions of the recorded output.
    #[serde(default)]
    pub(crate) infer: BTreeMap<String, String>,
    /// Attributes by column, and the values that they may have.
    #[serde(default)]
    pub(crate) with: BTreeMap<String, Vec<String>>,
    /// Beside the entry's.
    #[serde(default)]
    pub(crate) implied: BTreeMap<String, RawImplied>,
    /// In place of the entry's.
    pub(crate) assumption: Option<String>,
    /// See [`super::EntryForm::special_case`].
    #[serde(default)]
    pub(crate) special_case: bool,
    /// In place of the entry's, where slots have another meaning.
    #[serde(default, deserialize_with = "form_input_slots")]
    pub(crate) inputs: Option<Vec<Option<RawInput>>>,
    /// In place of the entry's, where they are of other types.
    pub(crate) outputs: Option<Vec<RawOutput>>,
    /// Beside the entry's.
    #[serde(default)]
    pub(crate) arguments: BTreeMap<String, RawArgument>,
    /// In place of the entry's.
    #[serde(default)]
    pub(crate) cost: RawCost,
    /// Kernels whose work the form does in INT8.
    #[serde(default)]
    pub(crate) quantises: Vec<String>,
    /// Another kernel, whose entry defines the call of such tensors.
    pub(crate) runs_as: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawArgument {
    #[serde(deserialize_with = "explicit_value")]
    pub(crate) constant: Option<serde_json::Value>,
    pub(crate) expression: Option<String>,
    pub(crate) inverse_root: Option<String>,
    pub(crate) destination: Option<usize>,
    pub(crate) dtype_of_output: Option<usize>,
    pub(crate) quantised: bool,
    pub(crate) attribute: Option<String>,
    pub(crate) process_group: Option<String>,
    pub(crate) same_as: Option<String>,
    pub(crate) tensor: Option<String>,
    pub(crate) dtype: Option<String>,
    pub(crate) values: Option<FillKind>,
    pub(crate) below: Option<String>,
    pub(crate) total: Option<String>,
    pub(crate) used: Option<String>,
    pub(crate) items: Option<String>,
    pub(crate) on_host: bool,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCost {
    pub(crate) flops: Option<String>,
    pub(crate) bytes: Option<String>,
}

/// Reads a constant; an explicit `null` is one as well.
fn explicit_value<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(value).map(Some)
}

impl RawInput {
    /// The slot's name in `shapes:`; empty for a slot without a name.
    pub(crate) fn shape_name(&self) -> &str {
        self.name.as_ref().or(self.argument.as_ref()).map_or("", String::as_str)
    }
}

/// Reads input slots, and puts empty ones in front of those with a `slot:`. A `slot:` out of order has no effect here;
/// the checks of the entry refuse it with its position.
fn input_slots<'de, D: serde::Deserializer<'de>>(list: D) -> Result<Vec<Option<RawInput>>, D::Error> {
    let mut slots: Vec<Option<RawInput>> = Vec::new();
    for (item, mut input) in Vec::<Option<RawInput>>::deserialize(list)?.into_iter().enumerate() {
        if let Some(input) = &mut input {
            input.item = item;
            let number = input.slot.filter(|slot| *slot <= MOST_SLOTS);
            slots.resize(number.unwrap_or_default().max(slots.len()), None);
        }
        slots.push(input);
    }
    Ok(slots)
}

/// Largest number of a slot, more than any kernel has.
pub(crate) const MOST_SLOTS: usize = 100;

fn form_input_slots<'de, D: serde::Deserializer<'de>>(
    list: D,
) -> Result<Option<Vec<Option<RawInput>>>, D::Error> {
    input_slots(list).map(Some)
}
