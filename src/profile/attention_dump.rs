//! Dumps of fused attention calls of a serving process: lines of JSON, one per distinct call.
//!
//! `examples/attention_dump.py` writes them; docs/attention.md describes the fields. An inconsistent line is refused
//! with its position, because its values would determine the measured cases.

use std::io::BufReader;

use super::prelude::*;
use crate::{
    base::{files::read_line, json_error::json_message},
    kernel::{AttentionCall, AttentionSlot, CaseAttributes, Dims, attention_attribute as name},
};

/// Distinct calls by the shapes of their tensors, each with the other attributes that determine its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttentionDump(pub(crate) BTreeMap<AttentionCall, BTreeSet<CaseAttributes>>);

impl AttentionDump {
    pub(crate) fn call_count(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub(crate) fn add_call(&mut self, call: AttentionCall, attributes: CaseAttributes) {
        self.0.entry(call).or_default().insert(attributes);
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DumpLine {
    query: Vec<u64>,
    key: Vec<u64>,
    value: Vec<u64>,
    atten_mask: Option<Vec<u64>>,
    block_table: Option<Vec<u64>>,
    query_rope: Option<Vec<u64>>,
    key_rope: Option<Vec<u64>>,
    actual_seq_lengths: Option<Vec<u64>>,
    actual_seq_lengths_kv: Option<Vec<u64>>,
    num_heads: u64,
    #[serde(default)]
    num_key_value_heads: u64,
    input_layout: String,
    #[serde(default)]
    sparse_mode: u64,
    #[serde(default)]
    block_size: u64,
    pre_tokens: Option<i64>,
    next_tokens: Option<i64>,
    actual_shared_prefix_len: Option<Vec<u64>>,
}

const MAX_LINE: u64 = 16 << 20;
/// Maximum length of a sequence, low enough that the sum over a batch does not overflow.
const MAX_SEQUENCE: u64 = 1 << 40;
const LAYOUTS: [&str; 11] = [
    "BSH",
    "BSND",
    "BNSD",
    "BNSD_BSND",
    "TND",
    "NTD",
    "NTD_TND",
    "TND_NTD",
    "BSH_NBSD",
    "BSND_NBSD",
    "BNSD_NBSD",
];
/// Value of the API for "no limit".
const NO_LIMIT: i64 = 2_147_483_647;

pub fn read_attention_dumps(files: &[PathBuf]) -> Result<AttentionDump, ProfileError> {
    let mut dump = AttentionDump::default();
    files.iter().try_for_each(|file| read_dump(file, &mut dump))?;
    Ok(dump)
}

fn read_dump(file: &Path, dump: &mut AttentionDump) -> Result<(), ProfileError> {
    let io = ProfileError::io(file);
    let mut input = BufReader::new(open_regular(file).map_err(&io)?);
    let (mut number, mut calls) = (0, 0_usize);
    while let Some(text) = read_line(&mut input, number + 1, MAX_LINE).map_err(&io)? {
        number += 1;
        // Some editors write a byte-order mark.
        let line = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text).trim_ascii();
        if line.is_empty() {
            continue;
        }
        let (call, attributes) = parse_line(line).map_err(|problem| ProfileError::DumpLine {
            file: file.to_owned(),
            place: RecordPosition::Line(number),
            problem,
        })?;
        calls += 1;
        dump.add_call(call, attributes);
    }
    if calls == 0 {
        return Err(ProfileError::EmptyDump(file.to_owned()));
    }
    Ok(())
}

fn parse_line(text: &[u8]) -> Result<(AttentionCall, CaseAttributes), String> {
    if !text.starts_with(b"{") {
        return Err("is no JSON object".to_owned());
    }
    // The caller adds the line; the parser counts lines of this text.
    let line: DumpLine = serde_json::from_slice(text).map_err(|error| json_message(&error))?;
    line.check_consistency()?;
    Ok(line.into_call())
}

impl DumpLine {
    fn check_consistency(&self) -> Result<(), String> {
        if self.query.len() < 3 || self.key.len() < 3 || self.value.len() < 3 {
            return Err("`query`, `key` and `value` must be shapes of at least three dimensions".to_owned());
        }
        self.check_heads()?;
        if self.sparse_mode > 8 {
            return Err(format!("`sparse_mode` is {}, there is none above 8", self.sparse_mode));
        }
        let lists = [&self.actual_seq_lengths, &self.actual_seq_lengths_kv, &self.actual_shared_prefix_len];
        if let Some(length) = lists.into_iter().flatten().flatten().find(|length| **length > MAX_SEQUENCE) {
            return Err(format!("a length of {length} is longer than any sequence"));
        }
        if let Some(tokens) = self.token_dim() {
            self.check_packed("actual_seq_lengths", &self.actual_seq_lengths, self.query[tokens])?;
        }
        match (&self.block_table, self.token_dim()) {
            (Some(table), _) => self.check_blocks(table),
            (None, Some(tokens)) => {
                self.check_packed("actual_seq_lengths_kv", &self.actual_seq_lengths_kv, self.key[tokens])
            }
            (None, None) => Ok(()),
        }
    }

    fn check_heads(&self) -> Result<(), String> {
        let layout = self.input_layout.as_str();
        if !LAYOUTS.contains(&layout) {
            return Err(format!("`input_layout` is {layout:?}, expected one of {}", LAYOUTS.join(", ")));
        }
        let rank = self.query_dims().len();
        if self.query.len() != rank {
            return Err(format!("layout {layout} has {rank} dimensions, `query` has {}", self.query.len()));
        }
        let (heads, kv_heads) = (self.num_heads, self.kv_heads());
        let fits = match self.query_dims().find('N') {
            Some(at) => self.query[at] == heads,
            None => heads > 0 && self.query[rank - 1].is_multiple_of(heads),
        };
        if !fits {
            let query = Dims(&self.query);
            return Err(format!(
                "`num_heads` is {heads}, which a `query` of {query} in layout {layout} has not"
            ));
        }
        if kv_heads > heads || heads % kv_heads != 0 {
            return Err(format!("{heads} heads cannot share {kv_heads} heads of keys and values"));
        }
        Ok(())
    }

    /// Checks the lengths of packed tokens, which are cumulative.
    fn check_packed(&self, field: &str, lengths: &Option<Vec<u64>>, tokens: u64) -> Result<(), String> {
        match lengths {
            Some(lengths) if !lengths.is_sorted() || lengths.last().is_some_and(|last| *last > tokens) => {
                let layout = &self.input_layout;
                Err(format!("`{field}` must not fall, nor exceed {tokens}: layout {layout} counts on"))
            }
            _ => Ok(()),
        }
    }

    fn check_blocks(&self, table: &[u64]) -> Result<(), String> {
        let (&[sequences, blocks], size @ 1..) = (table, self.block_size) else {
            return Err("with a `block_table` of two dimensions goes a `block_size` above 0".to_owned());
        };
        if !self.key[1..].contains(&size) {
            return Err(format!("`block_size` is {size}, which a cache of {} has not", Dims(&self.key)));
        }
        for (field, lengths) in [
            ("actual_seq_lengths", &self.actual_seq_lengths),
            ("actual_seq_lengths_kv", &self.actual_seq_lengths_kv),
        ] {
            let count = lengths.as_ref().map_or(0, Vec::len);
            let is_for_all = count <= 1 && self.token_dim().is_none();
            if lengths.is_some() && !is_for_all && u64::try_from(count) != Ok(sequences) {
                return Err(format!("`{field}` has {count} lengths for {sequences} sequences"));
            }
        }
        let capacity = blocks.saturating_mul(size);
        let lengths = self.actual_seq_lengths_kv.as_deref().unwrap_or_default();
        match lengths.iter().find(|length| **length > capacity) {
            Some(length) => Err(format!("a length of {length} needs more than {blocks} blocks of {size}")),
            None => Ok(()),
        }
    }

    /// Heads of keys and values; the API's 0 stands for the heads of the queries.
    const fn kv_heads(&self) -> u64 {
        if self.num_key_value_heads == 0 { self.num_heads } else { self.num_key_value_heads }
    }

    fn query_dims(&self) -> &str {
        self.input_layout.split('_').next().unwrap_or_default()
    }

    /// Returns the dimension of the tokens of all sequences, for layouts that pack them.
    fn token_dim(&self) -> Option<usize> {
        self.query_dims().find('T')
    }

    fn into_call(self) -> (AttentionCall, CaseAttributes) {
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
            call.set_shape(slot as usize, dims.cloned().unwrap_or_default());
        }
        for (slot, lengths) in [
            (AttentionSlot::QueryLengths, &self.actual_seq_lengths),
            (AttentionSlot::KvLengths, &self.actual_seq_lengths_kv),
        ] {
            let lengths = lengths.as_ref().filter(|lengths| !lengths.is_empty());
            call.set_shape(slot as usize, lengths.map(|lengths| lengths.len() as u64).into_iter().collect());
        }
        let mut attributes = CaseAttributes::default();
        for (name, number) in [
            (name::HEADS, self.num_heads),
            (name::KV_HEADS, self.kv_heads()),
            (name::SPARSE_MODE, self.sparse_mode),
            (name::BLOCK_SIZE, self.block_size),
        ] {
            attributes.set(name, &number.to_string());
        }
        for (name, tokens) in [(name::PRE_TOKENS, self.pre_tokens), (name::NEXT_TOKENS, self.next_tokens)] {
            if let Some(tokens) = tokens.filter(|tokens| *tokens < NO_LIMIT) {
                attributes.set(name, &tokens.to_string());
            }
        }
        attributes.set(name::LAYOUT, &self.input_layout);
        for (name, lengths) in [
            (name::SHARED_PREFIX, &self.actual_shared_prefix_len),
            (name::QUERY_LENGTHS, &self.actual_seq_lengths),
        ] {
            attributes.set(name, &Dims(lengths.as_deref().unwrap_or_default()).to_string());
        }
        if let Some(lengths) = self.actual_seq_lengths_kv.as_deref().filter(|lengths| !lengths.is_empty()) {
            attributes.set(name::KV_LENGTHS, &Dims(lengths).to_string());
            attributes.set(name::AVG_SEQ_LEN, &format!("{:.6}", self.mean_length(lengths)));
            if self.block_table.is_some() {
                let blocks = lengths.iter().map(|length| length.div_ceil(self.block_size));
                attributes.set(name::VALID_BLOCKS, &Dims(&blocks.collect::<Vec<_>>()).to_string());
            }
        }
        (call, attributes)
    }

    /// Returns the mean length of a sequence; packed lengths are cumulative.
    fn mean_length(&self, lengths: &[u64]) -> f64 {
        let is_packed = self.block_table.is_none() && self.token_dim().is_some();
        let total: u64 =
            if is_packed { lengths.last().copied().unwrap_or_default() } else { lengths.iter().sum() };
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

    fn parsed(text: &str) -> Result<(AttentionCall, CaseAttributes), String> {
        parse_line(text.replace('\n', " ").as_bytes())
    }

    #[test]
    fn a_call_is_complete() {
        let (_, attributes) = parsed(DECODE).expect("a call");
        let found: Vec<(&str, &str)> = attributes.iter().collect();
        assert_eq!(
            found,
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
    fn inconsistent_dump_lines_are_refused() {
        for (from, to, problem) in [
            ("[1000,129]", "[1025,129]", "a length of 1025 needs more than 8 blocks of 128"),
            (
                "[1000,129]",
                "[18446744073709551615,2]",
                "a length of 18446744073709551615 is longer than any sequence",
            ),
            ("[1000,129]", "[1,2,3]", "`actual_seq_lengths_kv` has 3 lengths for 2 sequences"),
            ("[1,2]", "[2,1]", "`actual_seq_lengths` must not fall, nor exceed 2: layout TND counts on"),
            ("[1,2]", "[1,3]", "`actual_seq_lengths` must not fall, nor exceed 2: layout TND counts on"),
            (
                "\"block_size\":128",
                "\"block_size\":0",
                "with a `block_table` of two dimensions goes a `block_size` above 0",
            ),
            (
                "\"num_heads\":4",
                "\"num_heads\":3",
                "`num_heads` is 3, which a `query` of 2,4,128 in layout TND has not",
            ),
            ("value_heads\":1", "value_heads\":3", "4 heads cannot share 3 heads of keys and values"),
            ("sparse_mode\":3", "sparse_mode\":77", "`sparse_mode` is 77, there is none above 8"),
            (
                "block_size\":128",
                "block_size\":64",
                "`block_size` is 64, which a cache of 64,128,128 has not",
            ),
            ("[1000,129]", "[1000]", "`actual_seq_lengths_kv` has 1 lengths for 2 sequences"),
            ("\"TND\"", "\"BSND\"", "layout BSND has 4 dimensions, `query` has 3"),
            ("[2,4,128]", "[]", "`query`, `key` and `value` must be shapes of at least three dimensions"),
        ] {
            assert_eq!(parsed(&DECODE.replace(from, to)), Err(problem.to_owned()), "{to}");
        }
        let unknown = parsed(&DECODE.replace("sparse_mode", "sparse_mod")).expect_err("misspelt");
        assert!(unknown.starts_with("unknown field `sparse_mod`, expected one of"), "{unknown}");
        assert!(parsed(&DECODE.replace("[1,2]", "[-1,2]")).is_err());
        let layout = parsed(&DECODE.replace("TND", "T ND; rm")).expect_err("no layout");
        assert!(layout.starts_with("`input_layout` is \"T ND; rm\", expected one of BSH, "), "{layout}");
        assert_eq!(parsed("[1, 2]").expect_err("a list"), "is no JSON object");
    }

    #[test]
    fn dump_keeps_token_window_and_drops_no_limit() {
        let with = |more: &str| {
            let line = DECODE.replace("\"num_heads\":4", &format!("\"num_heads\":4,{more}"));
            parsed(&line).expect("a call").1
        };
        let window = with("\"pre_tokens\":4096,\"next_tokens\":0");
        assert_eq!((window.get(name::PRE_TOKENS), window.get(name::NEXT_TOKENS)), (Some("4096"), Some("0")));
        assert_eq!(with("\"pre_tokens\":2147483647").get(name::PRE_TOKENS), None);
    }

    #[test]
    fn token_dimension_follows_layout() {
        let line = r#"{"query":[4,10,128],"key":[4,12,128],"value":[4,12,128],"actual_seq_lengths":[4,10],
            "actual_seq_lengths_kv":[5,12],"num_heads":4,"input_layout":"NTD_TND","sparse_mode":3}"#;
        let (_, attributes) = parsed(line).expect("a call");
        assert_eq!(attributes.get(name::AVG_SEQ_LEN), Some("6"));
        assert!(parsed(&line.replace("[4,10]", "[4,11]")).is_err());
    }

    proptest! {
        #[test]
        fn any_dump_line_is_parsed_or_refused(at in 0_usize..300, with in "[0-9\\[\\]{},:\"a-z-]{0,6}") {
            let mut text: Vec<char> = DECODE.replace('\n', " ").chars().collect();
            let at = at.min(text.len());
            let end = (at + 2).min(text.len());
            text.splice(at..end, with.chars());
            let _ = parse_line(text.into_iter().collect::<String>().as_bytes());
        }
    }
}
