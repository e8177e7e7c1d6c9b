//! Measures that close gaps: cases of rows, and what else a question lacks.

use std::fmt;

use super::{
    answers::{AnsweredQuestion, CoverageAnalyzer},
    case_problem::CaseProblem,
    totals::AnswerClass,
};
use crate::{
    answer::{
        lookup::KernelTraits,
        lookup::{LookupAnswer, MissReason, OpQuery, QueryTensor},
        op_mapping::{CompositePart, OperatorRoute},
        workload::UnreadableReason,
    },
    base::count_text::format_count,
    kernel::{Case, Dtype, KernelName},
};

/// Measure that would close a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GapClosing {
    ExactCase {
        kernel: String,
    },
    /// A row of the case of a query, which does not follow from it.
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
        /// The least and the greatest number of tokens.
        tokens: (u64, u64),
        gaps: usize,
    },
    MappingEntry,
    /// An entry of the catalogue, or a form of an entry that fits the case.
    CatalogueEntry {
        kernel: String,
        /// The reason why an existing entry does not fit.
        problem: Option<String>,
    },
    CollectiveRows {
        kernel: String,
        /// The command that measures them; `None` if the ranks are unknown, or no sweep has the collective.
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
    /// Returns the name of the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ExactCase { .. } => "exact_case",
            Self::UnknownCase { .. } => "unknown_case",
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
            Self::UnknownCase { kernel, reason } => {
                write!(f, "row of {kernel}, whose case does not follow from the question: {reason}")
            }
            Self::ExistingRow { kernel } => write!(f, "measurement of the row of {kernel}"),
            Self::InterpolationBracket { kernel, tokens: (least, most), gaps } => {
                let gaps = format_count(*gaps, "gap");
                write!(f, "interpolation bracket of {kernel}: {least} and {most} tokens close {gaps}")
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
            return self.assess_gap(answer).case;
        }
        self.closing_by_case(answer, &self.engine.kernels_of_query(answer.query)).1
    }

    pub(super) fn assess_gap(&self, answer: &AnsweredQuestion<'_>) -> GapAssessment {
        let question = answer.question;
        let Some(found) = &answer.answer else {
            let closing = match &question.unreadable {
                Some(UnreadableReason::NoShapes | UnreadableReason::NoDuration) => GapClosing::RecordedShapes,
                _ => GapClosing::QueryParameter("shapes".to_owned()),
            };
            return GapAssessment { closing, case: None, is_only_part: true };
        };
        let mut missing = Vec::new();
        add_missing_parts(found, None, &mut missing);
        let first = missing.first();
        let (part, reason) = first.map_or((None, None), |part| (part.name, part.reason));
        let (closing, case) = self.closing_of_miss(answer, part, reason);
        let is_only_part = match missing.as_slice() {
            [part] => self.is_only_part(answer.query, part),
            _ => false,
        };
        GapAssessment { closing, case, is_only_part }
    }

    /// Returns true if a kernel of an operator has the inputs of the operator, as the first one of a composite has.
    fn has_inputs_of_operator(&self, op: &str, part: Option<&str>) -> bool {
        match self.engine.mapping().operator(op).map(|operator| &operator.route) {
            Some(OperatorRoute::StaticComposite { parts, .. }) => {
                part.is_some_and(|part| first_step(parts).iter().any(|kernel| kernel.as_str() == part))
            }
            Some(OperatorRoute::MoeFused(_)) => part.is_none(),
            Some(OperatorRoute::Decomposed(_)) => false,
            _ => true,
        }
    }

    /// Returns true if all other parts of an operator have answers. A miss hides the parts behind the first one that is
    /// missing; of these only collectives of a product follow from its shapes.
    fn is_only_part(&self, query: &OpQuery, part: &MissingPart<'_>) -> bool {
        let route = self.engine.mapping().operator(&query.op).map(|operator| &operator.route);
        match route {
            Some(OperatorRoute::StaticComposite { parts, .. }) if part.hides_others => {
                let first = first_step(parts);
                let is_first = part.name.is_some_and(|name| first.iter().any(|first| first.as_str() == name));
                is_first
                    && parts.iter().skip(first.len()).all(|part| match part {
                        CompositePart::Kernel(kernel) => self.sums_product(&kernel.name, query),
                        CompositePart::Operator(_) => false,
                    })
            }
            Some(OperatorRoute::MoeFused(rule)) if part.name.is_none() => {
                rule.embedded_compute.is_empty() && rule.embedded_communication.is_none()
            }
            Some(OperatorRoute::Decomposed(_)) => false,
            _ => !part.hides_others,
        }
    }

    /// Returns true if the sum of a product over its ranks has an answer.
    fn sums_product(&self, collective: &KernelName, query: &OpQuery) -> bool {
        let output = product_output(query).filter(|_| {
            collective.as_str() == "hcom_allReduce_" && !query.is_sequence_parallel && query.ranks.is_some()
        });
        let Some(output) = output else { return false };
        let message = OpQuery {
            op: collective.as_str().to_owned(),
            inputs: vec![output],
            ranks: query.ranks,
            tier: query.tier,
            ..OpQuery::default()
        };
        let answer = self.engine.lookup(&message);
        answer.is_ok_and(|answer| answer.latency.is_some() && answer.miss.is_none())
    }

    fn closing_of_miss(
        &self,
        answer: &AnsweredQuestion<'_>,
        part: Option<&str>,
        reason: Option<&MissReason>,
    ) -> (GapClosing, Option<Case>) {
        let op = answer.query.op.as_str();
        let own =
            part.map_or_else(|| self.engine.kernels_of_query(answer.query), |part| self.kernels_of(part));
        let kernel = own.first().map_or_else(|| part.unwrap_or(op), KernelName::as_str).to_owned();
        let is_collective = own.first().is_some_and(KernelName::is_collective);
        if let Some(closing) = closing_of_reason(reason, &kernel, own.is_empty(), is_collective) {
            let closing = match closing {
                GapClosing::CollectiveRows { kernel, .. } => {
                    let name = KernelName::new(&kernel).ok();
                    let command =
                        name.and_then(|name| self.engine.collective_command(answer.query, &name, reason));
                    GapClosing::CollectiveRows { kernel, command }
                }
                closing => closing,
            };
            return (closing, None);
        }
        if self.has_inputs_of_operator(op, part) {
            let (closing, case) = self.closing_by_case(answer, &own);
            return match reason {
                Some(MissReason::NotMeasured) if case.is_some() => (GapClosing::ExistingRow { kernel }, case),
                _ => (closing, case),
            };
        }
        let has_entry = |kernel: &&KernelName| self.catalogue.entry(kernel).is_some();
        match own.iter().find(has_entry) {
            Some(_) if reason == Some(&MissReason::NotMeasured) => (GapClosing::ExistingRow { kernel }, None),
            Some(known) => {
                let reason = format!("it is a part of {op} whose inputs are not those of the operator");
                (GapClosing::UnknownCase { kernel: known.as_str().to_owned(), reason }, None)
            }
            None => (self.closing_by_entry(kernel), None),
        }
    }

    /// Returns the closing by a row with its case, or by an entry that can measure one.
    fn closing_by_case(
        &self,
        answer: &AnsweredQuestion<'_>,
        kernels: &[KernelName],
    ) -> (GapClosing, Option<Case>) {
        if let Some(case) = &answer.question.case
            && let Some(entry) = self.catalogue.entry(&case.kernel)
        {
            let kernel = case.kernel.as_str().to_owned();
            return match entry.resolve_call(case) {
                Ok(_) => (GapClosing::ExactCase { kernel }, Some(case.clone())),
                Err(problem) => {
                    (GapClosing::CatalogueEntry { kernel, problem: Some(problem.to_string()) }, None)
                }
            };
        }
        match self.case_of_query(answer.query, kernels) {
            Ok(case) => (GapClosing::ExactCase { kernel: case.kernel.as_str().to_owned() }, Some(case)),
            Err(Some(CaseProblem::Parameter(name))) => (GapClosing::QueryParameter(name), None),
            Err(Some(CaseProblem::Unknown { kernel, reason })) => {
                (GapClosing::UnknownCase { kernel: kernel.as_str().to_owned(), reason }, None)
            }
            Err(None) => {
                let kernel = kernels.first().map_or(answer.query.op.as_str(), KernelName::as_str);
                (self.closing_by_entry(kernel.to_owned()), None)
            }
        }
    }

    pub(super) fn closing_by_entry(&self, kernel: String) -> GapClosing {
        match self.catalogue.not_launchable_reason(&kernel) {
            Some(reason) => GapClosing::NotLaunchable { reason: reason.to_owned(), kernel },
            None => GapClosing::CatalogueEntry { kernel, problem: None },
        }
    }
}

