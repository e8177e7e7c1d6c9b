//! Differences between the shapes of a framework and those that the profiler records, kernel by kernel.

use std::fmt;

use super::SlotDims;
use crate::kernel::{Dtype, KernelName};

/// Rule that leads from a query to rows. The names are the same as in the superseded tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum RuleKind {
    /// Equal shapes; a blocked matrix counts as the matrix that it stores.
    Identity,
    /// The row fits after dimensions of length 1 in front are removed.
    BatchStrip,
    Transpose,
    /// The matrices of a product of batches, stored transposed.
    BatchedTranspose,
    /// An index `(1, T)` that is recorded as `(T, 1)`.
    SingletonAxisTranspose,
    /// The first two of three dimensions are recorded as one.
    #[strum(to_string = "flatten_3d")]
    FlattenThreeDims,
    /// The last two of three dimensions are recorded as one.
    MergeLastDims,
    #[strum(to_string = "elementwise")]
    ElementwiseOutput,
    /// The same output with another element type, in proportion to the bytes.
    #[strum(to_string = "elementwise+dtype_scale")]
    ElementwiseBytes,
    Attention,
    /// A kernel that writes a cache, whatever the capacity of the cache.
    #[strum(to_string = "cache_pool_dim0_agnostic")]
    CacheUpdate,
    #[strum(to_string = "comm")]
    Message,
    /// A collective, between messages of neighbouring sizes.
    #[strum(to_string = "comm_bracket_linear")]
    MessageBracket,
    /// The same, where the algorithm changes between the sizes.
    #[strum(to_string = "comm_bracket_across_change")]
    MessageAcrossChange,
    /// A collective, by start-up time and bandwidth fitted to all sizes.
    #[strum(to_string = "comm_alpha_beta")]
    MessageFit,
    SumOfParts,
    ZeroCost,
    AcceptedMiss,
    #[strum(to_string = "interpolated_1d_linear")]
    InterpolatedOneDim,
    #[strum(to_string = "interpolated_2d_griddata_linear")]
    InterpolatedTwoDims,
    #[strum(to_string = "interpolated_3d_griddata_linear")]
    InterpolatedThreeDims,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Padding {
    #[default]
    None,
    /// The query has complete tiles, the row fewer tokens.
    Query,
    /// The row has complete tiles, the query fewer tokens.
    Row,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchRule {
    pub kind: RuleKind,
    pub padding: Padding,
    /// True if an element type FLOAT stands for DT_BF16 or the other way round.
    pub has_relaxed_dtype: bool,
    /// Names of the axes that vary between rows of an interpolation, such as `M, K`; empty for other rules.
    pub axes: &'static str,
    /// True if the length of sequences is interpolated by its square root.
    pub is_sqrt: bool,
}

impl MatchRule {
    /// Returns the names of the axes of an interpolation; none for other rules.
    pub fn axis_names(self) -> impl Iterator<Item = &'static str> {
        let names = match self.kind {
            RuleKind::MessageBracket | RuleKind::MessageAcrossChange | RuleKind::MessageFit => {
                "message_bytes"
            }
            _ => self.axes,
        };
        names.split(", ").filter(|name| !name.is_empty())
    }

    pub(crate) const fn of_kind(kind: RuleKind) -> Self {
        Self { kind, padding: Padding::None, has_relaxed_dtype: false, axes: "", is_sqrt: false }
    }
}

