//! Composites whose kernels follow from the shapes: latent attention, its preparation, and the selection of keys.

mod indexer;
mod latent_attention;
mod latent_preprocess;

use super::{
    AttentionParameters, AttentionWork, BatchLengths, BatchPhase, CacheQuery, KernelsQuery, LookupAnswer,
    LookupEngine, LookupError, LookupRules, MissReason, OpQuery, PartAnswer, QuerySource, QueryTensor,
    input_slots, sum_of_sub_kernels,
};
use crate::{
    answer::op_mapping::{DecomposedOperator, DecomposerOptions, MappedKernel, MappedOperator},
    kernel::{Dtype, KernelName},
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
            latent_attention::decompose_dense(query, expansion, rules)
        }
        DecomposedOperator::SparseLatentAttention | DecomposedOperator::QuantizedSparseLatentAttention => {
            latent_attention::decompose_sparse(query, expansion, options, rules)
        }
        DecomposedOperator::LatentPreprocess | DecomposedOperator::QuantizedLatentPreprocess => {
            latent_preprocess::decompose(query, expansion, options)
        }
        DecomposedOperator::KeyIndexer => indexer::decompose(query, operator, rules),
    }
}

#[derive(Clone, Debug)]
pub(crate) enum SubKernelQuery {
    Inputs(Vec<QueryTensor>),
    Attention(Box<AttentionWork>),
    /// The kernel is looked up by its leading inputs, for any capacity of its caches.
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

pub(super) fn is_index(tensor: &QueryTensor) -> bool {
    matches!(tensor.dtype, Some(Dtype::Int32 | Dtype::Int64))
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
    let part = first_part(&lengths, tokens.div_ceil(ranks));
    let local = part.queries.iter().sum();
    attention.query_lengths = part.queries;
    attention.kv_lengths = part.keys;
    Ok((local, attention))
}

/// Returns the sequences of the first tokens of a batch. The keys behind the last token belong to other ranks.
fn first_part(lengths: &BatchLengths, tokens: u64) -> BatchLengths {
    let mut left = tokens;
    let mut part = BatchLengths { queries: Vec::new(), keys: Vec::new() };
    for (queries, keys) in lengths.queries.iter().zip(&lengths.keys) {
        let own = (*queries).min(left);
        left -= own;
        part.queries.push(own);
        part.keys.push(if own == 0 { 0 } else { keys.saturating_sub(queries - own) });
    }
    part
}

impl LookupEngine {
    pub(super) fn lookup_decomposed(
        &self,
        operator: &MappedOperator,
        expansion: Option<DecomposedOperator>,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
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

    fn lookup_sub_kernel(&self, kernel: &SubKernel) -> Result<PartAnswer, LookupError> {
        let candidates = self.candidates(&kernel.kernels)?;
        let answer = match &kernel.query {
            SubKernelQuery::Inputs(inputs) => {
                let query = KernelsQuery {
                    slots: input_slots(inputs),
                    formats: &expected_formats(kernel),
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

/// Returns the formats of rows that precede others: weights of quantized products are in blocks.
fn expected_formats(kernel: &SubKernel) -> Vec<String> {
    let is_quantized =
        kernel.kernels.first().is_some_and(|kernel| kernel.name.as_str() == "QuantBatchMatmulV3");
    if is_quantized { vec!["ND".to_owned(), "FRACTAL_NZ".to_owned()] } else { Vec::new() }
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
