//! Latent attention, also over selected keys.

use super::{batch_of, is_index, phase_of, tokens_of_rank};
use crate::{
    answer::{
        lookup::{
            AttentionFamily, AttentionParameters, AttentionRegime, AttentionWork, BatchPhase, LookupRules,
            MissReason, OpQuery, QueryTensor, SubKernel, SubKernelQuery, compared_tensors,
        },
        op_mapping::{DecomposedOperator, DecomposerOptions, TokenPartition},
    },
    kernel::{AttentionCase, Dtype},
};

/// Kernels of the product that absorbs the projection of keys into the query.
const ABSORB: [&str; 2] = ["BatchMatMulV2", "BatchMatMulNd"];
const QUANTIZED_PRODUCT: &str = "QuantBatchMatmulV3";
const SPARSE_ATTENTION: &str = "SparseFlashAttention";

/// Weights that are absorbed into query and output: `heads, nope, latent` and `heads, latent, v`.
#[derive(Clone, Debug)]
struct AbsorbedWeights {
    nope: u64,
    latent: u64,
    value: u64,
    dtype: Dtype,
}

#[derive(Clone, Debug)]
struct LatentInputs {
    tokens: u64,
    heads: u64,
    /// Dimension of a head without the part with positions; known from the projection of keys.
    nope: Option<u64>,
    dtype: Dtype,
    block_size: u64,
    batch: Option<u64>,
    absorbed: Option<AbsorbedWeights>,
    /// Projection of keys and values: `latent, heads · (nope + v)`.
    projection: Option<(u64, u64)>,
    topk: Option<u64>,
}

impl LatentInputs {
    /// Reads the tensors of the operator in their order: query, cache, block table, lengths, absorbed weights,
    /// projection, selected keys. Those that are not passed are left out.
    fn read(query: &OpQuery) -> Option<Self> {
        let tensors: Vec<&QueryTensor> = compared_tensors(&query.inputs).collect();
        let [states, cache, rest @ ..] = tensors.as_slice() else { return None };
        let (&[tokens, heads, width], &[_, block_size, cached]) = (&*states.dims, &*cache.dims) else {
            return None;
        };
        let dtype = states.dtype.clone()?;
        let mut tables = rest.iter().filter(|tensor| is_index(tensor) && tensor.dims.len() >= 2);
        let block_table = tables.next().copied();
        let indices = tables.next().and_then(|tensor| tensor.dims.last().copied());
        let mut absorbed = None;
        for pair in rest.windows(2) {
            if let (&[first, nope, latent], &[second, inner, value]) = (&*pair[0].dims, &*pair[1].dims)
                && absorbed.is_none()
                && (first, second) == (heads, heads)
                && inner == latent
                && latent < cached
                && !is_index(pair[0])
            {
                let dtype = pair[0].dtype.clone().unwrap_or_else(|| dtype.clone());
                absorbed = Some(AbsorbedWeights { nope, latent, value, dtype });
            }
        }
        let projected = |tensor: &&QueryTensor| match *tensor.dims {
            [latent, columns] if !is_index(tensor) && latent < cached && heads > 0 => {
                let nope = (width + latent).checked_sub(cached).filter(|nope| *nope > 0)?;
                let fits = columns.is_multiple_of(heads)
                    && columns / heads > nope
                    && absorbed.as_ref().is_none_or(|weights| weights.latent == latent);
                fits.then_some((latent, columns, nope))
            }
            _ => None,
        };
        let projection = rest.iter().rev().find_map(projected);
        Some(Self {
            tokens,
            heads,
            nope: projection.map(|(_, _, nope)| nope),
            dtype,
            block_size,
            batch: batch_of(&query.attention, block_table),
            absorbed,
            projection: projection.map(|(latent, columns, _)| (latent, columns)),
            topk: query.attention.topk.or(indices),
        })
    }

    /// Returns the phase; where lengths do not determine it, weights of one phase only do.
    fn phase(&self, attention: &AttentionParameters) -> Result<BatchPhase, MissReason> {
        let by_weights = match (&self.absorbed, self.projection) {
            (Some(_), None) => Some(BatchPhase::Decode),
            (None, Some(_)) => Some(BatchPhase::Prefill),
            _ => None,
        };
        phase_of(attention, self.tokens, self.batch, by_weights)
    }

    /// Returns the products around attention in the space of the cache.
    fn absorbed_products(
        &self,
        weights: &AbsorbedWeights,
        operator: DecomposedOperator,
        [heads, tokens]: [u64; 2],
    ) -> [SubKernel; 2] {
        let &AbsorbedWeights { nope, latent, value, .. } = weights;
        let is_int8 = weights.dtype == Dtype::Int8;
        let left = if operator.is_quantized() && is_int8 { &weights.dtype } else { &self.dtype };
        let inputs: [(&[u64], &Dtype); 2] = [(&[heads, tokens, nope], left), (&[heads, nope, latent], left)];
        let absorb = match operator.is_quantized() {
            true => SubKernel::of_inputs(&[QUANTIZED_PRODUCT], &inputs),
            false => SubKernel::of_inputs(&ABSORB, &inputs),
        };
        let output = SubKernel::of_inputs(
            &["TransposeBatchMatMul"],
            &[(&[heads, tokens, latent], &self.dtype), (&[heads, latent, value], &self.dtype)],
        );
        [absorb, output]
    }

