//! Composites: the kernels that run for one operator, and the sum of their answers; fused mixtures of experts, and what runs
//! beside them.

use super::{
    AnswerSource, AttentionFamily, CollectiveMessage, InterpolationKind, KernelsQuery, LookupAnswer,
    LookupEngine, LookupResult, LookupRules, MatchRule, Micros, MissReason, OpQuery, PartAnswer, QuerySource,
    QueryTensor, RuleKind, choose_row, element_bytes, find_exact, input_slots, input_variants,
    message_of_product,
};
use crate::{
    answer::op_mapping::{
        CommunicationRule, CompositePart, EmbeddedCompute, InputProjection, MappedKernel, MappedOperator,
        RankGroup,
    },
    kernel::{Dtype, KernelName},
};

impl LookupEngine {
    /// Looks the parts of a composite up and adds them. The first kernel has the inputs of the operator, later ones its
    /// output, which has the shape of the first input.
    pub(super) fn lookup_composite(&self, operator: &MappedOperator, query: &OpQuery) -> LookupResult {
        let mut answers: Vec<PartAnswer> = Vec::new();
        for step in composite_steps(operator.parts(), &*self.rules) {
            let (name, answer) = match step {
                CompositeStep::Operator(name) => {
                    let answer = self.lookup(&OpQuery { op: name.clone(), ..query.clone() })?;
                    (name, answer)
                }
                CompositeStep::Collective(kernel) => {
                    let name = Some(kernel.name.as_str());
                    let rule = operator.sequence_parallel().filter(|rule| {
                        query.is_sequence_parallel && rule.source_kernel_type.as_deref() == name
                    });
                    let kernel = match rule {
                        Some(rule) => MappedKernel { name: rule.kernel_type.name.clone(), ..kernel },
                        None => kernel,
                    };
                    let answer = match message_of_product(query, rule) {
                        Ok(message) => self.lookup_message(&kernel, &message)?,
                        Err(reason) => LookupAnswer::missed(reason),
                    };
                    (kernel.name.to_string(), answer)
                }
                CompositeStep::Kernels(kernels) => {
                    let answer = self.lookup_kernels(operator, &kernels, query, answers.is_empty())?;
                    let ran = answer.rows.first().map(|row| row.kernel.as_str().to_owned());
                    (ran.unwrap_or_else(|| kernels[0].name.as_str().to_owned()), answer)
                }
            };
            answers.push(PartAnswer { name, answer });
        }
        Ok(sum_of_parts(answers))
    }

    /// Looks a step of a composite up, of whose kernels one runs. The first step has the inputs of the operator.
    pub(super) fn lookup_kernels(
        &self,
        operator: &MappedOperator,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_first: bool,
    ) -> LookupResult {
        let mut slots = input_slots(&query.inputs);
        slots.truncate(if is_first { operator.input_count.unwrap_or(usize::MAX) } else { 1 });
        let query = KernelsQuery {
            slots,
            formats: &operator.formats,
            is_prefix: operator.input_count.is_some() || !is_first,
            interpolation: match self.rules.is_superseded() {
                true => InterpolationKind::Disabled,
                false => InterpolationKind::Kernel,
            },
            source: QuerySource::Operator,
            ..KernelsQuery::default()
        };
        Ok(self.match_kernels(&self.candidates(kernels)?, &query))
    }

    pub(super) fn lookup_moe(&self, operator: &MappedOperator, query: &OpQuery) -> LookupResult {
        let Some(ep_size) = query.ep_size else {
            return Ok(LookupAnswer::missed(MissReason::EpSizeNotConfigured));
        };
        let moe = moe_inputs(query);
        let inputs = match &moe {
            Some(moe) if operator.project_full_shape => &moe.kernel,
            None if operator.project_full_shape => {
                return Ok(LookupAnswer::missed(MissReason::DecomposeFailed));
            }
            _ => &query.inputs,
        };
        let count = operator.input_count.filter(|_| !operator.project_full_shape);
        let mut slots = input_slots(inputs);
        slots.truncate(count.unwrap_or(usize::MAX));
        let kernels = self.candidates(&operator.kernels)?;
        let kernels_query = KernelsQuery {
            slots,
            formats: &operator.formats,
            is_prefix: count.is_some(),
            ep_size: Some(ep_size),
            needs_ep_size: true,
            source: QuerySource::Part,
            ..KernelsQuery::default()
        };
        let answer = self.match_kernels(&kernels, &kernels_query);
        let name = operator.kernels.first().map_or("", |kernel| kernel.name.as_str()).to_owned();
        let mut parts = vec![PartAnswer { name, answer }];
        if parts[0].answer.source != AnswerSource::Miss {
            for embedded in &operator.embedded_compute {
                let answer = self.lookup_embedded(embedded, moe.as_ref())?;
                parts.push(PartAnswer { name: embedded.kernel_type.name.to_string(), answer });
            }
            if let Some(collective) = &operator.embedded_communication {
                let answer = self.lookup_routed_message(collective, moe.as_ref(), query)?;
                // The collective is looked up for messages of measured sizes only.
                if !matches!(answer.miss, Some(MissReason::MessageOutOfRange { .. })) {
                    parts.push(PartAnswer { name: collective.kernel_type.name.to_string(), answer });
                }
            }
        }
        Ok(match parts.as_slice() {
            [first, rest @ ..] if rest.is_empty() || is_missed(first) => first.answer.clone(),
            _ => sum_of_sub_kernels(parts, false),
        })
    }

