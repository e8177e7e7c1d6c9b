//! Answers of lookups: their parts, reasons of misses, and answers from rows that fit a query equally well, or between rows.

use std::{cmp::Ordering, collections::BTreeSet, fmt};

use strum::{Display, IntoStaticStr};

use super::{KernelIndex, KernelRows, MatchRule, Padding, RowMatch, RuleKind, SlotDims};
use crate::kernel::{Dtype, KernelName, Tensor, Verdict};

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Micros(pub f64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AnswerSource {
    Measured,
    Interpolated,
    /// A row of another element type, in proportion to the bytes.
    Scaled,
    /// A row with the tokens that a framework had before it padded them.
    Padded,
    Partial,
    #[default]
    Miss,
}

impl AnswerSource {
    pub(crate) fn of_rule(rule: MatchRule) -> Self {
        match rule.kind {
            _ if rule.padding != Padding::None => Self::Padded,
            RuleKind::ElementwiseBytes => Self::Scaled,
            RuleKind::InterpolatedOneDim
            | RuleKind::InterpolatedTwoDims
            | RuleKind::InterpolatedThreeDims
            | RuleKind::MessageBracket
            | RuleKind::MessageAcrossChange
            | RuleKind::MessageFit => Self::Interpolated,
            _ => Self::Measured,
        }
    }
}

/// Column of a latency, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LatencyColumn {
    Replay,
    Production,
    /// Duration in tables that repeat a profile.
    Profile,
}

impl LatencyColumn {
    pub const COUNT: usize = 3;
    pub const ALL: [Self; Self::COUNT] = [Self::Replay, Self::Production, Self::Profile];

    /// Returns the names of the column, the present one first.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Replay => &["Average Duration(us)", "MicroBench Duration(us)"],
            Self::Production => &["Profiling Average Duration(us)"],
            Self::Profile => &["Duration(us)"],
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct UsedRow {
    pub kernel: KernelName,
    /// Line in the table, from 1.
    pub line: u32,
    pub column: LatencyColumn,
    pub latency: Micros,
    /// Coordinates along the axes of an interpolation, in the order of [`MatchRule::axis_names`]; `None` for other rules.
    pub coordinates: Option<[f64; 3]>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NearestRow {
    pub kernel: KernelName,
    /// Line in the table, from 1.
    pub line: u32,
    pub inputs: Vec<Tensor>,
    pub latency: Option<Micros>,
    /// Sum of the logarithms of the ratios of dimensions.
    pub distance: f64,
}

/// Kernel without a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingTable {
    pub kernel: String,
    /// File and line of the mapping that names it.
    pub place: Option<String>,
}

impl fmt::Display for MissingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{} ({place})", self.kernel),
            None => f.write_str(&self.kernel),
        }
    }
}

