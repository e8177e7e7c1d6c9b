//! The order in which an operator is looked up.

use super::{
    answer::{AnswerSource, LookupAnswer, MissReason, NearestRow, PartAnswer},
    attention::parameters_of_case,
    collective::CollectiveMessage,
    composite::{
        CompositeStep, composite_steps, element_bytes, message_of_product, sum_of_known_parts, sum_of_parts,
    },
    elementwise,
    index::{DatabaseIndex, LookupError},
    interpolation::{InterpolationKind, InterpolationQuery, interpolate_rows},
    kernel_index::KernelIndex,
    match_rows::{InputComparison, RowMatch, RowsSeen, choose_row, find_exact, find_padded, token_variants},
    moe::{MoeInputs, moe_inputs},
    nearest::nearest_rows,
    op_mapping::{
        CommunicationRule, CompositePart, ComputeSubcategory, EmbeddedCompute, InputProjection, MappedKernel,
        MappedOperator, MoeFusedRule, OpMapping, OperatorRoute, RankGroup, ShardAxis, TpLinearProjection,
    },
    query::{
        AttentionParameters, InputSlot, InputVariant, OpQuery, QueryTensor, input_slots, input_variants,
        recorded_inputs,
    },
    rules::{MatchRule, RuleKind},
    slot_dims::SlotDims,
};
use crate::{
    database::{Database, DatabaseError},
    domain::{AttentionCase, Case, Dtype, EP_SIZE, KernelName, Slot},
};

/// Collective whose tables have the output of one rank.
const REDUCE_SCATTER: &str = "hcom_reduceScatter_";

/// Lookups in a database.
#[derive(Debug)]
pub struct LookupEngine {
    mapping: OpMapping,
    index: DatabaseIndex,
}

/// Kernels of a lookup in the order of preference.
struct CandidateKernels<'e> {
    indices: Vec<&'e KernelIndex>,
    missing: Vec<String>,
}

/// Query of the kernels of an operator.
struct KernelsQuery<'q> {
    slots: Vec<InputSlot<'q>>,
    outputs: Vec<SlotDims>,
    comparison: InputComparison<'q>,
    kind: InterpolationKind,
    /// True if the inputs are those of a framework.
    is_operator: bool,
}

impl<'q> KernelsQuery<'q> {
    const fn new(comparison: InputComparison<'q>) -> Self {
        let kind = InterpolationKind::Kernel;
        Self { slots: Vec::new(), outputs: Vec::new(), comparison, kind, is_operator: false }
    }
}

impl LookupEngine {
    /// Creates an engine. Tables are read when a lookup first needs them.
    pub fn new(database: Database, mapping: Option<OpMapping>) -> Result<Self, DatabaseError> {
        Ok(Self { mapping: mapping.unwrap_or_default(), index: DatabaseIndex::new(database)? })
    }

    /// Reads all tables; returns the number of rows.
    pub fn load_all(&self) -> Result<usize, LookupError> {
        let mut rows = 0;
        for kernel in self.index.kernels() {
            rows += self.index.kernel(kernel, &self.mapping)?.map_or(0, |index| index.rows.rows.len());
        }
        Ok(rows)
    }

    /// Returns true if the mapping has the operator, or the database a table of the name.
    pub fn knows(&self, op: &str) -> bool {
        self.mapping.operator(op).is_some() || self.index.kernels().any(|kernel| kernel.as_str() == op)
    }

    /// Returns the mapping.
    pub const fn mapping(&self) -> &OpMapping {
        &self.mapping
    }

    /// Returns the query of a recorded case: the kernel by its own name.
    pub fn query_of_case(case: &Case) -> OpQuery {
        let tensors = |slots: &[Slot]| slots.iter().flatten().map(QueryTensor::from_tensor).collect();
        let attention = match case.kernel.as_str() {
            AttentionCase::KERNEL => parameters_of_case(case),
            _ => AttentionParameters::default(),
        };
        OpQuery {
            op: case.kernel.as_str().to_owned(),
            inputs: tensors(&case.inputs),
            outputs: tensors(&case.outputs),
            ep_size: case.attributes.get(EP_SIZE).and_then(|text| text.parse().ok()),
            attention,
            ..OpQuery::default()
        }
    }

