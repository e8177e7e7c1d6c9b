//! Measures that close gaps: cases of rows, and what else a question lacks.

use std::fmt;

use super::{
    answers::{AnsweredQuestion, CoverageAnalyzer},
    totals::AnswerClass,
};
use crate::{
    domain::{Case, CaseAttributes, Dtype, KernelName, Slot, Tensor, TensorFormat},
    lookup::{LookupAnswer, MissReason, OpQuery, QueryTensor},
    op_mapping::{CompositePart, OperatorRoute},
    op_query::rules::KernelTraits,
    workload::{UnreadableReason, WorkloadQuestion},
};

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

impl CoverageAnalyzer<'_> {
    /// Returns the case of a row that would answer a question exactly; `None` if the question does not determine it, or
    /// if no call measures it.
    pub(super) fn case_to_measure(&self, answer: &AnsweredQuestion<'_>) -> Option<Case> {
        if answer.class == AnswerClass::Missing {
            return self.assess_gap(answer).case;
        }
        let own = self.kernels_of(&answer.query.op);
        let kernel = own.first()?.as_str().to_owned();
        self.case_of(answer, &self.closing_by_case(answer.question, &own, kernel))
    }

    /// Returns what would close a gap.
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
        let closing = self.closing_of_miss(question, &answer.query.op, part, reason);
        let has_inputs = self.has_inputs_of_operator(&answer.query.op, part);
        let case = Some(answer).filter(|_| has_inputs).and_then(|answer| self.case_of(answer, &closing));
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

    /// Returns the case whose measurement closes a gap: that of the question, else the one with the tensors of the
    /// query and the outputs that the catalogue computes.
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

/// What closes a gap.
#[derive(Clone, Debug)]
pub(super) struct GapAssessment {
    pub(super) closing: GapClosing,
    /// The case whose measurement closes it; `None` if none does, or if the question does not determine it.
    pub(super) case: Option<Case>,
    /// True if everything else of the question has an answer.
    pub(super) is_only_part: bool,
}

/// Missing part of an answer.
#[derive(Clone, Copy, Debug)]
struct MissingPart<'a> {
    /// Kernel or operator; `None` if the answer has no parts.
    name: Option<&'a str>,
    reason: Option<&'a MissReason>,
    /// True if parts behind it have not been looked up, or are not listed.
    hides_others: bool,
}

/// Adds the parts of an answer that are misses.
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

/// Returns a tensor of a query with the default format; `None` without an element type.
fn tensor_of(tensor: &QueryTensor, strips_batch: bool) -> Option<Tensor> {
    let dims = match tensor.dims.as_slice() {
        [1, rest @ ..] if strips_batch && rest.len() > 1 => rest.to_vec(),
        dims => dims.to_vec(),
    };
    let format = tensor.format.clone().unwrap_or_else(TensorFormat::nd);
    Some(Tensor { dims, dtype: tensor.dtype.clone()?, format })
}
