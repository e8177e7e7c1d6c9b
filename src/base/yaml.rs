//! Reading YAML into structs, with errors that give file, line, column and the nearest valid name. Positions are kept
//! as [`Spanned`]; where a type has no place for them, [`find_value`] looks a path of keys up in the text.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, de};
use serde_saphyr::{
    Budget, Error as SaphyrError, MergeKeyPolicy, MessageFormatter, Options, UserMessageFormatter,
    budget::BudgetBreach,
};

pub(crate) use serde_saphyr::{Location, Spanned};

use crate::base::command_error::Failure;
use crate::base::suggest::{nearest_name, truncate_for_message};

const MAX_BYTES: usize = 1 << 20;
/// Limit of nested lists and mappings: several times what any file needs, and within the stack of any thread.
const MAX_DEPTH: usize = 32;
const HINT: &str = "correct the file and try again";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", position_prefix(.file, *.line, *.column))]
pub struct YamlError {
    /// The file, or its name inside the program; empty for an error outside of files.
    pub file: PathBuf,
    /// Line from 1, where known.
    pub line: Option<usize>,
    /// Column from 1, where known.
    pub column: Option<usize>,
    /// The wrong value and the expected one.
    pub problem: String,
    pub hint: String,
}

fn position_prefix(file: &Path, line: Option<usize>, column: Option<usize>) -> String {
    if file.as_os_str().is_empty() {
        return String::new();
    }
    let suffix = |number: Option<usize>| number.map_or_else(String::new, |number| format!(":{number}"));
    format!("{}{}{}: ", file.display(), suffix(line), suffix(column))
}

impl Failure for YamlError {
    fn hint(&self) -> String {
        self.hint.clone()
    }
}

impl YamlError {
    pub(crate) fn of_file(file: &Path, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, column: None, problem: problem.into(), hint: hint.into() }
    }

    /// An error at a position. Quoted parts of the problem are truncated, since an expression may fill a page.
    pub(crate) fn at(file: &Path, position: Location, problem: &str, hint: &str) -> Self {
        let number = |number: u64| usize::try_from(number).ok().filter(|_| position != Location::UNKNOWN);
        let pieces: Vec<String> = problem.split('`').map(truncate_for_message).collect();
        Self {
            line: number(position.line()),
            column: number(position.column()),
            ..Self::of_file(file, pieces.join("`"), hint)
        }
    }
}

pub(crate) fn check_yaml(file: &Path, text: &str) -> Result<(), YamlError> {
    parse::<YamlNode>(file, text).map(drop)
}

/// Parses a file's text. Duplicate keys and nesting beyond [`MAX_DEPTH`] are errors.
pub(crate) fn parse<'t, T: Deserialize<'t>>(file: &Path, text: &'t str) -> Result<T, YamlError> {
    parse_with_hint(file, text, HINT)
}

/// Does the same as [`parse`]; errors that the types of the file report themselves get the given hint.
pub(crate) fn parse_with_hint<'t, T: Deserialize<'t>>(
    file: &Path,
    text: &'t str,
    hint: &str,
) -> Result<T, YamlError> {
    if text.len() > MAX_BYTES {
        let problem = format!("has {} bytes, the limit is {MAX_BYTES}", text.len());
        return Err(YamlError::of_file(file, problem, "split the file or remove what is not needed"));
    }
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let mut cause = &error;
        while let SaphyrError::AliasError { error, .. } = cause {
            cause = error;
        }
        let (problem, near) = describe(cause, text);
        let is_of_a_type = matches!(cause, SaphyrError::Message { .. });
        let hint = if is_of_a_type { hint } else { HINT };
        let hint = near.map_or_else(|| hint.to_owned(), |near| format!("did you mean `{near}`?"));
        YamlError::at(file, error.location().unwrap_or(Location::UNKNOWN), &problem, &hint)
    })
}

fn options() -> Options {
    let mut budget = Budget::default();
    budget.max_depth = MAX_DEPTH;
    budget.flow_nesting_limit = MAX_DEPTH;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.merge_keys = MergeKeyPolicy::AsOrdinary;
    options.strict_booleans = true;
    options.with_snippet = false;
    options
}