    /// Returns the names that a query can have.
    pub fn known_names(&self) -> impl Iterator<Item = &str> {
        let operators = self.mapping.operators().map(|(name, _)| name);
        operators.chain(self.index.kernels().map(KernelName::as_str))
    }

    /// Looks an operator up. Fails with [`LookupError`] if a table cannot be read.
    pub fn lookup(&self, query: &OpQuery) -> Result<LookupAnswer, LookupError> {
        let Some(operator) = self.mapping.operator(&query.op) else {
            return match KernelName::new(&query.op) {
                Ok(kernel) if kernel.as_str() == AttentionCase::KERNEL => {
                    self.lookup_attention(&[unmapped(kernel)], query)
                }
                Ok(kernel) if kernel.is_collective() => {
                    self.lookup_collective(&[unmapped(kernel)], query, false)
                }
                Ok(kernel) => self.lookup_kernel(&kernel, query),
                Err(_) => Ok(LookupAnswer::missed(MissReason::Unmapped)),
            };
        };
        Ok(match &operator.route {
            OperatorRoute::ZeroCost => LookupAnswer::zero(MatchRule::of_kind(RuleKind::ZeroCost)),
            OperatorRoute::AcceptedMiss => LookupAnswer::zero(MatchRule::of_kind(RuleKind::AcceptedMiss)),
            OperatorRoute::Compute => return self.lookup_compute(operator, query),
            OperatorRoute::Elementwise => return self.lookup_elementwise(operator, query),
            OperatorRoute::MtpProjection(kernel) => {
                return self.lookup_mtp_projection(operator, kernel.as_ref(), query);
            }
            OperatorRoute::Attention => return self.lookup_attention(&operator.kernels, query),
            OperatorRoute::MoeFused(rule) => return self.lookup_moe(operator, rule, query),
            OperatorRoute::Communication => return self.lookup_collective(&operator.kernels, query, true),
            OperatorRoute::StaticComposite { parts, sequence_parallel } => {
                return self.lookup_composite(operator, parts, sequence_parallel.as_ref(), query);
            }
            other => LookupAnswer::missed(MissReason::UnsupportedQueryMode(other.name())),
        })
    }

    /// Returns the rows that are nearest to a query, for a miss.
    pub fn nearest_rows(&self, query: &OpQuery, limit: usize) -> Result<Vec<NearestRow>, LookupError> {
        let (kernels, is_operator) = match self.mapping.operator(&query.op) {
            Some(operator) => (ordered_kernels(operator, &query.inputs), true),
            None => (KernelName::new(&query.op).into_iter().map(unmapped).collect(), false),
        };
        let mut rows = Vec::new();
        for index in self.candidates(&kernels)?.indices {
            let slots = recorded_slots(index, input_slots(&query.inputs), is_operator);
            rows.extend(nearest_rows(index, &slots, limit));
        }
        rows.sort_by(|one, other| one.distance.total_cmp(&other.distance));
        rows.truncate(limit);
        Ok(rows)
    }

