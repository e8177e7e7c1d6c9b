//! Gaps: questions without a complete answer, with what would close each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    answers::{AnsweredQuestion, CoverageAnalyzer, WorkloadCoverage},
    totals::AnswerClass,
};
use crate::{
    domain::{AttentionCase, Case, CaseAttributes, IdentifiedCase, KernelName, Slot, Tensor, TensorFormat},
    lookup::{LookupAnswer, MissReason, OpQuery, QueryTensor},
    workload::{UnreadableReason, WorkloadQuestion},
};

/// Least number of gaps along the tokens that two rows are to serve.
const LEAST_BRACKETED: usize = 3;

/// Measure that would close a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GapClosing {
    /// A row of exactly this case.
    ExactCase {
        /// The kernel.
        kernel: String,
    },
    /// A measurement of a row that exists.
    ExistingRow {
        /// The kernel.
        kernel: String,
    },
    /// Two rows that differ in their tokens, between which this and other gaps are interpolated.
    InterpolationBracket {
        /// The kernel.
        kernel: String,
        /// The least and the greatest number of tokens.
        tokens: (u64, u64),
        /// Number of gaps that the rows close.
        gaps: usize,
    },
    /// An entry of the mapping.
    MappingEntry,
    /// An entry of the catalogue, or a form of an entry that fits the case.
    CatalogueEntry {
        /// The kernel.
        kernel: String,
        /// The reason why an existing entry does not fit.
        problem: Option<String>,
    },
    /// Rows of a collective.
    CollectiveRows {
        /// The collective.
        kernel: String,
    },
    /// A parameter of the query.
    QueryParameter(String),
    /// A source that has the shapes.
    RecordedShapes,
    /// Lookups of a kind that do not exist.
    LookupMode(String),
    /// Nothing: no call launches the kernel alone.
    NotLaunchable {
        /// The kernel.
        kernel: String,
        /// The reason.
        reason: String,
    },
}

impl GapClosing {
    /// Returns the name of the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ExactCase { .. } => "exact_case",
            Self::ExistingRow { .. } => "existing_row",
            Self::InterpolationBracket { .. } => "interpolation_bracket",
            Self::MappingEntry => "mapping_entry",
            Self::CatalogueEntry { .. } => "catalogue_entry",
            Self::CollectiveRows { .. } => "collective_rows",
            Self::QueryParameter(_) => "query_parameter",
            Self::RecordedShapes => "recorded_shapes",
            Self::LookupMode(_) => "lookup_mode",
            Self::NotLaunchable { .. } => "not_launchable",
        }
    }
}

impl fmt::Display for GapClosing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExactCase { kernel } => write!(f, "exact case of {kernel}"),
            Self::ExistingRow { kernel } => write!(f, "measurement of the row of {kernel}"),
            Self::InterpolationBracket { kernel, tokens: (least, most), gaps } => {
                write!(f, "interpolation bracket of {kernel}: {least} and {most} tokens close {gaps} gaps")
            }
            Self::MappingEntry => f.write_str("mapping entry"),
            Self::CatalogueEntry { kernel, problem: None } => write!(f, "catalogue entry of {kernel}"),
            Self::CatalogueEntry { kernel, problem: Some(problem) } => {
                write!(f, "catalogue entry of {kernel}: {problem}")
            }
            Self::CollectiveRows { kernel } => write!(f, "rows of {kernel}"),
            Self::QueryParameter(name) => write!(f, "parameter of the query: {name}"),
            Self::RecordedShapes => f.write_str("source with shapes"),
            Self::LookupMode(mode) => write!(f, "lookups of kind {mode}"),
            Self::NotLaunchable { kernel, reason } => write!(f, "no call launches {kernel} alone: {reason}"),
        }
    }
}

/// Question without a complete answer. Equal questions of several workloads are one gap.
#[derive(Clone, Debug)]
pub struct CoverageGap<'w> {
    /// One of the equal questions.
    pub question: &'w WorkloadQuestion,
    /// The query whose answer is nearest to a complete one.
    pub query: &'w OpQuery,
    /// Invocations, multiplied by the weights of their workloads.
    pub count: f64,
    /// Time in nanoseconds, multiplied likewise; `None` if unknown.
    pub time: Option<f64>,
    /// Share of the time of all workloads; `None` if unknown.
    pub share: Option<f64>,
    /// Names of the workloads, without repetitions.
    pub workloads: Vec<&'w str>,
    /// Reason of the miss.
    pub reason: String,
    /// What would close it.
    pub closing: GapClosing,
    /// The case whose measurement closes it; `None` if none does, or if the question does not determine it.
    pub case: Option<IdentifiedCase>,
    /// Number of the interpolation bracket that serves it; `None` without one.
    pub bracket: Option<usize>,
}

