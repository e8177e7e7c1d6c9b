//! Queries as users write them: the options of `npubench query`, a line of JSON, or a question of a list.

use std::num::ParseIntError;

use clap::{Args, value_parser};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use strum::VariantNames as _;

use super::{AttentionParameters, BatchPhase, OpQuery, QueryTensor};
use crate::{
    base::{command_error::CommandError, suggest::did_you_mean_or},
    kernel::{Dtype, TensorFormat},
};

/// Maximum number of ranks that share a layer.
const MAX_DEGREE: u64 = 65536;
const MAX_RANKS: u64 = 1_000_000;
const HINT: &str = "docs/lookup.md lists the keys of a query";

/// A query with its keys, which are options of `npubench query`, too. Lists may be texts, such as `8,64;64,32`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Args)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QueryFields {
    /// Operator of the mapping, such as `aten.mm.default`, or kernel, such as `MatMulV2`
    #[arg(long, value_name = "NAME", required_unless_present = "queries", requires = "inputs")]
    op: Option<String>,
    /// Shapes of the inputs, such as `136,5120;5120,768`
    #[serde(alias = "shapes")]
    #[arg(long, value_name = "SHAPES", value_parser = parse_shape_field)]
    inputs: Option<ShapeField>,
    /// Element types of the inputs, one for all or one for each: `bf16`, `INT8;INT8;FLOAT`. By default types are not
    /// compared, and rows of different types are a miss
    #[arg(long, value_name = "TYPES", default_value = "", hide_default_value = true)]
    dtypes: ListField,
    /// Formats of the inputs, one for all or one for each: `ND;FRACTAL_NZ`. By default formats are not compared, and
    /// row-major ones precede others
    #[arg(long, value_name = "FORMATS", default_value = "", hide_default_value = true)]
    formats: ListField,
    /// Shapes of the outputs, where they do not follow from the inputs
    #[arg(long, value_name = "SHAPES", value_parser = parse_shape_field)]
    outputs: Option<ShapeField>,
    /// Element types of the outputs, one for all or one for each
    #[arg(long, value_name = "TYPES", default_value = "", hide_default_value = true)]
    output_dtypes: ListField,
    /// Ranks that share the matrices of a layer
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=MAX_DEGREE))]
    tp: Option<u64>,
    /// Ranks that share the experts
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=MAX_DEGREE))]
    ep: Option<u64>,
    /// Ranks of a collective, also of one that belongs to another operator
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=MAX_RANKS))]
    ranks: Option<u64>,
    /// Tier of the topology that the ranks span, as in the tables of collectives
    #[arg(long, value_name = "TIER")]
    tier: Option<u64>,
    /// The product runs in HF32, as programs that allow it do
    #[arg(long)]
    hf32: bool,
    /// Look operators up as they run under sequence parallelism
    #[arg(long)]
    sequence_parallel: bool,
    /// Mean length of the keys of attention
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    kv_length: Option<f64>,
    /// Keys of each sequence, such as `4096,3000`
    #[arg(long, value_name = "LENGTHS", value_parser = parse_lengths, conflicts_with = "kv_length")]
    kv_lengths: Option<ListField>,
    /// Queries of each sequence. By default one each for as many tokens as sequences, or as many as keys
    #[arg(long, value_name = "LENGTHS", value_parser = parse_lengths, requires = "kv_lengths")]
    query_lengths: Option<ListField>,
    /// Number of sequences, where neither lengths nor shapes show it
    #[arg(long, value_name = "N")]
    batch: Option<u64>,
    /// Heads of the keys of attention; by default those of the second input, which operators have in front of the last dimension,
    /// and FusedInferAttentionScore in front of the tokens of a block
    #[arg(long, value_name = "N")]
    kv_heads: Option<u64>,
    /// Use of the mask of attention, by default 3 (causal from the lower right)
    #[arg(long, value_name = "MODE")]
    sparse_mode: Option<u8>,
    /// Order of dimensions of attention; by default TND for queries of three dimensions, for those of four BNSD_NBSD (B,N,1,D) or BSND (B,1,N,D)
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// Keys that sparse attention selects at most for a query
    #[arg(long, value_name = "N")]
    topk: Option<u64>,
    /// Keys in a block of the cache
    #[arg(long, value_name = "TOKENS")]
    block_size: Option<u64>,
    /// Phase of the batch, where lengths do not show it
    #[arg(long, value_name = "PHASE", value_parser = |text: &str| parse_phase(text).map(|_| text.to_owned()))]
    phase: Option<String>,
    /// Invocations of a question; no part of a query.
    #[arg(skip)]
    pub(crate) count: Option<u64>,
    /// Duration of one invocation of a question; no part of a query.
    #[arg(skip)]
    pub(crate) duration_us: Option<f64>,
}