    fn candidates(&self, kernels: &[MappedKernel]) -> Result<CandidateKernels<'_>, LookupError> {
        let mut found = CandidateKernels { indices: Vec::new(), missing: Vec::new() };
        for kernel in kernels {
            match self.index.kernel(&kernel.name, &self.mapping)? {
                Some(index) => found.indices.push(index),
                None => found.missing.push(self.place_of(kernel)),
            }
        }
        Ok(found)
    }

    /// Looks a kernel up by its own name, with the inputs in its own order.
    fn lookup_kernel(&self, kernel: &KernelName, query: &OpQuery) -> Result<LookupAnswer, LookupError> {
        let kernels = self.candidates(&[unmapped(kernel.clone())])?;
        if kernels.indices.is_empty() {
            return Ok(LookupAnswer::missed(MissReason::Unmapped));
        }
        let comparison = InputComparison { ep_size: query.ep_size, ..InputComparison::new(false, &[]) };
        let slots = input_slots(&query.inputs);
        let outputs = output_dims(kernel.as_str(), &slots, &query.outputs);
        Ok(self.match_kernels(&kernels, &KernelsQuery { slots, outputs, ..KernelsQuery::new(comparison) }))
    }

    fn lookup_compute(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let mut slots = input_slots(&query.inputs);
        if let Some(count) = operator.input_count {
            slots.truncate(count);
        }
        if let Some(rule) = &operator.tp_projection
            && let Err(reason) = project_under_tp(rule, &mut slots, query.tp_size)
        {
            return Ok(LookupAnswer::missed(reason));
        }
        let kernels = self.candidates(&ordered_kernels(operator, &query.inputs))?;
        let comparison = InputComparison::new(operator.input_count.is_some(), &operator.formats);
        let kind = match operator.subcategory {
            Some(ComputeSubcategory::ComputeScale) => InterpolationKind::Scale,
            Some(ComputeSubcategory::QuantizedMatmul) | None => InterpolationKind::Kernel,
        };
        let name = operator.kernels.first().map_or("", |kernel| kernel.name.as_str());
        let outputs = output_dims(name, &slots, &query.outputs);
        Ok(self
            .match_kernels(&kernels, &KernelsQuery { slots, outputs, comparison, kind, is_operator: true }))
    }

    /// Finds rows that fit exactly, then padded ones, then rows to interpolate between, each in the order of the
    /// kernels.
    fn match_kernels(&self, kernels: &CandidateKernels<'_>, query: &KernelsQuery<'_>) -> LookupAnswer {
        let (slots, comparison) = (&query.slots, query.comparison);
        if kernels.indices.is_empty() {
            return LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing.clone()));
        }
        let has_dtypes = slots.iter().all(|slot| slot.dtype.is_some());
        let mut seen = RowsSeen::default();
        let mut relaxed: Option<(&KernelIndex, Vec<RowMatch>)> = None;
        let variants: Vec<(&KernelIndex, Vec<InputVariant<'_>>)> = kernels
            .indices
            .iter()
            .map(|index| {
                let slots = recorded_slots(index, slots.clone(), query.is_operator);
                (*index, input_variants(index.traits, slots))
            })
            .collect();
        for (index, variants) in &variants {
            let mut of_kernel = RowsSeen::default();
            let matches = find_exact(index, variants, comparison, &mut of_kernel);
            seen.merge(of_kernel);
            let is_exact = matches.iter().any(|found| !found.rule.has_relaxed_dtype);
            if is_exact {
                return self.choose(index, &matches, has_dtypes, query.outputs.first());
            }
            if !matches.is_empty() && relaxed.is_none() {
                relaxed = Some((index, matches));
            }
        }
        if let Some((index, matches)) = relaxed {
            return self.choose(index, &matches, has_dtypes, query.outputs.first());
        }
        for (index, variants) in &variants {
            let variants = token_variants(variants);
            let matches = find_padded(index, &variants, comparison);
            if !matches.is_empty() {
                return self.choose(index, &matches, has_dtypes, query.outputs.first());
            }
        }
        for (index, variants) in &variants {
            let (outputs, kind) = (&query.outputs, query.kind);
            let interpolation = InterpolationQuery { variants, outputs, comparison, kind };
            let policy = self.mapping.policy(index.rows.kernel.as_str());
            if has_dtypes && let Some(answer) = interpolate_rows(index, interpolation, policy) {
                return answer;
            }
        }
        let counts = variants.iter().flat_map(|(index, variants)| {
            let forms = index.rows.forms.iter();
            forms.map(|form| (form.inputs.len(), variants[0].slots.len()))
        });
        seen.same_count =
            counts.into_iter().any(|(row, query)| row == query || comparison.is_prefix && row > query);
        LookupAnswer::missed(seen.reason())
    }

    fn choose(
        &self,
        index: &KernelIndex,
        matches: &[RowMatch],
        has_dtypes: bool,
        output: Option<&SlotDims>,
    ) -> LookupAnswer {
        let policy = self.mapping.policy(index.rows.kernel.as_str());
        choose_row(index, matches, policy, has_dtypes, output).unwrap_or_else(LookupAnswer::missed)
    }

    /// Looks attention up in the order of the kernels.
    fn lookup_attention(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let kernels = self.candidates(kernels)?;
        let mut first_miss = None;
        for index in &kernels.indices {
            let policy = self.mapping.policy(index.rows.kernel.as_str());
            let answer = self.index.attention(index)?.lookup(&index.rows, query, policy);
            if answer.source != AnswerSource::Miss {
                return Ok(answer);
            }
            first_miss.get_or_insert(answer);
        }
        Ok(first_miss.unwrap_or_else(|| LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing))))
    }

    /// Looks a fused mixture of experts up, and what runs beside it.
    fn lookup_moe(
        &self,
        operator: &MappedOperator,
        rule: &MoeFusedRule,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let Some(ep_size) = query.ep_size else {
            return Ok(LookupAnswer::missed(MissReason::EpSizeNotConfigured));
        };
        let moe = moe_inputs(query);
        let inputs = match &moe {
            Some(moe) if rule.projects_full_shape => &moe.kernel,
            None if rule.projects_full_shape => return Ok(LookupAnswer::missed(MissReason::DecomposeFailed)),
            _ => &query.inputs,
        };
        let comparison = InputComparison {
            ep_size: Some(ep_size),
            needs_ep_size: true,
            ..InputComparison::new(
                operator.input_count.is_some() && !rule.projects_full_shape,
                &operator.formats,
            )
        };
        let mut slots = input_slots(inputs);
        slots.truncate(operator.input_count.filter(|_| !rule.projects_full_shape).unwrap_or(usize::MAX));
        let kernels = self.candidates(&operator.kernels)?;
        let answer = self.match_kernels(&kernels, &KernelsQuery { slots, ..KernelsQuery::new(comparison) });
        let name = operator.kernels.first().map_or("", |kernel| kernel.name.as_str()).to_owned();
        let mut parts = vec![PartAnswer { name, answer }];
        if parts[0].answer.source != AnswerSource::Miss {
            for embedded in &rule.embedded_compute {
                let answer = self.lookup_embedded(embedded, moe.as_ref())?;
                parts.push(PartAnswer { name: embedded.kernel_type.clone(), answer });
            }
            if let Some(collective) = &rule.embedded_communication {
                let answer = self.lookup_routed_message(collective, moe.as_ref(), query)?;
                // The collective runs for messages of measured sizes only.
                if !matches!(answer.miss, Some(MissReason::MessageOutOfRange { .. })) {
                    parts.push(PartAnswer { name: collective.kernel_type.clone(), answer });
                }
            }
        }
        Ok(sum_of_known_parts(parts))
    }

    /// Looks a kernel up that runs beside a fused mixture of experts.
    fn lookup_embedded(
        &self,
        embedded: &EmbeddedCompute,
        moe: Option<&MoeInputs>,
    ) -> Result<LookupAnswer, LookupError> {
        let (Some(moe), Ok(name)) = (moe, KernelName::new(&embedded.kernel_type)) else {
            return Ok(LookupAnswer::missed(MissReason::DecomposeFailed));
        };
        let kernels = self.candidates(&[unmapped(name)])?;
        let inputs = match embedded.input_projection {
            InputProjection::ResidualNormFromActivation => moe.norm_inputs(),
            InputProjection::RoutingWeightCast => vec![moe.cast_input()],
        };
        let slots = input_slots(&inputs);
        let comparison = InputComparison::new(true, &[]);
        let Some(dtype) = &embedded.output_dtype else {
            return Ok(self.match_kernels(&kernels, &KernelsQuery { slots, ..KernelsQuery::new(comparison) }));
        };
        let Some(index) = kernels.indices.first() else {
            return Ok(LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing)));
        };
        let mut seen = RowsSeen::default();
        let variants = input_variants(index.traits, slots);
        let mut matches = find_exact(index, &variants, comparison, &mut seen);
        let wanted = Dtype::parse(dtype);
        matches.retain(|found| {
            let outputs = &index.rows.form(&index.rows.rows[found.row as usize]).outputs;
            outputs.first().map(|output| &output.dtype) == wanted.as_ref()
        });
        match matches.is_empty() {
            true => Ok(LookupAnswer::missed(seen.reason())),
            false => Ok(self.choose(index, &matches, true, None)),
        }
    }

    /// Looks the collective up that sends tokens to their experts.
    fn lookup_routed_message(
        &self,
        rule: &CommunicationRule,
        moe: Option<&MoeInputs>,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let ranks = query.ranks.or(query.ep_size).unwrap_or_default();
        if rule.group_type == Some(RankGroup::ExpertParallel) && query.ep_size != Some(ranks) {
            return Ok(LookupAnswer::missed(MissReason::RanksNotGiven));
        }
        let bytes = moe.and_then(MoeInputs::routed_bytes);
        let (Some(bytes), Ok(name)) = (bytes, KernelName::new(&rule.kernel_type)) else {
            return Ok(LookupAnswer::missed(MissReason::MessageUnknown));
        };
        let message = CollectiveMessage { bytes, ranks, tier: query.tier, dtype: None };
        self.lookup_message(&unmapped(name), &message)
    }

    /// Looks a collective up by its first input. That of an operator that scatters is the input of all ranks together;
    /// tables have the output of one.
    fn lookup_collective(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_operator: bool,
    ) -> Result<LookupAnswer, LookupError> {
        let Some(ranks) = query.ranks.filter(|ranks| *ranks > 0) else {
            return Ok(LookupAnswer::missed(MissReason::RanksNotGiven));
        };
        let input = query.inputs.first();
        let dtype = input.and_then(|input| input.dtype.clone());
        let bytes = input.zip(dtype.as_ref()).and_then(|(input, dtype)| {
            let size = element_bytes(dtype)?;
            input.dims.iter().try_fold(size, |product, dim| product.checked_mul(*dim))
        });
        let scatters = kernels.first().is_some_and(|kernel| kernel.name.as_str() == REDUCE_SCATTER);
        let bytes = match bytes {
            Some(bytes) if is_operator && scatters => bytes.is_multiple_of(ranks).then(|| bytes / ranks),
            bytes => bytes,
        };
        let Some(bytes) = bytes else { return Ok(LookupAnswer::missed(MissReason::MessageUnknown)) };
        let message = CollectiveMessage { bytes, ranks, tier: query.tier, dtype };
        let mut first_miss = None;
        for kernel in kernels {
            let answer = self.lookup_message(kernel, &message)?;
            if answer.source != AnswerSource::Miss {
                return Ok(answer);
            }
            first_miss.get_or_insert(answer);
        }
        Ok(first_miss.unwrap_or_else(|| LookupAnswer::missed(MissReason::Unmapped)))
    }

    fn lookup_message(
        &self,
        kernel: &MappedKernel,
        message: &CollectiveMessage,
    ) -> Result<LookupAnswer, LookupError> {
        Ok(match self.index.collective(&kernel.name, &self.mapping)? {
            Some(table) => table.lookup(message),
            None => LookupAnswer::missed(MissReason::CsvNotFound(vec![self.place_of(kernel)])),
        })
    }

    /// Returns the name of a kernel with its place in the mapping.
    fn place_of(&self, kernel: &MappedKernel) -> String {
        match kernel.line {
            0 => kernel.name.as_str().to_owned(),
            line => format!("{} ({}:{line})", kernel.name.as_str(), self.mapping.file().display()),
        }
    }

    /// Looks the parts of a composite up and adds them. The first kernel has the inputs of the operator, later ones its
    /// output, which has the shape of the first input.
    fn lookup_composite(
        &self,
        operator: &MappedOperator,
        parts: &[CompositePart],
        sequence_parallel: Option<&CommunicationRule>,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let mut answers: Vec<PartAnswer> = Vec::new();
        for step in composite_steps(parts) {
            let (name, answer) = match step {
                CompositeStep::Operator(name) => {
                    let answer = self.lookup(&OpQuery { op: name.clone(), ..query.clone() })?;
                    (name, answer)
                }
                CompositeStep::Collective(kernel) => {
                    let rule = sequence_parallel.filter(|rule| {
                        let source = rule.source_kernel_type.as_deref();
                        query.is_sequence_parallel && source == Some(kernel.name.as_str())
                    });
                    let kernel = match rule.and_then(|rule| KernelName::new(&rule.kernel_type).ok()) {
                        Some(name) => MappedKernel { name, ..kernel },
                        None => kernel,
                    };
                    let mode = rule.map(|rule| rule.message_bytes_mode).unwrap_or_default();
                    let group = rule.and_then(|rule| rule.group_type);
                    let answer = match message_of_product(query, mode, group) {
                        Ok(bytes) => {
                            let ranks = query.ranks.unwrap_or_default();
                            let message = CollectiveMessage { bytes, ranks, tier: query.tier, dtype: None };
                            self.lookup_message(&kernel, &message)?
                        }
                        Err(reason) => LookupAnswer::missed(reason),
                    };
                    (kernel.name.as_str().to_owned(), answer)
                }
                CompositeStep::Kernels(kernels) => {
                    let mut slots = input_slots(&query.inputs);
                    let is_first = answers.is_empty();
                    slots.truncate(if is_first { operator.input_count.unwrap_or(usize::MAX) } else { 1 });
                    let is_prefix = operator.input_count.is_some() || !is_first;
                    let comparison = InputComparison::new(is_prefix, &operator.formats);
                    let kernels = (self.candidates(&kernels)?, kernels);
                    let query = KernelsQuery { slots, is_operator: true, ..KernelsQuery::new(comparison) };
                    let answer = self.match_kernels(&kernels.0, &query);
                    let ran = answer.rows.first().map(|row| row.kernel.as_str().to_owned());
                    (ran.unwrap_or_else(|| kernels.1[0].name.as_str().to_owned()), answer)
                }
            };
            answers.push(PartAnswer { name, answer });
        }
        Ok(sum_of_parts(answers))
    }

    /// Looks an element-wise operator up: by its inputs, then by its output.
    fn lookup_elementwise(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let kernels = self.candidates(&operator.kernels)?;
        if kernels.indices.is_empty() {
            return Ok(LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing)));
        }
        let slots = input_slots(&query.inputs);
        let has_dtypes = slots.iter().all(|slot| slot.dtype.is_some());
        let comparison = InputComparison::new(false, &[]);
        let mut seen = RowsSeen::default();
        for index in &kernels.indices {
            let variants = input_variants(index.traits, slots.clone());
            let matches = find_exact(index, &variants, comparison, &mut seen);
            if !matches.is_empty() {
                return Ok(self.choose(index, &matches, has_dtypes, None));
            }
        }
        let Some(output) = elementwise::output_of_query(query) else {
            return Ok(LookupAnswer::missed(seen.reason()));
        };
        let by_output = |is_scaled: bool| {
            kernels.indices.iter().find_map(|index| {
                let matches = elementwise::find_by_output(index, &output, &slots, is_scaled);
                (!matches.is_empty()).then(|| self.choose(index, &matches, true, None))
            })
        };
        let interpolated = || {
            kernels.indices.iter().filter(|_| has_dtypes).find_map(|index| {
                let variants = input_variants(index.traits, slots.clone());
                let (variants, outputs, kind) =
                    (&*variants, &[output.dims][..], InterpolationKind::Elementwise);
                let query = InterpolationQuery { variants, outputs, comparison, kind };
                interpolate_rows(index, query, self.mapping.policy(index.rows.kernel.as_str()))
            })
        };
        if let Some(answer) = by_output(false).or_else(interpolated).or_else(|| by_output(true)) {
            return Ok(answer);
        }
        let reason = seen.reason();
        Ok(LookupAnswer::missed(match reason {
            MissReason::NotMeasured => reason,
            _ => MissReason::ElementwiseOutputShapeMismatch,
        }))
    }

    /// Looks a projection that halves its input up as a plain product, any other one as its operator.
    fn lookup_mtp_projection(
        &self,
        operator: &MappedOperator,
        kernel: Option<&MappedKernel>,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        if let (Some(kernel), [input, weight, ..], [output, ..]) = (kernel, &*query.inputs, &*query.outputs)
            && let (&[tokens, width], &[one, other], &[out_tokens, out_width]) =
                (&*input.dims, &*weight.dims, &*output.dims)
            && tokens == out_tokens
            && out_width.checked_mul(2) == Some(width)
            && ((one, other) == (width, out_width) || (one, other) == (out_width, width))
        {
            let plain = |tensor: &QueryTensor| QueryTensor { dtype: output.dtype.clone(), ..tensor.clone() };
            let inputs = [plain(input), plain(weight)];
            let kernels = self.candidates(std::slice::from_ref(kernel))?;
            let comparison = InputComparison::new(true, &[]);
            let slots = input_slots(&inputs);
            let query = KernelsQuery { slots, is_operator: true, ..KernelsQuery::new(comparison) };
            let answer = self.match_kernels(&kernels, &query);
            if answer.source != AnswerSource::Miss {
                return Ok(answer);
            }
        }
        self.lookup_compute(operator, query)
    }
}

