//! Operations of attention with its mask and lengths, which shapes do not show: scripts record them as marks of mstx in the
//! domain `flash_attn_args`, before each call (`npubench modules --snippet` prints the lines).
//!
//! CANN before 9.1.0 drops a mark of 156 bytes and more (mstx_inject.cpp of cann/oam-tools, v8.5.0 to v9.0.1: `MAX_MESSAGE_LEN`), so
//! that the lines divide a longer text into marks `CALL:PART/PARTS:TEXT`. From 9.1.0 on, CANN divides and msprof joins by themselves,
//! which these marks are too short for.
//!
//! A product of query and key, and one of the scores with the value, have two operations for each element of a query's
//! row, each of an output's row, and each key that the mask leaves. Masks have the meaning of `npu_fusion_attention`'s
//! `sparse_mode`.

use super::prelude::*;
use crate::kernel::{Case, Slot, element_count, lengths_from_ends};

const ATTENTION_DOMAIN: &str = "flash_attn_args";
/// Longest time from a mark to its operator, in nanoseconds, as in the vendor's tool.
const MAX_DISTANCE: i64 = 3_000_000;
const ATTENTION_KERNELS: [&str; 3] =
    ["FlashAttentionScore", "PromptFlashAttention", "FusedInferAttentionScore"];

/// Kernel of the forward pass of training; the others are of inference.
const TRAINING_KERNEL: &str = "FlashAttentionScore";
/// Inputs of FusedInferAttentionScore: blocks of the keys of each sequence, and the part of queries with their position.
const BLOCK_TABLE: usize = 14;
const QUERY_ROPE: usize = 24;

pub(super) fn is_attention(kernel: &str) -> bool {
    ATTENTION_KERNELS.contains(&kernel)
}

/// Most tokens of a sequence whose mask is a band. Longer sequences are no real ones, and would take long.
const MAX_BAND: u64 = 1 << 24;

/// Sequences of equal lengths: their number and the length.
type SequenceRuns = Vec<(u64, u64)>;

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
    /// Lengths of the sequences: of `TND` each with those before it, otherwise and for keys in blocks each alone.
    #[serde(default)]
    actual_seq_qlen: Vec<u64>,
    #[serde(default)]
    actual_seq_kvlen: Vec<u64>,
    #[serde(default)]
    pre_tockens: Option<i64>,
    #[serde(default)]
    next_tockens: Option<i64>,
}

impl AttentionArguments {
    /// Returns the operations of a call; `None` if its shapes contradict the arguments, or for a mask or lengths that they
    /// do not describe.
    pub(super) fn operations(&self, case: &Case) -> Option<f64> {
        let dims = |slot: &Slot| slot.as_ref().map(|tensor| tensor.dims.clone());
        let query = dims(case.inputs.first()?)?;
        let key = dims(case.inputs.get(1)?)?;
        let is_training = case.kernel.as_str() == TRAINING_KERNEL;
        // FlashAttentionScore returns maxima and sums of its softmax before the result, the others after it.
        let output = match is_training {
            true => case.outputs.iter().rev().filter_map(dims).find(|output| output.len() == query.len())?,
            false => dims(case.outputs.first()?).filter(|output| output.len() == query.len())?,
        };
        let inference_slot = |place: usize| match is_training {
            true => None,
            false => case.inputs.get(place).and_then(dims),
        };
        let (is_paged, rope) = (inference_slot(BLOCK_TABLE).is_some(), inference_slot(QUERY_ROPE));
        if !is_paged && key.len() != query.len() {
            return None;
        }
        // Number of sequences, and longest one; places of both in the shape of the key.
        let (batch, longest, places) = match (&*self.input_layout, &*query) {
            ("BSH", &[batch, queries, _]) | ("BSND", &[batch, queries, _, _]) => (batch, queries, [0, 1]),
            ("SBH", &[queries, batch, _]) => (batch, queries, [1, 0]),
            ("BNSD", &[batch, _, queries, _]) => (batch, queries, [0, 2]),
            ("TND", &[tokens, _, _]) => (1, tokens, [0, 0]),
            _ => return None,
        };
        let is_packed = self.input_layout == "TND";
        let each = |lengths: &[u64]| lengths.iter().map(|length| (1, *length)).collect::<SequenceRuns>();
        let runs_of = |recorded: &[u64], batch: u64, longest: u64| {
            if is_packed {
                // The ends of packed sequences ascend to the number of tokens.
                let lengths = (recorded.last() == Some(&longest)).then(|| lengths_from_ends(recorded))??;
                return Some(each(&lengths));
            }
            if is_training || recorded.is_empty() {
                return Some(vec![(batch, longest)]);
            }
            let fits = recorded.len() as u64 == batch && recorded.iter().all(|length| *length <= longest);
            fits.then(|| each(recorded))
        };
        let queries = runs_of(&self.actual_seq_qlen, batch, longest)?;
        let keys = match is_paged {
            // Keys are in blocks, of which each sequence has some.
            true => each(&self.actual_seq_kvlen),
            false => runs_of(&self.actual_seq_kvlen, *key.get(places[0])?, *key.get(places[1])?)?,
        };
        let rows = batch.checked_mul(longest)?;
        let rope = rope.map_or(Some(0), |rope| element_count(&rope))?;
        let both = element_count(&query)?.checked_add(element_count(&output)?)?;
        let width = both.checked_add(rope)?.checked_div(rows)? as f64;
        Some(2.0 * width * self.pairs_of_all(&queries, &keys)?)
    }