/// Keys of a question of a list; all but the last two are also keys of a query.
const KEYS: &str = "op inputs shapes dtypes formats outputs output_dtypes tp ep ranks tier hf32 sequence_parallel kv_length \
                    kv_lengths query_lengths batch kv_heads sparse_mode layout topk block_size phase count duration_us";

impl QueryFields {
    pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.split(' ')
    }

    pub(crate) fn value_of_text(key: &str, text: &str) -> Result<Value, &'static str> {
        let (value, expected) = match key {
            "tp" | "ep" | "ranks" | "tier" | "batch" | "kv_heads" | "topk" | "block_size" | "count" => {
                (text.parse::<u64>().ok().map(Value::from), "a whole number of at least 0")
            }
            "sparse_mode" => (text.parse::<u8>().ok().map(Value::from), "a number up to 255"),
            "kv_length" | "duration_us" => {
                let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
                (number.map(Value::from), "a number")
            }
            "hf32" | "sequence_parallel" => (text.parse::<bool>().ok().map(Value::from), "`true` or `false`"),
            _ if Self::keys().any(|known| known == key) => (Some(text.into()), ""),
            _ => (None, "a key of a query"),
        };
        value.ok_or(expected)
    }

    pub(crate) fn into_query(self) -> Result<OpQuery, CommandError> {
        let op = self.op.as_deref().unwrap_or_default().trim();
        if op.is_empty() {
            return Err(CommandError::bad_input("`op` is missing", HINT));
        }
        if self.count.is_some() || self.duration_us.is_some() {
            let hint = "`count` and `duration_us` are keys of a list of `npubench coverage`";
            return Err(CommandError::bad_input("a query has no invocations", hint));
        }
        check_degrees([self.tp, self.ep, self.ranks])?;
        let sizes = [("batch", self.batch), ("kv_heads", self.kv_heads), ("topk", self.topk)];
        if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == Some(0)) {
            let hint = "give a number from 1 on, or leave it out";
            return Err(CommandError::bad_input(format!("`{key}` is 0"), hint));
        }
        check_kv_length(self.kv_length)?;
        let [kv_lengths, query_lengths] =
            [(self.kv_lengths, "kv_lengths"), (self.query_lengths, "query_lengths")]
                .map(|(list, key)| list.unwrap_or_default().into_numbers(key));
        let (kv_lengths, query_lengths) = (kv_lengths?, query_lengths?);
        if self.kv_length.is_some() && !kv_lengths.is_empty() {
            let hint = "give one of them: the mean follows from the lengths";
            return Err(CommandError::bad_input("`kv_length` is given beside `kv_lengths`", hint));
        }
        let phase = self.phase.as_deref().map(parse_phase).transpose();
        let phase_hint = "name the phase of the batch, or give `query_lengths`";
        let phase = phase.map_err(|problem| CommandError::bad_input(problem, phase_hint))?;
        let tensors = |shapes: Option<ShapeField>, dtypes: &ListField, formats: &[String]| {
            let shapes = shapes.map_or_else(|| Ok(Vec::new()), ShapeField::into_shapes);
            let shapes = shapes.map_err(|problem| CommandError::bad_input(problem, HINT))?;
            query_tensors(&shapes, &dtypes.0, formats)
        };
        let query = OpQuery {
            inputs: tensors(self.inputs, &self.dtypes, &self.formats.0)?,
            outputs: tensors(self.outputs, &self.output_dtypes, &[])?,
            op: op.to_owned(),
            tp_size: self.tp,
            ep_size: self.ep,
            ranks: self.ranks,
            tier: self.tier,
            is_hf32: self.hf32,
            is_sequence_parallel: self.sequence_parallel,
            attention: AttentionParameters {
                kv_length: self.kv_length,
                kv_lengths,
                query_lengths,
                batch: self.batch,
                kv_heads: self.kv_heads,
                sparse_mode: self.sparse_mode.map(|mode| mode.to_string()),
                layout: self.layout,
                topk: self.topk,
                block_size: self.block_size,
                phase,
            },
        };
        let hint = "give the shapes as the framework has them";
        query.check().map_err(|problem| CommandError::bad_input(problem, hint))?;
        Ok(query)
    }
}

fn parse_phase(text: &str) -> Result<BatchPhase, String> {
    text.parse().map_err(|_| format!("`{text}` is none of {}", BatchPhase::VARIANTS.join(", ")))
}

