//! Composites whose kernels follow from the shapes: latent attention, its preparation, and the selection of keys.

use super::{
    AttentionFamily, AttentionParameters, AttentionRegime, AttentionWork, BatchLengths, BatchPhase,
    CacheQuery, KernelsQuery, LookupAnswer, LookupEngine, LookupResult, LookupRules, MissReason, OpQuery,
    PartAnswer, QuerySource, QueryTensor, compared_tensors, input_slots, sum_of_sub_kernels,
};
use crate::{
    answer::op_mapping::{
        DecomposedOperator, DecomposerOptions, MappedKernel, MappedOperator, OpaqueKernel, TokenPartition,
    },
    base::command_error::CommandError,
    kernel::{AttentionCase, Dtype, KernelName, TensorFormat},
};

/// Returns the kernels of a query in the order of their runs; the error is the reason of a miss.
pub(crate) fn decompose(
    query: &OpQuery,
    expansion: DecomposedOperator,
    operator: &MappedOperator,
    rules: &dyn LookupRules,
) -> Result<Vec<SubKernel>, MissReason> {
    let none = DecomposerOptions::default();
    let options = operator.decomposer_options.as_ref().unwrap_or(&none);
    match expansion {
        DecomposedOperator::LatentAttention | DecomposedOperator::QuantizedLatentAttention => {
            decompose_dense(query, expansion, rules)
        }
        DecomposedOperator::SparseLatentAttention | DecomposedOperator::QuantizedSparseLatentAttention => {
            decompose_sparse(query, expansion, options, rules)
        }
        DecomposedOperator::LatentPreprocess | DecomposedOperator::QuantizedLatentPreprocess => {
            decompose_preprocess(query, expansion, options)
        }
        DecomposedOperator::KeyIndexer => decompose_indexer(query, operator, rules),
    }
}

#[derive(Clone, Debug)]
pub(crate) enum SubKernelQuery {
    Inputs(Vec<QueryTensor>),
    Attention(Box<AttentionWork>),
    Cache(CacheQuery),
}

#[derive(Clone, Debug)]
pub(crate) struct SubKernel {
    /// Kernels of which one runs, in the order of preference.
    pub(crate) kernels: Vec<MappedKernel>,
    pub(crate) query: SubKernelQuery,
}

impl SubKernel {
    pub(crate) fn new(names: &[&str], query: SubKernelQuery) -> Self {
        let kernels = names.iter().filter_map(|name| KernelName::new(name).ok());
        Self { kernels: kernels.map(MappedKernel::unmapped).collect(), query }
    }

    fn of_attention(
        name: &str,
        dims: [u64; 3],
        batch: Option<u64>,
        regime: AttentionRegime,
        (parameters, family): (&AttentionParameters, AttentionFamily),
    ) -> Result<Self, MissReason> {
        let work = AttentionWork::of_parameters(dims, batch, regime, parameters, family)?;
        Ok(Self::new(&[name], SubKernelQuery::Attention(Box::new(work))))
    }

    pub(crate) fn of_inputs(names: &[&str], inputs: &[(&[u64], &Dtype)]) -> Self {
        Self::new(names, SubKernelQuery::Inputs(tensors(inputs)))
    }

    /// Creates a kernel that writes caches. Types that are `None` are not compared.
    pub(crate) fn of_cache(names: &[&str], inputs: &[(&[u64], Option<&Dtype>)]) -> Self {
        let inputs = tensors(inputs);
        Self::new(names, SubKernelQuery::Cache(CacheQuery { inputs, attributes: Vec::new() }))
    }
}

fn tensors<'d, T: Into<Option<&'d Dtype>> + Copy>(inputs: &[(&[u64], T)]) -> Vec<QueryTensor> {
    let tensor = |(dims, dtype): &(&[u64], T)| {
        let dtype: Option<&Dtype> = (*dtype).into();
        QueryTensor { dims: dims.to_vec(), dtype: dtype.cloned(), format: None }
    };
    inputs.iter().map(tensor).collect()
}

/// Returns the phase of a batch: the stated one, else that of its lengths, else decode if each sequence has one query, else the one
/// that the weights determine. The error is the reason of a miss: it is unknown, or mixed.
pub(super) fn phase_of(
    attention: &AttentionParameters,
    tokens: u64,
    batch: Option<u64>,
    by_weights: Option<BatchPhase>,
) -> Result<BatchPhase, MissReason> {
    let phase = attention
        .phase
        .or_else(|| attention.batch_lengths(tokens).map(|lengths| lengths.phase()))
        .or_else(|| (batch == Some(tokens)).then_some(BatchPhase::Decode))
        .or(by_weights);
    match phase.ok_or(MissReason::ContextMissing("phase"))? {
        BatchPhase::Mixed => Err(MissReason::DecomposeFailed),
        phase => Ok(phase),
    }
}

