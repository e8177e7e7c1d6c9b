//! The options of a shape-dependent expansion as they stand in the file.

use serde::Deserialize;

/// Options of a shape-dependent expansion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecomposerOptions {
    /// Rule for the pools of caches, whose size is not part of a query.
    pub kv_cache_query: Option<KvCacheQuery>,
    /// Condition under which the sub-kernels are visible.
    pub visible_kernel_regime: Option<VisibleKernelRegime>,
    /// Group that shares the tokens of projections.
    pub projection_token_partition: Option<TokenPartition>,
    /// True if the heads in the query are those of one rank.
    pub reconstruct_q_heads_by_tp: Option<bool>,
    /// Kernel that runs where the sub-kernels are not visible.
    pub opaque_kernel: Option<OpaqueKernel>,
    /// Layout of attention whose context is shared among ranks.
    pub dsa_cp_layout: Option<DsaCpLayout>,
    pub prefill_tail_transpose: Option<PrefillTailTranspose>,
}

/// Rule for the pools of caches.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvCacheQuery {
    pub mode: KvCacheMode,
    pub block_size: u64,
}

/// Rule for the pools of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvCacheMode {
    /// The number of blocks is ignored.
    PoolDim0Agnostic,
}

/// Condition under which the sub-kernels of an expansion are visible.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VisibleKernelRegime {
    pub requires_sequence_parallel: bool,
    pub otherwise: InvisibleKernelQuery,
}

/// Lookup of an expansion whose sub-kernels are not visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvisibleKernelQuery {
    OpaqueKernelQuery,
}

/// Group that shares tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPartition {
    /// The tensor-parallel ranks.
    Tp,
}

/// Kernel that contains the sub-kernels of an expansion.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpaqueKernel {
    pub kernel_type: String,
    pub query_mode: OpaqueQueryMode,
    pub block_size: u64,
    pub cache_mode: String,
    pub quant_mode: String,
    pub enable_inner_out: bool,
    pub weight_quantized: bool,
    pub weight_format: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpaqueQueryMode {
    /// By the attributes of the preparation of latent attention.
    MlapoPreprocess,
}

/// Layout of attention whose context is shared among ranks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DsaCpLayout {
    /// True if the heads in the query are those of all ranks.
    pub attention_heads_already_global: bool,
    /// Group that shares the width of the tail.
    pub tail_width_partition: Option<TokenPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefillTailTranspose {
    pub requires_sequence_parallel: bool,
    pub kernel_type: String,
}