/// Reason why a query has no answer, in the words of the superseded tool where it has the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "snake_case")]
pub enum MissReason {
    Unmapped,
    #[strum(to_string = "csv_not_found: {0}")]
    CsvNotFound(Listed<MissingTable>),
    ShapeMismatch,
    /// The ranks do not divide the rows of a product whose result is scattered.
    #[strum(to_string = "shape_mismatch: {ranks} ranks cannot share {rows} rows")]
    UndividedRows {
        rows: u64,
        ranks: u64,
    },
    /// Rows with these inputs have these numbers of ranks, and none has the number of ranks of the query.
    #[strum(to_string = "rank_count_mismatch: rows with these inputs are of {0} ranks")]
    RankCountMismatch(Listed<u64>),
    InputCountMismatch,
    DtypeMismatch,
    FormatMismatch,
    OutputMismatch,
    /// Rows with these shapes have different element types, and the query names none.
    AmbiguousDtype,
    /// Rows with these inputs have different outputs, and the query names none of them.
    AmbiguousOutput,
    /// Rows with these inputs ran in HF32, and the query does not, or the reverse.
    #[strum(serialize = "hf32_mismatch")]
    Hf32Mismatch,
    NotMeasured,
    /// The rows, models or factors give a time that no kernel takes.
    #[strum(to_string = "latency_out_of_range: more than an hour")]
    LatencyOutOfRange,
    /// A cell of the row in this line is no duration of a kernel.
    #[strum(to_string = "wrong_duration: a cell of line {0} is no duration; `npubench db check` names it")]
    WrongDuration(u32),
    /// Rows with these shapes have attributes that a query by shapes leaves open.
    #[strum(to_string = "open_attributes: {0}")]
    OpenAttributes(Listed<String>),
    /// Rows of a kernel whose mapping requires agreement fit equally well, and differ.
    #[strum(to_string = "ambiguous_semantic_match:{0}")]
    AmbiguousSemanticMatch(String),
    /// Attributes in which the row of attention that is nearest to the query deviates.
    #[strum(to_string = "attention_mismatch: the nearest row, in line {line}, has {differences}")]
    AttentionMismatch {
        line: u32,
        differences: Listed<AttentionDifference>,
    },
    ElementwiseOutputShapeMismatch,
    /// The shapes do not fit the rewriting of dimensions under tensor parallelism.
    #[strum(to_string = "tp_projection_invalid:{0}")]
    TpProjectionInvalid(String),
    #[strum(to_string = "semantic_context_missing:target:{0}")]
    ContextMissing(&'static str),
    EpSizeNotConfigured,
    DecomposeFailed,
    #[strum(to_string = "csv_format_raw: no column {0}")]
    CsvFormatRaw(Listed<&'static str>),
    /// The number of ranks is unknown, or differs from the number of ranks of the group.
    RanksNotGiven,
    /// The table has several tiers of the topology, and the query names none.
    #[strum(to_string = "ambiguous_topology_tier")]
    AmbiguousTier,
    /// The size of the message does not follow from the inputs.
    #[strum(to_string = "message_bytes_unknown")]
    MessageUnknown,
    /// The message is smaller or larger than all measured ones, whose sizes are from `min` to `max`.
    #[strum(to_string = "message_out_of_range: {bytes} B, measured are {min} to {max} B")]
    MessageOutOfRange {
        bytes: u64,
        min: u64,
        max: u64,
    },
    #[strum(to_string = "no_rows_of_group: {0} ranks")]
    NoRowsOfGroup(u64),
    /// A part of a composite has no answer. `kind` is `comm_`, `attention_`, or empty for other kernels.
    #[strum(to_string = "{kind}sub_kernel_miss:{part}: {reason}")]
    SubKernelMiss {
        kind: &'static str,
        part: String,
        reason: Box<Self>,
    },
    #[strum(to_string = "unsupported query mode {0}")]
    UnsupportedQueryMode(&'static str),
}

/// Items that are shown with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T>(pub Vec<T>);

impl<T: fmt::Display> fmt::Display for Listed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

impl<T: Ord> FromIterator<T> for Listed<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect::<BTreeSet<T>>().into_iter().collect())
    }
}

impl<T: Ord> Listed<T> {
    fn add(&mut self, more: Self) {
        *self = std::mem::replace(self, Self(Vec::new())).0.into_iter().chain(more.0).collect();
    }
}

impl MissReason {
    pub(crate) fn of_ranks(ranks: u64) -> Self {
        Self::RankCountMismatch(Listed(vec![ranks]))
    }

    /// Adds the reason why another row does not fit: the one that is nearest to an answer remains.
    pub(crate) fn add(&mut self, other: Self) {
        let rank = |reason: &Self| match reason {
            Self::ShapeMismatch => 1,
            Self::OutputMismatch => 2,
            Self::DtypeMismatch => 3,
            Self::FormatMismatch => 4,
            Self::RankCountMismatch(_) => 5,
            Self::Hf32Mismatch => 6,
            Self::NotMeasured => 7,
            Self::WrongDuration(_) => 8,
            Self::OpenAttributes(_) => 9,
            _ => 0,
        };
        match (&mut *self, other) {
            (Self::RankCountMismatch(known), Self::RankCountMismatch(more)) => known.add(more),
            (Self::OpenAttributes(known), Self::OpenAttributes(more)) => known.add(more),
            (known, other) if rank(known) < rank(&other) => *known = other,
            _ => {}
        }
    }

