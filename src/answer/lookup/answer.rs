//! Answers of lookups.

use std::fmt;

use strum::{Display, IntoStaticStr};

use super::rules::{MatchRule, Padding, RuleKind};
use crate::kernel::{KernelName, Tensor};

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Micros(pub f64);

/// Kind of an answer, the best one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AnswerSource {
    /// A row of the database.
    Measured,
    /// Rows on both sides.
    Interpolated,
    /// A row of another element type, in proportion to the bytes.
    Scaled,
    /// A row with the tokens that a framework had before it padded them.
    Padded,
    /// The sum of those parts that are known.
    Partial,
    /// None.
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
    /// Number of columns.
    pub const COUNT: usize = 3;
    /// All columns in the order of preference.
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

/// Row that an answer uses.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedRow {
    /// Kernel whose table has the row.
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
    /// Kernel whose table has the row.
    pub kernel: KernelName,
    /// Line in the table, from 1.
    pub line: u32,
    pub inputs: Vec<Tensor>,
    pub latency: Option<Micros>,
    /// Sum of the logarithms of the ratios of dimensions.
    pub distance: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissReason {
    Unmapped,
    /// The database has no table of these kernels.
    CsvNotFound(Vec<String>),
    ShapeMismatch,
    /// The ranks do not divide the rows of a product whose result is scattered.
    UndividedRows {
        rows: u64,
        ranks: u64,
    },
    /// Rows with these inputs are of these numbers of ranks, and none is of that of the query.
    RankCountMismatch(Vec<u64>),
    /// Rows have another number of inputs.
    InputCountMismatch,
    /// Rows with these shapes have other element types.
    DtypeMismatch,
    /// Rows with these shapes have other formats.
    FormatMismatch,
    /// Rows with these inputs have another output.
    OutputMismatch,
    /// Rows with these shapes have different element types, and the query names none.
    AmbiguousDtype,
    /// Rows with these inputs have different outputs, and the query names none of them.
    AmbiguousOutput,
    /// Rows with these shapes have no usable latency.
    NotMeasured,
    /// Rows with these shapes have attributes that a query by shapes leaves open.
    OpenAttributes(Vec<String>),
    /// Rows of a kernel whose mapping requires agreement fit equally well, and differ.
    AmbiguousSemanticMatch(String),
    /// Attributes in which the row of attention that is nearest to the query deviates.
    AttentionMismatch {
        line: u32,
        differences: Vec<AttentionDifference>,
    },
    ElementwiseOutputShapeMismatch,
    /// The shapes do not fit the rewriting of dimensions under tensor parallelism.
    TpProjectionInvalid(String),
    /// The query lacks a parameter of attention.
    ContextMissing(&'static str),
    /// The number of ranks that share the experts is unknown.
    EpSizeNotConfigured,
    DecomposeFailed,
    /// The table of a collective lacks these columns.
    CsvFormatRaw(Vec<String>),
    /// The number of ranks is unknown, or not that of the group.
    RanksNotGiven,
    /// The table has several tiers of the topology, and the query names none.
    AmbiguousTier,
    /// The size of the message does not follow from the inputs.
    MessageUnknown,
    /// The message is smaller or larger than all measured ones.
    MessageOutOfRange {
        bytes: u64,
        /// The smallest measured size.
        least: u64,
        /// The largest measured size.
        most: u64,
    },
    /// The table has no rows of this number of ranks in this tier.
    NoRowsOfGroup(u64),
    CommSubKernelMiss(String, Box<Self>),
    SubKernelMiss(String, Box<Self>),
    AttentionSubKernelMiss(String, Box<Self>),
    /// Lookups of this kind do not exist.
    UnsupportedQueryMode(&'static str),
}

impl MissReason {
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

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmapped => f.write_str("unmapped"),
            Self::CsvNotFound(kernels) => write!(f, "csv_not_found: {}", kernels.join(", ")),
            Self::ShapeMismatch => f.write_str("shape_mismatch"),
            Self::UndividedRows { rows, ranks } => {
                write!(f, "shape_mismatch: {ranks} ranks cannot share {rows} rows")
            }
            Self::RankCountMismatch(ranks) => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                write!(f, "rank_count_mismatch: rows with these inputs are of {} ranks", ranks.join(", "))
            }
            Self::InputCountMismatch => f.write_str("input_count_mismatch"),
            Self::DtypeMismatch => f.write_str("dtype_mismatch"),
            Self::FormatMismatch => f.write_str("format_mismatch"),
            Self::OutputMismatch => f.write_str("output_mismatch"),
            Self::AmbiguousDtype => f.write_str("ambiguous_dtype"),
            Self::AmbiguousOutput => f.write_str("ambiguous_output"),
            Self::NotMeasured => f.write_str("not_measured"),
            Self::OpenAttributes(names) => write!(f, "open_attributes: {}", names.join(", ")),
            Self::AmbiguousSemanticMatch(kernel) => write!(f, "ambiguous_semantic_match:{kernel}"),
            Self::AttentionMismatch { line, differences } => {
                let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
                write!(f, "attention_mismatch: the nearest row, in line {line}, has {}", texts.join(", "))
            }
            Self::ElementwiseOutputShapeMismatch => f.write_str("elementwise_output_shape_mismatch"),
            Self::TpProjectionInvalid(what) => write!(f, "tp_projection_invalid:{what}"),
            Self::ContextMissing(parameter) => write!(f, "semantic_context_missing:target:{parameter}"),
            Self::EpSizeNotConfigured => f.write_str("ep_size_not_configured"),
            Self::DecomposeFailed => f.write_str("decompose_failed"),
            Self::CsvFormatRaw(columns) => write!(f, "csv_format_raw: no column {}", columns.join(", ")),
            Self::RanksNotGiven => f.write_str("ranks_not_given"),
            Self::AmbiguousTier => f.write_str("ambiguous_topology_tier"),
            Self::MessageUnknown => f.write_str("message_bytes_unknown"),
            Self::MessageOutOfRange { bytes, least, most } => {
                write!(f, "message_out_of_range: {bytes} B, measured are {least} to {most} B")
            }
            Self::NoRowsOfGroup(ranks) => write!(f, "no_rows_of_group: {ranks} ranks"),
            Self::CommSubKernelMiss(name, reason) => write!(f, "comm_sub_kernel_miss:{name}: {reason}"),
            Self::SubKernelMiss(name, reason) => write!(f, "sub_kernel_miss:{name}: {reason}"),
            Self::AttentionSubKernelMiss(name, reason) => {
                write!(f, "attention_sub_kernel_miss:{name}: {reason}")
            }
            Self::UnsupportedQueryMode(mode) => write!(f, "unsupported query mode {mode}"),
        }
    }
}

