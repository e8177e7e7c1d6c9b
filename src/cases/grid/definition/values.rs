//! Values of a model for grids: numbers by name, and tables of numbers.

use std::collections::BTreeMap;

/// A model's numbers, as the expressions and axes of grid files name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelValues {
    /// Its id, such as `deepseek-ai/DeepSeek-V3`.
    pub id: String,
    /// Constants, such as `hidden_size`. Patterns skip models that lack one of their constants.
    pub numbers: BTreeMap<String, i64>,
    /// Values for axes, such as the pairs of N and K of its layers.
    pub tables: BTreeMap<String, ValueTable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTable {
    pub(crate) width: usize,
    /// All rows, one after the other.
    pub(crate) numbers: Vec<i64>,
}

impl ValueTable {
    pub(crate) fn list(numbers: impl IntoIterator<Item = i64>) -> Self {
        Self { width: 1, numbers: numbers.into_iter().collect() }
    }

    pub fn pairs(pairs: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self { width: 2, numbers: pairs.into_iter().flat_map(|(one, other)| [one, other]).collect() }
    }
}
