//! The values that tensors are filled with, in the catalogue, in a resolved call and in the manifest.

use serde::{Deserialize, Serialize};

/// Values of a tensor, seeded by the case. `B` is the type of a bound or total, `L` of a list of numbers: text
/// in the YAML, an expression in the catalogue, numbers in a call. The manifest has `fill` and the fields' names
/// as keys. Values are less than `below`; `total` counts the items of all groups, `used` the blocks of each sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, strum::EnumDiscriminants)]
#[serde(tag = "fill", rename_all = "lowercase")]
#[strum_discriminants(
    name(FillKind),
    doc = "A kind of values, without bounds: the words of `values:`.",
    vis(pub(crate)),
    derive(Serialize, Deserialize, strum::Display),
    serde(rename_all = "lowercase"),
    strum(serialize_all = "lowercase")
)]
pub(crate) enum Fill<B, L = B> {
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
    Index {
        below: B,
    },
    /// Whole numbers in [0, below), the n-th with a share of 1/n, as tokens of a language.
    Zipf {
        below: B,
    },
    /// 0, 1, 2 … up to the bound, repeated.
    Counting {
        below: B,
    },
    /// Different whole numbers in [0, below), in random order.
    Distinct {
        below: B,
    },
    /// Different experts of [0, below) in each row, spread evenly over all rows unless a run sets a skew.
    Experts {
        below: B,
    },
    /// Cumulative ends of groups that share the items evenly, one group per element.
    Cumulative {
        total: B,
    },
    /// Sizes of groups that share the items evenly, one group per element.
    Counts {
        total: B,
    },
    /// 1 for the first `total` elements, 0 for the others: a mask.
    Leading {
        total: B,
    },
    /// Positions of keys that an indexer may select for each row, in ascending order, then -1: a random choice of
    /// those up to the row's own, which for the last row of a sequence is its last key. `queries` are the ends of the
    /// sequences in rows, `keys` their lengths.
    Selection {
        queries: L,
        keys: L,
    },
    /// The numbers of a list, such as lengths.
    Listed {
        items: L,
    },
    /// A block table: row by row as many block numbers as the sequence uses, each once and in order, then 0.
    Blocks {
        below: B,
        used: L,
    },
    /// Uninitialised memory that the call writes; not available in the catalogue.
    #[strum_discriminants(serde(skip))]
    Empty,
}

impl<B, L> Fill<B, L> {
    /// The same values with converted bounds and lists.
    pub(crate) fn try_map<C, M, E>(
        &self,
        bound: impl Fn(&B) -> Result<C, E>,
        list: impl Fn(&L) -> Result<M, E>,
    ) -> Result<Fill<C, M>, E> {
        Ok(match self {
            Self::Activation => Fill::Activation,
            Self::Weight => Fill::Weight,
            Self::Ones => Fill::Ones,
            Self::Zeros => Fill::Zeros,
            Self::Scales => Fill::Scales,
            Self::Causal => Fill::Causal,
            Self::Empty => Fill::Empty,
            Self::Index { below } => Fill::Index { below: bound(below)? },
            Self::Zipf { below } => Fill::Zipf { below: bound(below)? },
            Self::Counting { below } => Fill::Counting { below: bound(below)? },
            Self::Distinct { below } => Fill::Distinct { below: bound(below)? },
            Self::Experts { below } => Fill::Experts { below: bound(below)? },
            Self::Selection { queries, keys } => {
                Fill::Selection { queries: list(queries)?, keys: list(keys)? }
            }
            Self::Cumulative { total } => Fill::Cumulative { total: bound(total)? },
            Self::Counts { total } => Fill::Counts { total: bound(total)? },
            Self::Leading { total } => Fill::Leading { total: bound(total)? },
            Self::Listed { items } => Fill::Listed { items: list(items)? },
            Self::Blocks { below, used } => Fill::Blocks { below: bound(below)?, used: list(used)? },
        })
    }

    pub(crate) const fn below(&self) -> Option<&B> {
        match self {
            Self::Index { below }
            | Self::Zipf { below }
            | Self::Counting { below }
            | Self::Distinct { below }
            | Self::Experts { below }
            | Self::Blocks { below, .. } => Some(below),
            _ => None,
        }
    }
}

impl<B> Fill<B> {
    pub(crate) fn parts(&self) -> Vec<&B> {
        match self {
            Self::Index { below: one }
            | Self::Zipf { below: one }
            | Self::Counting { below: one }
            | Self::Distinct { below: one }
            | Self::Experts { below: one }
            | Self::Cumulative { total: one }
            | Self::Counts { total: one }
            | Self::Leading { total: one }
            | Self::Listed { items: one } => vec![one],
            Self::Selection { queries: one, keys: other } | Self::Blocks { below: one, used: other } => {
                vec![one, other]
            }
            _ => Vec::new(),
        }
    }
}

impl FillKind {
    /// Returns the values of this kind, whose bounds and lists `take` returns by their keys.
    pub(crate) fn fill<B, E>(self, mut take: impl FnMut(&'static str) -> Result<B, E>) -> Result<Fill<B>, E> {
        Ok(match self {
            Self::Activation => Fill::Activation,
            Self::Weight => Fill::Weight,
            Self::Ones => Fill::Ones,
            Self::Zeros => Fill::Zeros,
            Self::Scales => Fill::Scales,
            Self::Causal => Fill::Causal,
            Self::Empty => Fill::Empty,
            Self::Index => Fill::Index { below: take("below")? },
            Self::Zipf => Fill::Zipf { below: take("below")? },
            Self::Counting => Fill::Counting { below: take("below")? },
            Self::Distinct => Fill::Distinct { below: take("below")? },
            Self::Experts => Fill::Experts { below: take("below")? },
            Self::Cumulative => Fill::Cumulative { total: take("total")? },
            Self::Counts => Fill::Counts { total: take("total")? },
            Self::Leading => Fill::Leading { total: take("total")? },
            Self::Selection => Fill::Selection { queries: take("queries")?, keys: take("keys")? },
            Self::Listed => Fill::Listed { items: take("items")? },
            Self::Blocks => Fill::Blocks { below: take("below")?, used: take("used")? },
        })
    }
}