    /// Returns true if there is a row, and it lacks a duration alone.
    pub(crate) const fn lacks_duration(&self) -> bool {
        matches!(self, Self::NotMeasured | Self::WrongDuration(_))
    }

    pub(crate) fn without_places(&self) -> Self {
        match self {
            Self::CsvNotFound(Listed(tables)) => {
                let tables = tables.iter().map(|table| MissingTable { place: None, ..table.clone() });
                Self::CsvNotFound(Listed(tables.collect()))
            }
            Self::SubKernelMiss { kind, part, reason } => {
                Self::SubKernelMiss { kind, part: part.clone(), reason: Box::new(reason.without_places()) }
            }
            other => other.clone(),
        }
    }

    /// Returns the key of a query that states a missing parameter of attention, where it has another name than the argument of
    /// the kernel.
    pub(crate) fn query_key(parameter: &str) -> &str {
        match parameter {
            "avg_seq_len" => "kv_length",
            "input_layout" => "layout",
            other => other,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionDifference {
    /// Name of the attribute: the name of its key in queries if it has one.
    pub name: &'static str,
    pub row: String,
    pub query: String,
}

impl AttentionDifference {
    pub(crate) fn new(name: &'static str, row: &dyn fmt::Display, query: &dyn fmt::Display) -> Self {
        Self { name, row: row.to_string(), query: query.to_string() }
    }
}

impl fmt::Display for AttentionDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} instead of {}", self.name, self.row, self.query)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookupAnswer {
    /// Latency; `None` for a miss.
    pub latency: Option<Micros>,
    pub source: AnswerSource,
    /// Trust in the latency, from 0 to 1.
    pub confidence: f64,
    /// Rule that led to the rows; `None` for a miss.
    pub rule: Option<MatchRule>,
    pub rows: Vec<UsedRow>,
    /// Number of rows that fit equally well, of which the first of [`Self::rows`] has the median latency.
    pub equal_rows: usize,
    pub miss: Option<MissReason>,
    /// Answers for the parts of a composite, which the latency is the sum of.
    pub parts: Vec<PartAnswer>,
    /// Part of the latency that is a model: the time that a framework takes to dispatch a collective.
    pub overhead: Option<DispatchOverhead>,
}

/// Time to dispatch a collective, which its rows do not contain.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchOverhead {
    pub latency: Micros,
    /// Hardware and software of its measurement.
    pub source: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PartAnswer {
    pub name: String,
    pub answer: LookupAnswer,
}

impl LookupAnswer {
    pub(crate) fn missed(reason: MissReason) -> Self {
        Self { miss: Some(reason), ..Self::default() }
    }

    pub(crate) fn all_rows(&self) -> Vec<&UsedRow> {
        let parts = self.parts.iter().flat_map(|part| part.answer.all_rows());
        self.rows.iter().chain(parts).collect()
    }

    /// Returns the coordinates of a row of an interpolation with the names of the axes; `None` for other rules.
    pub(crate) fn coordinates_of(&self, row: &UsedRow) -> Option<impl Iterator<Item = (&'static str, f64)>> {
        let (names, coordinates) = (self.rule?.axis_names(), row.coordinates?);
        Some(names.zip(coordinates))
    }