impl CoverageGap<'_> {
    /// Returns the tokens of the query: the first dimension of its first input, above 1.
    pub(super) fn tokens(&self) -> Option<u64> {
        tokens_of(self.query)
    }
}

/// Returns the gaps of workloads, the longest time first; those without a time last, by count.
pub fn coverage_gaps<'w>(
    analyzer: &CoverageAnalyzer<'_>,
    coverages: &[WorkloadCoverage<'w>],
) -> Vec<CoverageGap<'w>> {
    let mut all_time = 0.0;
    let mut gaps: BTreeMap<String, CoverageGap<'w>> = BTreeMap::new();
    for coverage in coverages {
        let weight = coverage.workload.weight;
        #[expect(clippy::cast_precision_loss, reason = "weighted sums are printed with a few digits")]
        let weighted_time =
            |answer: &AnsweredQuestion<'w>| answer.question.time.map(|time| weight * time.0 as f64);
        for answer in &coverage.answers {
            all_time += weighted_time(answer).unwrap_or(0.0);
            if answer.class != AnswerClass::Missing {
                continue;
            }
            let gap = gaps.entry(gap_key(answer)).or_insert_with(|| {
                let closing = analyzer.closing_of(answer);
                CoverageGap {
                    question: answer.question,
                    query: answer.query,
                    count: 0.0,
                    time: None,
                    share: None,
                    workloads: Vec::new(),
                    reason: answer.reason(),
                    case: analyzer.case_of(answer, &closing).map(IdentifiedCase::new),
                    closing,
                    bracket: None,
                }
            });
            #[expect(clippy::cast_precision_loss, reason = "weighted sums are printed with a few digits")]
            let count = weight * answer.question.count as f64;
            gap.count += count;
            if let Some(time) = weighted_time(answer) {
                gap.time = Some(gap.time.unwrap_or(0.0) + time);
            }
            if !gap.workloads.contains(&coverage.workload.name.as_str()) {
                gap.workloads.push(&coverage.workload.name);
            }
        }
    }
    let mut gaps: Vec<CoverageGap<'w>> = gaps.into_values().collect();
    for gap in &mut gaps {
        gap.share = gap.time.filter(|_| all_time > 0.0).map(|time| time / all_time);
    }
    set_brackets(&mut gaps);
    gaps.sort_by(|one, other| {
        let (time, other_time) = (one.time.unwrap_or(-1.0), other.time.unwrap_or(-1.0));
        other_time.total_cmp(&time).then(other.count.total_cmp(&one.count))
    });
    gaps
}

/// Returns a text that is equal for equal questions.
pub(super) fn gap_key(answer: &AnsweredQuestion<'_>) -> String {
    format!("{:?} {:?}", answer.question.query, answer.question.unreadable)
}

