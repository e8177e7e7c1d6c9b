//! Attributes of a case beside its tensors, each with a column: `EP Size`, `Runtime …`, and `avg_seq_len` in tables of
//! older tools. Some runtime columns identify the case; others only explain the source of the values.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    AttentionCase, AttentionSlot, Dims, KernelName, Slot, attention_attribute,
    collective::{ENVIRONMENT, PARTS, RANKS, TIER},
};

pub(crate) const RUNTIME: &str = "Runtime ";
/// Column of the number of ranks that share the experts, on which the time of communicating kernels depends.
pub(crate) const EP_SIZE: &str = "EP Size";
/// Number of ranks over which a kernel that communicates runs, where no shape shows it.
pub(crate) const WORLD_SIZE: &str = "Runtime world_size";
/// True for products of FLOAT whose launch was in HF32, which rounds their inputs and takes about half the time.
pub(crate) const ALLOW_HF32: &str = "Runtime allow_hf32";

/// Returns the option of `npubench ingest` that sets a column; `None` if no option does.
pub(crate) fn ingest_option(column: &str) -> Option<&'static str> {
    match column {
        EP_SIZE => Some("--ep-size"),
        WORLD_SIZE => Some("--world-size"),
        _ => None,
    }
}

/// Name of [`AVG_SEQ_LEN`] in tables of older tools.
const OLD_AVG_SEQ_LEN: &str = "avg_seq_len";
/// Mean length of the keys and values of a batch, for unknown lengths.
pub(super) const AVG_SEQ_LEN: &str = "Runtime avg_seq_len";

/// Layout of the caches that KvRmsNormRopeCache writes.
const CACHE_MODE: &str = "Runtime cache_mode";
/// Paged caches in the order of their dimensions; torch_npu's documentation also has `PA` for it.
const PAGED_CACHE: &str = "PA_BNSD";

/// Runtime columns that name the source of values, or repeat shapes.
const LABELS: [&str; 10] = [
    "source_profile",
    "metadata_completeness",
    "operator_input_shapes_raw",
    "actual_seq_lengths_shape",
    "actual_seq_lengths_kv_shape",
    "block_table_shape",
    "attn_state",
    "kv_cache_mode",
    "phase",
    "case_id",
];

/// Attributes, except for the ones of attention, that are found in any spelling of their columns, without the prefix.
/// `batch_size` is not among them: tables have such columns of their own.
const OTHER_NAMES: [&str; 13] = [
    "allow_hf32",
    "antiquant_mode",
    "cache_layout",
    "cache_mode",
    "inner_precise",
    "is_output_kv",
    "key_antiquant_mode",
    "sparse_block_size",
    "sparse_indices_pattern",
    "sparse_indices_valid_count",
    "topk",
    "value_antiquant_mode",
    "world_size",
];

/// Columns that repeat the shape of an input, with its slot in fused attention.
pub(crate) const SHAPE_LABELS: [(&str, AttentionSlot); 3] = [
    ("Runtime actual_seq_lengths_shape", AttentionSlot::QueryLengths),
    ("Runtime actual_seq_lengths_kv_shape", AttentionSlot::KvLengths),
    ("Runtime block_table_shape", AttentionSlot::BlockTable),
];

const IS_OUTPUT_KV: &str = "Runtime is_output_kv";

const MADE: [&str; 2] = ["source_profile", "metadata_completeness"];

/// Values by column, each in one spelling; a missing value is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaseAttributes(BTreeMap<String, String>);

