//! Fused mixtures of experts: the inputs of the kernel, and what runs beside it.

use super::{
    AnswerSource, CollectiveMessage, KernelsQuery, LookupAnswer, LookupEngine, LookupError, MissReason,
    OpQuery, PartAnswer, QuerySource, QueryTensor, choose_row, element_bytes, find_exact, input_slots,
    input_variants, sum_of_known_parts,
};
use crate::{
    answer::op_mapping::{
        CommunicationRule, EmbeddedCompute, InputProjection, MappedKernel, MappedOperator, RankGroup,
    },
    kernel::Dtype,
};

impl LookupEngine {
    pub(super) fn lookup_moe(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
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
        Ok(sum_of_known_parts(parts))
    }

    fn lookup_embedded(
        &self,
        embedded: &EmbeddedCompute,
        moe: Option<&MoeInputs>,
    ) -> Result<LookupAnswer, LookupError> {
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
        let Some(bytes) = moe.and_then(MoeInputs::routed_bytes) else {
            return Ok(LookupAnswer::missed(MissReason::MessageUnknown));
        };
        let interpolation = rule.interpolation_method;
        let message = CollectiveMessage { bytes, ranks, tier: query.tier, dtype: None, interpolation };
        self.lookup_message(&MappedKernel::unmapped(rule.kernel_type.name.clone()), &message)
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

    /// Returns the bytes of the activation, once for each expert that a token is sent to.
    pub(crate) fn routed_bytes(&self) -> Option<u64> {
        let experts = match *self.routing.dims {
            [.., _, experts] => experts,
            _ => 1,
        };
        let size = element_bytes(self.activation.dtype.as_ref()?)?.checked_mul(experts)?;
        self.activation.dims.iter().try_fold(size, |product, dim| product.checked_mul(*dim))
    }
}