    fn lookup_embedded(&self, embedded: &EmbeddedCompute, moe: Option<&MoeInputs>) -> LookupResult {
        let Some(moe) = moe else { return Ok(LookupAnswer::missed(MissReason::DecomposeFailed)) };
        let kernels = self.candidates(std::slice::from_ref(&embedded.kernel_type))?;
        let inputs = moe.embedded_inputs(embedded.input_projection);
        let (slots, source) = (input_slots(&inputs), QuerySource::Part);
        let query = KernelsQuery { slots, is_prefix: true, source, ..KernelsQuery::default() };
        let Some(dtype) = &embedded.output_dtype else { return Ok(self.match_kernels(&kernels, &query)) };
        let Some(index) = kernels.indices.first() else { return Ok(kernels.missed()) };
        let mut reason = MissReason::InputCountMismatch;
        let variants = input_variants(index.traits, query.slots.clone());
        let mut matches = find_exact(index, &variants, &query, &mut reason);
        let wanted = Dtype::parse(dtype);
        matches.retain(|found| {
            let outputs = &index.rows.form(&index.rows.rows[found.row as usize]).outputs;
            outputs.first().map(|output| &output.dtype) == wanted.as_ref()
        });
        match matches.is_empty() {
            true => Ok(LookupAnswer::missed(reason)),
            false => Ok(choose_row(index, &matches, true, None)),
        }
    }

