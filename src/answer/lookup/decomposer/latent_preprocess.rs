//! Preparation of latent attention: projections, norms, positions, and the cache.

use crate::{
    answer::{
        lookup::{MissReason, OpQuery, QueryTensor, SubKernel, SubKernelQuery, compared_tensors},
        op_mapping::{DecomposedOperator, DecomposerOptions, OpaqueKernel, TokenPartition},
    },
    kernel::{Dtype, TensorFormat},
};

const QUANTIZE: [&str; 2] = ["AscendQuantV2", "AscendQuantV2Aicore"];
const CACHE_KERNEL: &str = "KvRmsNormRopeCache";
/// Columns of a block of weights in FRACTAL_NZ of one-byte types.
const BLOCK: u64 = 32;
const MAX_TOKENS: u64 = 1024;

#[derive(Clone, Debug)]
struct PreprocessInputs {
    tokens: u64,
    hidden: u64,
    dtype: Dtype,
    query_rank: u64,
    /// Rows of the second projection of queries.
    query_rows: u64,
    /// Latent width of keys, with positions.
    key_width: u64,
    /// Latent width of keys.
    key_rank: u64,
    /// Heads and their dimension, from the first output.
    heads: Option<(u64, u64)>,
    has_int8_weights: bool,
}

impl PreprocessInputs {
    /// Reads the tensors of the operator in their order: hidden states, cosine, sine, first projection of queries and
    /// its norm, second projection of queries, projection of keys and its norm.
    fn read(query: &OpQuery) -> Option<Self> {
        let tensors: Vec<&QueryTensor> = compared_tensors(&query.inputs).collect();
        let [states, rest @ ..] = tensors.as_slice() else { return None };
        let &[tokens, hidden] = &*states.dims else { return None };
        let mut rest = rest.iter();
        let mut matrix = |columns: u64| {
            rest.by_ref().find(|tensor| matches!(*tensor.dims, [_, last] if last == columns)).copied()
        };
        let query_a = matrix(hidden)?;
        let query_rank = query_a.dims[0];
        let query_b = matrix(query_rank)?;
        let key_a = matrix(hidden)?;
        let key_width = key_a.dims[0];
        let norm = rest.find(|tensor| tensor.dims.len() == 1)?;
        let key_rank = norm.dims[0];
        let heads = query.outputs.first().and_then(|states| match *states.dims {
            [_, heads, dim] => Some((heads, dim)),
            _ => None,
        });
        let weights = [query_a, query_b, key_a];
        (key_rank < key_width && key_rank > 0).then_some(Self {
            tokens,
            hidden,
            dtype: states.dtype.clone()?,
            query_rank,
            query_rows: query_b.dims[0],
            key_width,
            key_rank,
            heads,
            has_int8_weights: weights.iter().all(|weight| weight.dtype == Some(Dtype::Int8)),
        })
    }

    /// Returns the write of normed and rotated keys to their caches. The number of blocks is not compared.
    fn cache_write(&self, tokens: u64, block_size: u64) -> SubKernel {
        let (rope, dtype) = (self.key_width - self.key_rank, Some(&self.dtype));
        SubKernel::of_cache(
            &[CACHE_KERNEL],
            &[
                (&[tokens, 1, 1, self.key_width], dtype),
                (&[self.key_rank], dtype),
                (&[tokens, 1, 1, rope], dtype),
                (&[tokens, 1, 1, rope], dtype),
                (&[tokens], Some(&Dtype::Int64)),
                (&[0, block_size, 1, rope], dtype),
                (&[0, block_size, 1, self.key_rank], dtype),
            ],
        )
    }
}

