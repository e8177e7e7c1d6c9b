//! Fused mixtures of experts: the inputs of the kernel, and of what runs beside it.

use super::query::{OpQuery, QueryTensor, element_bytes};
use crate::kernel::Dtype;

/// Number of inputs of the fused kernel.
const KERNEL_INPUTS: usize = 7;

/// Inputs of a fused mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MoeInputs {
    /// Tokens, hidden size.
    pub(crate) activation: QueryTensor,
    /// Tokens, experts of each.
    pub(crate) routing: QueryTensor,
    /// All inputs of the kernel.
    pub(crate) kernel: Vec<QueryTensor>,
}

/// Returns the inputs of the fused kernel: the given ones if they are those of the kernel, else those that follow from
/// the activation, the experts of each token, and the weights of both products. `None` if there are no such inputs.
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

/// Returns the tensors with each list of equal matrices as one tensor: a framework may pass the weights of experts one
/// by one.
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
        [] => QueryTensor { dims: Vec::new(), dtype: None, format: None },
    });
    front.iter().cloned().chain(stacked).collect()
}

impl MoeInputs {
    /// Returns the inputs of the normalisation in front: activation, residual, weight and bias.
    pub(crate) fn norm_inputs(&self) -> Vec<QueryTensor> {
        let hidden = self.activation.dims.last().copied().into_iter().collect();
        let vector = QueryTensor { dims: hidden, ..self.activation.clone() };
        vec![self.activation.clone(), self.activation.clone(), vector.clone(), vector]
    }

    /// Returns the input of the cast of routing weights, which have the type of the activation.
    pub(crate) fn cast_input(&self) -> QueryTensor {
        QueryTensor { dims: self.routing.dims.clone(), dtype: self.activation.dtype.clone(), format: None }
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