impl CaseAttributes {
    /// Returns the name of a column's attribute; `None` if the column is none. A value under another spelling of a name must
    /// not be ignored, because two rows that differ there would be one case.
    pub(crate) fn name_of(column: &str) -> Option<Cow<'_, str>> {
        match column {
            EP_SIZE => Some(EP_SIZE.into()),
            RANKS | TIER | ENVIRONMENT | PARTS => Some(column.into()),
            OLD_AVG_SEQ_LEN => Some(AVG_SEQ_LEN.into()),
            _ => {
                let name = runtime_column(column)?;
                let bare = name.strip_prefix(RUNTIME).unwrap_or(&name);
                (!LABELS.contains(&bare)).then_some(name)
            }
        }
    }

    pub(crate) fn is_name(column: &str) -> bool {
        Self::name_of(column).is_some_and(|name| name == column)
    }

    /// Returns the name of a column in expressions: `num_heads` for `Runtime num_heads`, `ep_size` for `EP Size`.
    pub(crate) fn variable_name(column: &str) -> String {
        column.strip_prefix(RUNTIME).unwrap_or(column).replace(' ', "_").to_ascii_lowercase()
    }

    pub(crate) fn grid_columns() -> impl Iterator<Item = String> {
        let labels = LABELS.into_iter().filter(|label| !MADE.contains(label));
        let labels = labels.map(|label| format!("{RUNTIME}{label}"));
        attention_attribute::ALL.into_iter().chain([EP_SIZE]).map(str::to_owned).chain(labels)
    }

    pub(crate) fn is_derived_column(column: &str) -> bool {
        column.strip_prefix(RUNTIME).is_some_and(|bare| MADE.contains(&bare))
    }

    /// Returns true if a cell has a value; `N/A`, `nan` and the like are none.
    pub(crate) fn has_value(cell: &str) -> bool {
        normalize_cell(cell).is_some()
    }

    /// Returns an attribute with different values in two sets. Mean lengths may be rounded, as older tools do.
    pub(crate) fn find_contradiction(&self, other: &Self) -> Option<&str> {
        let differs = |name: &str, value: &str| match other.get(name) {
            Some(theirs) if name == AVG_SEQ_LEN => !is_rounded(value, theirs),
            Some(theirs) => theirs != value,
            None => false,
        };
        self.iter().find(|(name, value)| differs(name, value)).map(|(name, _)| name)
    }

    /// Sets the attribute of a column; cells without a value and columns that are not attributes are ignored.
    pub fn set(&mut self, column: &str, cell: &str) {
        if let Some(name) = Self::name_of(column)
            && let Some(value) = normalize_cell(cell)
        {
            let value = match (&*name, value.as_str()) {
                (CACHE_MODE, "PA") => PAGED_CACHE.to_owned(),
                (IS_OUTPUT_KV, "0") => "False".to_owned(),
                (IS_OUTPUT_KV, "1") => "True".to_owned(),
                _ => value,
            };
            self.0.insert(name.into_owned(), value);
        }
    }

    /// Sets the attribute of a row's cell. Two columns that contradict each other give both values, with which no call agrees.
    pub(crate) fn set_from_row(&mut self, column: &str, cell: &str) {
        let name = Self::name_of(column);
        let earlier = name.as_deref().and_then(|name| self.0.get(name).cloned());
        self.set(column, cell);
        let is_mean_of = |text: &str, mean: &str| mean.parse().is_ok_and(|mean| is_mean(text, mean));
        if let (Some(earlier), Some(name)) = (earlier, name)
            && let Some(value) = self.0.get_mut(&*name)
            && !(earlier == *value || is_mean_of(&earlier, value) || is_mean_of(value, &earlier))
        {
            let values = BTreeSet::from([earlier, value.clone()]);
            *value = values.into_iter().collect::<Vec<_>>().join(" and ");
        }
    }

    /// Sets a label that should repeat the shape of an input and has another one, so that the row is a case of its own.
    pub(crate) fn set_contradicting_shape(
        &mut self,
        column: &str,
        cell: &str,
        kernel: &KernelName,
        inputs: &[Slot],
    ) {
        let Some(column) = runtime_column(column) else { return };
        let Some((_, slot)) = SHAPE_LABELS.iter().find(|(label, _)| *label == column) else { return };
        let Some(value) = normalize_cell(cell) else { return };
        let is_shape =
            |input: &Slot| input.as_ref().is_some_and(|tensor| Dims(&tensor.dims).to_string() == value);
        let agrees = match kernel.as_str() {
            AttentionCase::KERNEL => inputs.get(*slot as usize).is_some_and(is_shape),
            _ => inputs.iter().any(is_shape),
        };
        if !agrees {
            self.0.insert(column.into_owned(), value);
        }
    }

    pub(crate) fn contradicting_shape(&self) -> Option<String> {
        let (column, value) = self.iter().find(|(column, _)| Self::is_shape_label(column))?;
        Some(format!("`{column}` is {value}, which is not the shape of the recorded input"))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn is_shape_label(column: &str) -> bool {
        runtime_column(column).is_some_and(|name| SHAPE_LABELS.iter().any(|(label, _)| *label == name))
    }

    pub(crate) fn allows_hf32(&self) -> bool {
        self.get(ALLOW_HF32) == Some("True")
    }

    /// Returns the value of an attribute that is a list of whole numbers; `None` for other values.
    pub(crate) fn numbers(&self, name: &str) -> Option<Vec<u64>> {
        self.get(name)?.split(',').map(|number| number.parse().ok()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        let differs = self.0.iter().filter(|(name, value)| other.0.get(*name) != Some(*value));
        Self(differs.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Returns the union of two sets, in which values of `self` take precedence.
    pub(crate) fn merged_over(&self, other: &Self) -> Self {
        let mut joined = other.clone();
        joined.0.extend(self.0.clone());
        joined
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&str, &str) -> bool) {
        self.0.retain(|name, value| is_kept(name, value));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Appends `|name=value;name=value`; nothing without attributes.
    pub(super) fn append_to(&self, text: &mut String) {
        for (index, (name, value)) in self.iter().enumerate() {
            text.extend([if index == 0 { "|" } else { ";" }, name, "="]);
            for c in value.chars() {
                // Separators in a value must not look like another attribute.
                match c {
                    '|' | ';' | '=' | '%' => text.push_str(&format!("%{:02X}", c as u32)),
                    c => text.push(c),
                }
            }
        }
    }

    pub(super) fn from_signature(text: &str) -> Option<Self> {
        let unescaped = |value: &str| -> Option<String> {
            let mut parts = value.split('%');
            let mut text = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok())?;
                text.push(char::from(code));
                text.push_str(&part[2..]);
            }
            Some(text)
        };
        let attribute = |attribute: &str| {
            let (name, value) = attribute.split_once('=')?;
            Some((name.to_owned(), unescaped(value)?))
        };
        text.split(';').filter(|text| !text.is_empty()).map(attribute).collect::<Option<_>>().map(Self)
    }
}

/// Returns the name of a runtime column. The prefix may be in another case or with another separator, and known names may lack it.
fn runtime_column(column: &str) -> Option<Cow<'_, str>> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let exact = column.strip_prefix(RUNTIME).filter(|bare| !bare.is_empty());
    if exact.is_some_and(|bare| bare.chars().all(is_plain)) {
        return Some(column.into());
    }
    let lower = column.to_ascii_lowercase();
    let words = lower.split(|c: char| c.is_whitespace() || matches!(c, '_' | '-'));
    let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let has_prefix = words.len() > 1 && words[0] == "runtime";
    words.drain(..usize::from(has_prefix));
    let bare = words.join("_");
    if bare == "ep_size" {
        return Some(EP_SIZE.into());
    }
    let of_attention = attention_attribute::ALL.iter().any(|name| name.strip_prefix(RUNTIME) == Some(&bare));
    let is_known = of_attention || OTHER_NAMES.contains(&bare.as_str()) || LABELS.contains(&bare.as_str());
    match exact {
        // A name of an entry that the user added.
        Some(_) if !is_known => Some(column.into()),
        _ => (has_prefix || is_known).then(|| format!("{RUNTIME}{bare}").into()),
    }
}