/// Returns the closing that the reason of a miss determines; `None` if a row closes it.
fn closing_of_reason(
    reason: Option<&MissReason>,
    kernel: &str,
    is_unmapped: bool,
    is_collective: bool,
) -> Option<GapClosing> {
    let parameter = |name: &str| GapClosing::QueryParameter(name.to_owned());
    let collective_rows = || GapClosing::CollectiveRows { kernel: kernel.to_owned(), command: None };
    Some(match reason {
        None | Some(MissReason::Unmapped) if is_unmapped => GapClosing::MappingEntry,
        Some(MissReason::AmbiguousDtype) => parameter("element types"),
        Some(MissReason::AmbiguousOutput) => parameter("outputs"),
        Some(MissReason::OpenAttributes(names)) => parameter(&names.join(", ")),
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
            MissReason::CsvFormatRaw(_) | MissReason::MessageOutOfRange { .. } | MissReason::NoRowsOfGroup(_),
        ) => collective_rows(),
        _ if is_collective => collective_rows(),
        _ => return None,
    })
}

#[derive(Clone, Debug)]
pub(super) struct GapAssessment {
    pub(super) closing: GapClosing,
    /// The case whose measurement closes it; `None` if none does, or if the question does not determine it.
    pub(super) case: Option<Case>,
    /// True if everything else of the question has an answer.
    pub(super) is_only_part: bool,
}