    fn lookup_routed_message(
        &self,
        rule: &CommunicationRule,
        moe: Option<&MoeInputs>,
        query: &OpQuery,
    ) -> LookupResult {
        let ranks = query.ranks.or(query.ep_size).unwrap_or_default();
        if rule.group_type == Some(RankGroup::ExpertParallel) && query.ep_size != Some(ranks) {
            return Ok(LookupAnswer::missed(MissReason::RanksNotGiven));
        }
        let Some(bytes) = moe.and_then(MoeInputs::routed_bytes) else {
            return Ok(LookupAnswer::missed(MissReason::MessageUnknown));
        };
        let interpolation = rule.interpolation_method;
        let message = CollectiveMessage { bytes, ranks, tier: query.tier, dtype: None, interpolation };
        self.lookup_message(&MappedKernel::unmapped(rule.kernel_type.name.clone()), &message)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CompositeStep {
    /// Kernels of which one runs, in the order of preference.
    Kernels(Vec<MappedKernel>),
    Collective(MappedKernel),
    Operator(String),
}

/// Divides the parts of a composite into steps. Kernels of products are alternatives of each other: of `MatMulV2,
/// MatMulV3` one runs, of `RmsNorm, DynamicQuant` both.
pub(crate) fn composite_steps(parts: &[CompositePart], rules: &dyn LookupRules) -> Vec<CompositeStep> {
    let is_alternative = |kernel: &MappedKernel| rules.is_alternative(&kernel.name);
    let mut steps: Vec<CompositeStep> = Vec::new();
    for part in parts {
        match (part, steps.last_mut()) {
            (CompositePart::Operator(name), _) => steps.push(CompositeStep::Operator(name.clone())),
            (CompositePart::Kernel(kernel), _) if kernel.name.is_collective() => {
                steps.push(CompositeStep::Collective(kernel.clone()));
            }
            (CompositePart::Kernel(kernel), Some(CompositeStep::Kernels(kernels)))
                if is_alternative(kernel) && kernels.iter().all(is_alternative) =>
            {
                kernels.push(kernel.clone());
            }
            (CompositePart::Kernel(kernel), _) => steps.push(CompositeStep::Kernels(vec![kernel.clone()])),
        }
    }
    steps
}

fn is_missed(part: &PartAnswer) -> bool {
    part.answer.source == AnswerSource::Miss
}

fn sub_kernel_miss(kind: &'static str, part: &PartAnswer) -> MissReason {
    let reason = Box::new(part.answer.miss.clone().unwrap_or(MissReason::Unmapped));
    MissReason::SubKernelMiss { kind, part: part.name.clone(), reason }
}

/// Adds up the parts of a composite; the answer is a miss if one of them is.
pub(crate) fn sum_of_parts(parts: Vec<PartAnswer>) -> LookupAnswer {
    let is_collective = |part: &PartAnswer| KernelName::is_collective_name(&part.name);
    if let Some(part) = parts.iter().find(|part| is_missed(part)) {
        let kind = if is_collective(part) { "comm_" } else { "" };
        return LookupAnswer::missed(sub_kernel_miss(kind, part));
    }
    let is_computed = |part: &PartAnswer| part.answer.source != AnswerSource::Measured;
    let computes_kernel = parts.iter().any(|part| is_computed(part) && !is_collective(part));
    let confidence = match (computes_kernel, parts.iter().any(is_collective)) {
        (true, _) => 0.5,
        (false, true) => 0.9,
        (false, false) => 0.8,
    };
    let least = parts.iter().map(|part| part.answer.confidence).fold(1.0, f64::min);
    LookupAnswer {
        latency: Some(Micros(parts.iter().filter_map(|part| Some(part.answer.latency?.0)).sum())),
        // The sum is as good as its worst part.
        source: parts.iter().map(|part| part.answer.source).max().unwrap_or(AnswerSource::Measured),
        confidence: f64::min(confidence, least),
        rule: Some(MatchRule::of_kind(RuleKind::SumOfParts)),
        equal_rows: 1,
        miss: parts.iter().find(|part| part.answer.miss.is_some()).map(|part| sub_kernel_miss("", part)),
        parts,
        ..LookupAnswer::default()
    }
}

/// Adds up the kernels of a shape-dependent composite. Attention must have an answer; of others one must, or all if the
/// mapping states so. The confidence of a sum that lacks parts is at most their share.
pub(crate) fn sum_of_sub_kernels(parts: Vec<PartAnswer>, requires_all: bool) -> LookupAnswer {
    let is_attention = |part: &&PartAnswer| {
        KernelName::new(&part.name).is_ok_and(|name| AttentionFamily::of_kernel(&name).is_some())
    };
    if let Some(part) = parts.iter().filter(is_attention).find(|part| is_missed(part)) {
        return LookupAnswer::missed(sub_kernel_miss("attention_", part));
    }
    let Some(missed) = parts.iter().find(|part| is_missed(part)) else {
        return if let [part] = parts.as_slice() { part.answer.clone() } else { sum_of_parts(parts) };
    };
    let reason = sub_kernel_miss("", missed);
    if requires_all || parts.iter().all(is_missed) {
        return LookupAnswer::missed(reason);
    }
    let known = sum_of_parts(parts.iter().filter(|part| !is_missed(part)).cloned().collect());
    let share = known.parts.len() as f64 / parts.len() as f64;
    LookupAnswer {
        source: AnswerSource::Partial,
        confidence: f64::min(known.confidence, share),
        miss: Some(reason),
        parts,
        ..known
    }
}

const KERNEL_INPUTS: usize = 7;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MoeInputs {
    /// Tokens, hidden size.
    pub(crate) activation: QueryTensor,
    /// Tokens, experts of each.
    pub(crate) routing: QueryTensor,
    pub(crate) kernel: Vec<QueryTensor>,
}

/// Returns the inputs of the fused kernel. If the given inputs are not already in this form, they are derived from the
/// activation, the experts of each token, and the weights of both products; `None` if one of these is missing.
pub(crate) fn moe_inputs(query: &OpQuery) -> Option<MoeInputs> {
    let inputs = stack_weights(&query.inputs);
    let rank = |at: usize| inputs.get(at).map(|tensor| tensor.dims.len());
    if inputs.len() == KERNEL_INPUTS && (rank(1), rank(2)) == (Some(3), Some(3)) {
        let (activation, routing) = (inputs[0].clone(), inputs[3].clone());
        return Some(MoeInputs { activation, routing, kernel: inputs });
    }
    let [activation, routing, others @ ..] = inputs.as_slice() else { return None };
    let (&hidden, outer) = activation.dims.split_last()?;
    let tokens = outer.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim))?;
    if outer.is_empty() || routing.dims.is_empty() {
        return None;
    }
    let up = others.iter().position(|tensor| matches!(*tensor.dims, [_, inner, _] if inner == hidden))?;
    let down =
        others[up + 1..].iter().find(|tensor| matches!(*tensor.dims, [_, _, last] if last == hidden))?;
    let up = &others[up];
    let (experts, width) = (up.dims[0], up.dims[2]);
    let tensor = |dims: Vec<u64>, dtype: Option<Dtype>| QueryTensor { dims, dtype, format: None };
    let activation = tensor(vec![tokens, hidden], activation.dtype.clone());
    let kernel = vec![
        activation.clone(),
        up.clone(),
        down.clone(),
        tensor(routing.dims.clone(), Some(Dtype::Int32)),
        tensor(vec![experts.checked_mul(width)?], Some(Dtype::Int64)),
        tensor(vec![experts.checked_mul(hidden)?], Some(Dtype::Int64)),
        tensor(routing.dims.clone(), Some(Dtype::Float)),
    ];
    Some(MoeInputs { activation, routing: routing.clone(), kernel })
}