/// Returns the normal spelling of a cell: lists of numbers as `1,2,3` without enclosing characters, numbers without
/// leading or trailing zeros, truth values as Python prints them, other text unchanged. `None` without a value.
pub(crate) fn normalize_cell(cell: &str) -> Option<String> {
    let enclosing = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '[' | ']' | '(' | ')');
    let bare = cell.trim_matches(enclosing);
    match bare.to_ascii_uppercase().as_str() {
        "" | "N/A" | "NA" | "NAN" | "NULL" | "NONE" => return None,
        "TRUE" => return Some("True".to_owned()),
        "FALSE" => return Some("False".to_owned()),
        _ => {}
    }
    let words = bare.split(|c: char| enclosing(c) || matches!(c, ',' | ';')).filter(|word| !word.is_empty());
    let numbers: Option<Vec<&str>> = words.map(plain_number).collect();
    let text = numbers.map_or_else(|| bare.to_owned(), |numbers| numbers.join(","));
    (!text.is_empty()).then_some(text)
}

/// Returns true for a mean that was rounded, or cut after its last digit.
pub(crate) fn is_mean(recorded: &str, mean: f64) -> bool {
    let digits = recorded.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let unit = 10_f64.powi(-i32::try_from(digits).unwrap_or(i32::MAX));
    recorded.parse::<f64>().is_ok_and(|recorded| (-0.500_001..1.0).contains(&((mean - recorded) / unit)))
}

/// Returns true if the shorter of two numbers is the longer one, rounded.
fn is_rounded(left: &str, right: &str) -> bool {
    let digits = |text: &str| text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let (Ok(one), Ok(other)) = (left.parse::<f64>(), right.parse::<f64>()) else { return left == right };
    let fewest = i32::try_from(digits(left).min(digits(right))).unwrap_or(0);
    (one - other).abs() <= 0.500_001 * 10_f64.powi(-fewest)
}