pub(crate) fn parse_length(text: &str) -> Result<f64, String> {
    let length = text.parse::<f64>().ok().filter(|length| is_length(*length));
    length.ok_or_else(|| format!("`{text}` is not a number of tokens above 0"))
}

fn is_length(length: f64) -> bool {
    length.is_finite() && length > 0.0
}

pub(crate) fn check_kv_length(length: Option<f64>) -> Result<(), CommandError> {
    if length.is_none_or(is_length) {
        return Ok(());
    }
    Err(CommandError::bad_input("`kv_length` is not a number of tokens above 0", HINT))
}

pub(crate) fn check_degrees([tp, ep, ranks]: [Option<u64>; 3]) -> Result<(), CommandError> {
    let degrees = [("tp", tp, MAX_DEGREE), ("ep", ep, MAX_DEGREE), ("ranks", ranks, MAX_RANKS)];
    for (key, degree, most) in degrees {
        if let Some(degree) = degree.filter(|degree| !(1..=most).contains(degree)) {
            let hint = format!("give a number of ranks from 1 to {most}");
            return Err(CommandError::bad_input(format!("`{key}` is {degree}"), hint));
        }
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShapeField {
    /// `8,64;64,32`; no shapes if it is empty.
    Text(String),
    Lists(Vec<Vec<u64>>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListField(Vec<String>);

impl ShapeField {
    fn into_shapes(self) -> Result<Vec<Vec<u64>>, String> {
        match self {
            Self::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
            Self::Text(text) => parse_shapes(&text),
            Self::Lists(shapes) => Ok(shapes),
        }
    }
}

impl From<&str> for ListField {
    fn from(text: &str) -> Self {
        Self(split_list(text))
    }
}

fn parse_shape_field(text: &str) -> Result<ShapeField, String> {
    parse_shapes(text).map(ShapeField::Lists)
}

fn parse_lengths(text: &str) -> Result<ListField, ParseIntError> {
    let lengths = text.split(',').map(|length| Ok(length.parse::<u64>()?.to_string()));
    lengths.collect::<Result<_, _>>().map(ListField)
}

impl ListField {
    fn into_numbers(self, key: &str) -> Result<Vec<u64>, CommandError> {
        let wrong = |text: &str| {
            let problem = format!("`{text}` in `{key}`, expected whole numbers");
            CommandError::bad_input(problem, "give numbers such as `4096,3000`")
        };
        self.0.iter().map(|text| text.parse().map_err(|_| wrong(text))).collect()
    }
}

/// Reads shapes such as `8,64;64,32`, lists of lengths, or one length.
impl<'de> Deserialize<'de> for ShapeField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let shapes = match Value::deserialize(deserializer)? {
            Value::String(text) => return Ok(Self::Text(text)),
            Value::Number(length) => vec![vec![Value::Number(length)]].into(),
            list => list,
        };
        serde_json::from_value(shapes).map(Self::Lists).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ListField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = match Value::deserialize(deserializer)? {
            Value::Null => Vec::new(),
            Value::Array(items) => items,
            item => vec![item],
        };
        let mut found = Vec::new();
        for item in items {
            match item {
                Value::String(text) => found.extend(split_list(&text)),
                Value::Number(number) => found.push(number.to_string()),
                Value::Null => {}
                other => {
                    let problem = format!("invalid type: `{other}`, expected a list, or one item");
                    return Err(D::Error::custom(problem));
                }
            }
        }
        Ok(Self(found))
    }
}

/// Parses `136,5120;5120,768`, also with parentheses around each shape and the quotes of CSVs around all.
pub(crate) fn parse_shapes(text: &str) -> Result<Vec<Vec<u64>>, String> {
    let shapes = text.trim().trim_matches('"');
    let shape = |(at, shape): (usize, &str)| {
        parse_dims(shape).ok_or_else(|| {
            format!(
                "shape {} is `{}`, expected lengths such as `136,5120`, and `;` between shapes",
                at + 1,
                shape.trim()
            )
        })
    };
    shapes.split(';').enumerate().map(shape).collect()
}

pub(crate) fn parse_dims(shape: &str) -> Option<Vec<u64>> {
    let bare = shape.trim();
    let bare = bare.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(bare);
    let bare = bare.trim();
    let bare = bare.strip_suffix(',').unwrap_or(bare);
    if bare.is_empty() {
        return Some(Vec::new());
    }
    bare.split(',').map(|dim| dim.trim().parse().ok()).collect()
}

/// Splits a list at `;` or `,`; an empty one has no items.
pub(crate) fn split_list(list: &str) -> Vec<String> {
    let items = list.split([';', ',']).map(|item| item.trim().to_owned());
    if list.trim().is_empty() { Vec::new() } else { items.collect() }
}

/// Parses a type in the spelling of torch or of the profiler, in any case.
pub(crate) fn parse_dtype(name: &str) -> Option<Dtype> {
    let name = name.trim();
    let bare = name.strip_prefix("torch.").unwrap_or(name);
    Dtype::from_torch(&bare.to_lowercase()).or_else(|| Dtype::parse(&bare.to_uppercase()))
}

/// Parses a type that a user writes; `None` for a tensor whose type is not compared. The error is for names that are no
/// type of CANN: they would be compared, and equal none.
pub(crate) fn parse_known_dtype(name: &str) -> Result<Option<Dtype>, CommandError> {
    let dtype = parse_dtype(name);
    if dtype.as_ref().is_none_or(Dtype::is_of_cann) {
        return Ok(dtype);
    }
    let hint = "give a type of torch or of the profiler, such as `bf16`, `float32` or `INT8`";
    let hint = did_you_mean_or(name.trim(), Dtype::cann_names(), || hint.to_owned());
    Err(CommandError::bad_input(format!("`{}` is no element type", name.trim()), hint))
}

fn parse_known_format(name: &str) -> Result<Option<TensorFormat>, CommandError> {
    let format = TensorFormat::parse(&name.to_uppercase());
    if format.as_ref().is_none_or(TensorFormat::is_of_cann) {
        return Ok(format);
    }
    let hint = "give a format of the profiler, such as `ND` or `FRACTAL_NZ`";
    let hint = did_you_mean_or(name.trim(), TensorFormat::cann_names(), || hint.to_owned());
    Err(CommandError::bad_input(format!("`{}` is no format", name.trim()), hint))
}

/// Returns tensors of these shapes. Types and formats are one for all, or one for each, or none.
pub(crate) fn query_tensors(
    shapes: &[Vec<u64>],
    dtypes: &[String],
    formats: &[String],
) -> Result<Vec<QueryTensor>, CommandError> {
    let count = shapes.len();
    let dtypes = spread(dtypes, count, "types", parse_known_dtype)?;
    let formats = spread(formats, count, "formats", parse_known_format)?;
    let tensors = shapes.iter().zip(dtypes).zip(formats);
    Ok(tensors.map(|((dims, dtype), format)| QueryTensor { dims: dims.clone(), dtype, format }).collect())
}

/// Returns the items for `count` tensors; `None` where nothing is given.
fn spread<T: Clone>(
    items: &[String],
    count: usize,
    what: &str,
    parse: impl Fn(&str) -> Result<Option<T>, CommandError>,
) -> Result<Vec<Option<T>>, CommandError> {
    let items = items.iter().map(|item| parse(item.trim())).collect::<Result<Vec<Option<T>>, _>>()?;
    match items.len() {
        0 => Ok(vec![None; count]),
        1 => Ok(vec![items[0].clone(); count]),
        given if given == count => Ok(items),
        given => Err(CommandError::bad_input(
            format!("{given} {what} are given for {count} shapes"),
            format!("give one of the {what} for all shapes, or one for each, with `;` between them"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts for all keys, but those that exclude others.
    fn text_of_key(key: &str) -> &'static str {
        match key {
            "inputs" | "shapes" | "outputs" => "8,64;64,32",
            "dtypes" | "output_dtypes" => "bf16",
            "formats" => "ND",
            "kv_lengths" => "4096,3000",
            "query_lengths" => "1,1",
            "hf32" | "sequence_parallel" => "true",
            "phase" => "decode",
            "kv_length" => "4096",
            "op" | "layout" => "TND",
            _ => "3",
        }
    }

    #[test]
    fn every_key_is_read_from_text_and_json() {
        let mut by_text = serde_json::Map::new();
        let mut object = serde_json::Map::new();
        for key in QueryFields::keys().filter(|key| *key != "shapes") {
            let text = text_of_key(key);
            by_text.insert(key.to_owned(), QueryFields::value_of_text(key, text).expect(key));
            let value = match text.parse::<u64>() {
                Ok(number) => number.into(),
                Err(_) if text == "true" => true.into(),
                Err(_) => text.into(),
            };
            object.insert(key.to_owned(), value);
        }
        let [parsed, by_text]: [QueryFields; 2] =
            [object, by_text].map(|object| serde_json::from_value(object.into()).expect("all keys"));
        assert_eq!(parsed, by_text);
        assert!(QueryFields::value_of_text("rows", "1").is_err());
        let query = QueryFields { kv_length: None, count: None, duration_us: None, ..by_text };
        let query = query.into_query().expect("a query");
        assert_eq!((query.inputs.len(), query.attention.kv_lengths), (2, vec![4096, 3000]));
        assert_eq!(query.attention.phase, Some(BatchPhase::Decode));
    }

    #[test]
    fn lists_and_texts_are_the_same_query() {
        let parse = |text: &str| -> QueryFields { serde_json::from_str(text).expect(text) };
        let lists =
            r#"{"op": "a", "inputs": [[8, 64], []], "dtypes": ["bf16", "int8"], "kv_lengths": [7, 9]}"#;
        let texts = r#"{"op": "a", "inputs": "8,64;", "dtypes": "bf16;int8", "kv_lengths": "7,9"}"#;
        let [lists, texts] = [lists, texts].map(|text| parse(text).into_query().expect(text));
        assert_eq!(lists, texts);
        assert_eq!(parse(r#"{"op": "a", "inputs": 7}"#).into_query().expect("a query").inputs[0].dims, [7]);
    }

    #[test]
    fn wrong_values_are_refused_by_their_keys() {
        for (fields, problem) in [
            ("{}", "`op` is missing"),
            (r#"{"op": " "}"#, "`op` is missing"),
            (r#"{"op": "a", "tp": 0}"#, "`tp` is 0"),
            (r#"{"op": "a", "ep": 70000}"#, "`ep` is 70000"),
            (r#"{"op": "a", "inputs": [[1,1,1,1,1,1,1,1,1]]}"#, "input 1 has 9 dimensions"),
            (r#"{"op": "a", "batch": 0}"#, "`batch` is 0"),
            (r#"{"op": "a", "kv_length": -5}"#, "`kv_length` is not a number of tokens above 0"),
            (r#"{"op": "a", "kv_length": 5, "kv_lengths": [5]}"#, "`kv_length` is given beside `kv_lengths`"),
            (r#"{"op": "a", "kv_lengths": [5], "query_lengths": [1, 2]}"#, "the lengths of 2 queries"),
            (r#"{"op": "a", "kv_lengths": "x"}"#, "`x` in `kv_lengths`, expected whole numbers"),
            (r#"{"op": "a", "phase": "warm"}"#, "`warm` is none of prefill, decode, mixed"),
            (r#"{"op": "a", "inputs": "8,x"}"#, "shape 1 is `8,x`"),
            (r#"{"op": "a", "inputs": "8", "dtypes": "bfloot"}"#, "`bfloot` is no element type"),
            (r#"{"op": "a", "inputs": "8", "formats": "XYZ"}"#, "`XYZ` is no format"),
            (r#"{"op": "a", "count": 2}"#, "a query has no invocations"),
        ] {
            let parsed: QueryFields = serde_json::from_str(fields).expect(fields);
            let error = parsed.into_query().expect_err(fields);
            assert!(error.message.starts_with(problem), "{fields}: {}", error.message);
        }
    }
}

#[cfg(test)]
mod query_text_tests {
    use super::*;

    #[test]
    fn shapes_are_read_in_all_usual_spellings() {
        for text in ["1,136;5120,768", "(1, 136);(5120, 768)", "\"1,136;5120,768\"", "(1,136,) ; (5120,768)"]
        {
            assert_eq!(parse_shapes(text).expect(text), [vec![1, 136], vec![5120, 768]], "{text}");
        }
        assert_eq!(parse_shapes("7;;()").expect("scalars"), [vec![7], vec![], vec![]]);
        for text in ["1x2", "-1", "1;a", "1,,2", "((1))", "1,,", "18446744073709551616"] {
            assert!(parse_shapes(text).is_err(), "{text}");
        }
        for (name, hint) in [
            ("bfloat61", "did you mean `BFLOAT16`?"),
            ("bf61", "did you mean `BF16`?"),
            ("bfloot", "give a type"),
        ] {
            let error = parse_known_dtype(name).expect_err(name);
            assert!(error.hint.starts_with(hint), "{name}: {}", error.hint);
        }
        for name in ["bf16", "torch.bfloat16", "DT_BF16", "Int4", "HIFLOAT8", "float8_e4m3fn", "UINT64"] {
            assert!(parse_known_dtype(name).expect(name).is_some(), "{name}");
        }
        assert!(parse_known_dtype("").is_ok_and(|dtype| dtype.is_none()));
        let problem = parse_shapes("4;4,x").expect_err("a letter");
        assert!(problem.starts_with("shape 2 is `4,x`, expected lengths"), "{problem}");
    }
}