/// Returns the number of sequences: the number of lengths, the stated number, or the rows of a block table.
pub(super) fn batch_of(attention: &AttentionParameters, block_table: Option<&QueryTensor>) -> Option<u64> {
    let listed = Some(attention.kv_lengths.len() as u64).filter(|count| *count > 0);
    listed.or(attention.batch).or_else(|| block_table?.dims.first().copied())
}

/// Returns the tokens that the first rank computes: under sequence parallelism its part of the tokens of a prefill, with the lengths
/// of their sequences.
pub(super) fn tokens_of_rank(
    query: &OpQuery,
    tokens: u64,
    phase: BatchPhase,
    rules: &dyn LookupRules,
) -> Result<(u64, AttentionParameters), MissReason> {
    let mut attention = query.attention.clone();
    let ranks = match (query.is_sequence_parallel && phase == BatchPhase::Prefill, query.tp_size) {
        (false, _) | (true, Some(1)) => {
            attention.query_lengths = rules.query_lengths(&attention, tokens);
            return Ok((tokens, attention));
        }
        (true, Some(ranks)) if ranks > 1 => ranks,
        (true, _) => return Err(MissReason::ContextMissing("tp_size")),
    };
    let lengths = attention.batch_lengths(tokens);
    let lengths = lengths.ok_or(MissReason::ContextMissing("actual_seq_lengths_values"))?;
    let BatchLengths { queries, keys } = first_part(&lengths, tokens.div_ceil(ranks));
    (attention.query_lengths, attention.kv_lengths) = (queries, keys);
    Ok((attention.query_lengths.iter().sum(), attention))
}

/// Returns the sequences of the first tokens of a batch. The keys behind the last token belong to other ranks.
fn first_part(lengths: &BatchLengths, tokens: u64) -> BatchLengths {
    let mut left = tokens;
    let parts = lengths.queries.iter().zip(&lengths.keys).map(|(queries, keys)| {
        let own = (*queries).min(left);
        left -= own;
        (own, if own == 0 { 0 } else { keys.saturating_sub(queries - own) })
    });
    let (queries, keys) = parts.unzip();
    BatchLengths { queries, keys }
}

impl LookupEngine {
    pub(super) fn lookup_decomposed(
        &self,
        operator: &MappedOperator,
        expansion: Option<DecomposedOperator>,
        query: &OpQuery,
    ) -> LookupResult {
        let unknown = MissReason::UnsupportedQueryMode("decomposer");
        let kernels = expansion.ok_or(unknown);
        match kernels.and_then(|expansion| decompose(query, expansion, operator, &*self.rules)) {
            Ok(kernels) => {
                let parts = kernels.iter().map(|kernel| self.lookup_sub_kernel(kernel));
                let parts = parts.collect::<Result<_, _>>()?;
                Ok(sum_of_sub_kernels(parts, operator.require_all_sub_kernels))
            }
            Err(reason) => Ok(LookupAnswer::missed(reason)),
        }
    }

    fn lookup_sub_kernel(&self, kernel: &SubKernel) -> Result<PartAnswer, CommandError> {
        let candidates = self.candidates(&kernel.kernels)?;
        let answer = match &kernel.query {
            SubKernelQuery::Inputs(inputs) => {
                // Weights of quantized products are in blocks.
                let first = kernel.kernels.first().map(|kernel| kernel.name.as_str());
                let formats = match first {
                    Some(QUANTIZED_PRODUCT) => ["ND", "FRACTAL_NZ"].map(str::to_owned).to_vec(),
                    _ => Vec::new(),
                };
                let query = KernelsQuery {
                    slots: input_slots(inputs),
                    formats: &formats,
                    is_prefix: true,
                    source: QuerySource::Part,
                    ..KernelsQuery::default()
                };
                self.match_kernels(&candidates, &query)
            }
            SubKernelQuery::Attention(work) => {
                self.best_answer(&candidates, |index| self.find_work(index, work))?
            }
            SubKernelQuery::Cache(query) => {
                self.best_answer(&candidates, |index| Ok(index.find_cache_write(query)))?
            }
        };
        let ran = answer.rows.first().map(|row| row.kernel.as_str());
        let first = kernel.kernels.first().map_or("", |kernel| kernel.name.as_str());
        Ok(PartAnswer { name: ran.unwrap_or(first).to_owned(), answer })
    }
}

