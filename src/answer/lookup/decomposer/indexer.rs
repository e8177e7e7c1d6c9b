//! Selection of keys: projections, norm, the cache of keys, and the scores.

use super::{batch_of, is_index, phase_of, tokens_of_rank};
use crate::{
    answer::{
        lookup::{
            AttentionFamily, AttentionRegime, AttentionWork, LookupRules, MissReason, OpQuery, QueryTensor,
            SubKernel, SubKernelQuery, compared_tensors,
        },
        op_mapping::{MappedKernel, MappedOperator},
    },
    kernel::{Dtype, KernelName},
};

/// Kernel of the scores where the mapping names none.
const SCORES: &str = "LightningIndexer";

#[derive(Clone, Debug)]
struct IndexerInputs {
    tokens: u64,
    hidden: u64,
    dtype: Dtype,
    query_rank: u64,
    heads: u64,
    head_dim: u64,
    cache: Vec<u64>,
    batch: Option<u64>,
    query_dtype: Dtype,
}

impl IndexerInputs {
    /// Reads the tensors of the operator in their order: hidden states, latent queries, cosine, sine, cache of keys,
    /// slots, block table, lengths, projections of queries, keys and weights, norm of keys.
    fn read(query: &OpQuery) -> Option<Self> {
        let tensors: Vec<&QueryTensor> = compared_tensors(&query.inputs).collect();
        let [states, latent, rest @ ..] = tensors.as_slice() else { return None };
        let ([outer @ .., hidden], [latent_outer @ .., query_rank]) = (&*states.dims, &*latent.dims) else {
            return None;
        };
        let is_ranked = |outer: &[u64]| matches!(outer.len(), 1 | 2);
        let tokens = outer.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim))?;
        let is_matrix = |tensor: &&&QueryTensor| tensor.dims.len() == 2 && !is_index(tensor);
        let matrices: Vec<&&QueryTensor> = rest.iter().filter(is_matrix).collect();
        let [.., query_b, key, weights] = matrices.as_slice() else { return None };
        let (heads, head_dim) = (weights.dims[0], key.dims[0]);
        let fits = is_ranked(outer)
            && is_ranked(latent_outer)
            && key.dims[1] == *hidden
            && weights.dims[1] == *hidden
            && query_b.dims[1] == *query_rank
            && heads.checked_mul(head_dim) == Some(query_b.dims[0])
            && rest.last().is_some_and(|norm| *norm.dims == [head_dim]);
        let is_cache =
            |tensor: &&&QueryTensor| tensor.dims.len() >= 3 && tensor.dims.last() == Some(&head_dim);
        let cache = rest.iter().rfind(is_cache)?;
        let table = rest.iter().find(|tensor| is_index(tensor) && tensor.dims.len() == 2).copied();
        let dtype = states.dtype.clone()?;
        fits.then(|| Self {
            tokens,
            hidden: *hidden,
            query_rank: *query_rank,
            heads,
            head_dim,
            cache: cache.dims.clone(),
            batch: batch_of(&query.attention, table),
            query_dtype: query_b.dtype.clone().unwrap_or_else(|| dtype.clone()),
            dtype,
        })
    }
}

pub(super) fn decompose(
    query: &OpQuery,
    operator: &MappedOperator,
    rules: &dyn LookupRules,
) -> Result<Vec<SubKernel>, MissReason> {
    let inputs = IndexerInputs::read(query).ok_or(MissReason::DecomposeFailed)?;
    let phase = phase_of(&query.attention, inputs.tokens, inputs.batch, None)?;
    let (tokens, attention) = tokens_of_rank(query, inputs.tokens, phase, rules)?;
    let outputs = query.outputs.first().and_then(|indices| indices.dims.last().copied());
    let topk = query.attention.topk.or(outputs).ok_or(MissReason::ContextMissing("topk"))?;
    let &IndexerInputs { hidden, query_rank, heads, head_dim, .. } = &inputs;
    let (own, float) = (&inputs.dtype, &Dtype::Float);
    let product = |width: u64, rows: u64| {
        SubKernel::of_inputs(&["MatMulV2"], &[(&[tokens, width], own), (&[rows, width], own)])
    };
    let cast = || SubKernel::of_inputs(&["Cast"], &[(&[tokens, head_dim], own)]);
    let norm = SubKernel::of_inputs(
        &["LayerNormV3"],
        &[(&[tokens, head_dim], float), (&[head_dim], float), (&[head_dim], float)],
    );
    let mut kernels = vec![product(hidden, head_dim), norm, cast(), cast(), product(hidden, heads)];
    if inputs.query_dtype == Dtype::Int8 {
        let int8 = &Dtype::Int8;
        kernels.push(SubKernel::of_inputs(
            &["AscendQuantV2", "AscendQuantV2Aicore"],
            &[(&[tokens, query_rank], own)],
        ));
        kernels.push(SubKernel::of_inputs(
            &["QuantBatchMatmulV3"],
            &[(&[tokens, query_rank], int8), (&[heads * head_dim, query_rank], int8)],
        ));
    } else {
        kernels.push(product(query_rank, heads * head_dim));
    }
    // Each rank writes the keys of all tokens.
    let all = inputs.tokens;
    kernels.push(SubKernel::of_cache(
        &["ScatterNdUpdate", "ScatterNdUpdateAiCore"],
        &[(&[0, head_dim], Some(own)), (&[all, 1], Some(&Dtype::Int32)), (&[all, head_dim], Some(own))],
    ));
    let regime = AttentionRegime {
        dtype: Some(inputs.dtype.clone()),
        kv_heads: Some(1),
        sparse_mode: Some("3".to_owned()),
        layout: Some("TND".to_owned()),
        topk: Some(topk),
        block_size: inputs.cache.iter().rev().nth(1).copied(),
        ..AttentionRegime::default()
    };
    let (dims, family) = ([tokens, heads, head_dim], AttentionFamily::Indexer);
    let work = AttentionWork::of_parameters(dims, inputs.batch, regime, &attention, family)?;
    let mut scores = SubKernel::new(&[], SubKernelQuery::Attention(Box::new(work)));
    scores.kernels.extend(
        operator
            .primary_kernel_type
            .clone()
            .or_else(|| KernelName::new(SCORES).ok().map(MappedKernel::unmapped)),
    );
    scores.kernels.extend(operator.kernels.iter().cloned());
    kernels.push(scores);
    Ok(kernels)
}