    fn pairs_of_all(&self, queries: &SequenceRuns, keys: &SequenceRuns) -> Option<f64> {
        let count = |runs: &SequenceRuns| runs.iter().map(|(count, _)| count).sum::<u64>();
        if count(queries) != count(keys) {
            return None;
        }
        if let ([(count, queries)], [(_, keys)]) = (&queries[..], &keys[..]) {
            return Some(*count as f64 * self.pairs(*queries, *keys)?);
        }
        // One of both is a list of single sequences.
        let length = |runs: &SequenceRuns, place: usize| Some(runs.get(place).or(runs.last())?.1);
        let places = 0..queries.len().max(keys.len());
        places.map(|place| self.pairs(length(queries, place)?, length(keys, place)?)).sum()
    }

    /// Returns the number of pairs of a query and a key that the mask leaves; `None` for an unknown mask.
    fn pairs(&self, queries: u64, keys: u64) -> Option<f64> {
        let (rows, columns) = (queries as f64, keys as f64);
        let triangle = |length: f64| length * (length + 1.0) / 2.0;
        match (self.sparse_mode, self.is_causal) {
            (0 | 1, false) => Some(rows * columns),
            // torch_npu's sparse_mode 0 to 2: query i has the keys up to i.
            (0..=2, _) if queries <= keys => Some(triangle(rows)),
            (0..=2, _) => Some(triangle(columns) + (rows - columns) * columns),
            // sparse_mode 3: the last query has all keys.
            (3, _) if queries <= keys => Some(triangle(rows) + rows * (columns - rows)),
            (3, _) => Some(triangle(columns)),
            (4, _) => {
                let (before, behind) = (self.pre_tockens?, self.next_tockens?);
                let number = |length: u64| i64::try_from(length).ok().filter(|_| length <= MAX_BAND);
                let (queries, keys) = (number(queries)?, number(keys)?);
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

/// Returns the arguments of attention operators. A mark belongs to the first one that starts behind it within 3 ms; of
/// several marks of one operator the last one counts.
pub(super) fn attention_arguments(
    run: &RunTimeline,
    calls: &[OperatorCall],
) -> HashMap<OperatorId, AttentionArguments> {
    let is_attention_call = |call: &&OperatorCall| {
        run.kernels_of_call(call).any(|kernel| is_attention(run.names.text(kernel.kind)))
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
    for (at, text) in joined_marks(marks.into_iter().map(|mark| (mark.at, run.names.text(mark.name)))) {
        let next = starts.get(starts.partition_point(|(start, _)| *start < at));
        if let Some((start, operator)) = next
            && start - at <= MAX_DISTANCE
            && let Ok(arguments) = serde_json::from_str(&text)
        {
            found.insert(*operator, arguments);
        }
    }
    found
}

/// Joins marks that are parts of one text, at the time of its last part. A text that lacks a part is left out: its lengths
/// would be those of another batch.
fn joined_marks<'a>(marks: impl Iterator<Item = (i64, &'a str)>) -> Vec<(i64, String)> {
    let (mut texts, mut open): (Vec<(i64, String)>, HashMap<u64, (u64, String)>) = Default::default();
    for (at, mark) in marks {
        let Some((call, part, parts, piece)) = part_of_text(mark) else {
            texts.push((at, mark.to_owned()));
            continue;
        };
        let (last, mut text) = open.remove(&call).unwrap_or_default();
        // A program that starts again counts its calls from 0.
        if part == 1 {
            text.clear();
        } else if part != last + 1 {
            continue;
        }
        text.push_str(piece);
        match part == parts {
            true => texts.push((at, text)),
            false => _ = open.insert(call, (part, text)),
        }
    }
    texts
}

/// Returns the number of the call, the part, the number of parts and the text of a mark `CALL:PART/PARTS:TEXT`.
fn part_of_text(mark: &str) -> Option<(u64, u64, u64, &str)> {
    let (call, rest) = mark.split_once(':')?;
    let (place, piece) = rest.split_once(':')?;
    let (part, parts) = place.split_once('/')?;
    Some((call.parse().ok()?, part.parse().ok()?, parts.parse().ok()?, piece))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::{CaseAttributes, KernelName, SignatureCells};

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
    fn parts_of_marks_are_joined_and_incomplete_texts_left_out() {
        let joined = |marks: &[&str]| -> Vec<(i64, String)> {
            joined_marks((0..).zip(marks.iter().copied())).into_iter().collect()
        };
        let texts = |expected: &[(i64, &str)]| -> Vec<(i64, String)> {
            expected.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
        };
        assert_eq!(joined(&[r#"{"a":1}"#]), texts(&[(0, r#"{"a":1}"#)]));
        assert_eq!(joined(&["0:1/2:{\"a\"", "0:2/2::1}"]), texts(&[(1, "{\"a\":1}")]));
        // Two threads at once.
        assert_eq!(joined(&["0:1/2:a", "1:1/2:c", "1:2/2:d", "0:2/2:b"]), texts(&[(2, "cd"), (3, "ab")]));
        for lost in [&["0:1/3:a", "0:3/3:c"][..], &["0:2/3:b", "0:3/3:c"], &["0:1/3:a", "0:2/3:b"]] {
            assert_eq!(joined(lost), [], "{lost:?}");
        }
        assert_eq!(joined(&["0:1/2:a", "0:1/2:b", "0:2/2:c"]), texts(&[(2, "bc")]), "a second program");
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

    /// Inference: keys in blocks, lengths of padded sequences, positions apart, and an output behind the result.
    #[test]
    fn operations_of_inference_follow_from_the_lengths_of_the_sequences() {
        let inference = |slots: &[(usize, &str)], outputs: &str| -> Case {
            let mut shapes = vec![""; 25];
            let mut dtypes = vec!["DT_UNDEFINED"; 25];
            let mut formats = vec!["NULL"; 25];
            for (slot, dims) in slots {
                (shapes[*slot], dtypes[*slot], formats[*slot]) = (dims, "DT_BF16", "ND");
            }
            let [shapes, dtypes, formats] = [shapes, dtypes, formats].map(|cells| cells.join(";"));
            let inputs =
                SignatureCells { shapes: &format!("\"{shapes}\""), dtypes: &dtypes, formats: &formats };
            let outputs = SignatureCells {
                shapes: &format!("\"{outputs}\""),
                dtypes: "DT_BF16;FLOAT",
                formats: "ND;ND",
            };
            Case {
                kernel: KernelName::new("FusedInferAttentionScore").expect("valid"),
                inputs: inputs.parse().expect("valid"),
                outputs: outputs.parse().expect("valid"),
                attributes: CaseAttributes::default(),
            }
        };
        // Two sequences, one query each with 4 heads of 64, 100 and 300 keys of 512: 2·(4·64 + 4·64)·(100 + 300). The
        // second output has the dimensions of the first one, and is no result.
        let decode = inference(&[(0, "2,4,1,64"), (1, "2,1,512,64"), (2, "2,1,512,64")], "2,4,1,64;2,4,1,1");
        let lengths = r#"{"input_layout":"BNSD","actual_seq_kvlen":[100,300]}"#;
        assert_eq!(operations(lengths, &decode), Some(2.0 * 512.0 * 400.0));
        assert_eq!(operations(r#"{"input_layout":"BNSD"}"#, &decode), Some(2.0 * 512.0 * 1024.0));
        for other in [
            r#"{"input_layout":"BNSD","actual_seq_kvlen":[100,513]}"#,
            r#"{"input_layout":"BNSD","actual_seq_kvlen":[9]}"#,
        ] {
            assert_eq!(operations(other, &decode), None, "{other}");
        }
        // Blocks of 128 keys: as many as sequences here, which must not be taken for their batch.
        let paged = inference(&[(0, "2,1,256"), (1, "2,128,64"), (2, "2,128,64"), (14, "2,1")], "2,1,256;0");
        assert_eq!(operations(r#"{"input_layout":"BSH"}"#, &paged), None);
        let lengths = r#"{"input_layout":"BSH","actual_seq_kvlen":[100,128]}"#;
        assert_eq!(operations(lengths, &paged), Some(2.0 * 512.0 * 228.0));
        // Packed, with positions of 32 apart: 3 and 2 queries over 10 and 20 keys, causal from the lower right:
        // 8 + 9 + 10 and 19 + 20 pairs of 2·2·(64 + 32 + 64).
        let packed = inference(
            &[(0, "5,2,64"), (1, "9,1,16,64"), (2, "9,1,16,64"), (14, "2,2"), (24, "5,2,32")],
            "5,2,64;0",
        );
        let lengths =
            r#"{"input_layout":"TND","sparse_mode":3,"actual_seq_qlen":[3,5],"actual_seq_kvlen":[10,20]}"#;
        assert_eq!(operations(lengths, &packed), Some(2.0 * 2.0 * 160.0 * 66.0));
    }

    #[test]
    fn shapes_of_any_size_are_counted_or_left_out() {
        // The longest dimension that a table may have.
        let huge = 900_000_000_000_000_000_u64;
        let shape = format!("{huge},1,1,1");
        let one_token = case(&shape, &shape, &shape);
        for mode in [0, 2, 3] {
            let arguments = format!(r#"{{"input_layout":"BNSD","sparse_mode":{mode}}}"#);
            let flops = operations(&arguments, &one_token).expect("one pair for each sequence");
            assert!((flops / (4.0 * huge as f64) - 1.0).abs() < 1e-9, "{flops}");
        }
        let long = format!("1,1,{huge},1");
        let one_sequence = case(&long, &long, &long);
        let band = r#"{"input_layout":"BNSD","sparse_mode":4,"pre_tockens":1,"next_tockens":1}"#;
        assert_eq!(operations(band, &one_sequence), None);
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
