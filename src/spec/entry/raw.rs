//! The YAML of an entry, as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;

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
    #[serde(default)]
    pub(super) number_for: Vec<String>,
    #[serde(default)]
    pub(super) formats: Vec<String>,
    pub(super) host_dims: Option<String>,
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
}

/// An argument's name, `promoted`, a type, or `{recorded: [types]}`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RawOutput {
    Word(String),
    Recorded { recorded: Vec<String> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawForm {
    pub(super) name: String,
    pub(super) shapes: String,
    #[serde(default)]
    pub(super) transposed: Vec<String>,
    #[serde(default, rename = "where")]
    pub(super) conditions: Vec<String>,
    pub(super) returns: Option<String>,
    /// Attributes by column, and the values that they may have.
    #[serde(default)]
    pub(super) with: BTreeMap<String, Vec<String>>,
    /// In place of the entry's, where the slots mean something else.
    pub(super) inputs: Option<Vec<Option<RawInput>>>,
    /// Beside the entry's.
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, RawArgument>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArgument {
    pub(super) constant: Option<serde_json::Value>,
    pub(super) expression: Option<String>,
    pub(super) inverse_root: Option<String>,
    pub(super) destination: Option<usize>,
    pub(super) dtype_of_output: Option<usize>,
    #[serde(default)]
    pub(super) quantised: bool,
    pub(super) attribute: Option<String>,
    pub(super) tensor: Option<String>,
    pub(super) dtype: Option<String>,
    pub(super) values: Option<RawValues>,
    pub(super) below: Option<String>,
    pub(super) total: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCost {
    pub(super) flops: Option<String>,
    pub(super) bytes: Option<String>,
}