/// Name of the rule as the superseded tool has it, with `+` between what it combines.
impl fmt::Display for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind;
        match (self.padding, self.kind) {
            (Padding::None, _) => write!(f, "{name}")?,
            (Padding::Query, RuleKind::Identity) => f.write_str("padding")?,
            (Padding::Query, _) => write!(f, "{name}+padding")?,
            (Padding::Row, RuleKind::Identity) => f.write_str("row_padding")?,
            (Padding::Row, _) => write!(f, "{name}+row_padding")?,
        }
        if self.is_sqrt {
            f.write_str("_sqrt")?;
        }
        if self.has_relaxed_dtype {
            f.write_str("+relaxed_dtype")?;
        }
        if self.axes.is_empty() { Ok(()) } else { write!(f, " over {}", self.axes) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelTraits {
    pub(crate) is_product: bool,
    /// Each matrix of a product has rows of its own.
    pub(crate) is_grouped: bool,
    /// Query and key are recorded in the other order, heads behind the sequence.
    pub(crate) is_rope: bool,
    pub(crate) is_swiglu: bool,
    /// One cache of keys and values is recorded as two.
    pub(crate) writes_cache: bool,
    pub(crate) flattens_batch: bool,
    pub(crate) merges_last_dims: bool,
    pub(crate) relaxes_dtype: bool,
    pub(crate) swaps_singleton_axis: bool,
}

impl KernelTraits {
    pub(crate) fn of_kernel(kernel: &KernelName) -> Self {
        let name = KernelName::without_variant(kernel.as_str()).unwrap_or(kernel.as_str());
        let name = name.strip_suffix("AiCore").or_else(|| name.strip_suffix("Aicore")).unwrap_or(name);
        let is_rope = matches!(name, "ApplyRotaryPosEmb" | "_triton_rope" | "split_qkv_rmsnorm_rope_kernel");
        Self {
            is_product: matches!(
                name,
                "MatMulV2"
                    | "MatMulV3"
                    | "MatMulV3Common"
                    | "MatMulCommon"
                    | "MatMul"
                    | "QuantBatchMatmulV3"
                    | "BatchMatMulV2"
                    | "BatchMatMulV3"
                    | "BatchMatMulNd"
                    | "TransposeBatchMatMul"
                    | "GroupedMatmul"
                    | "GroupedMatmulSwigluQuant"
            ),
            is_grouped: name.starts_with("GroupedMatmul"),
            is_rope,
            is_swiglu: name == "SwiGlu",
            writes_cache: matches!(
                kernel.as_str(),
                "ReshapeAndCacheNdKernel" | "reshape_and_cache" | "reshape_and_cache_200000000"
            ),
            flattens_batch: matches!(
                name,
                "AscendQuantV2"
                    | "DynamicQuant"
                    | "RmsNorm"
                    | "AddRmsNormBias"
                    | "AddRmsNorm"
                    | "DispatchFFNCombine"
            ),
            merges_last_dims: matches!(name, "AscendQuantV2" | "DynamicQuant"),
            relaxes_dtype: is_rope || matches!(name, "MatMulV2" | "PadV3" | "MoeGatingTopK"),
            swaps_singleton_axis: name == "Index",
        }
    }

    /// Returns the dimensions of an input in the form that equal ones share, so that they can be found by hash:
    /// [`Self::match_slot`] decides.
    pub(crate) fn canonical_slot(self, slot: usize, dims: &SlotDims) -> SlotDims {
        let mut dims = dims.without_leading_ones(1);
        if self.swaps_singleton_axis
            && let &[length, 1] = dims.as_slice()
        {
            dims = SlotDims::new(&[length]);
        }
        self.sort_weight(slot, &mut dims);
        dims
    }

    pub(crate) fn sort_weight(self, slot: usize, dims: &mut SlotDims) {
        if self.is_product
            && slot >= 1
            && let [.., one, other] = dims.as_mut_slice()
            && *one > *other
        {
            std::mem::swap(one, other);
        }
    }

    pub(crate) fn match_slot(self, slot: usize, query: &SlotDims, row: &SlotDims) -> Option<RuleKind> {
        if query == row {
            return Some(RuleKind::Identity);
        }
        let (query, row) = (query.without_leading_ones(1), row.without_leading_ones(1));
        if query == row {
            return Some(RuleKind::BatchStrip);
        }
        match (query.as_slice(), row.as_slice()) {
            (&[length], &[other, 1]) | (&[other, 1], &[length])
                if self.swaps_singleton_axis && length == other =>
            {
                Some(RuleKind::SingletonAxisTranspose)
            }
            (&[k, n], &[row_n, row_k]) if self.is_weight(slot) && (k, n) == (row_k, row_n) => {
                Some(RuleKind::Transpose)
            }
            ([batch @ .., k, n], [row_batch @ .., row_n, row_k])
                if self.is_weight(slot)
                    && !batch.is_empty()
                    && batch == row_batch
                    && (k, n) == (row_k, row_n) =>
            {
                Some(RuleKind::BatchedTranspose)
            }
            _ => None,
        }
    }

    const fn is_weight(self, slot: usize) -> bool {
        self.is_product && slot >= 1
    }

    /// Returns true if a row's element type fits a query's, and true if only by the relaxed rule.
    pub(crate) fn match_dtype(self, query: &Dtype, row: &Dtype) -> (bool, bool) {
        let is_float = |dtype: &Dtype| matches!(dtype, Dtype::Float | Dtype::Bf16);
        if query == row {
            (true, false)
        } else {
            let is_relaxed = self.relaxes_dtype && is_float(query) && is_float(row);
            (is_relaxed, is_relaxed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(kernel: &str) -> KernelTraits {
        KernelTraits::of_kernel(&KernelName::new(kernel).expect("a name"))
    }

    #[test]
    fn inputs_fit_by_the_rules_of_their_kernel() {
        for (kernel, slot, query, row, rule) in [
            ("MatMulV2", 0, &[136, 5120][..], &[136, 5120][..], Some(RuleKind::Identity)),
            ("MatMulV2", 0, &[1, 136, 5120], &[136, 5120], Some(RuleKind::BatchStrip)),
            ("Add", 0, &[136, 5120], &[1, 136, 5120], Some(RuleKind::BatchStrip)),
            ("MatMulV2", 1, &[5120, 768], &[768, 5120], Some(RuleKind::Transpose)),
            ("MatMulV2", 0, &[5120, 768], &[768, 5120], None),
            ("Add", 1, &[5120, 768], &[768, 5120], None),
            ("GroupedMatmul", 1, &[8, 512, 256], &[8, 256, 512], Some(RuleKind::BatchedTranspose)),
            ("GroupedMatmul", 1, &[8, 512, 256], &[4, 256, 512], None),
            ("Index", 1, &[1, 77], &[77, 1], Some(RuleKind::SingletonAxisTranspose)),
            ("IndexAiCore", 1, &[1, 77], &[77, 1], Some(RuleKind::SingletonAxisTranspose)),
            ("GatherV2", 1, &[1, 77], &[77, 1], None),
        ] {
            let (query, row) = (SlotDims::new(query), SlotDims::new(row));
            let traits = traits(kernel);
            assert_eq!(traits.match_slot(slot, &query, &row), rule, "{kernel} {query:?}");
            if rule.is_some() {
                assert_eq!(
                    traits.canonical_slot(slot, &query),
                    traits.canonical_slot(slot, &row),
                    "{kernel}"
                );
            }
        }
    }

    #[test]
    fn only_some_kernels_take_float_for_bf16() {
        for (kernel, query, row, expected) in [
            ("MatMulV2", Dtype::Bf16, Dtype::Float, (true, true)),
            ("PadV3AiCore", Dtype::Float, Dtype::Bf16, (true, true)),
            ("_triton_rope_1", Dtype::Bf16, Dtype::Float, (true, true)),
            ("MatMulV3", Dtype::Bf16, Dtype::Float, (false, false)),
            ("MatMulV2", Dtype::Float16, Dtype::Bf16, (false, false)),
            ("MatMulV2", Dtype::Bf16, Dtype::Bf16, (true, false)),
        ] {
            assert_eq!(traits(kernel).match_dtype(&query, &row), expected, "{kernel}");
        }
    }
}
