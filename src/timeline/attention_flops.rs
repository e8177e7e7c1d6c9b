//! Operations of attention with its mask and lengths, which shapes do not show: scripts record them as marks of mstx in the
//! domain `flash_attn_args`, one before each call (`npubench modules --snippet` prints the lines).
//!
//! A product of query and key, and one of the scores with the value, have two operations for each element of a query's
//! row, each of an output's row, and each key that the mask leaves. Masks are those of `npu_fusion_attention`'s
//! `sparse_mode`.

use std::collections::HashMap;

use serde::Deserialize;

use super::{
    modules::OperatorCall,
    run::{OperatorId, RunTimeline},
};
use crate::domain::{Case, Slot};

/// Domain of mstx with the arguments of attention.
const ATTENTION_DOMAIN: &str = "flash_attn_args";
/// Longest time from a mark to its operator, in nanoseconds, as in the vendor's tool.
const LONGEST_DISTANCE: i64 = 3_000_000;
/// Kernels with such marks.
const ATTENTION_KERNELS: [&str; 3] =
    ["FlashAttentionScore", "PromptFlashAttention", "FusedInferAttentionScore"];

/// Returns true for a kernel whose operations follow from marks.
pub(super) fn is_attention(kernel: &str) -> bool {
    ATTENTION_KERNELS.contains(&kernel)
}

/// Recorded arguments of one call.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct AttentionArguments {
    /// Order of the dimensions: `BSH`, `SBH`, `BSND`, `BNSD` or `TND`.
    #[serde(default)]
    input_layout: String,
    #[serde(default)]
    sparse_mode: u8,
    /// True for calls of `scaled_dot_product_attention` with a causal mask.
    #[serde(default)]
    is_causal: bool,
    /// Lengths of the sequences of `TND`, each with those before it.
    #[serde(default)]
    actual_seq_qlen: Vec<u64>,
    #[serde(default)]
    actual_seq_kvlen: Vec<u64>,
    /// Number of keys before and behind the diagonal of a band.
    #[serde(default)]
    pre_tockens: Option<i64>,
    #[serde(default)]
    next_tockens: Option<i64>,
}

impl AttentionArguments {
    /// Returns the operations of a call; `None` if its shapes contradict the arguments, or for a mask that they do not
    /// describe.
    pub(super) fn operations(&self, case: &Case) -> Option<f64> {
        let dims = |slot: &Slot| slot.as_ref().map(|tensor| tensor.dims.clone());
        let query = dims(case.inputs.first()?)?;
        let key = dims(case.inputs.get(1)?)?;
        // FlashAttentionScore returns maxima and sums of its softmax before the result.
        let mut outputs = case.outputs.iter().rev().filter_map(dims);
        let output = outputs.find(|output| output.len() == query.len())?;
        let (rows, sequences) = match (&*self.input_layout, &*query, &*key) {
            ("BSH", &[batch, queries, _], &[key_batch, keys, _])
            | ("SBH", &[queries, batch, _], &[keys, key_batch, _])
            | ("BSND", &[batch, queries, _, _], &[key_batch, keys, _, _])
            | ("BNSD", &[batch, _, queries, _], &[key_batch, _, keys, _])
                if batch == key_batch =>
            {
                (batch.checked_mul(queries)?, vec![(queries, keys); usize::try_from(batch).ok()?])
            }
            ("TND", &[queries, ..], &[keys, ..])
                if self.actual_seq_qlen.last() == Some(&queries)
                    && self.actual_seq_kvlen.last() == Some(&keys)
                    && self.actual_seq_qlen.len() == self.actual_seq_kvlen.len() =>
            {
                let queries_of = lengths(&self.actual_seq_qlen)?;
                (queries, queries_of.into_iter().zip(lengths(&self.actual_seq_kvlen)?).collect())
            }
            _ => return None,
        };
        let width = elements(&query)?.checked_add(elements(&output)?)?.checked_div(rows)?;
        let mut pairs = 0.0;
        for (queries, keys) in sequences {
            pairs += self.pairs(queries, keys)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "widths have fewer than 53 bits")]
        let width = width as f64;
        Some(2.0 * width * pairs)
    }

    /// Returns the number of pairs of a query and a key that the mask leaves; `None` for an unknown mask.
    #[expect(clippy::cast_precision_loss, reason = "lengths have fewer than 53 bits")]
    fn pairs(&self, queries: u64, keys: u64) -> Option<f64> {
        let (rows, columns) = (queries as f64, keys as f64);
        let triangle = |length: f64| length * (length + 1.0) / 2.0;
        match (self.sparse_mode, self.is_causal) {
            (0 | 1, false) => Some(rows * columns),
            // Query i has the keys up to i.
            (0..=2, _) if queries <= keys => Some(triangle(rows)),
            (0..=2, _) => Some(triangle(columns) + (rows - columns) * columns),
            // The last query has all keys.
            (3, _) if queries <= keys => Some(triangle(rows) + rows * (columns - rows)),
            (3, _) => Some(triangle(columns)),
            (4, _) => {
                let (before, behind) = (self.pre_tockens?, self.next_tockens?);
                let (queries, keys) = (i64::try_from(queries).ok()?, i64::try_from(keys).ok()?);
                let row = |query: i64| {
                    let diagonal = query + keys - queries;
                    let first = diagonal.saturating_sub(before).max(0);
                    let last = diagonal.saturating_add(behind).min(keys - 1);
                    (last - first + 1).max(0) as f64
                };
                Some((0..queries).map(row).sum())
            }
            _ => None,
        }
    }
}

/// Returns the lengths of sequences from their ends; `None` if the ends do not ascend.
fn lengths(ends: &[u64]) -> Option<Vec<u64>> {
    let starts = std::iter::once(&0).chain(ends);
    ends.iter().zip(starts).map(|(end, start)| end.checked_sub(*start)).collect()
}

