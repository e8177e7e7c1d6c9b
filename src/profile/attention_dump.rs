//! Calls of fused attention that a serving process wrote down: lines of JSON, one per distinct call.
//!
//! `examples/attention_dump.py` writes them; docs/attention.md names the fields. A line that contradicts
//! itself is refused with its place: what it says would decide what is measured.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
};

use serde::Deserialize;

use super::{Place, ProfileError};
use crate::model::{AttentionCall, AttentionSlot, Attributes, attention_attribute as name, joined};

/// A call with everything that decides its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedCall {
    /// Shapes of its tensors.
    pub call: AttentionCall,
    /// Lengths and arguments.
    pub attributes: Attributes,
}

/// A line as it is written. Shapes are lists of dimensions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    query: Vec<u64>,
    key: Vec<u64>,
    value: Vec<u64>,
    #[serde(default)]
    atten_mask: Option<Vec<u64>>,
    #[serde(default)]
    block_table: Option<Vec<u64>>,
    #[serde(default)]
    query_rope: Option<Vec<u64>>,
    #[serde(default)]
    key_rope: Option<Vec<u64>>,
    #[serde(default)]
    actual_seq_lengths: Option<Vec<u64>>,
    #[serde(default)]
    actual_seq_lengths_kv: Option<Vec<u64>>,
    num_heads: u64,
    #[serde(default)]
    num_key_value_heads: u64,
    input_layout: String,
    #[serde(default)]
    sparse_mode: u64,
    #[serde(default)]
    block_size: u64,
}

/// Lines longer than any call is.
const LONGEST: u64 = 16 << 20;

/// Reads a dump; calls that were written more than once are given once.
///
/// # Errors
/// [`ProfileError::Io`], [`ProfileError::EmptyDump`], and [`ProfileError::DumpLine`] with the line.
pub fn read_attention_dump(file: &Path) -> Result<Vec<DumpedCall>, ProfileError> {
    let io = |source| ProfileError::Io { file: file.to_owned(), source };
    let mut input = BufReader::new(File::open(file).map_err(io)?);
    let mut seen = BTreeSet::new();
    let mut calls = Vec::new();
    let mut text = Vec::new();
    let mut number = 0;
    loop {
        text.clear();
        if input.by_ref().take(LONGEST).read_until(b'\n', &mut text).map_err(io)? == 0 {
            break;
        }
        number += 1;
        if text.trim_ascii().is_empty() {
            continue;
        }
        let call = parse(text.trim_ascii()).map_err(|problem| ProfileError::DumpLine {
            file: file.to_owned(),
            place: Place::Line(number),
            problem,
        })?;
        let attributes: Vec<(String, String)> =
            call.attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if seen.insert((call.call.clone(), attributes)) {
            calls.push(call);
        }
    }
    if calls.is_empty() {
        return Err(ProfileError::EmptyDump { file: file.to_owned() });
    }
    Ok(calls)
}

fn parse(text: &[u8]) -> Result<DumpedCall, String> {
    let line: Line = serde_json::from_slice(text).map_err(|error| {
        // The parser counts lines of its own; the place is said by the caller.
        let text = error.to_string();
        text.split(" at line 1 ").next().unwrap_or(&text).to_owned()
    })?;
    line.check()?;
    Ok(line.into_call())
}

impl Line {
    /// Whether lengths, layout and block table agree.
    fn check(&self) -> Result<(), String> {
        if self.query.len() < 2 || self.key.len() < 2 || self.value.len() < 2 {
            return Err("`query`, `key` and `value` must be shapes of at least two dimensions".to_owned());
        }
        if self.num_heads == 0 {
            return Err("`num_heads` is 0".to_owned());
        }
        if self.input_layout.is_empty()
            || !self.input_layout.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
        {
            return Err(format!("`input_layout` is {:?}, expected one such as `TND`", self.input_layout));
        }
        let packed = self.input_layout.starts_with("TND");
        let check_packed = |field: &str, lengths: &Option<Vec<u64>>, tokens: u64| {
            let Some(lengths) = lengths else { return Ok(()) };
            if lengths.is_sorted() && lengths.last().is_none_or(|last| *last <= tokens) {
                return Ok(());
            }
            Err(format!(
                "`{field}` must not fall, nor exceed {tokens}: layout {} counts on",
                self.input_layout
            ))
        };
        if packed {
            check_packed("actual_seq_lengths", &self.actual_seq_lengths, self.query[0])?;
        }
        let Some(table) = &self.block_table else {
            return if packed {
                check_packed("actual_seq_lengths_kv", &self.actual_seq_lengths_kv, self.key[0])
            } else {
                Ok(())
            };
        };
        let (&[sequences, blocks], size @ 1..) = (table.as_slice(), self.block_size) else {
            return Err("with a `block_table` of two dimensions goes a `block_size` above 0".to_owned());
        };
        let room = blocks.saturating_mul(size);
        let lengths = self.actual_seq_lengths_kv.as_deref().unwrap_or_default();
        if u64::try_from(lengths.len()).ok().is_some_and(|count| count > sequences) {
            return Err(format!(
                "`actual_seq_lengths_kv` has {} lengths for {sequences} sequences",
                lengths.len()
            ));
        }
        match lengths.iter().find(|length| **length > room) {
            Some(length) => Err(format!("a length of {length} needs more than {blocks} blocks of {size}")),
            None => Ok(()),
        }
    }