fn describe(error: &SaphyrError, text: &str) -> (String, Option<&'static str>) {
    let found = error.location().and_then(|at| {
        let start = usize::try_from(at.span().byte_offset()?).ok()?;
        let length = usize::try_from(at.span().byte_len()?).ok()?;
        text.get(start..start.checked_add(length)?)
    });
    let found =
        found.filter(|found| !found.is_empty()).map_or("nothing".to_owned(), |found| format!("`{found}`"));
    let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut near = None;
    let problem = match error {
        SaphyrError::SerdeUnknownField { field, expected, .. } => {
            near = nearest_name(field, expected.iter().copied());
            format!("unknown key `{field}`, expected one of {}", listed(expected))
        }
        SaphyrError::SerdeUnknownVariant { variant, expected, .. } => {
            near = nearest_name(variant, expected.iter().copied());
            format!("unknown value `{variant}`, expected one of {}", listed(expected))
        }
        SaphyrError::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
        SaphyrError::DuplicateMappingKey { key: Some(key), .. } => format!("a second key `{key}`"),
        SaphyrError::InvalidScalar { ty, .. } => {
            let most = match *ty {
                "u8" => Some(u8::MAX.into()),
                "u16" => Some(u16::MAX.into()),
                "u32" => Some(u32::MAX.into()),
                "u64" | "usize" => Some(u64::MAX),
                _ => None,
            };
            let most = most.filter(|_| found.trim_matches('`').bytes().all(|byte| byte.is_ascii_digit()));
            let most = most.map_or_else(String::new, |most| format!(" and at most {most}"));
            let kind = match ty.as_bytes() {
                [b'u', ..] => "a whole number of at least 0",
                [b'i', ..] => "a whole number",
                b"floating point" => "a number",
                _ => ty,
            };
            format!("found {found}, expected {kind}{most}")
        }
        SaphyrError::InvalidBooleanStrict { .. } => format!("found {found}, expected `true` or `false`"),
        SaphyrError::NullIntoString { .. } => "no value is given, expected a text".to_owned(),
        SaphyrError::Unexpected { expected: "sequence start", .. } => {
            format!("found {found}, expected a list")
        }
        SaphyrError::Unexpected { expected: "mapping start", .. } => {
            format!("found {found}, expected a mapping")
        }
        SaphyrError::Unexpected { expected: "string scalar", .. } => {
            "found a list or a mapping, expected a single value".to_owned()
        }
        SaphyrError::MultipleDocuments { .. } => {
            "a second document starts here; remove it and its `---`".to_owned()
        }
        SaphyrError::Budget { breach: BudgetBreach::Depth { .. }, .. } => too_deep(),
        other => match UserMessageFormatter.format_message(other).into_owned() {
            message if message == "recursion limit exceeded" => too_deep(),
            message => message,
        },
    };
    (problem, near)
}

fn too_deep() -> String {
    format!("is nested too deeply, the limit is {MAX_DEPTH} levels")
}

pub(crate) fn print<T: serde::Serialize>(value: &T) -> String {
    serde_saphyr::to_string(value).expect("keys are scalars")
}

pub(crate) type YamlMap<T> = IndexMap<Spanned<String>, T>;

/// A value of any kind. Scalars are kept as text.
#[derive(Clone, Debug)]
pub(crate) enum YamlNode {
    Scalar(String),
    List(Vec<Spanned<YamlNode>>),
    Map(YamlMap<Spanned<YamlNode>>),
}

impl YamlNode {
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Scalar(text) => Some(text),
            Self::List(_) | Self::Map(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

macro_rules! visit_scalars {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E>(self, value: $type) -> Result<YamlNode, E> {
            Ok(YamlNode::Scalar(value.to_string()))
        })*
    };
}

impl<'de> de::Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar("null".to_owned()))
    }

    visit_scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: de::SeqAccess<'de>>(self, items: A) -> Result<YamlNode, A::Error> {
        Vec::deserialize(de::value::SeqAccessDeserializer::new(items)).map(YamlNode::List)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, entries: A) -> Result<YamlNode, A::Error> {
        IndexMap::deserialize(de::value::MapAccessDeserializer::new(entries)).map(YamlNode::Map)
    }
}

/// Returns the position of the value at a path of keys and list indices, such as `faults`, `0`, `times`. If a mapping or
/// a list lacks the next step, the position is that of its key; if a scalar is reached first, that of the scalar.
pub(crate) fn find_value(text: &str, path: &[&str]) -> Location {
    let Ok(mut node) = serde_saphyr::from_str_with_options::<Spanned<YamlNode>>(text, options()) else {
        return Location::UNKNOWN;
    };
    let mut owner = node.defined;
    for step in path {
        let next = match node.value {
            YamlNode::Scalar(_) => return node.defined,
            YamlNode::List(items) => {
                let at: Option<usize> = step.parse().ok();
                at.and_then(|at| items.into_iter().nth(at)).map(|item| (item.defined, item))
            }
            YamlNode::Map(entries) => {
                let entry = entries.into_iter().find(|(key, _)| key.value == *step);
                entry.map(|(key, value)| (key.defined, value))
            }
        };
        let Some((position, value)) = next else { return owner };
        (owner, node) = (position, value);
    }
    node.defined
}

