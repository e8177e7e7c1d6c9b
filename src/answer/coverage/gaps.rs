//! Gaps: questions without a complete answer, and what would close each: cases of rows, and what else a question lacks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{AnswerClass, AnsweredQuestion, CoverageAnalyzer, WorkloadCoverage};
use crate::{
    answer::{
        lookup::{
            CompositeStep, KernelTraits, LookupAnswer, MissReason, OpQuery, QueryTensor, UsualRules,
            composite_steps,
        },
        op_mapping::{CompositePart, MappedKernel, OperatorRoute},
        workload::{UnreadableReason, WorkloadQuestion},
    },
    kernel::{AttentionCase, Case, IdentifiedCase, KernelName},
};

/// Minimum number of gaps along the tokens that two rows are to serve.
const MIN_BRACKETED: usize = 3;
const ATTENTION: [&str; 3] = [AttentionCase::KERNEL, "SparseFlashAttention", "LightningIndexer"];

/// Question without a complete answer. Equal questions of several workloads are one gap.
#[derive(Clone, Debug)]
pub struct CoverageGap<'w> {
    pub question: &'w WorkloadQuestion,
    /// The query whose answer is nearest to a complete one.
    pub query: &'w OpQuery,
    /// Invocations, multiplied by the weights of their workloads.
    pub count: f64,
    /// Time in nanoseconds, multiplied likewise; `None` if unknown.
    pub time: Option<f64>,
    /// Share of the time of all workloads; `None` if unknown.
    pub share: Option<f64>,
    pub workloads: Vec<&'w str>,
    pub reason: String,
    pub(crate) short_reason: String,
    pub closing: GapClosing,
    /// The case whose measurement closes it; `None` if none does, or if the question does not determine it.
    pub case: Option<IdentifiedCase>,
    /// True if everything else of the question has an answer, as far as it is known.
    pub is_only_part: bool,
    /// Interpolation bracket that serves it; `None` without one.
    pub bracket: Option<GapBracket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapBracket {
    pub number: usize,
    pub tokens: u64,
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
        for answer in &coverage.answers {
            let time = answer.question.time.map(|time| weight * time.0 as f64);
            all_time += time.unwrap_or(0.0);
            if answer.class != AnswerClass::Missing {
                continue;
            }
            let gap = gaps.entry(gap_key(answer)).or_insert_with(|| {
                let (closing, case, is_only_part) = analyzer.assess_gap(answer);
                CoverageGap {
                    question: answer.question,
                    query: answer.query,
                    count: 0.0,
                    time: None,
                    share: None,
                    workloads: Vec::new(),
                    reason: answer.reason(),
                    short_reason: answer.reason_by(|miss| miss.without_places().to_string()),
                    case: case.map(IdentifiedCase::new),
                    closing,
                    is_only_part,
                    bracket: None,
                }
            });
            gap.count += weight * answer.question.count as f64;
            gap.time = time.map(|time| gap.time.unwrap_or(0.0) + time).or(gap.time);
            if !gap.workloads.contains(&coverage.workload.name.as_str()) {
                gap.workloads.push(&coverage.workload.name);
            }
        }
    }
    let mut gaps: Vec<CoverageGap<'w>> = gaps.into_values().collect();
    for gap in &mut gaps {
        gap.share = gap.time.filter(|_| all_time > 0.0).map(|time| time / all_time);
    }
    set_brackets(analyzer, &mut gaps);
    gaps.sort_by(|one, other| {
        let (time, other_time) = (one.time.unwrap_or(-1.0), other.time.unwrap_or(-1.0));
        other_time.total_cmp(&time).then(other.count.total_cmp(&one.count))
    });
    gaps
}

pub(super) fn gap_key(answer: &AnsweredQuestion<'_>) -> String {
    format!("{:?} {:?}", answer.question.query, answer.question.unreadable)
}

/// Marks gaps that differ in their tokens only, and that the interpolation along them would serve.
fn set_brackets(analyzer: &CoverageAnalyzer<'_>, gaps: &mut [CoverageGap<'_>]) {
    let mut groups: BTreeMap<String, Vec<(usize, u64)>> = BTreeMap::new();
    for (at, gap) in gaps.iter().enumerate() {
        if let Some((key, tokens)) = bracket_key(analyzer, gap) {
            groups.entry(key).or_default().push((at, tokens));
        }
    }
    for (number, members) in groups.into_values().enumerate() {
        let all: BTreeSet<u64> = members.iter().map(|(_, tokens)| *tokens).collect();
        let (Some(&min), Some(&max)) = (all.first(), all.last()) else { continue };
        for (at, tokens) in members.iter().filter(|_| all.len() >= MIN_BRACKETED) {
            if let GapClosing::ExactCase { kernel } = &gaps[*at].closing {
                let (kernel, count) = (kernel.clone(), members.len());
                gaps[*at].bracket = Some(GapBracket { number, tokens: *tokens });
                gaps[*at].closing = GapClosing::InterpolationBracket { kernel, min, max, gaps: count };
            }
        }
    }
}

