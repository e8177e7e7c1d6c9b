//! Lists in queries that users write, as lists or as texts.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::query_text::{QueryTextError, parse_shapes, split_list};

/// Shapes of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShapeField {
    /// `8,64;64,32`; no shapes if it is empty.
    Text(String),
    /// Lists of lengths.
    Lists(Vec<Vec<u64>>),
}

/// List of names or numbers, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListField(pub(crate) Vec<String>);

impl Default for ShapeField {
    fn default() -> Self {
        Self::Lists(Vec::new())
    }
}

impl ShapeField {
    /// Returns the lengths of each shape.
    pub(super) fn into_shapes(self) -> Result<Vec<Vec<u64>>, String> {
        match self {
            Self::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
            Self::Text(text) => parse_shapes(&text),
            Self::Lists(shapes) => Ok(shapes),
        }
    }
}

impl ListField {
    /// Splits a text at `;` or `,`.
    pub(crate) fn from_text(text: &str) -> Self {
        Self(split_list(text))
    }

    /// Returns the numbers of a list. The error has the key and the item.
    pub(super) fn into_numbers(self, key: &str) -> Result<Vec<u64>, QueryTextError> {
        let wrong = |text: &str| QueryTextError {
            message: format!("`{text}` in `{key}`, expected whole numbers"),
            hint: "give numbers such as `4096,3000`".to_owned(),
        };
        self.0.iter().map(|text| text.parse().map_err(|_| wrong(text))).collect()
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = ShapeField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shapes such as `8,64;64,32`, or lists of lengths")
    }

    fn visit_str<E>(self, text: &str) -> Result<ShapeField, E> {
        Ok(ShapeField::Text(text.to_owned()))
    }

    fn visit_u64<E>(self, length: u64) -> Result<ShapeField, E> {
        Ok(ShapeField::Lists(vec![vec![length]]))
    }

    fn visit_unit<E>(self) -> Result<ShapeField, E> {
        Ok(ShapeField::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ShapeField, A::Error> {
        let mut shapes = Vec::new();
        while let Some(shape) = list.next_element()? {
            shapes.push(shape);
        }
        Ok(ShapeField::Lists(shapes))
    }
}

impl<'de> Deserialize<'de> for ShapeField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = ListField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, or one item")
    }

    fn visit_str<E>(self, text: &str) -> Result<ListField, E> {
        Ok(ListField::from_text(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<ListField, E> {
        Ok(ListField(vec![number.to_string()]))
    }

    fn visit_unit<E>(self) -> Result<ListField, E> {
        Ok(ListField::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ListField, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<ListField>()? {
            items.extend(item.0);
        }
        Ok(ListField(items))
    }
}

impl<'de> Deserialize<'de> for ListField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor)
    }
}