    fn projection_product(&self, (latent, columns): (u64, u64)) -> SubKernel {
        SubKernel::of_inputs(
            &["MatMulV2"],
            &[(&[self.tokens, latent], &self.dtype), (&[latent, columns], &self.dtype)],
        )
    }
}

/// Returns the kernels of latent attention over all keys: in decode within the space of the cache, in prefill with
/// projected keys and values.
pub(super) fn decompose_dense(
    query: &OpQuery,
    operator: DecomposedOperator,
    rules: &dyn LookupRules,
) -> Result<Vec<SubKernel>, MissReason> {
    let inputs = LatentInputs::read(query).ok_or(MissReason::DecomposeFailed)?;
    let regime = |kv_heads: u64, sparse_mode: &str| AttentionRegime {
        dtype: Some(inputs.dtype.clone()),
        kv_heads: Some(kv_heads),
        sparse_mode: Some(sparse_mode.to_owned()),
        ..AttentionRegime::default()
    };
    let attention = |dims: [u64; 3], regime: AttentionRegime| {
        let (parameters, family) = (&query.attention, AttentionFamily::Fused);
        let work = AttentionWork::of_parameters(dims, inputs.batch, regime, parameters, family)?;
        Ok(SubKernel::new(&[AttentionCase::KERNEL], SubKernelQuery::Attention(Box::new(work))))
    };
    if inputs.phase(&query.attention)? == BatchPhase::Prefill {
        let (Some(projection), Some(nope)) = (inputs.projection, inputs.nope) else {
            return Err(MissReason::DecomposeFailed);
        };
        let dims = [inputs.tokens, inputs.heads, nope];
        return Ok(vec![inputs.projection_product(projection), attention(dims, regime(inputs.heads, "3"))?]);
    }
    let weights = inputs.absorbed.as_ref().ok_or(MissReason::DecomposeFailed)?;
    let sequences = rules.latent_tokens(inputs.tokens, inputs.batch).ok_or(MissReason::DecomposeFailed)?;
    let [absorb, output] = inputs.absorbed_products(weights, operator, [inputs.heads, inputs.tokens]);
    let kernel = attention([sequences, inputs.heads, weights.latent], regime(1, "0"))?;
    Ok(vec![absorb, kernel, output])
}

/// Returns the kernels of latent attention over selected keys. Under sequence parallelism a rank computes its part of
/// the tokens of a prefill, for the heads of all ranks.
pub(super) fn decompose_sparse(
    query: &OpQuery,
    operator: DecomposedOperator,
    options: &DecomposerOptions,
    rules: &dyn LookupRules,
) -> Result<Vec<SubKernel>, MissReason> {
    let inputs = LatentInputs::read(query).ok_or(MissReason::DecomposeFailed)?;
    let phase = inputs.phase(&query.attention)?;
    let (tokens, attention) = tokens_of_rank(query, inputs.tokens, phase, rules)?;
    let has_all_heads =
        options.dsa_cp_layout.as_ref().is_some_and(|layout| layout.attention_heads_already_global);
    let tp = query.tp_size.unwrap_or(1);
    let is_divided = tokens != inputs.tokens;
    let heads = if is_divided && !has_all_heads { inputs.heads.saturating_mul(tp) } else { inputs.heads };
    let topk = inputs.topk.ok_or(MissReason::ContextMissing("topk"))?;
    let sparse_attention = |latent: u64| {
        let regime = AttentionRegime {
            dtype: Some(inputs.dtype.clone()),
            kv_heads: Some(1),
            sparse_mode: Some("3".to_owned()),
            layout: Some("TND".to_owned()),
            topk: Some(topk),
            block_size: Some(inputs.block_size),
            ..AttentionRegime::default()
        };
        let (dims, family) = ([tokens, heads, latent], AttentionFamily::Sparse);
        let work = AttentionWork::of_parameters(dims, inputs.batch, regime, &attention, family)?;
        Ok(SubKernel::new(&[SPARSE_ATTENTION], SubKernelQuery::Attention(Box::new(work))))
    };
    let Some(weights) = &inputs.absorbed else {
        let (BatchPhase::Prefill, Some(projection)) = (phase, inputs.projection) else {
            return Err(MissReason::DecomposeFailed);
        };
        return Ok(vec![inputs.projection_product(projection), sparse_attention(projection.0)?]);
    };
    let [absorb, output] = inputs.absorbed_products(weights, operator, [heads, tokens]);
    let mut kernels = vec![absorb, sparse_attention(weights.latent)?, output];
    if let Some(tail) = &options.prefill_tail_transpose
        && phase == BatchPhase::Prefill
        && (query.is_sequence_parallel || !tail.requires_sequence_parallel)
    {
        let ranks = query.tp_size.filter(|ranks| *ranks > 1).ok_or(MissReason::ContextMissing("tp_size"))?;
        let mut width = inputs.heads.saturating_mul(weights.value);
        let is_shared = options
            .dsa_cp_layout
            .as_ref()
            .is_some_and(|layout| layout.tail_width_partition == Some(TokenPartition::Tp));
        if has_all_heads && is_shared {
            if !width.is_multiple_of(ranks) {
                return Err(MissReason::DecomposeFailed);
            }
            width /= ranks;
        }
        kernels.push(SubKernel::of_inputs(
            &[&tail.kernel_type],
            &[(&[tokens, ranks, width], &inputs.dtype), (&[3], &Dtype::Int64)],
        ));
    }
    Ok(kernels)
}