/// Returns a text that is equal for gaps that differ in their tokens only, with the tokens. Lookups interpolate
/// products along their rows, for each number of matrices apart, and other kernels along the first dimension. Attention
/// and collectives have other axes, and a query without types is not interpolated.
fn bracket_key(analyzer: &CoverageAnalyzer<'_>, gap: &CoverageGap<'_>) -> Option<(String, u64)> {
    let GapClosing::ExactCase { kernel } = &gap.closing else { return None };
    let (name, query) = (KernelName::new(kernel).ok()?, gap.query);
    let is_attention = ATTENTION.iter().any(|attention| kernel.starts_with(attention));
    let is_interpolated = analyzer.engine.mapping.policy(kernel).max_interpolation_dim != Some(0);
    let is_typed = query.inputs.iter().all(|tensor| tensor.dtype.is_some());
    if is_attention || !is_interpolated || !is_typed || !gap.is_only_part {
        return None;
    }
    let is_product = KernelTraits::of_kernel(&name).is_product;
    let first = &query.inputs.first()?.dims;
    let axis = if is_product { first.len().checked_sub(2)? } else { 0 };
    let tokens = first.get(axis).copied().filter(|tokens| *tokens > 1)?;
    let shape = |(number, tensor): (usize, &QueryTensor)| {
        let varies = |at: usize, dim: u64| match is_product {
            true => (number, at) == (0, axis),
            false => at == 0 && dim == tokens,
        };
        let dims = tensor.dims.iter().enumerate();
        let dims = dims.map(|(at, dim)| if varies(at, *dim) { "T".to_owned() } else { dim.to_string() });
        format!("{} {:?} {:?}", dims.collect::<Vec<_>>().join(","), tensor.dtype, tensor.format)
    };
    let shapes: Vec<String> = query.inputs.iter().enumerate().map(shape).collect();
    Some((format!("{} {:?} {:?} {}", query.op, query.ep_size, query.ranks, shapes.join(";")), tokens))
}

#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum GapClosing {
    ExactCase {
        kernel: String,
    },
    UnknownCase {
        kernel: String,
        reason: String,
    },
    ExistingRow {
        kernel: String,
    },
    /// Two rows that differ in their tokens, between which this and other gaps are interpolated.
    InterpolationBracket {
        kernel: String,
        min: u64,
        max: u64,
        gaps: usize,
    },
    MappingEntry,
    /// An entry of the catalogue, or a form of an entry that fits the case. `problem` is the reason why an existing entry does not fit.
    CatalogueEntry {
        kernel: String,
        problem: Option<String>,
    },
    /// The command that measures them; `None` if the ranks are unknown, or no sweep has the collective.
    CollectiveRows {
        kernel: String,
        command: Option<String>,
    },
    QueryParameter(String),
    RecordedShapes,
    LookupMode(String),
    /// Nothing: no call launches the kernel alone.
    NotLaunchable {
        kernel: String,
        reason: String,
    },
}

impl GapClosing {
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for GapClosing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExactCase { kernel } => write!(f, "exact case of {kernel}"),
            Self::UnknownCase { kernel, reason } => {
                write!(f, "row of {kernel}, whose case does not follow from the question: {reason}")
            }
            Self::ExistingRow { kernel } => write!(f, "measurement of the row of {kernel}"),
            Self::InterpolationBracket { kernel, min, max, gaps } => {
                write!(f, "interpolation bracket of {kernel}: {min} and {max} tokens close {gaps} gaps")
            }
            Self::MappingEntry => f.write_str("mapping entry"),
            Self::CatalogueEntry { kernel, problem: None } => write!(f, "catalogue entry of {kernel}"),
            Self::CatalogueEntry { kernel, problem: Some(problem) } => {
                write!(f, "catalogue entry of {kernel}: {problem}")
            }
            Self::CollectiveRows { kernel, command: None } => write!(f, "rows of {kernel}"),
            Self::CollectiveRows { kernel, command: Some(command) } => {
                write!(f, "rows of {kernel}: `{command}`")
            }
            Self::QueryParameter(name) => write!(f, "parameter of the query: {name}"),
            Self::RecordedShapes => f.write_str("source with shapes"),
            Self::LookupMode(mode) => write!(f, "lookups of kind {mode}"),
            Self::NotLaunchable { kernel, reason } => write!(f, "no call launches {kernel} alone: {reason}"),
        }
    }
}