#[derive(Clone, Copy, Debug)]
struct MissingPart<'a> {
    /// Kernel or operator; `None` if the answer has no parts.
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
    let parts = || answer.parts.iter().filter(|part| is_missing(&part.answer));
    if parts().next().is_some() {
        parts().for_each(|part| add_missing_parts(&part.answer, Some(&part.name), missing));
        return;
    }
    let (mut name, mut reason, mut hides_others) = (name, answer.miss.as_ref(), false);
    while let Some(
        MissReason::CommSubKernelMiss(part, inner)
        | MissReason::SubKernelMiss(part, inner)
        | MissReason::AttentionSubKernelMiss(part, inner),
    ) = reason
    {
        (name, reason, hides_others) = (Some(part.as_str()), Some(inner.as_ref()), true);
    }
    missing.push(MissingPart { name, reason, hides_others });
}

const fn is_missing(answer: &LookupAnswer) -> bool {
    answer.latency.is_none() || answer.miss.is_some()
}

/// Returns the kernels of which the first one of a composite is: all leading products, or one kernel.
fn first_step(parts: &[CompositePart]) -> Vec<&KernelName> {
    let is_product = |part: &CompositePart| match part {
        CompositePart::Kernel(kernel) => KernelTraits::of_kernel(&kernel.name).is_product,
        CompositePart::Operator(_) => false,
    };
    let count = parts.iter().take_while(|part| is_product(part)).count().max(1);
    parts
        .iter()
        .take(count)
        .filter_map(|part| match part {
            CompositePart::Kernel(kernel) => Some(&kernel.name),
            CompositePart::Operator(_) => None,
        })
        .collect()
}

/// Returns the output of a product, in at least two bytes for each element.
fn product_output(query: &OpQuery) -> Option<QueryTensor> {
    let [rows, weight, ..] = query.inputs.as_slice() else { return None };
    let ([outer @ .., depth], [one, other]) = (rows.dims.as_slice(), weight.dims.as_slice()) else {
        return None;
    };
    let columns = if one == depth { other } else { one };
    let dtype = rows.dtype.clone().map(|dtype| if dtype.bytes() == Some(1) { Dtype::Bf16 } else { dtype });
    Some(QueryTensor { dims: [outer, &[*columns]].concat(), dtype, format: None })
}