/// Attribute of attention with two values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionDifference {
    /// Name of the attribute, that of the query's key if it has one.
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

/// Answer of a lookup.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupAnswer {
    /// Latency; `None` for a miss.
    pub latency: Option<Micros>,
    /// Kind of the answer.
    pub source: AnswerSource,
    /// Trust in the latency, from 0 to 1.
    pub confidence: f64,
    /// Rule that led to the rows; `None` for a miss.
    pub rule: Option<MatchRule>,
    /// Rows that the latency is from.
    pub rows: Vec<UsedRow>,
    /// Number of rows that fit equally well, of which the first of [`Self::rows`] has the median latency.
    pub equal_rows: usize,
    /// Reason for a miss.
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
    /// A miss without a reason, of which answers replace fields.
    pub(crate) const NONE: Self = Self {
        latency: None,
        source: AnswerSource::Miss,
        confidence: 0.0,
        rule: None,
        rows: Vec::new(),
        equal_rows: 0,
        miss: None,
        parts: Vec::new(),
        overhead: None,
    };

    pub(crate) fn missed(reason: MissReason) -> Self {
        Self { miss: Some(reason), ..Self::NONE }
    }

    /// Returns the coordinates of a row of an interpolation with the names of the axes; `None` for other rules.
    pub(crate) fn coordinates_of(&self, row: &UsedRow) -> Option<impl Iterator<Item = (&'static str, f64)>> {
        let (names, coordinates) = (self.rule?.axis_names(), row.coordinates?);
        Some(names.zip(coordinates))
    }

    /// Creates an answer without rows: no kernel runs.
    pub(crate) fn zero(rule: MatchRule) -> Self {
        let (latency, source) = (Some(Micros(0.0)), AnswerSource::Measured);
        Self { latency, source, confidence: 1.0, rule: Some(rule), ..Self::NONE }
    }
}
