//! The YAML of an entry, as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{DimensionRole, EntryCheckMethod, FillKind};
use crate::config::device_profile::ComputeUnit;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEntry {
    pub(crate) kernel: String,
    pub(crate) summary: String,
    pub(crate) api: String,
    pub(crate) schema: String,
    #[serde(default)]
    pub(crate) also_named: Vec<String>,
    pub(crate) unit: ComputeUnit,
    #[serde(default)]
    pub(crate) needs: RawNeeds,
    #[serde(default)]
    pub(crate) judged_by: EntryCheckMethod,
    pub(crate) inputs: Vec<Option<RawInput>>,
    pub(crate) outputs: Vec<RawOutput>,
    pub(crate) forms: Vec<RawForm>,
    #[serde(default)]
    pub(crate) arguments: BTreeMap<String, RawArgument>,
    #[serde(default)]
    pub(crate) cost: RawCost,
    pub(crate) leaves_open: Option<String>,
    #[serde(default)]
    pub(crate) beside: Vec<String>,
    /// By name of a dimension.
    #[serde(default)]
    pub(crate) roles: BTreeMap<String, DimensionRole>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawNeeds {
    #[serde(default)]
    pub(crate) modules: Vec<String>,
    #[serde(default)]
    pub(crate) custom_operators: bool,
    #[serde(default)]
    pub(crate) graph: bool,
    #[serde(default)]
    pub(crate) several_devices: bool,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawInput {
    pub(crate) argument: Option<String>,
    pub(crate) values: Option<FillKind>,
    pub(crate) below: Option<String>,
    pub(crate) total: Option<String>,
    #[serde(default)]
    pub(crate) dtypes: Vec<String>,
    pub(crate) same_type_as: Option<String>,
    #[serde(default)]
    pub(crate) number_for: Vec<String>,
    #[serde(default)]
    pub(crate) formats: Vec<String>,
    #[serde(default)]
    pub(crate) shown_whole: bool,
    pub(crate) host_dims: Option<String>,
    pub(crate) made: Option<String>,
    pub(crate) used: Option<String>,
    pub(crate) items: Option<String>,
    pub(crate) left_out: Option<String>,
    pub(crate) same_as: Option<String>,
}

/// An argument's name, `promoted`, a type, or `{recorded: [types], unlike: argument}`.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum RawOutput {
    Word(String),
    Recorded { recorded: Vec<String>, unlike: Option<String> },
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawForm {
    pub(crate) name: String,
    pub(crate) shapes: String,
    #[serde(default)]
    pub(crate) transposed: Vec<String>,
    #[serde(default, rename = "where")]
    pub(crate) conditions: Vec<String>,
    pub(crate) returns: Option<String>,
    /// Names that the inputs leave open and the recorded output tells.
    #[serde(default)]
    pub(crate) infer: BTreeMap<String, String>,
    /// Attributes by column, and the values that they may have.
    #[serde(default)]
    pub(crate) with: BTreeMap<String, Vec<String>>,
    /// In place of the entry's, where the slots mean something else.
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
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawArgument {
    #[serde(default, deserialize_with = "given")]
    pub(crate) constant: Option<serde_json::Value>,
    pub(crate) expression: Option<String>,
    pub(crate) inverse_root: Option<String>,
    pub(crate) destination: Option<usize>,
    pub(crate) dtype_of_output: Option<usize>,
    #[serde(default)]
    pub(crate) quantised: bool,
    pub(crate) attribute: Option<String>,
    pub(crate) process_group: Option<String>,
    pub(crate) tensor: Option<String>,
    pub(crate) dtype: Option<String>,
    pub(crate) values: Option<FillKind>,
    pub(crate) below: Option<String>,
    pub(crate) total: Option<String>,
    pub(crate) used: Option<String>,
    pub(crate) items: Option<String>,
    #[serde(default)]
    pub(crate) on_host: bool,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCost {
    pub(crate) flops: Option<String>,
    pub(crate) bytes: Option<String>,
}

/// A `null` that is written is a constant as well.
fn given<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(value).map(Some)
}
