//! The YAML of an entry, as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{JudgedBy, Role};
use crate::spec::device_profile::Unit;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEntry {
    pub(super) kernel: String,
    pub(super) summary: String,
    pub(super) api: String,
    pub(super) schema: String,
    #[serde(default)]
    pub(super) also_named: Vec<String>,
    pub(super) unit: Unit,
    #[serde(default)]
    pub(super) needs: RawNeeds,
    #[serde(default)]
    pub(super) judged_by: JudgedBy,
    pub(super) inputs: Vec<Option<RawInput>>,
    pub(super) outputs: Vec<RawOutput>,
    pub(super) forms: Vec<RawForm>,
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, RawArgument>,
    #[serde(default)]
    pub(super) cost: RawCost,
    pub(super) leaves_open: Option<String>,
    #[serde(default)]
    pub(super) beside: Vec<String>,
    /// By name of a dimension.
    #[serde(default)]
    pub(super) roles: BTreeMap<String, Role>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNeeds {
    #[serde(default)]
    pub(super) modules: Vec<String>,
    #[serde(default)]
    pub(super) custom_operators: bool,
    #[serde(default)]
    pub(super) graph: bool,
    #[serde(default)]
    pub(super) several_devices: bool,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInput {
    pub(super) argument: Option<String>,
    pub(super) values: Option<RawValues>,
    pub(super) below: Option<String>,
    pub(super) total: Option<String>,
    #[serde(default)]
    pub(super) dtypes: Vec<String>,
    pub(super) same_type_as: Option<String>,
    #[serde(default)]
    pub(super) number_for: Vec<String>,
    #[serde(default)]
    pub(super) formats: Vec<String>,
    #[serde(default)]
    pub(super) shown_whole: bool,
    pub(super) host_dims: Option<String>,
    pub(super) made: Option<String>,
    pub(super) used: Option<String>,
    pub(super) items: Option<String>,
    pub(super) left_out: Option<String>,
    pub(super) same_as: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawValues {
    Activation,
    Weight,
    Ones,
    Zeros,
    Scales,
    Index,
    Zipf,
    Counting,
    Distinct,
    Experts,
    Cumulative,
    Counts,
    Causal,
    Picks,
    Listed,
    Blocks,
}

/// An argument's name, `promoted`, a type, or `{recorded: [types], unlike: argument}`.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum RawOutput {
    Word(String),
    Recorded { recorded: Vec<String>, unlike: Option<String> },
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawForm {
    pub(super) name: String,
    pub(super) shapes: String,
    #[serde(default)]
    pub(super) transposed: Vec<String>,
    #[serde(default, rename = "where")]
    pub(super) conditions: Vec<String>,
    pub(super) returns: Option<String>,
    /// Names that the inputs leave open and the recorded output tells.
    #[serde(default)]
    pub(super) infer: BTreeMap<String, String>,
    /// Attributes by column, and the values that they may have.
    #[serde(default)]
    pub(super) with: BTreeMap<String, Vec<String>>,
    /// In place of the entry's, where the slots mean something else.
    pub(super) inputs: Option<Vec<Option<RawInput>>>,
    /// In place of the entry's, where they are of other types.
    pub(super) outputs: Option<Vec<RawOutput>>,
    /// Beside the entry's.
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, RawArgument>,
    /// In place of the entry's.
    #[serde(default)]
    pub(super) cost: RawCost,
    /// Kernels whose work the form does in INT8.
    #[serde(default)]
    pub(super) quantises: Vec<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArgument {
    #[serde(default, deserialize_with = "given")]
    pub(super) constant: Option<serde_json::Value>,
    pub(super) expression: Option<String>,
    pub(super) inverse_root: Option<String>,
    pub(super) destination: Option<usize>,
    pub(super) dtype_of_output: Option<usize>,
    #[serde(default)]
    pub(super) quantised: bool,
    pub(super) attribute: Option<String>,
    pub(super) process_group: Option<String>,
    pub(super) tensor: Option<String>,
    pub(super) dtype: Option<String>,
    pub(super) values: Option<RawValues>,
    pub(super) below: Option<String>,
    pub(super) total: Option<String>,
    pub(super) used: Option<String>,
    pub(super) items: Option<String>,
    #[serde(default)]
    pub(super) on_host: bool,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCost {
    pub(super) flops: Option<String>,
    pub(super) bytes: Option<String>,
}

/// A `null` that is written is a constant as well.
fn given<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(value).map(Some)
}
