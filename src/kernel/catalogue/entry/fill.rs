//! The values that tensors are filled with, in the catalogue, in a resolved call and in the manifest.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// Values of a tensor, seeded by the case. `B` is the type of a bound or total, `L` of a list of numbers: an expression in
/// the catalogue, numbers in a call. Each kind has the fields of [`FillKind::keys`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fill<B, L = B> {
    #[serde(rename = "fill", deserialize_with = "kind_of_manifest")]
    pub(crate) kind: FillKind,
    /// Bound above all values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) below: Option<B>,
    /// Number of items of all groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<B>,
    /// The numbers themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) items: Option<L>,
    /// Number of blocks of each sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<L>,
    /// Ends of the sequences in rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queries: Option<L>,
    /// Lengths of the sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<L>,
}

/// A kind of values: the words of `values:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum FillKind {
    /// N(0,1); whole numbers in [-8, 8) for integer types; both values for `BOOL`.
    Activation,
    /// Values of activations divided by the square root of the last dimension, so that products keep their size.
    Weight,
    /// Ones, as norm weights are at the start of training.
    Ones,
    Zeros,
    /// Quantisation scales of realistic size: 0.01, stored as the bits of a float in integers of 64 bits.
    Scales,
    /// 1 above the diagonal, 0 elsewhere: the positions hidden by a causal mask.
    Causal,
    /// Whole numbers, uniform over [0, below).
    Index,
    /// Whole numbers in [0, below), the n-th with a share of 1/n, as tokens of a language.
    Zipf,
    /// 0, 1, 2 … up to the bound, repeated.
    Counting,
    /// Different whole numbers in [0, below), in random order.
    Distinct,
    /// Different experts of [0, below) in each row, spread evenly over all rows unless a run sets a skew.
    Experts,
    /// Cumulative ends of groups that share the items evenly, one group per element.
    Cumulative,
    /// Sizes of groups that share the items evenly, one group per element.
    Counts,
    /// 1 for the first `total` elements, 0 for the others: a mask.
    Leading,
    /// Positions of keys that an indexer may select for each row, in ascending order, then -1: a random choice of
    /// those up to the row's own, which for the last row of a sequence is its last key.
    Selection,
    /// The numbers of a list, such as lengths.
    Listed,
    /// A block table: row by row as many block numbers as the sequence uses, each once and in order, then 0.
    Blocks,
    /// Uninitialised memory that the call writes; not available in the catalogue.
    #[serde(skip_deserializing)]
    Empty,
}

/// Reads a kind of the manifest, which also has [`FillKind::Empty`].
fn kind_of_manifest<'de, D: Deserializer<'de>>(kind: D) -> Result<FillKind, D::Error> {
    String::deserialize(kind)?.parse().map_err(D::Error::custom)
}

impl FillKind {
    /// Returns the names of the fields that the values have.
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Index | Self::Zipf | Self::Counting | Self::Distinct | Self::Experts => &["below"],
            Self::Cumulative | Self::Counts | Self::Leading => &["total"],
            Self::Listed => &["items"],
            Self::Selection => &["queries", "keys"],
            Self::Blocks => &["below", "used"],
            _ => &[],
        }
    }
}

impl<B, L> From<FillKind> for Fill<B, L> {
    fn from(kind: FillKind) -> Self {
        Self { kind, below: None, total: None, items: None, used: None, queries: None, keys: None }
    }
}

impl<B, L> Fill<B, L> {
    /// The same values with converted bounds and lists.
    pub(crate) fn try_map<C, M, E>(
        &self,
        bound: impl Fn(&B) -> Result<C, E>,
        list: impl Fn(&L) -> Result<M, E>,
    ) -> Result<Fill<C, M>, E> {
        Ok(Fill {
            kind: self.kind,
            below: self.below.as_ref().map(&bound).transpose()?,
            total: self.total.as_ref().map(&bound).transpose()?,
            items: self.items.as_ref().map(&list).transpose()?,
            used: self.used.as_ref().map(&list).transpose()?,
            queries: self.queries.as_ref().map(&list).transpose()?,
            keys: self.keys.as_ref().map(&list).transpose()?,
        })
    }
}

impl<B> Fill<B> {
    pub(crate) fn parts(&self) -> impl Iterator<Item = &B> {
        let Self { kind: _, below, total, items, used, queries, keys } = self;
        [below, total, items, used, queries, keys].into_iter().flatten()
    }
}