const fn unmapped(name: KernelName) -> MappedKernel {
    MappedKernel { name, line: 0 }
}

/// Returns the kernels of an operator for these inputs, in the order of preference.
fn ordered_kernels(operator: &MappedOperator, inputs: &[QueryTensor]) -> Vec<MappedKernel> {
    let rank = inputs.iter().find(|tensor| !tensor.dims.is_empty()).map(|tensor| tensor.dims.len());
    let preferred = rank.and_then(|rank| operator.kernels_by_rank.get(&rank));
    let degenerate = operator.degenerate_bmm_kernel.as_ref().filter(|_| is_outer_product(inputs));
    let mut kernels: Vec<MappedKernel> = Vec::new();
    for kernel in preferred.into_iter().flatten().chain(&operator.kernels).chain(degenerate) {
        if kernels.iter().all(|other| other.name != kernel.name) {
            kernels.push(kernel.clone());
        }
    }
    kernels
}

/// Returns the dimensions of the outputs: the given ones, or those of a table from which rows are gathered.
fn output_dims(kernel: &str, inputs: &[InputSlot<'_>], outputs: &[QueryTensor]) -> Vec<SlotDims> {
    match inputs {
        [table, indices, ..] if outputs.is_empty() && kernel.starts_with("Gather") => {
            let mut dims = indices.dims;
            table.dims.as_slice().iter().skip(1).for_each(|dim| dims.push(*dim));
            vec![dims]
        }
        _ => outputs.iter().map(|tensor| SlotDims::new(&tensor.dims)).collect(),
    }
}

/// Returns true for a product of batches whose contracted dimension is 1.
fn is_outer_product(inputs: &[QueryTensor]) -> bool {
    match inputs {
        [one, other, ..] => matches!((&*one.dims, &*other.dims), (&[_, _, 1], &[_, 1, _])),
        _ => false,
    }
}

/// Returns the inputs as the rows of a kernel have them.
fn recorded_slots<'q>(
    index: &KernelIndex,
    slots: Vec<InputSlot<'q>>,
    is_operator: bool,
) -> Vec<InputSlot<'q>> {
    let recorded = is_operator.then(|| recorded_inputs(index.traits, &slots)).flatten();
    recorded.unwrap_or(slots)
}

