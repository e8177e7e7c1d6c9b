//! Sequences of a batch: its phase, and the part of a rank under sequence parallelism.

use crate::{
    answer::lookup::{
        answer::MissReason,
        query::{AttentionParameters, BatchLengths, BatchPhase, OpQuery, QueryTensor},
        rules::LookupRules,
    },
    kernel::Dtype,
};

/// Returns true for tensors of indices, as block tables.
pub(super) fn is_index(tensor: &QueryTensor) -> bool {
    matches!(tensor.dtype, Some(Dtype::Int32 | Dtype::Int64))
}

/// Returns the phase of a batch: the stated one, else that of its lengths, else decode if each sequence has one query.
pub(super) fn phase_of(
    attention: &AttentionParameters,
    tokens: u64,
    batch: Option<u64>,
) -> Option<BatchPhase> {
    attention
        .phase
        .or_else(|| attention.batch_lengths(tokens).map(|lengths| lengths.phase()))
        .or_else(|| (batch == Some(tokens)).then_some(BatchPhase::Decode))
}

/// Returns the number of sequences: that of the lengths, the stated one, or the rows of a block table.
pub(super) fn batch_of(attention: &AttentionParameters, block_table: Option<&QueryTensor>) -> Option<u64> {
    let listed = Some(attention.kv_lengths.len() as u64).filter(|count| *count > 0);
    listed.or(attention.batch).or_else(|| block_table?.dims.first().copied())
}

/// Tokens of a rank, and their sequences.
#[derive(Clone, Debug)]
pub(super) struct RankTokens {
    pub(super) tokens: u64,
    pub(super) attention: AttentionParameters,
}

/// Returns the tokens that the first rank computes: under sequence parallelism its part of the tokens of a prefill.
pub(super) fn tokens_of_rank(
    query: &OpQuery,
    tokens: u64,
    phase: BatchPhase,
    rules: LookupRules,
) -> Result<RankTokens, MissReason> {
    let mut attention = query.attention.clone();
    let ranks = match (query.is_sequence_parallel && phase == BatchPhase::Prefill, query.tp_size) {
        (false, _) | (true, Some(1)) => {
            if rules == LookupRules::Superseded && attention.query_lengths.is_empty() {
                attention.query_lengths = split_evenly(tokens, attention.kv_lengths.len() as u64);
            }
            return Ok(RankTokens { tokens, attention });
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
    Ok(RankTokens { tokens: local, attention })
}

/// Returns the sequences of the first tokens of a batch. The keys behind the last token are those of other ranks.
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

/// Divides tokens among sequences, the first ones having one more.
fn split_evenly(tokens: u64, sequences: u64) -> Vec<u64> {
    if sequences == 0 || tokens < sequences {
        return Vec::new();
    }
    (0..sequences).map(|number| tokens / sequences + u64::from(number < tokens % sequences)).collect()
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
        assert_eq!(split_evenly(10, 4), [3, 3, 2, 2]);
        assert_eq!(split_evenly(3, 4), [0_u64; 0]);
    }
}