    pub(crate) fn zero(rule: RuleKind) -> Self {
        let (latency, source) = (Some(Micros(0.0)), AnswerSource::Measured);
        Self { latency, source, confidence: 1.0, rule: Some(MatchRule::of_kind(rule)), ..Self::default() }
    }
}

/// Confidence of an answer from a row with other tokens, of which one number is the other one padded.
pub(crate) const PADDED_CONFIDENCE: f64 = 0.6;

/// Returns the median of rows that fit equally well, of those with the preferred column; a miss if no row has a latency, or if rows
/// whose mapping requires agreement differ.
pub(crate) fn choose_median(rows: &KernelRows, numbers: &[u32], rule: (MatchRule, f64)) -> LookupAnswer {
    let mut column_rows = rows.columns().into_iter().map(|column| {
        let value = |number: &u32| Some((rows.rows[*number as usize].latency_in(column)?, *number));
        (column, numbers.iter().filter_map(value).collect::<Vec<_>>())
    });
    let Some((column, mut values)) = column_rows.find(|(_, values)| !values.is_empty()) else {
        let reason = numbers.iter().map(|number| rows.rows[*number as usize].reason_without_latency());
        return LookupAnswer::missed(reason.fold(MissReason::NotMeasured, |mut all, one| {
            all.add(one);
            all
        }));
    };
    values.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let spread = values[values.len() - 1].0 - values[0].0;
    if rows.policy.requires_unique && spread > 1e-12 {
        return LookupAnswer::missed(MissReason::AmbiguousSemanticMatch(rows.kernel.as_str().to_owned()));
    }
    let (_, number) = values[(values.len() - 1) / 2];
    answer_of_row(rows, (number, column), rule, values.len())
}

/// Returns the answer of a row, one of several that fit equally well, by a rule with its confidence.
pub(crate) fn answer_of_row(
    rows: &KernelRows,
    (number, column): (u32, LatencyColumn),
    (rule, confidence): (MatchRule, f64),
    equal_rows: usize,
) -> LookupAnswer {
    let used = used_row(rows, number, column);
    LookupAnswer {
        latency: Some(used.latency),
        source: AnswerSource::of_rule(rule),
        confidence: confidence * trust(rows, number, column),
        rule: Some(rule),
        rows: vec![used],
        equal_rows,
        ..LookupAnswer::default()
    }
}

fn used_row(rows: &KernelRows, number: u32, column: LatencyColumn) -> UsedRow {
    let row = &rows.rows[number as usize];
    let latency = Micros(row.latency_in(column).unwrap_or_default());
    UsedRow { kernel: rows.kernel.clone(), line: row.line, column, latency, coordinates: None }
}

/// Returns the factor of the confidence in a row, which depends on the verdict of its replay.
fn trust(rows: &KernelRows, number: u32, column: LatencyColumn) -> f64 {
    verdict_factor(rows.rows[number as usize].verdict.filter(|_| column == LatencyColumn::Replay))
}

pub(crate) fn interpolated_answer(
    rows: &KernelRows,
    value: f64,
    used: &[(u32, [f64; 3])],
    column: LatencyColumn,
    (rule, confidence): (MatchRule, f64),
) -> LookupAnswer {
    let factors = used.iter().map(|(number, _)| trust(rows, *number, column));
    LookupAnswer {
        latency: Some(Micros(value)),
        source: AnswerSource::of_rule(rule),
        confidence: confidence * factors.fold(1.0, f64::min),
        rule: Some(rule),
        rows: used
            .iter()
            .map(|(number, at)| UsedRow { coordinates: Some(*at), ..used_row(rows, *number, column) })
            .collect(),
        equal_rows: 1,
        ..LookupAnswer::default()
    }
}

/// Adds an item to those with the least key, or replaces them if its key is less.
pub(crate) fn keep_least<K: PartialOrd, T>(best: &mut Vec<(K, T)>, key: K, item: T) {
    match best.first().and_then(|(least, _)| least.partial_cmp(&key)) {
        Some(Ordering::Less) => {}
        Some(Ordering::Equal) => best.push((key, item)),
        Some(Ordering::Greater) | None => *best = vec![(key, item)],
    }
}

pub(crate) const fn kind_of_dims(dims: u32) -> (RuleKind, f64) {
    match dims {
        1 => (RuleKind::InterpolatedOneDim, 0.7),
        2 => (RuleKind::InterpolatedTwoDims, 0.65),
        _ => (RuleKind::InterpolatedThreeDims, 0.6),
    }
}

pub(crate) const fn verdict_factor(verdict: Option<Verdict>) -> f64 {
    match verdict {
        Some(Verdict::Noisy) => 0.9,
        Some(Verdict::Suspicious) => 0.7,
        _ => 1.0,
    }
}

/// Chooses among the rows of a kernel that fit: exact types and preferred formats first, then the column of the
/// latency. Of several equal ones the answer has the median, so that it does not depend on the order of rows. Rows with
/// as many elements in the output as the query's precede others.
pub(crate) fn choose_row(
    index: &KernelIndex,
    matches: &[RowMatch],
    has_dtypes: bool,
    output: Option<&SlotDims>,
) -> LookupAnswer {
    let columns = index.rows.columns();
    let latency_of = |found: &RowMatch| {
        let row = &index.rows.rows[found.row as usize];
        columns.iter().enumerate().find_map(|(rank, column)| Some((rank, *column, row.latency_in(*column)?)))
    };
    let rank = |found: &RowMatch| {
        (found.rule.has_relaxed_dtype, found.format_rank, latency_of(found).map(|(rank, ..)| rank))
    };
    let Some(least) = matches.iter().map(rank).min() else {
        return LookupAnswer::missed(MissReason::ShapeMismatch);
    };
    let mut equal: Vec<(&RowMatch, LatencyColumn, f64)> = matches
        .iter()
        .filter(|found| rank(found) == least)
        .filter_map(|found| {
            let (_, column, latency) = latency_of(found)?;
            Some((found, column, latency * found.scale))
        })
        .collect();
    let elements = |found: &RowMatch| {
        index.first_output(&index.rows.rows[found.row as usize]).map(|dims| dims.element_count())
    };
    if let Some(output) = output.map(SlotDims::element_count)
        && equal.iter().any(|(found, ..)| elements(found) == Some(output))
    {
        equal.retain(|(found, ..)| elements(found) == Some(output));
    }
    equal.sort_by(|one, other| one.2.total_cmp(&other.2).then(one.0.row.cmp(&other.0.row)));
    if !has_dtypes {
        let dtypes = |found: &RowMatch| -> Vec<&Dtype> {
            let form = index.rows.form(&index.rows.rows[found.row as usize]);
            form.inputs.iter().map(|input| &input.dtype).collect()
        };
        if equal.iter().any(|(found, ..)| dtypes(found) != dtypes(equal[0].0)) {
            return LookupAnswer::missed(MissReason::AmbiguousDtype);
        }
    }
    let differ = equal.last().is_some_and(|last| last.2 - equal[0].2 > 1e-12);
    if differ && equal.iter().any(|(found, ..)| elements(found) != elements(equal[0].0)) {
        return LookupAnswer::missed(MissReason::AmbiguousOutput);
    }
    let attributes = |found: &RowMatch| &index.rows.form(&index.rows.rows[found.row as usize]).attributes;
    if differ
        && let Some((other, ..)) =
            equal.iter().find(|(found, ..)| attributes(found) != attributes(equal[0].0))
    {
        let names = attributes(other).iter().chain(attributes(equal[0].0).iter());
        let names = names.map(|(name, _)| name.to_owned()).collect();
        return LookupAnswer::missed(MissReason::OpenAttributes(names));
    }
    if index.rows.policy.requires_unique && differ {
        let kernel = index.rows.kernel.as_str().to_owned();
        return LookupAnswer::missed(MissReason::AmbiguousSemanticMatch(kernel));
    }
    let (found, column, latency) = equal[(equal.len() - 1) / 2];
    let rule = (found.rule, confidence(found.rule));
    let answer = answer_of_row(&index.rows, (found.row, column), rule, equal.len());
    LookupAnswer { latency: Some(Micros(latency)), ..answer }
}

fn confidence(rule: MatchRule) -> f64 {
    if rule.padding != Padding::None {
        return PADDED_CONFIDENCE;
    }
    let is_approximate = rule.has_relaxed_dtype
        || matches!(rule.kind, RuleKind::ElementwiseOutput | RuleKind::ElementwiseBytes);
    if is_approximate { 0.9 } else { 1.0 }
}