fn elements(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim))
}

/// Returns the arguments of attention operators. A mark belongs to the first one that starts behind it within 3 ms; of
/// several marks of one operator the last one counts.
pub(super) fn attention_arguments(
    run: &RunTimeline,
    calls: &[OperatorCall],
) -> HashMap<OperatorId, AttentionArguments> {
    let is_attention_call = |call: &&OperatorCall| {
        call.tasks.iter().any(|task| run.launched_kernel(*task).is_some_and(is_attention))
    };
    let mut starts: Vec<(i64, OperatorId)> = calls
        .iter()
        .filter(is_attention_call)
        .filter_map(|call| Some((run.operator(call.operator?)?.span.start, call.operator?)))
        .collect();
    starts.sort_unstable();
    let marks = run.marks.iter().filter(|mark| run.names.text(mark.domain) == ATTENTION_DOMAIN);
    let mut marks: Vec<_> = marks.collect();
    marks.sort_by_key(|mark| mark.at);
    let mut found = HashMap::new();
    for mark in marks {
        let next = starts.get(starts.partition_point(|(start, _)| *start < mark.at));
        if let Some((start, operator)) = next
            && start - mark.at <= LONGEST_DISTANCE
            && let Ok(arguments) = serde_json::from_str(run.names.text(mark.name))
        {
            found.insert(*operator, arguments);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::{CaseAttributes, KernelName, SignatureCells};

    fn case(query: &str, key: &str, output: &str) -> Case {
        let inputs = SignatureCells {
            shapes: &format!("\"{query};{key};{key}\""),
            dtypes: "DT_BF16;DT_BF16;DT_BF16",
            formats: "ND;ND;ND",
        };
        let outputs = SignatureCells {
            shapes: &format!("\"4,2,8,8;{output}\""),
            dtypes: "FLOAT;DT_BF16",
            formats: "ND;ND",
        };
        Case {
            kernel: KernelName::new("FlashAttentionScore").expect("valid"),
            inputs: inputs.parse().expect("valid"),
            outputs: outputs.parse().expect("valid"),
            attributes: CaseAttributes::default(),
        }
    }

    fn operations(arguments: &str, case: &Case) -> Option<f64> {
        serde_json::from_str::<AttentionArguments>(arguments).expect("valid").operations(case)
    }

    #[test]
    fn layouts_of_one_call_have_the_same_operations() {
        // 2 sequences of 128 queries and 256 keys, 4 heads of 64: 2·2·(4·64 + 4·64)·128·256.
        let expected = Some(2.0 * 2.0 * 512.0 * 128.0 * 256.0);
        for (layout, query, key) in [
            ("BSH", "2,128,256", "2,256,256"),
            ("SBH", "128,2,256", "256,2,256"),
            ("BSND", "2,128,4,64", "2,256,4,64"),
            ("BNSD", "2,4,128,64", "2,4,256,64"),
        ] {
            let case = case(query, key, query);
            assert_eq!(operations(&format!(r#"{{"input_layout":"{layout}"}}"#), &case), expected, "{layout}");
            assert_eq!(operations(r#"{"input_layout":"TND"}"#, &case), None);
        }
        let packed = case("256,4,64", "512,4,64", "256,4,64");
        let lengths = r#"{"input_layout":"TND","actual_seq_qlen":[128,256],"actual_seq_kvlen":[256,512]}"#;
        assert_eq!(operations(lengths, &packed), expected);
        // Lengths of another call, and lengths that descend.
        for other in [
            r#"{"input_layout":"TND","actual_seq_qlen":[128,200],"actual_seq_kvlen":[256,512]}"#,
            r#"{"input_layout":"TND","actual_seq_qlen":[300,256],"actual_seq_kvlen":[256,512]}"#,
        ] {
            assert_eq!(operations(other, &packed), None, "{other}");
        }
        // Keys with heads of their own size, as in latent attention: 2·(192 + 128).
        let latent = case("1,1,1,192", "1,1,1,192", "1,1,1,128");
        assert_eq!(operations(r#"{"input_layout":"BNSD"}"#, &latent), Some(640.0));
    }

    proptest! {
        #[test]
        fn pairs_are_those_of_the_mask(
            queries in 0_u64..40, keys in 0_u64..40, before in -5_i64..40, behind in -5_i64..40
        ) {
            let count = |is_kept: &dyn Fn(i64, i64) -> bool| {
                let (queries, keys) = (queries.cast_signed(), keys.cast_signed());
                let pairs = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
                Some(f64::from(u32::try_from(pairs.filter(|(query, key)| is_kept(*query, *key)).count()).expect("few")))
            };
            let shift = keys.cast_signed() - queries.cast_signed();
            let pairs = |text: &str| {
                serde_json::from_str::<AttentionArguments>(text).expect("valid").pairs(queries, keys)
            };
            prop_assert_eq!(pairs("{}"), count(&|_, _| true));
            prop_assert_eq!(pairs(r#"{"is_causal":true}"#), count(&|query, key| key <= query));
            prop_assert_eq!(pairs(r#"{"sparse_mode":2}"#), count(&|query, key| key <= query));
            prop_assert_eq!(pairs(r#"{"sparse_mode":3}"#), count(&|query, key| key <= query + shift));
            let band = format!(r#"{{"sparse_mode":4,"pre_tockens":{before},"next_tockens":{behind}}}"#);
            let is_in_band = |query: i64, key: i64| (-before..=behind).contains(&(key - query - shift));
            prop_assert_eq!(pairs(&band), count(&is_in_band));
            prop_assert_eq!(pairs(r#"{"sparse_mode":6}"#), None);
        }
    }
}
