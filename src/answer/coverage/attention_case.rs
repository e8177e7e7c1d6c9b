//! Cases of attention as vLLM for Ascend calls it: for complete prompts, whose keys are packed, and for decode steps,
//! whose keys are in blocks.

use super::case_problem::CaseProblem;
use crate::{
    answer::lookup::{
        AttentionFamily, AttentionWork, BatchLengths, BatchPhase, KeyOrder, MissReason, OpQuery,
    },
    kernel::{
        AttentionCase, Case, CaseAttributes, Dims, Dtype, KernelName, Slot, Tensor,
        attention_attribute as name,
    },
};

/// Length of the causal mask.
const MASK: u64 = 2048;
const MOST_SEQUENCES: u64 = 65_536;
/// Keys in a block of a cache that a query does not state.
const CACHE_BLOCK: u64 = 128;
/// Number of slots up to the block table, of which the slots before it are empty.
const SLOTS_BEFORE_TABLE: usize = 14;

pub(super) fn attention_case(query: &OpQuery, kernel: &KernelName) -> Result<Case, CaseProblem> {
    let unknown = |reason: &str| CaseProblem::Unknown { kernel: kernel.clone(), reason: reason.to_owned() };
    if AttentionFamily::of_kernel(kernel) != Some(AttentionFamily::Fused) {
        return Err(unknown("cases of sparse attention are derived from profiles and steps of models only"));
    }
    let order = if query.op == kernel.as_str() { KeyOrder::Recorded } else { KeyOrder::Framework };
    let work =
        AttentionWork::of_query(query, AttentionFamily::Fused, order).map_err(|reason| match reason {
            MissReason::ContextMissing(name) => {
                CaseProblem::Parameter(MissReason::query_key(name).to_owned())
            }
            reason => unknown(&reason.to_string()),
        })?;
    let regime = &work.regime;
    if regime.sparse_mode.as_deref() != Some("3") {
        return Err(unknown("cases are derived for mask mode 3 only"));
    }
    if regime.layout.as_deref().is_some_and(|layout| layout != "TND") {
        return Err(unknown("cases are derived for layout TND only"));
    }
    if regime.rope_dim.is_some_and(|dim| dim > 0) {
        return Err(unknown("cases with rotary parts are derived from profiles and steps of models only"));
    }
    let kv_heads = regime.kv_heads.ok_or_else(|| CaseProblem::Parameter("kv_heads".to_owned()))?;
    let lengths = work.lengths.clone().or_else(|| equal_lengths(&work, query)).ok_or_else(|| {
        unknown("the lengths of its sequences do not follow from their mean: `kv_lengths` and `query_lengths` state them")
    })?;
    if lengths.queries.iter().chain(&lengths.keys).any(|length| *length == 0) {
        return Err(unknown("a sequence has no queries or no keys"));
    }
    let phase = lengths.phase();
    let block = regime.block_size.unwrap_or(CACHE_BLOCK);
    if block == 0 && phase == BatchPhase::Decode {
        return Err(unknown(
            "the keys of a decode step are in blocks: `block_size` is 0, give a number above it",
        ));
    }
    let call = CallShape { tokens: work.tokens, heads: work.heads, kv_heads, dim: work.head_dim, block };
    let case = match phase {
        BatchPhase::Prefill => call.packed(&regime.dtype, &lengths),
        BatchPhase::Decode => call.paged(&regime.dtype, &lengths),
        BatchPhase::Mixed => {
            return Err(unknown(
                "cases are derived for complete prompts and for decode steps, not for mixed batches",
            ));
        }
    };
    case.ok_or_else(|| unknown("its lengths are too large"))
}

/// Returns equal sequences of the mean length: the queries of a decode step, or complete prompts. The number of
/// sequences is stated, or that of the rows of the block table.
fn equal_lengths(work: &AttentionWork, query: &OpQuery) -> Option<BatchLengths> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
    let length = (work.kv_length.fract() == 0.0 && (1.0..1e12).contains(&work.kv_length))
        .then_some(work.kv_length as u64)?;
    let table = query.inputs.iter().skip(3).find_map(|input| match (&input.dtype, input.dims.as_slice()) {
        (Some(Dtype::Int32 | Dtype::Int64), &[sequences, _]) => Some(sequences),
        _ => None,
    });
    let batch = work.batch.or(table).filter(|batch| (1..=work.tokens.min(MOST_SEQUENCES)).contains(batch))?;
    let queries = match work.tokens {
        tokens if tokens == batch => 1,
        tokens if batch.checked_mul(length) == Some(tokens) => length,
        _ => return None,
    };
    let count = usize::try_from(batch).ok()?;
    Some(BatchLengths { queries: vec![queries; count], keys: vec![length; count] })
}

