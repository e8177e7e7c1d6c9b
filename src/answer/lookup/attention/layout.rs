//! Layout of the queries of attention: stated, or the only one that fits the other shapes and numbers of a call.
//!
//! Queries of three dimensions are packed tokens (`TND`) or rows of all heads by sequence (`BSH`), those of four have their heads in
//! front of the tokens (`BNSD`) or behind them (`BSND`). Keys have the same order, or are in blocks: `pool,block,H` or
//! `pool,N,block,D`. There are at most 256 heads of at most 512 dimensions, which are multiples of 16, and blocks of 16 to 512 tokens.
//! These rules are from the vendor's reference of `aclnnFusedInferAttentionScore`; older versions refuse some of the combinations.

const MIN_HEAD_DIM: u64 = 16;
const MAX_HEAD_DIM: u64 = 512;
const MAX_HEADS: u64 = 256;
const BLOCK_STEP: u64 = 16;
const MAX_BLOCK: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// Caches as a framework passes them: the heads stand in front of their dimension.
    Framework,
    /// Caches as the profiler records them: the heads stand in front of the tokens of a block, or rows contain all
    /// heads.
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub(crate) enum QueryOrder {
    Tnd,
    Ntd,
    Bsh,
    Bnsd,
    Bsnd,
}

impl QueryOrder {
    /// Returns the order of a layout, whose part behind `_` is the order of the output.
    pub(crate) fn of_layout(layout: &str) -> Option<Self> {
        layout.split('_').next()?.parse().ok()
    }