impl CoverageAnalyzer<'_> {
    /// Returns the case of a row that would answer a question exactly; `None` if the question does not determine it, or
    /// if no call measures it.
    pub(super) fn case_to_measure(&self, answer: &AnsweredQuestion<'_>) -> Option<Case> {
        let closing = match answer.class {
            AnswerClass::Missing => self.closing_of(answer),
            _ => {
                let own = self.kernels_of(&answer.query.op);
                let kernel = own.first()?.as_str().to_owned();
                self.closing_by_case(answer.question, &own, kernel)
            }
        };
        self.case_of(answer, &closing)
    }

    /// Returns what would close a gap.
    fn closing_of(&self, answer: &AnsweredQuestion<'_>) -> GapClosing {
        let question = answer.question;
        let op = answer.query.op.as_str();
        match (&answer.answer, &question.unreadable) {
            (Some(found), _) => {
                let (kernel, reason) = root_reason(found, None);
                self.closing_of_miss(question, op, kernel, reason)
            }
            (None, Some(UnreadableReason::NoShapes | UnreadableReason::NoDuration)) => {
                GapClosing::RecordedShapes
            }
            (None, _) => GapClosing::QueryParameter("shapes".to_owned()),
        }
    }

    fn closing_of_miss(
        &self,
        question: &WorkloadQuestion,
        op: &str,
        part: Option<&str>,
        reason: Option<&MissReason>,
    ) -> GapClosing {
        let parameter = |name: &str| GapClosing::QueryParameter(name.to_owned());
        let own = part.map_or_else(|| self.kernels_of(op), |part| self.kernels_of(part));
        let kernel = own.first().map_or_else(|| part.unwrap_or(op), KernelName::as_str).to_owned();
        let is_collective = own.first().is_some_and(KernelName::is_collective);
        match reason {
            None | Some(MissReason::Unmapped) if own.is_empty() => GapClosing::MappingEntry,
            Some(MissReason::NotMeasured) => GapClosing::ExistingRow { kernel },
            Some(MissReason::AmbiguousDtype) => parameter("element types"),
            Some(MissReason::AmbiguousOutput) => parameter("outputs"),
            Some(MissReason::OpenAttributes(names)) => parameter(&names.join(", ")),
            Some(MissReason::AmbiguousSemanticMatch(_)) => parameter("attributes in which the rows differ"),
            Some(MissReason::TpProjectionInvalid(_)) => parameter("tp"),
            Some(MissReason::ContextMissing("avg_seq_len")) => parameter("kv_length"),
            Some(MissReason::ContextMissing(name)) => parameter(name),
            Some(MissReason::EpSizeNotConfigured) => parameter("ep"),
            Some(MissReason::DecomposeFailed) => parameter("inputs of the operator"),
            Some(MissReason::RanksNotGiven) => parameter("ranks"),
            Some(MissReason::AmbiguousTier) => parameter("tier"),
            Some(MissReason::MessageUnknown) => parameter("shapes and types of the message"),
            Some(MissReason::UnsupportedQueryMode(mode)) => GapClosing::LookupMode((*mode).to_owned()),
            Some(
                MissReason::CsvFormatRaw(_)
                | MissReason::MessageOutOfRange { .. }
                | MissReason::NoRowsOfGroup(_),
            ) => GapClosing::CollectiveRows { kernel },
            _ if is_collective => GapClosing::CollectiveRows { kernel },
            _ => self.closing_by_case(question, &own, kernel),
        }
    }

    /// Returns the case whose measurement closes a gap: that of the question, else the one with the tensors of the query and the
    /// outputs that the catalogue computes.
    fn case_of(&self, answer: &AnsweredQuestion<'_>, closing: &GapClosing) -> Option<Case> {
        let (GapClosing::ExactCase { kernel } | GapClosing::ExistingRow { kernel }) = closing else {
            return None;
        };
        if let Some(case) = &answer.question.case {
            return Some(case.clone());
        }
        let kernel = KernelName::new(kernel).ok()?;
        let entry = self.catalogue.entry(&kernel)?;
        let query = answer.query;
        // Without its batch of one, as the profiler records products.
        let is_batched = query.inputs.iter().any(|tensor| tensor.dims.len() > 2 && tensor.dims[0] == 1);
        [false, true].into_iter().filter(|strips_batch| is_batched || !strips_batch).find_map(
            |strips_batch| {
                let slots = |tensors: &[QueryTensor]| -> Option<Vec<Slot>> {
                    tensors.iter().map(|tensor| Some(Some(tensor_of(tensor, strips_batch)?))).collect()
                };
                let inputs = slots(&query.inputs)?;
                let case = Case {
                    kernel: kernel.clone(),
                    inputs,
                    outputs: Vec::new(),
                    attributes: CaseAttributes::default(),
                };
                let outputs = match slots(&query.outputs).filter(|outputs| !outputs.is_empty()) {
                    Some(outputs) => outputs,
                    None => entry.resolve_call(&case).ok()?.outputs.into_iter().map(Some).collect(),
                };
                let complete = Case { outputs, ..case };
                entry.resolve_call(&complete).ok().map(|_| complete)
            },
        )
    }

    /// Returns the closing by a row, or by an entry that can measure one.
    fn closing_by_case(
        &self,
        question: &WorkloadQuestion,
        kernels: &[KernelName],
        kernel: String,
    ) -> GapClosing {
        if let Some(case) = question.case.as_ref()
            && let Some(entry) = self.catalogue.entry(&case.kernel)
        {
            return match entry.resolve_call(case) {
                Ok(_) => GapClosing::ExactCase { kernel: case.kernel.as_str().to_owned() },
                Err(problem) => GapClosing::CatalogueEntry {
                    kernel: case.kernel.as_str().to_owned(),
                    problem: Some(problem.to_string()),
                },
            };
        }
        if let Some(known) = kernels.iter().find(|kernel| self.catalogue.entry(kernel).is_some()) {
            return GapClosing::ExactCase { kernel: known.as_str().to_owned() };
        }
        match self.catalogue.not_launchable_reason(&kernel) {
            Some(reason) => GapClosing::NotLaunchable { reason: reason.to_owned(), kernel },
            None => GapClosing::CatalogueEntry { kernel, problem: None },
        }
    }
}