/// Splits at commas that are not inside brackets or parentheses.
pub(crate) fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its field names matter")]
    struct Sample {
        kernel: String,
        schema: Option<String>,
        count: Option<u32>,
        names: Option<Vec<String>>,
        is_on: Option<bool>,
    }

    fn error(text: &str) -> String {
        let error = parse::<Sample>(Path::new("a.yaml"), text).expect_err(text);
        format!("{error}; {}", error.hint)
    }

    #[test]
    fn type_errors_name_position_and_expectation() {
        let other = "correct the file and try again";
        for (text, expected) in [
            ("kernel: a\ncount: -1\n", "2:8: found `-1`, expected a whole number of at least 0"),
            ("kernel: a\ncount: [1]\n", "2:8: found a list or a mapping, expected a single value"),
            ("kernel: a\nnames: x\n", "2:8: found `x`, expected a list"),
            ("kernel: a\nis_on: yes\n", "2:8: found `yes`, expected `true` or `false`"),
            ("kernel:\n", "1:7: no value is given, expected a text"),
            ("schema: a\n", "1:1: the key `kernel` is missing"),
            ("kernel: a\nkernel: b\n", "2:1: a second key `kernel`"),
            ("- a\n", "1:1: found nothing, expected a mapping"),
            ("kernel: a\n---\nkernel: b\n", "3:1: a second document starts here; remove it and its `---`"),
            ("kernel: a\nschema: *b\n", "2:9: reference to unknown value"),
        ] {
            assert_eq!(error(text), format!("a.yaml:{expected}; {other}"), "{text}");
        }
        let unknown = error("kernel: Add\nshema: x\n");
        assert!(
            unknown.starts_with("a.yaml:2:1: unknown key `shema`, expected one of `kernel`"),
            "{unknown}"
        );
        assert!(unknown.ends_with("; did you mean `schema`?"), "{unknown}");
        assert!(parse::<Sample>(Path::new("a.yaml"), "kernel: [\n").is_err_and(|error| error.line.is_some()));
    }

    /// The time limit is far above the time needed, also on a busy machine, and far below that of a parser whose time
    /// grows with the square of the depth.
    #[test]
    fn hostile_texts_are_refused_quickly() {
        let start = Instant::now();
        let aliases = (1..30)
            .map(|index| format!("a{index}: &a{index} [{}]\n", format!("*a{},", index - 1).repeat(10)));
        for text in [
            "[".repeat(MAX_BYTES),
            format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000)),
            "{a: ".repeat(100_000),
            "- ".repeat(100_000),
            "? ".repeat(100_000),
            (0..1000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
            format!("a0: &a0 [x]\n{}", aliases.collect::<String>()),
            " ".repeat(MAX_BYTES + 1),
        ] {
            let error = check_yaml(Path::new("a.yaml"), &text).expect_err("too much");
            assert!(error.problem.len() < 200, "{error}");
        }
        assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
        let deep = check_yaml(Path::new("a.yaml"), &"[".repeat(1000)).expect_err("too deep");
        assert_eq!(deep.problem, "is nested too deeply, the limit is 32 levels");
        assert!(check_yaml(Path::new("a.yaml"), &format!("{}{}", "[".repeat(30), "]".repeat(30))).is_ok());
    }

    #[test]
    fn paths_lead_to_values_or_to_keys_of_incomplete_mappings() {
        let text = "faults:\n- {times: 1}\n- times: 2\n  where: {devices: 3}\n\"n,k\": x\n";
        let find = |path: &[&str]| {
            let position = find_value(text, path);
            (position.line(), position.column())
        };
        assert_eq!(find(&["faults", "1", "times"]), (3, 10));
        assert_eq!(find(&["faults", "1", "where", "devices", "0"]), (4, 20), "no list");
        assert_eq!(find(&["faults", "0", "where"]), (2, 3), "a missing key");
        assert_eq!(find(&["faults", "7"]), (1, 1), "a missing item");
        assert_eq!(find(&["n,k"]), (5, 8));
        assert_eq!(find_value("a: [", &["a"]), Location::UNKNOWN);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-a: \\[\\]{},&*!|>'\"%@`#?\n\t0-9]{0,200}") {
            let _ = check_yaml(Path::new("a.yaml"), &text);
            let _ = parse::<Sample>(Path::new("a.yaml"), &text);
        }
    }
}