    pub(crate) fn layout(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuerySizes {
    pub(crate) tokens: u64,
    pub(crate) heads: u64,
    pub(crate) head_dim: u64,
    /// Number of sequences; `None` for packed tokens.
    pub(crate) batch: Option<u64>,
}

impl QuerySizes {
    pub(crate) const fn dims(self) -> [u64; 3] {
        [self.tokens, self.heads, self.head_dim]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderProblem {
    Ambiguous,
    Contradictory,
}

/// Shapes and numbers of a call of attention; those that are not recorded are `None` or empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallShapes<'a> {
    pub(crate) query: &'a [u64],
    pub(crate) key: &'a [u64],
    pub(crate) key_order: KeyOrder,
    pub(crate) heads: Option<u64>,
    pub(crate) kv_heads: Option<u64>,
    pub(crate) kv_length: Option<f64>,
    pub(crate) sequences: Option<u64>,
    pub(crate) is_paged: Option<bool>,
    /// True if the lengths of the queries are an argument, as `TND` needs them.
    pub(crate) has_query_lengths: bool,
    /// Shape of the log-sum-exp: `T,N,1` or `B,N,S,1`.
    pub(crate) lse: &'a [u64],
}

/// Returns true for keys that cannot have fewer heads: the heads of queries are a multiple of theirs.
const fn divides(kv_heads: u64, heads: u64) -> bool {
    kv_heads > 0 && heads.is_multiple_of(kv_heads)
}

/// Returns true for a row of keys with heads of this dimension, of which the heads of queries are a multiple.
const fn are_heads(row: u64, dim: u64, heads: u64) -> bool {
    dim > 0 && row.is_multiple_of(dim) && divides(row / dim, heads)
}

const fn is_width(heads: u64, dim: u64) -> bool {
    heads <= MAX_HEADS && dim <= MAX_HEAD_DIM
}

const fn is_head(dim: u64) -> bool {
    dim >= MIN_HEAD_DIM && dim <= MAX_HEAD_DIM
}

const fn is_block(tokens: u64) -> bool {
    tokens > 0 && tokens <= MAX_BLOCK && tokens.is_multiple_of(BLOCK_STEP)
}

impl CallShapes<'_> {
    pub(crate) fn only_order(&self) -> Result<QueryOrder, OrderProblem> {
        let [one, other] = match self.query.len() {
            3 => [QueryOrder::Tnd, QueryOrder::Bsh],
            4 => [QueryOrder::Bnsd, QueryOrder::Bsnd],
            _ => return Err(OrderProblem::Contradictory),
        };
        match [one, other].map(|order| self.fits(order)) {
            [true, false] => Ok(one),
            [false, true] => Ok(other),
            [true, true] if one == QueryOrder::Tnd && self.has_query_lengths => Ok(one),
            [true, true] => Err(OrderProblem::Ambiguous),
            [false, false] => Err(OrderProblem::Contradictory),
        }
    }

    /// Returns the sizes of the query in an order; `None` for another number of dimensions, or without the number of heads of
    /// complete rows.
    pub(crate) fn sizes(&self, order: QueryOrder) -> Option<QuerySizes> {
        let (tokens, heads, head_dim, batch) = match (order, self.query) {
            (QueryOrder::Tnd, &[tokens, heads, dim]) | (QueryOrder::Ntd, &[heads, tokens, dim]) => {
                (tokens, heads, dim, None)
            }
            (QueryOrder::Bsh, &[batch, length, row]) => {
                let heads = self.heads_of_rows(row)?;
                (batch.checked_mul(length)?, heads, row / heads, Some(batch))
            }
            (QueryOrder::Bnsd, &[batch, heads, length, dim])
            | (QueryOrder::Bsnd, &[batch, length, heads, dim]) => {
                (batch.checked_mul(length)?, heads, dim, Some(batch))
            }
            _ => return None,
        };
        Some(QuerySizes { tokens, heads, head_dim, batch })
    }

    /// Returns the number of heads in rows of all heads: the number that the call gives, or the number that follows
    /// from the dimension of the heads of the keys.
    fn heads_of_rows(&self, row: u64) -> Option<u64> {
        let by_keys = || {
            let dim = match (self.key, self.kv_heads) {
                (&[_, _, key_row], Some(kv_heads)) if divides(kv_heads, key_row) => key_row / kv_heads,
                (&[_, _, _, dim], _) => dim,
                _ => return None,
            };
            divides(dim, row).then(|| row / dim)
        };
        self.heads.or_else(by_keys).filter(|heads| divides(*heads, row))
    }

    pub(crate) fn fits(&self, order: QueryOrder) -> bool {
        let is_stated = |stated: Option<u64>, value: u64| stated.is_none_or(|stated| stated == value);
        match (order, self.query) {
            (QueryOrder::Tnd, &[tokens, heads, dim]) => {
                is_width(heads, dim)
                    && is_stated(self.heads, heads)
                    && self.sequences.is_none_or(|sequences| sequences <= tokens)
                    && (self.lse.len() < 3 || self.lse == [tokens, heads, 1])
                    && self.packed_keys_fit(heads, dim)
            }
            (QueryOrder::Bsh, &[batch, length, row]) => {
                self.heads.is_none_or(|heads| divides(heads, row) && is_head(row / heads))
                    && is_stated(self.sequences, batch)
                    && (self.lse.len() < 3 || matches!(*self.lse, [b, _, s, _] if (b, s) == (batch, length)))
                    && self.keys_of_rows_fit(batch, row)
            }
            (QueryOrder::Bnsd, &[batch, heads, length, dim])
            | (QueryOrder::Bsnd, &[batch, length, heads, dim]) => {
                is_width(heads, dim)
                    && is_stated(self.heads, heads)
                    && is_stated(self.sequences, batch)
                    && (self.lse.len() < 3 || self.lse == [batch, heads, length, 1])
                    && self.padded_keys_fit(order, batch, heads, dim)
            }
            _ => false,
        }
    }

    /// Returns true if a sequence has at most this number of keys, as far as it is known.
    fn holds_keys(&self, most: u64) -> bool {
        self.kv_length.is_none_or(|length| length <= most as f64)
    }

    /// Returns true if keys can be in blocks. If nothing is recorded about it, there are not as many of them as tokens or sequences of
    /// the query.
    fn is_paged_or_unknown(&self) -> bool {
        self.is_paged.unwrap_or_else(|| self.key.first() != self.query.first())
    }

    fn is_whole_or_unknown(&self) -> bool {
        !self.is_paged.unwrap_or(false)
    }

    /// Returns true if keys can be blocks of complete rows, of which a row has this number of dimensions.
    fn are_blocks_of_rows(&self, is_row: impl Fn(u64) -> bool) -> bool {
        matches!(*self.key, [_, block, row] if is_block(block) && is_row(row)) && self.is_paged_or_unknown()
    }

    fn packed_keys_fit(&self, heads: u64, dim: u64) -> bool {
        let is_row = |row: u64| are_heads(row, dim, heads);
        match *self.key {
            [tokens, kv_heads, key_dim] => {
                let is_packed = self.is_whole_or_unknown()
                    && key_dim == dim
                    && divides(kv_heads, heads)
                    && self.holds_keys(tokens);
                is_packed || self.are_blocks_of_rows(is_row)
            }
            [_, _, _, key_dim] => key_dim == dim,
            _ => true,
        }
    }

    fn keys_of_rows_fit(&self, batch: u64, row: u64) -> bool {
        let is_row = |key_row: u64| {
            let dim = self.kv_heads.filter(|heads| divides(*heads, key_row)).map(|heads| key_row / heads);
            divides(key_row, row) && dim.is_none_or(is_head)
        };
        match *self.key {
            [sequences, length, key_row] => {
                let is_whole = self.is_whole_or_unknown() && sequences == batch && self.holds_keys(length);
                is_whole && is_row(key_row) || self.are_blocks_of_rows(is_row)
            }
            [_, kv_heads, block, dim] => {
                let is_multiple = is_head(dim) && row.is_multiple_of(dim) && divides(kv_heads, row / dim);
                is_multiple && is_block(block) && self.is_paged_or_unknown()
            }
            _ => true,
        }
    }

    fn padded_keys_fit(&self, order: QueryOrder, batch: u64, heads: u64, dim: u64) -> bool {
        let is_row = |row: u64| are_heads(row, dim, heads);
        match *self.key {
            [first, second, third, key_dim] => {
                let has_heads_first = order == QueryOrder::Bnsd && self.key_order == KeyOrder::Recorded;
                let (kv_heads, length) = if has_heads_first { (second, third) } else { (third, second) };
                let is_whole = self.is_whole_or_unknown()
                    && first == batch
                    && self.holds_keys(length)
                    && divides(kv_heads, heads);
                // Recorded blocks have their heads in front of the tokens, whatever the order of the query.
                let (kv_heads, block) = match self.key_order {
                    KeyOrder::Framework => (third, second),
                    KeyOrder::Recorded => (second, third),
                };
                let is_blocks = self.is_paged_or_unknown() && is_block(block) && divides(kv_heads, heads);
                key_dim == dim && (is_whole || is_blocks)
            }
            [_, _, _] => self.are_blocks_of_rows(is_row),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(query: &'a [u64], key: &'a [u64]) -> CallShapes<'a> {
        CallShapes {
            query,
            key,
            key_order: KeyOrder::Recorded,
            heads: None,
            kv_heads: None,
            kv_length: None,
            sequences: None,
            is_paged: None,
            has_query_lengths: false,
            lse: &[],
        }
    }

    /// Calls of serving, of the vendor's samples, and of this project's catalogue.
    #[test]
    fn the_order_is_that_which_fits_the_call() {
        use OrderProblem::{Ambiguous, Contradictory};
        use QueryOrder::{Bnsd, Bsh, Bsnd, Tnd};
        let with_length =
            |call: CallShapes<'static>, length: f64| CallShapes { kv_length: Some(length), ..call };
        for (call, expected) in [
            // Four heads of a prefill with one head of keys, and decode steps with caches in two forms.
            (with_length(call(&[24624, 4, 128], &[24624, 1, 128]), 3517.7), Ok(Tnd)),
            (call(&[64, 16, 128], &[2048, 2, 128, 128]), Ok(Tnd)),
            (call(&[64, 16, 128], &[2048, 128, 256]), Ok(Tnd)),
            // One head of keys: 64 sequences of 16 queries with one head have the same shapes.
            (call(&[64, 16, 128], &[2048, 128, 128]), Err(Ambiguous)),
            (CallShapes { has_query_lengths: true, ..call(&[64, 16, 128], &[2048, 128, 128]) }, Ok(Tnd)),
            (CallShapes { heads: Some(16), ..call(&[64, 16, 128], &[2048, 128, 128]) }, Ok(Tnd)),
            (CallShapes { heads: Some(1), ..call(&[64, 16, 128], &[2048, 128, 128]) }, Ok(Bsh)),
            (CallShapes { sequences: Some(16), ..call(&[64, 16, 128], &[2048, 128, 128]) }, Ok(Tnd)),
            (CallShapes { lse: &[64, 16, 1], ..call(&[64, 16, 128], &[2048, 128, 128]) }, Ok(Tnd)),
            (CallShapes { lse: &[64, 2, 16, 1], ..call(&[64, 16, 128], &[2048, 128, 128]) }, Ok(Bsh)),
            // Complete rows of heads.
            (call(&[1, 4096, 4096], &[1, 4096, 1024]), Ok(Bsh)),
            (call(&[8, 1, 512], &[8, 2048, 512]), Ok(Bsh)),
            (call(&[2, 300, 512], &[2, 300, 512]), Ok(Bsh)),
            (call(&[64, 16, 128], &[2048, 1, 128, 128]), Err(Ambiguous)),
            (call(&[8, 1, 5120], &[600, 128, 1024]), Ok(Bsh)),
            // Four sequences of 16 packed tokens, or 64 sequences of 16.
            (with_length(call(&[64, 16, 128], &[64, 16, 128]), 16.0), Err(Ambiguous)),
            (with_length(call(&[64, 16, 128], &[64, 16, 128]), 32.0), Ok(Tnd)),
            (call(&[64, 16, 128], &[64, 3, 100]), Err(Contradictory)),
            // Several queries for each sequence, with their heads before or behind them.
            (call(&[4, 16, 3, 512], &[1135, 2, 128, 512]), Ok(Bnsd)),
            (call(&[4, 16, 4, 512], &[1135, 1, 128, 512]), Err(Ambiguous)),
            (call(&[16, 8, 3, 128], &[16, 2, 2048, 128]), Ok(Bnsd)),
            (call(&[16, 3, 8, 128], &[16, 2048, 2, 128]), Ok(Bsnd)),
            (call(&[16, 4, 8, 128], &[512, 128, 128]), Err(Ambiguous)),
            (CallShapes { heads: Some(8), ..call(&[16, 4, 8, 128], &[512, 128, 128]) }, Ok(Bsnd)),
            (CallShapes { lse: &[16, 4, 8, 1], ..call(&[16, 4, 8, 128], &[512, 128, 128]) }, Ok(Bnsd)),
            (call(&[16, 3, 8, 128], &[16, 2048, 7, 128]), Err(Contradictory)),
        ] {
            assert_eq!(call.only_order(), expected, "{call:?}");
        }
    }

    #[test]
    fn rows_of_heads_need_the_number_of_heads() {
        let rows = call(&[2, 10, 1024], &[64, 128, 256]);
        assert_eq!(rows.sizes(QueryOrder::Bsh), None);
        let expected = QuerySizes { tokens: 20, heads: 8, head_dim: 128, batch: Some(2) };
        let by_keys = CallShapes { kv_heads: Some(2), ..rows };
        assert_eq!(by_keys.sizes(QueryOrder::Bsh), Some(expected));
        assert_eq!(CallShapes { heads: Some(8), ..rows }.sizes(QueryOrder::Bsh), Some(expected));
        assert_eq!(CallShapes { heads: Some(7), ..rows }.sizes(QueryOrder::Bsh), None);
        let by_blocks = CallShapes { key: &[64, 2, 128, 128], ..rows };
        assert_eq!(by_blocks.sizes(QueryOrder::Bsh), Some(expected));
    }
}
