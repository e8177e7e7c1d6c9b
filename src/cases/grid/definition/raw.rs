//! Grid files as they are written.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::base::yaml::{Spanned, YamlMap, YamlNode};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGridFile {
    #[serde(rename = "summary")]
    _summary: String,
    #[serde(default)]
    pub(crate) ladders: YamlMap<Spanned<Vec<Spanned<YamlNode>>>>,
    #[serde(default)]
    pub(crate) constants: BTreeMap<String, i64>,
    #[serde(default)]
    pub(crate) patterns: YamlMap<RawPattern>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawPattern {
    #[serde(rename = "summary")]
    _summary: Option<String>,
    pub(crate) kernels: Vec<Spanned<String>>,
    pub(crate) axes: Option<Spanned<YamlMap<Spanned<YamlNode>>>>,
    pub(crate) constants: BTreeMap<String, i64>,
    #[serde(rename = "let")]
    pub(crate) derived: Option<YamlMap<Spanned<String>>>,
    #[serde(rename = "where")]
    pub(crate) conditions: Option<Vec<Spanned<String>>>,
    pub(crate) inputs: Option<RawSide>,
    pub(crate) outputs: Option<RawSide>,
    pub(crate) attributes: Option<YamlMap<Spanned<String>>>,
    pub(crate) text: Option<YamlMap<String>>,
    /// Replaces parts of the pattern where models are chosen.
    pub(crate) with_models: Option<RawOverride>,
    /// Replaces parts of the pattern for single kernels.
    pub(crate) overrides: YamlMap<RawOverride>,
}

/// The parts of a pattern that an override may replace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawOverride {
    pub(crate) axes: Option<Spanned<YamlMap<Spanned<YamlNode>>>>,
    #[serde(rename = "let")]
    pub(crate) derived: Option<YamlMap<Spanned<String>>>,
    #[serde(rename = "where")]
    pub(crate) conditions: Option<Vec<Spanned<String>>>,
    pub(crate) inputs: Option<RawSide>,
    pub(crate) outputs: Option<RawSide>,
    pub(crate) attributes: Option<YamlMap<Spanned<String>>>,
    pub(crate) text: Option<YamlMap<String>>,
}

/// Three cells of a row: slots are separated by semicolons.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSide {
    pub(crate) shapes: Spanned<String>,
    /// One for all slots, or one for each.
    pub(crate) dtypes: Spanned<String>,
    #[serde(default)]
    pub(crate) formats: Option<Spanned<String>>,
}

impl RawPattern {
    pub(crate) fn with_override(mut self, other: &RawOverride) -> Self {
        let RawOverride { axes, derived, conditions, inputs, outputs, attributes, text } = other.clone();
        self.axes = axes.or(self.axes);
        self.derived = derived.or(self.derived);
        self.conditions = conditions.or(self.conditions);
        self.inputs = inputs.or(self.inputs);
        self.outputs = outputs.or(self.outputs);
        self.attributes = attributes.or(self.attributes);
        self.text = text.or(self.text);
        self
    }
}