/// Divides the dimension that all ranks have together.
fn project_under_tp(
    rule: &TpLinearProjection,
    slots: &mut [InputSlot<'_>],
    tp_size: Option<u64>,
) -> Result<(), MissReason> {
    let [input, weight, ..] = slots else {
        return Err(MissReason::TpProjectionInvalid("two inputs are needed".to_owned()));
    };
    let (&[tokens, width], &[rows, columns]) = (input.dims.as_slice(), weight.dims.as_slice()) else {
        return Err(MissReason::TpProjectionInvalid("matrices are needed".to_owned()));
    };
    let shared = match rule.shard_axis {
        ShardAxis::Input => width,
        ShardAxis::Output => columns,
    };
    let tp = match tp_size {
        _ if !rule.logical_global_dims.contains(&shared) => return Ok(()),
        Some(1) => return Ok(()),
        Some(tp) if tp > 1 && shared % tp == 0 && width == rows => tp,
        _ => {
            let axis = match rule.shard_axis {
                ShardAxis::Input => "input",
                ShardAxis::Output => "output",
            };
            let tp = tp_size.map_or("unknown".to_owned(), |tp| tp.to_string());
            let what = format!("logical_dim={shared};shard_axis={axis};tp_size={tp}");
            return Err(MissReason::TpProjectionInvalid(what));
        }
    };
    match rule.shard_axis {
        ShardAxis::Input => {
            input.dims.as_mut_slice().copy_from_slice(&[tokens, width / tp]);
            weight.dims.as_mut_slice().copy_from_slice(&[rows / tp, columns]);
        }
        ShardAxis::Output => weight.dims.as_mut_slice().copy_from_slice(&[rows, columns / tp]),
    }
    Ok(())
}
