//! Grid files as they are written.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_yaml::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGridFile {
    /// A line for people.
    #[serde(rename = "summary")]
    _summary: String,
    #[serde(default)]
    pub(crate) ladders: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub(crate) constants: BTreeMap<String, i64>,
    #[serde(default)]
    pub(crate) patterns: OrderedMap<RawPattern>,
}

/// A pattern, or what an override puts in place of a pattern's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawPattern {
    #[serde(rename = "summary")]
    _summary: Option<String>,
    pub(crate) kernels: Vec<String>,
    pub(crate) axes: Option<OrderedMap<Value>>,
    pub(crate) constants: BTreeMap<String, i64>,
    #[serde(rename = "let")]
    pub(crate) derived: Option<BTreeMap<String, Value>>,
    #[serde(rename = "where")]
    pub(crate) conditions: Option<Vec<String>>,
    pub(crate) inputs: Option<RawSide>,
    pub(crate) outputs: Option<RawSide>,
    pub(crate) attributes: Option<OrderedMap<Value>>,
    pub(crate) text: Option<BTreeMap<String, String>>,
    /// In place of the above where models are chosen.
    pub(crate) with_models: Option<RawOverride>,
    /// In place of the above for single kernels.
    pub(crate) overrides: BTreeMap<String, RawOverride>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawOverride {
    pub(crate) axes: Option<OrderedMap<Value>>,
    #[serde(rename = "let")]
    pub(crate) derived: Option<BTreeMap<String, Value>>,
    #[serde(rename = "where")]
    pub(crate) conditions: Option<Vec<String>>,
    pub(crate) inputs: Option<RawSide>,
    pub(crate) outputs: Option<RawSide>,
    pub(crate) attributes: Option<OrderedMap<Value>>,
    pub(crate) text: Option<BTreeMap<String, String>>,
}

/// Three cells, as a row has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSide {
    pub(crate) shapes: String,
    /// One for all slots, or one for each.
    pub(crate) dtypes: String,
    #[serde(default)]
    pub(crate) formats: Option<String>,
}

impl RawPattern {
    /// With what an override says in place of its own.
    pub(crate) fn with(mut self, other: &RawOverride) -> Self {
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

/// A mapping in the order of the file, which decides the order of rows.
#[derive(Clone, Debug)]
pub(crate) struct OrderedMap<T>(pub(crate) Vec<(String, T)>);

impl<T> Default for OrderedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedMapVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedMapVisitor<T> {
            type Value = OrderedMap<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedMap<T>, A::Error> {
                let mut entries: Vec<(String, T)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, T>()? {
                    if entries.iter().any(|(known, _)| *known == key) {
                        return Err(serde::de::Error::custom(format!("`{key}` stands twice")));
                    }
                    entries.push((key, value));
                }
                Ok(OrderedMap(entries))
            }
        }
        deserializer.deserialize_map(OrderedMapVisitor(PhantomData))
    }
}