impl CoverageAnalyzer<'_> {
    /// Returns the case of a row that would answer a question exactly; `None` if the question does not determine it, or
    /// if no call measures it.
    pub(super) fn case_to_measure(&self, answer: &AnsweredQuestion<'_>) -> Option<Case> {
        if answer.class == AnswerClass::Missing {
            return self.assess_gap(answer).1;
        }
        self.closing_by_case(answer, &self.engine.kernels_of(&answer.query.op, &answer.query.inputs)).1
    }

    /// Returns what closes a gap, the case whose measurement does if the question determines one, and true if everything
    /// else of the question has an answer.
    pub(super) fn assess_gap(&self, answer: &AnsweredQuestion<'_>) -> (GapClosing, Option<Case>, bool) {
        let Some(found) = &answer.answer else {
            let closing = match &answer.question.unreadable {
                Some(UnreadableReason::NoShapes | UnreadableReason::NoDuration) => GapClosing::RecordedShapes,
                _ => GapClosing::QueryParameter("shapes".to_owned()),
            };
            return (closing, None, true);
        };
        let mut missing = Vec::new();
        add_missing_parts(found, None, &mut missing);
        let first = missing.first().copied().unwrap_or_default();
        let (closing, case) = self.closing_of_miss(answer, first.name, first.reason);
        (closing, case, missing.len() == 1 && self.is_only_part(answer.query, first))
    }

    /// Returns true if a kernel of an operator has the inputs of the operator, as the first one of a composite has.
    fn has_inputs_of_operator(&self, op: &str, part: Option<&str>) -> bool {
        match self.engine.mapping.operator(op).map(|operator| &operator.route) {
            Some(OperatorRoute::StaticComposite(parts)) => {
                part.is_some_and(|part| first_step(parts).iter().any(|kernel| kernel.name.as_str() == part))
            }
            Some(OperatorRoute::MoeFused) => part.is_none(),
            Some(OperatorRoute::Decomposed(_)) => false,
            _ => true,
        }
    }

    /// Returns true if all other parts of an operator have answers. A miss hides the parts behind the first one that is
    /// missing; of these only collectives of a product follow from its shapes.
    fn is_only_part(&self, query: &OpQuery, part: MissingPart<'_>) -> bool {
        let operator = self.engine.mapping.operator(&query.op);
        match operator.map(|operator| &operator.route) {
            Some(OperatorRoute::StaticComposite(parts)) if part.hides_others => {
                let first = first_step(parts);
                first.iter().any(|first| Some(first.name.as_str()) == part.name)
                    && parts.iter().skip(first.len()).all(|part| match part {
                        CompositePart::Kernel(kernel) => self.engine.sums_product(&kernel.name, query),
                        CompositePart::Operator(_) => false,
                    })
            }
            Some(OperatorRoute::MoeFused) if part.name.is_none() => operator.is_some_and(|operator| {
                operator.embedded_compute.is_empty() && operator.embedded_communication.is_none()
            }),
            Some(OperatorRoute::Decomposed(_)) => false,
            _ => !part.hides_others,
        }
    }

    fn closing_of_miss(
        &self,
        answer: &AnsweredQuestion<'_>,
        part: Option<&str>,
        reason: Option<&MissReason>,
    ) -> (GapClosing, Option<Case>) {
        let op = answer.query.op.as_str();
        let own = match part {
            Some(part) => self.engine.kernels_of(part, &[]),
            None => self.engine.kernels_of(op, &answer.query.inputs),
        };
        let kernel = own.first().map_or_else(|| part.unwrap_or(op), KernelName::as_str).to_owned();
        if let Some(closing) = self.closing_of_reason(answer.query, &own, &kernel, reason) {
            return (closing, None);
        }
        if self.has_inputs_of_operator(op, part) {
            let (closing, case) = self.closing_by_case(answer, &own);
            return match reason {
                Some(reason) if reason.lacks_duration() && case.is_some() => {
                    (GapClosing::ExistingRow { kernel }, case)
                }
                _ => (closing, case),
            };
        }
        let known = own.iter().find(|kernel| self.catalogue.entry(kernel).is_some());
        let closing = match known {
            Some(_) if reason.is_some_and(MissReason::lacks_duration) => GapClosing::ExistingRow { kernel },
            Some(known) => {
                let reason = format!("it is a part of {op} whose inputs are not those of the operator");
                GapClosing::UnknownCase { kernel: known.to_string(), reason }
            }
            None => self.closing_by_entry(kernel),
        };
        (closing, None)
    }

    fn closing_by_case(
        &self,
        answer: &AnsweredQuestion<'_>,
        kernels: &[KernelName],
    ) -> (GapClosing, Option<Case>) {
        if let Some(case) = &answer.question.case
            && let Some(entry) = self.catalogue.entry(&case.kernel)
        {
            let kernel = case.kernel.to_string();
            return match entry.resolve_call(case).map_err(|problem| problem.to_string()) {
                Ok(_) => (GapClosing::ExactCase { kernel }, Some(case.clone())),
                Err(problem) => (GapClosing::CatalogueEntry { kernel, problem: Some(problem) }, None),
            };
        }
        match self.case_of_query(answer.query, kernels) {
            Ok(case) => (GapClosing::ExactCase { kernel: case.kernel.to_string() }, Some(case)),
            Err(closing) => {
                let kernel = || kernels.first().map_or(answer.query.op.as_str(), KernelName::as_str);
                (closing.unwrap_or_else(|| self.closing_by_entry(kernel().to_owned())), None)
            }
        }
    }

    /// Returns the closing that the reason of a miss determines; `None` if a row closes it. `own` are the kernels that would run.
    fn closing_of_reason(
        &self,
        query: &OpQuery,
        own: &[KernelName],
        kernel: &str,
        reason: Option<&MissReason>,
    ) -> Option<GapClosing> {
        let parameter = |name: &str| GapClosing::QueryParameter(name.to_owned());
        let collective_rows = || {
            let name = KernelName::new(kernel).ok();
            let command = name.and_then(|name| self.engine.collective_command(query, &name, reason));
            GapClosing::CollectiveRows { kernel: kernel.to_owned(), command }
        };
        Some(match reason {
            None | Some(MissReason::Unmapped) if own.is_empty() => GapClosing::MappingEntry,
            Some(MissReason::AmbiguousDtype) => parameter("element types"),
            Some(MissReason::AmbiguousOutput) => parameter("outputs"),
            Some(MissReason::OpenAttributes(names)) => parameter(&names.to_string()),
            Some(MissReason::AmbiguousSemanticMatch(_)) => parameter("attributes in which the rows differ"),
            Some(MissReason::TpProjectionInvalid(_)) => parameter("tp"),
            Some(MissReason::ContextMissing(name)) => parameter(MissReason::query_key(name)),
            Some(MissReason::EpSizeNotConfigured) => parameter("ep"),
            Some(MissReason::DecomposeFailed) => parameter("inputs of the operator"),
            Some(MissReason::RanksNotGiven) => parameter("ranks"),
            Some(MissReason::UndividedRows { .. }) => parameter("ranks that divide the rows"),
            Some(MissReason::AmbiguousTier) => parameter("tier"),
            Some(MissReason::MessageUnknown) => parameter("shapes and types of the message"),
            Some(MissReason::UnsupportedQueryMode(mode)) => GapClosing::LookupMode((*mode).to_owned()),
            Some(
                MissReason::CsvFormatRaw(_)
                | MissReason::MessageOutOfRange { .. }
                | MissReason::NoRowsOfGroup(_),
            ) => collective_rows(),
            _ if own.first().is_some_and(KernelName::is_collective) => collective_rows(),
            _ => return None,
        })
    }

    pub(super) fn closing_by_entry(&self, kernel: String) -> GapClosing {
        match self.catalogue.not_launchable_reason(&kernel) {
            Some(reason) => GapClosing::NotLaunchable { reason: reason.to_owned(), kernel },
            None => GapClosing::CatalogueEntry { kernel, problem: None },
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct MissingPart<'a> {
    name: Option<&'a str>,
    reason: Option<&'a MissReason>,
    /// True if parts behind it have not been looked up, or are not listed.
    hides_others: bool,
}

fn add_missing_parts<'a>(
    answer: &'a LookupAnswer,
    name: Option<&'a str>,
    missing: &mut Vec<MissingPart<'a>>,
) {
    let is_missing = |answer: &LookupAnswer| answer.latency.is_none() || answer.miss.is_some();
    let mut parts = answer.parts.iter().filter(|part| is_missing(&part.answer)).peekable();
    if parts.peek().is_some() {
        parts.for_each(|part| add_missing_parts(&part.answer, Some(&part.name), missing));
        return;
    }
    let (mut name, mut reason, mut hides_others) = (name, answer.miss.as_ref(), false);
    while let Some(MissReason::SubKernelMiss { part, reason: inner, .. }) = reason {
        (name, reason, hides_others) = (Some(part.as_str()), Some(inner.as_ref()), true);
    }
    missing.push(MissingPart { name, reason, hides_others });
}

/// Returns the kernels of which the first one of a composite is: all leading products, or one kernel.
fn first_step(parts: &[CompositePart]) -> Vec<MappedKernel> {
    match composite_steps(parts, &UsualRules).into_iter().next() {
        Some(CompositeStep::Kernels(kernels)) => kernels,
        Some(CompositeStep::Collective(kernel)) => vec![kernel],
        Some(CompositeStep::Operator(_)) | None => Vec::new(),
    }
}