/// Returns the kernel and the reason of the first part of an answer that is a miss.
fn root_reason<'a>(
    answer: &'a LookupAnswer,
    name: Option<&'a str>,
) -> (Option<&'a str>, Option<&'a MissReason>) {
    let part = answer.parts.iter().find(|part| part.answer.latency.is_none() || part.answer.miss.is_some());
    match part {
        Some(part) => root_reason(&part.answer, Some(&part.name)),
        None => match &answer.miss {
            Some(
                MissReason::CommSubKernelMiss(name, reason)
                | MissReason::SubKernelMiss(name, reason)
                | MissReason::AttentionSubKernelMiss(name, reason),
            ) => (Some(name), Some(reason)),
            reason => (name, reason.as_ref()),
        },
    }
}

/// Gaps that differ in their tokens only, and that the interpolation along them would serve.
fn set_brackets(gaps: &mut [CoverageGap<'_>]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, gap) in gaps.iter().enumerate() {
        if let Some(key) = bracket_key(gap) {
            groups.entry(key).or_default().push(at);
        }
    }
    for (number, members) in groups.into_values().enumerate() {
        let tokens: BTreeSet<u64> = members.iter().filter_map(|at| tokens_of(gaps[*at].query)).collect();
        if tokens.len() < LEAST_BRACKETED {
            continue;
        }
        let (Some(least), Some(most)) = (tokens.first(), tokens.last()) else { continue };
        for at in &members {
            if let GapClosing::ExactCase { kernel } = &gaps[*at].closing {
                let (kernel, gaps_count) = (kernel.clone(), members.len());
                gaps[*at].bracket = Some(number);
                gaps[*at].closing =
                    GapClosing::InterpolationBracket { kernel, tokens: (*least, *most), gaps: gaps_count };
            }
        }
    }
}

/// Returns a tensor of a query with the default format; `None` without an element type.
fn tensor_of(tensor: &QueryTensor, strips_batch: bool) -> Option<Tensor> {
    let dims = match tensor.dims.as_slice() {
        [1, rest @ ..] if strips_batch && rest.len() > 1 => rest.to_vec(),
        dims => dims.to_vec(),
    };
    let format = tensor.format.clone().unwrap_or_else(TensorFormat::nd);
    Some(Tensor { dims, dtype: tensor.dtype.clone()?, format })
}

fn tokens_of(query: &OpQuery) -> Option<u64> {
    query.inputs.first()?.dims.first().copied().filter(|tokens| *tokens > 1)
}

/// Returns a text that is equal for gaps that differ in their tokens only. Attention and collectives have other axes,
/// and a query without types is not interpolated.
fn bracket_key(gap: &CoverageGap<'_>) -> Option<String> {
    let GapClosing::ExactCase { kernel } = &gap.closing else { return None };
    let (query, tokens) = (gap.query, tokens_of(gap.query)?);
    if kernel == AttentionCase::KERNEL || query.inputs.iter().any(|tensor| tensor.dtype.is_none()) {
        return None;
    }
    let shape = |tensor: &QueryTensor| {
        let dims = tensor.dims.iter().enumerate().map(|(at, dim)| match (at, *dim == tokens) {
            (0, true) => "T".to_owned(),
            _ => dim.to_string(),
        });
        let dims = dims.collect::<Vec<_>>().join(",");
        format!("{dims} {:?} {:?}", tensor.dtype, tensor.format)
    };
    let shapes: Vec<String> = query.inputs.iter().map(shape).collect();
    Some(format!("{} {:?} {}", query.op, query.ep_size, shapes.join(";")))
}