/// Returns the tensors after joining each list of equal matrices into one tensor: a framework may pass the weights of
/// experts one by one.
fn stack_weights(inputs: &[QueryTensor]) -> Vec<QueryTensor> {
    let is_same_matrix = |one: &QueryTensor, other: &QueryTensor| one.dims.len() == 2 && one == other;
    // The activation and the experts of tokens are in front.
    let (front, rest) = inputs.split_at(inputs.len().min(2));
    let stacked = rest.chunk_by(is_same_matrix).map(|group| match group {
        [one] => one.clone(),
        [one, ..] => {
            let dims = std::iter::once(group.len() as u64).chain(one.dims.iter().copied()).collect();
            QueryTensor { dims, ..one.clone() }
        }
        [] => QueryTensor::default(),
    });
    front.iter().cloned().chain(stacked).collect()
}

impl MoeInputs {
    fn embedded_inputs(&self, projection: InputProjection) -> Vec<QueryTensor> {
        let activation = &self.activation;
        match projection {
            InputProjection::ResidualNormFromActivation => {
                let hidden = activation.dims.last().copied().into_iter().collect();
                let vector = QueryTensor { dims: hidden, ..activation.clone() };
                vec![activation.clone(), activation.clone(), vector.clone(), vector]
            }
            // Routing weights have the type of the activation.
            InputProjection::RoutingWeightCast => {
                vec![QueryTensor { dims: self.routing.dims.clone(), format: None, ..activation.clone() }]
            }
        }
    }

    pub(crate) fn routed_bytes(&self) -> Option<u64> {
        let experts = match *self.routing.dims {
            [.., _, experts] => experts,
            _ => 1,
        };
        let size = element_bytes(self.activation.dtype.as_ref()?)?.checked_mul(experts)?;
        self.activation.dims.iter().try_fold(size, |product, dim| product.checked_mul(*dim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::lookup::{collective::product_bytes, tests::tensors};

    #[test]
    fn kernels_of_one_call_are_alternatives_and_others_run_in_turn() {
        let part = |name: &str| {
            CompositePart::Kernel(MappedKernel { name: KernelName::new(name).expect("a name"), line: 0 })
        };
        let steps = |names: &[&str]| -> Vec<usize> {
            let parts: Vec<CompositePart> = names.iter().map(|name| part(name)).collect();
            let length = |step: &CompositeStep| match step {
                CompositeStep::Kernels(kernels) => kernels.len(),
                CompositeStep::Collective(_) | CompositeStep::Operator(_) => 0,
            };
            composite_steps(&parts, &crate::answer::lookup::engine::UsualRules).iter().map(length).collect()
        };
        assert_eq!(steps(&["MatMulV2", "MatMulV3", "MatMulCommon", "hcom_allReduce_"]), [3, 0]);
        assert_eq!(steps(&["RmsNorm", "DynamicQuant"]), [1, 1]);
    }

    #[test]
    fn messages_are_outputs_of_at_least_two_bytes_per_element() {
        for (shapes, dtype, bytes) in [
            ("41040,512;512,5120", "DT_BF16", Some(41040 * 5120 * 2)),
            ("8,512;5120,512", "INT8", Some(8 * 5120 * 2)),
            ("8,512;512,64", "FLOAT8_E4M3FN", Some(8 * 64 * 2)),
            ("8,512;512,64", "FLOAT", Some(8 * 64 * 4)),
            ("1,8,512;512,64", "DT_BF16", Some(8 * 64 * 2)),
            ("8,512;100,64", "DT_BF16", None),
            ("8,512;512,64", "HIFLOAT", None),
            ("4294967296,512;512,4294967296", "DT_BF16", None),
        ] {
            assert_eq!(product_bytes(&tensors(shapes, dtype)), bytes, "{shapes} {dtype}");
        }
    }
}