/// Returns `7` for `007`, `4096` for `4096.000000`, `0.5` for `0.50`; `None` if the text is not a plain number.
fn plain_number(word: &str) -> Option<&str> {
    let Some(digits) = word.strip_prefix('-') else { return unsigned_number(word) };
    let number = unsigned_number(digits)?;
    // Further zeros in front of a negative number are not removed.
    (number != "0" && digits.starts_with(number)).then(|| &word[..=number.len()])
}

fn unsigned_number(word: &str) -> Option<&str> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let leading = whole.len() - whole.trim_start_matches('0').len().max(1);
    let number = &word[leading..];
    Some(if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_each_value() {
        for (cell, value) in [
            ("[128, 256]", "128,256"),
            ("128;256", "128,256"),
            ("\"128,0256\"", "128,256"),
            ("4096.000000", "4096"),
            ("0.50", "0.5"),
            ("000", "0"),
            (" TND ", "TND"),
            ("-1", "-1"),
            ("-1.0", "-1"),
            ("[-1, 2]", "-1,2"),
            ("--1", "--1"),
            ("--1; 2", "--1; 2"),
            ("false", "False"),
            ("FALSE", "False"),
            ("True", "True"),
        ] {
            assert_eq!(normalize_cell(cell).as_deref(), Some(value), "{cell}");
        }
        for nothing in ["", " ", "N/A", "None", "nan", "[]", "\"\"", ",", "[[], []]"] {
            assert_eq!(normalize_cell(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn cell_of_many_dashes_is_text() {
        let cell = "-".repeat(1_000_000);
        assert_eq!(normalize_cell(&cell).as_deref(), Some(cell.as_str()));
    }

    #[test]
    fn rounded_mean_length_is_no_contradiction() {
        let mean = |text: &str| {
            let mut attributes = CaseAttributes::default();
            attributes.set(AVG_SEQ_LEN, text);
            attributes
        };
        // 24624 tokens of 7 sequences, as recorded and as computed.
        assert_eq!(mean("3518").find_contradiction(&mean("3517.714286")), None);
        assert_eq!(mean("3517.714286").find_contradiction(&mean("3518")), None);
        assert_eq!(mean("3517").find_contradiction(&mean("3517.714286")), Some(AVG_SEQ_LEN));
    }

    #[test]
    fn means_may_be_rounded_or_cut() {
        for recorded in ["3517.714286", "3517.71", "3517.7", "3518", "3517"] {
            assert!(is_mean(recorded, 24624.0 / 7.0), "{recorded}");
        }
        for recorded in ["3516", "3519", "3517.5", "3517.714288", "mean", ""] {
            assert!(!is_mean(recorded, 24624.0 / 7.0), "{recorded}");
        }
    }

    #[test]
    fn attribute_text_escapes_separators() {
        let mut odd = CaseAttributes::default();
        odd.set("Runtime a", "1;Runtime b=2");
        let mut text = String::new();
        odd.append_to(&mut text);
        assert_eq!(text, "|Runtime a=1%3BRuntime b%3D2");
    }

    #[test]
    fn explaining_columns_are_no_attributes() {
        for name in ["Runtime sparse_mode", "Runtime xyz", "Runtime odd Name", AVG_SEQ_LEN, EP_SIZE] {
            assert!(CaseAttributes::is_name(name), "{name}");
        }
        assert_eq!(CaseAttributes::name_of("avg_seq_len").as_deref(), Some(AVG_SEQ_LEN));
        for label in [
            "Runtime source_profile",
            "runtime_phase",
            "Runtime block_table_shape",
            "Runtime ",
            "OP State",
            "Runtimes",
        ] {
            assert_eq!(CaseAttributes::name_of(label), None, "{label}");
        }
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        let name = "Runtime actual_seq_lengths_kv_values";
        for column in [
            "runtime actual_seq_lengths_kv_values",
            "RUNTIME Actual Seq Lengths KV Values",
            "Runtime_actual_seq_lengths_kv_values",
            " Runtime  actual seq_lengths_kv_values ",
            "actual_seq_lengths_kv_values",
            "Actual Seq Lengths KV Values",
        ] {
            assert_eq!(CaseAttributes::name_of(column).as_deref(), Some(name), "{column}");
            assert!(!CaseAttributes::is_name(column), "{column}");
        }
        assert_eq!(CaseAttributes::name_of("Runtime_xyz").as_deref(), Some("Runtime xyz"));
        assert_eq!(CaseAttributes::name_of("ep_size").as_deref(), Some(EP_SIZE));
        assert!(CaseAttributes::is_shape_label("runtime_block_table_shape"));
        for column in ["xyz", "Block Dim", "batch_size", "Runtime", "runtime_"] {
            assert_eq!(CaseAttributes::name_of(column), None, "{column}");
        }
    }
}