struct CallShape {
    tokens: u64,
    heads: u64,
    kv_heads: u64,
    dim: u64,
    block: u64,
}

impl CallShape {
    /// Returns the call for complete prompts, whose keys and values are the tokens themselves.
    fn packed(&self, dtype: &Dtype, lengths: &BatchLengths) -> Option<Case> {
        let mut case = self.case(dtype, &[self.tokens, self.kv_heads, self.dim], lengths)?;
        case.attributes.set(name::KV_LENGTHS, &Dims(&ends(&lengths.keys)?).to_string());
        case.attributes.set(name::BLOCK_SIZE, "0");
        Some(case)
    }

    /// Returns the call for a decode step, whose keys and values are in blocks.
    fn paged(&self, dtype: &Dtype, lengths: &BatchLengths) -> Option<Case> {
        let blocks: Vec<u64> = lengths.keys.iter().map(|length| length.div_ceil(self.block)).collect();
        let widest = *blocks.iter().max()?;
        let batch = lengths.keys.len() as u64;
        let pool = batch.checked_mul(widest)?;
        let mut case = self.case(dtype, &[pool, self.kv_heads, self.block, self.dim], lengths)?;
        case.inputs.resize(SLOTS_BEFORE_TABLE, None);
        case.inputs.push(Some(Tensor::new([batch, widest], Dtype::Int32)));
        case.attributes.set(name::KV_LENGTHS, &Dims(&lengths.keys).to_string());
        case.attributes.set(name::BLOCK_SIZE, &self.block.to_string());
        case.attributes.set(name::VALID_BLOCKS, &Dims(&blocks).to_string());
        Some(case)
    }

    fn case(&self, dtype: &Dtype, keys: &[u64], lengths: &BatchLengths) -> Option<Case> {
        let batch = lengths.keys.len() as u64;
        let tensor = |dims: &[u64], dtype: &Dtype| -> Slot { Some(Tensor::new(dims, dtype.clone())) };
        let queries = [self.tokens, self.heads, self.dim];
        let inputs = vec![
            tensor(&queries, dtype),
            tensor(keys, dtype),
            tensor(keys, dtype),
            None,
            tensor(&[MASK, MASK], &Dtype::Int8),
            tensor(&[batch], &Dtype::Int64),
            tensor(&[batch], &Dtype::Int64),
        ];
        let mut attributes = CaseAttributes::default();
        attributes.set(name::LAYOUT, "TND");
        attributes.set(name::SPARSE_MODE, "3");
        attributes.set(name::HEADS, &self.heads.to_string());
        attributes.set(name::KV_HEADS, &self.kv_heads.to_string());
        attributes.set(name::QUERY_LENGTHS, &Dims(&ends(&lengths.queries)?).to_string());
        let sum = lengths.keys.iter().try_fold(0_u64, |sum, length| sum.checked_add(*length))?;
        #[expect(clippy::cast_precision_loss, reason = "a mean of lengths")]
        let mean = sum as f64 / batch as f64;
        attributes.set(name::AVG_SEQ_LEN, &mean.to_string());
        let kernel = KernelName::new(AttentionCase::KERNEL).ok()?;
        Some(Case { kernel, inputs, outputs: vec![tensor(&queries, dtype)], attributes })
    }
}

/// Returns the ends of packed sequences; `None` if they are too large.
fn ends(lengths: &[u64]) -> Option<Vec<u64>> {
    let mut end = 0_u64;
    let sums = lengths.iter().map(|length| {
        end = end.checked_add(*length)?;
        Some(end)
    });
    sums.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::lookup::{AttentionParameters, QueryTensor};

    /// A decode step needs blocks: a size of 0 is no mixed batch.
    #[test]
    fn a_decode_step_without_blocks_names_the_size() {
        let kernel = KernelName::new(AttentionCase::KERNEL).expect("a name");
        let tensor =
            |dims: &[u64]| QueryTensor { dims: dims.to_vec(), dtype: Some(Dtype::Bf16), format: None };
        let case = |block_size: u64| {
            let attention = AttentionParameters {
                kv_length: Some(256.0),
                batch: Some(4),
                block_size: Some(block_size),
                layout: Some("TND".to_owned()),
                ..AttentionParameters::default()
            };
            let inputs = vec![tensor(&[4, 8, 128]), tensor(&[8, 1, 128, 128]), tensor(&[8, 1, 128, 128])];
            attention_case(
                &OpQuery { op: kernel.to_string(), inputs, attention, ..OpQuery::default() },
                &kernel,
            )
        };
        assert!(case(128).is_ok());
        let Err(CaseProblem::Unknown { reason, .. }) = case(0) else { panic!("no case") };
        assert!(reason.contains("`block_size` is 0"), "{reason}");
    }
}