    fn into_call(self) -> DumpedCall {
        let mut call = AttentionCall::default();
        for (slot, dims) in [
            (AttentionSlot::Query, Some(&self.query)),
            (AttentionSlot::Key, Some(&self.key)),
            (AttentionSlot::Value, Some(&self.value)),
            (AttentionSlot::Mask, self.atten_mask.as_ref()),
            (AttentionSlot::BlockTable, self.block_table.as_ref()),
            (AttentionSlot::QueryRope, self.query_rope.as_ref()),
            (AttentionSlot::KeyRope, self.key_rope.as_ref()),
        ] {
            call.set(slot as usize, dims.cloned().unwrap_or_default());
        }
        let mut attributes = Attributes::default();
        // The API's 0 stands for as many as the queries have.
        let kv_heads = if self.num_key_value_heads == 0 { self.num_heads } else { self.num_key_value_heads };
        for (name, number) in [
            (name::HEADS, self.num_heads),
            (name::KV_HEADS, kv_heads),
            (name::SPARSE_MODE, self.sparse_mode),
            (name::BLOCK_SIZE, self.block_size),
        ] {
            attributes.set(name, &number.to_string());
        }
        attributes.set(name::LAYOUT, &self.input_layout);
        attributes.set(name::QUERY_LENGTHS, &joined(self.actual_seq_lengths.as_deref().unwrap_or_default()));
        if let Some(lengths) = self.actual_seq_lengths_kv.as_deref().filter(|lengths| !lengths.is_empty()) {
            attributes.set(name::KV_LENGTHS, &joined(lengths));
            attributes.set(name::AVG_SEQ_LEN, &format!("{:.6}", self.mean_length(lengths)));
            if self.block_table.is_some() {
                let blocks: Vec<u64> =
                    lengths.iter().map(|length| length.div_ceil(self.block_size)).collect();
                attributes.set(name::VALID_BLOCKS, &joined(&blocks));
            }
        }
        DumpedCall { call, attributes }
    }

    /// Mean length of a sequence; packed lengths count on from one to the next.
    #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^53")]
    fn mean_length(&self, lengths: &[u64]) -> f64 {
        let counts_on = self.block_table.is_none() && self.input_layout.starts_with("TND");
        let total =
            if counts_on { lengths.last().copied().unwrap_or_default() } else { lengths.iter().sum() };
        total as f64 / lengths.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DECODE: &str = r#"{"query":[2,4,128],"key":[64,128,128],"value":[64,128,128],"atten_mask":[2048,2048],
        "block_table":[2,8],"actual_seq_lengths":[1,2],"actual_seq_lengths_kv":[1000,129],"num_heads":4,
        "num_key_value_heads":1,"input_layout":"TND","sparse_mode":3,"block_size":128}"#;

    fn parsed(text: &str) -> Result<DumpedCall, String> {
        parse(text.replace('\n', " ").as_bytes())
    }

    #[test]
    fn a_call_is_complete() {
        let call = parsed(DECODE).expect("a call");
        let said: Vec<(&str, &str)> = call.attributes.iter().collect();
        assert_eq!(
            said,
            [
                ("Runtime actual_seq_lengths_kv_values", "1000,129"),
                ("Runtime actual_seq_lengths_values", "1,2"),
                ("Runtime avg_seq_len", "564.5"),
                ("Runtime block_size", "128"),
                ("Runtime block_table_valid_blocks", "8,2"),
                ("Runtime input_layout", "TND"),
                ("Runtime num_heads", "4"),
                ("Runtime num_key_value_heads", "1"),
                ("Runtime sparse_mode", "3"),
            ]
        );
    }

    #[test]
    fn lines_that_contradict_themselves_are_refused() {
        for (from, to, problem) in [
            ("[1000,129]", "[1025,129]", "a length of 1025 needs more than 8 blocks of 128"),
            ("[1000,129]", "[1,2,3]", "`actual_seq_lengths_kv` has 3 lengths for 2 sequences"),
            ("[1,2]", "[2,1]", "`actual_seq_lengths` must not fall, nor exceed 2: layout TND counts on"),
            ("[1,2]", "[1,3]", "`actual_seq_lengths` must not fall, nor exceed 2: layout TND counts on"),
            (
                "\"block_size\":128",
                "\"block_size\":0",
                "with a `block_table` of two dimensions goes a `block_size` above 0",
            ),
            ("\"num_heads\":4", "\"num_heads\":0", "`num_heads` is 0"),
            ("TND", "T ND; rm", "`input_layout` is \"T ND; rm\", expected one such as `TND`"),
            ("[2,4,128]", "[]", "`query`, `key` and `value` must be shapes of at least two dimensions"),
        ] {
            assert_eq!(parsed(&DECODE.replace(from, to)), Err(problem.to_owned()), "{to}");
        }
        let unknown = parsed(&DECODE.replace("sparse_mode", "sparse_mod")).expect_err("misspelt");
        assert!(unknown.starts_with("unknown field `sparse_mod`, expected one of"), "{unknown}");
        assert!(parsed(&DECODE.replace("[1,2]", "[-1,2]")).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(at in 0_usize..300, with in "[0-9\\[\\]{},:\"a-z-]{0,6}") {
            let mut text: Vec<char> = DECODE.replace('\n', " ").chars().collect();
            let at = at.min(text.len());
            let end = (at + 2).min(text.len());
            text.splice(at..end, with.chars());
            let _ = parse(text.into_iter().collect::<String>().as_bytes());
        }
    }
}