const QUANTIZE: [&str; 2] = ["AscendQuantV2", "AscendQuantV2Aicore"];
const CACHE_KERNEL: &str = "KvRmsNormRopeCache";
/// Columns of a block of weights in FRACTAL_NZ of one-byte types.
const BLOCK: u64 = 32;
const MAX_TOKENS: u64 = 1024;

struct PreprocessInputs {
    tokens: u64,
    hidden: u64,
    dtype: Dtype,
    query_rank: u64,
    query_rows: u64,
    /// Latent width of keys, with positions.
    key_width: u64,
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
fn decompose_preprocess(
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
        if is_quantized { (&[QUANTIZED_PRODUCT], &Dtype::Int8) } else { (&["MatMulV2"], &inputs.dtype) };
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

/// Kernels of the product that absorbs the projection of keys into the query.
const ABSORB: [&str; 2] = ["BatchMatMulV2", "BatchMatMulNd"];
const QUANTIZED_PRODUCT: &str = "QuantBatchMatmulV3";
const SPARSE_ATTENTION: &str = "SparseFlashAttention";

/// Weights that are absorbed into query and output: `heads, nope, latent` and `heads, latent, v`.
struct AbsorbedWeights {
    nope: u64,
    latent: u64,
    value: u64,
    dtype: Dtype,
}

/// Projection of keys and values: `latent, heads · (nope + v)`, with the dimension of a head without the part with positions.
#[derive(Clone, Copy)]
struct LatentProjection {
    latent: u64,
    columns: u64,
    nope: u64,
}

struct LatentInputs {
    tokens: u64,
    heads: u64,
    dtype: Dtype,
    block_size: u64,
    batch: Option<u64>,
    absorbed: Option<AbsorbedWeights>,
    projection: Option<LatentProjection>,
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
        let mut tables = rest.iter().filter(|tensor| tensor.is_index() && tensor.dims.len() >= 2);
        let block_table = tables.next().copied();
        let indices = tables.next().and_then(|tensor| tensor.dims.last().copied());
        let mut absorbed = None;
        for pair in rest.windows(2) {
            if let (&[first, nope, latent], &[second, inner, value]) = (&*pair[0].dims, &*pair[1].dims)
                && absorbed.is_none()
                && (first, second) == (heads, heads)
                && inner == latent
                && latent < cached
                && !pair[0].is_index()
            {
                let dtype = pair[0].dtype.clone().unwrap_or_else(|| dtype.clone());
                absorbed = Some(AbsorbedWeights { nope, latent, value, dtype });
            }
        }
        let projected = |tensor: &&QueryTensor| match *tensor.dims {
            [latent, columns] if !tensor.is_index() && latent < cached && heads > 0 => {
                let nope = (width + latent).checked_sub(cached).filter(|nope| *nope > 0)?;
                let fits = columns.is_multiple_of(heads)
                    && columns / heads > nope
                    && absorbed.as_ref().is_none_or(|weights| weights.latent == latent);
                fits.then_some(LatentProjection { latent, columns, nope })
            }
            _ => None,
        };
        let projection = rest.iter().rev().find_map(projected);
        Some(Self {
            tokens,
            heads,
            dtype,
            block_size,
            batch: batch_of(&query.attention, block_table),
            absorbed,
            projection,
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

    fn absorbed_products(
        &self,
        weights: &AbsorbedWeights,
        operator: DecomposedOperator,
        [heads, tokens]: [u64; 2],
    ) -> [SubKernel; 2] {
        let &AbsorbedWeights { nope, latent, value, .. } = weights;
        let is_int8 = weights.dtype == Dtype::Int8;
        let left = if operator.is_quantized() && is_int8 { &weights.dtype } else { &self.dtype };
        let names: &[&str] = if operator.is_quantized() { &[QUANTIZED_PRODUCT] } else { &ABSORB };
        let inputs: [(&[u64], &Dtype); 2] = [(&[heads, tokens, nope], left), (&[heads, nope, latent], left)];
        let absorb = SubKernel::of_inputs(names, &inputs);
        let output = SubKernel::of_inputs(
            &["TransposeBatchMatMul"],
            &[(&[heads, tokens, latent], &self.dtype), (&[heads, latent, value], &self.dtype)],
        );
        [absorb, output]
    }

    fn projection_product(&self, LatentProjection { latent, columns, .. }: LatentProjection) -> SubKernel {
        SubKernel::of_inputs(
            &["MatMulV2"],
            &[(&[self.tokens, latent], &self.dtype), (&[latent, columns], &self.dtype)],
        )
    }
}

/// Returns the kernels of latent attention over all keys: in decode within the space of the cache, in prefill with
/// projected keys and values.
fn decompose_dense(
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
        let parameters = (&query.attention, AttentionFamily::Fused);
        SubKernel::of_attention(AttentionCase::KERNEL, dims, inputs.batch, regime, parameters)
    };
    if inputs.phase(&query.attention)? == BatchPhase::Prefill {
        let projection = inputs.projection.ok_or(MissReason::DecomposeFailed)?;
        let dims = [inputs.tokens, inputs.heads, projection.nope];
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
fn decompose_sparse(
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
        let regime = AttentionRegime::of_selection(&inputs.dtype, topk, Some(inputs.block_size));
        let (dims, parameters) = ([tokens, heads, latent], (&attention, AttentionFamily::Sparse));
        SubKernel::of_attention(SPARSE_ATTENTION, dims, inputs.batch, regime, parameters)
    };
    let Some(weights) = &inputs.absorbed else {
        let (BatchPhase::Prefill, Some(projection)) = (phase, inputs.projection) else {
            return Err(MissReason::DecomposeFailed);
        };
        return Ok(vec![inputs.projection_product(projection), sparse_attention(projection.latent)?]);
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

/// Kernel of the scores where the mapping names none.
const SCORES: &str = "LightningIndexer";

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
        let is_matrix = |tensor: &&&QueryTensor| tensor.dims.len() == 2 && !tensor.is_index();
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
        let table = rest.iter().find(|tensor| tensor.is_index() && tensor.dims.len() == 2).copied();
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

fn decompose_indexer(
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
    let product = |name: &str, dtype: &Dtype, width: u64, rows: u64| {
        SubKernel::of_inputs(&[name], &[(&[tokens, width], dtype), (&[rows, width], dtype)])
    };
    let plain_product = |width: u64, rows: u64| product("MatMulV2", own, width, rows);
    let cast = || SubKernel::of_inputs(&["Cast"], &[(&[tokens, head_dim], own)]);
    let norm = SubKernel::of_inputs(
        &["LayerNormV3"],
        &[(&[tokens, head_dim], float), (&[head_dim], float), (&[head_dim], float)],
    );
    let mut kernels =
        vec![plain_product(hidden, head_dim), norm, cast(), cast(), plain_product(hidden, heads)];
    if inputs.query_dtype == Dtype::Int8 {
        kernels.push(SubKernel::of_inputs(&QUANTIZE, &[(&[tokens, query_rank], own)]));
        kernels.push(product(QUANTIZED_PRODUCT, &Dtype::Int8, query_rank, heads * head_dim));
    } else {
        kernels.push(plain_product(query_rank, heads * head_dim));
    }
    // Each rank writes the keys of all tokens.
    let all = inputs.tokens;
    kernels.push(SubKernel::of_cache(
        &["ScatterNdUpdate", "ScatterNdUpdateAiCore"],
        &[(&[0, head_dim], Some(own)), (&[all, 1], Some(&Dtype::Int32)), (&[all, head_dim], Some(own))],
    ));
    let regime =
        AttentionRegime::of_selection(&inputs.dtype, topk, inputs.cache.iter().rev().nth(1).copied());
    let (dims, parameters) = ([tokens, heads, head_dim], (&attention, AttentionFamily::Indexer));
    let mut scores = SubKernel::of_attention(SCORES, dims, inputs.batch, regime, parameters)?;
    if let Some(primary) = &operator.primary_kernel_type {
        scores.kernels = vec![primary.clone()];
    }
    scores.kernels.extend(operator.kernels.iter().cloned());
    kernels.push(scores);
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of 16 ranks has 256 tokens of a chunk of 4096; a later chunk keeps the context in front of it.
    #[test]
    fn the_first_rank_has_the_first_tokens_and_the_keys_up_to_them() {
        let lengths =
            |queries: &[u64], keys: &[u64]| BatchLengths { queries: queries.to_vec(), keys: keys.to_vec() };
        assert_eq!(first_part(&lengths(&[4096], &[4096]), 256), lengths(&[256], &[256]));
        assert_eq!(first_part(&lengths(&[4096], &[12288]), 256), lengths(&[256], &[8448]));
        assert_eq!(
            first_part(&lengths(&[100, 300, 112], &[100, 500, 112]), 256),
            lengths(&[100, 156, 0], &[100, 356, 0])
        );
    }
}