/// Returns the kernels of the preparation. Where the mapping states that they are visible under sequence parallelism
/// only, the opaque kernel runs otherwise.
pub(super) fn decompose(
    query: &OpQuery,
    operator: DecomposedOperator,
    options: &DecomposerOptions,
) -> Result<Vec<SubKernel>, MissReason> {
    let inputs = PreprocessInputs::read(query).ok_or(MissReason::DecomposeFailed)?;
    let needs_parallel =
        options.visible_kernel_regime.as_ref().is_some_and(|regime| regime.requires_sequence_parallel);
    if needs_parallel && !query.is_sequence_parallel {
        let opaque = options.opaque_kernel.as_ref().filter(|_| operator.is_quantized());
        return Ok(vec![opaque_kernel(&inputs, opaque.ok_or(MissReason::DecomposeFailed)?)?]);
    }
    let mut tokens = inputs.tokens;
    if query.is_sequence_parallel && options.projection_token_partition == Some(TokenPartition::Tp) {
        let ranks = query.tp_size.filter(|ranks| *ranks > 1).ok_or(MissReason::ContextMissing("tp_size"))?;
        if !tokens.is_multiple_of(ranks) {
            return Err(MissReason::DecomposeFailed);
        }
        tokens /= ranks;
    }
    let is_quantized = operator.is_quantized();
    // The weight in the query may be the part of a rank; heads and their dimension are those that run.
    let query_rows = match inputs.heads.filter(|_| is_quantized) {
        Some((heads, dim))
            if options.reconstruct_q_heads_by_tp == Some(true) && query.is_sequence_parallel =>
        {
            heads.saturating_mul(dim).saturating_mul(query.tp_size.unwrap_or(1))
        }
        Some((heads, dim)) => heads.saturating_mul(dim),
        None => inputs.query_rows,
    };
    let (names, weights): (&[&str], &Dtype) =
        if is_quantized { (&["QuantBatchMatmulV3"], &Dtype::Int8) } else { (&["MatMulV2"], &inputs.dtype) };
    let product = |width: u64, rows: u64| {
        SubKernel::of_inputs(names, &[(&[tokens, width], weights), (&[rows, width], weights)])
    };
    let dtype = &inputs.dtype;
    let quantize = |width: u64| {
        let kernel = SubKernel::of_inputs(
            &QUANTIZE,
            &[(&[tokens, width], dtype), (&[width], dtype), (&[width], dtype)],
        );
        is_quantized.then_some(kernel)
    };
    let rank = inputs.query_rank;
    let norm = SubKernel::of_inputs(&["RmsNorm"], &[(&[tokens, rank], dtype), (&[rank], dtype)]);
    let cache = match &options.kv_cache_query {
        Some(cache) => inputs.cache_write(tokens, cache.block_size),
        None => SubKernel::of_inputs(&[CACHE_KERNEL], &[(&[tokens, 1, 1, inputs.key_width], dtype)]),
    };
    let first = product(inputs.hidden, rank.saturating_add(inputs.key_width));
    let kernels = [
        quantize(inputs.hidden),
        Some(first),
        Some(norm),
        quantize(rank),
        Some(product(rank, query_rows)),
        Some(cache),
    ];
    Ok(kernels.into_iter().flatten().collect())
}

/// Returns the kernel that does all at once, with its 22 inputs.
fn opaque_kernel(inputs: &PreprocessInputs, opaque: &OpaqueKernel) -> Result<SubKernel, MissReason> {
    let (heads, head_dim) = inputs.heads.ok_or(MissReason::ContextMissing("outputs"))?;
    let rope = inputs.key_width - inputs.key_rank;
    let nope = head_dim.checked_sub(rope).filter(|nope| *nope > 0).ok_or(MissReason::DecomposeFailed)?;
    let (tokens, hidden, rank) = (inputs.tokens, inputs.hidden, inputs.query_rank);
    let is_aligned = hidden.is_multiple_of(BLOCK) && rank.is_multiple_of(BLOCK);
    let is_known = inputs.dtype == Dtype::Bf16 && inputs.has_int8_weights && opaque.weight_quantized;
    if !is_aligned || !is_known || !(1..=MAX_TOKENS).contains(&tokens) {
        return Err(MissReason::DecomposeFailed);
    }
    let fused = rank.saturating_add(inputs.key_width);
    let (columns, block) = (heads.saturating_mul(head_dim), opaque.block_size);
    let (own, int8) = (Some(&inputs.dtype), Some(&Dtype::Int8));
    // Types of biases and scales are not compared.
    let any = None;
    let shapes: [(&[u64], Option<&Dtype>); 22] = [
        (&[tokens, hidden], own),
        (&[1, hidden / BLOCK, fused, BLOCK], int8),
        (&[fused], any),
        (&[rank], any),
        (&[rank], any),
        (&[1, rank / BLOCK, columns, BLOCK], int8),
        (&[columns], any),
        (&[inputs.key_rank], any),
        (&[tokens, rope], any),
        (&[tokens, rope], any),
        (&[heads, nope, inputs.key_rank], any),
        (&[0, block, 1, inputs.key_rank], any),
        (&[0, block, 1, rope], any),
        (&[tokens], any),
        (&[1], any),
        (&[1], any),
        (&[fused], any),
        (&[1], any),
        (&[1], any),
        (&[columns], any),
        (&[1], any),
        (&[1], any),
    ];
    let mut kernel = SubKernel::of_cache(&[&opaque.kernel_type], &shapes);
    if let SubKernelQuery::Cache(query) = &mut kernel.query {
        for weight in [1, 5] {
            query.inputs[weight].format = TensorFormat::parse(&opaque.weight_format);
        }
        query.attributes = vec![
            ("Runtime cache_mode", opaque.cache_mode.clone()),
            ("Runtime quant_mode", opaque.quant_mode.clone()),
            ("Runtime enable_inner_out", opaque.enable_inner_out.to_string()),
            ("Runtime weight_quantized", opaque.weight_quantized.to_string()),
        ];
    }
    Ok(kernel)
}
