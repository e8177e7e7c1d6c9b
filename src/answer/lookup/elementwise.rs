//! Element-wise kernels: rows with the same output, also of another element type.

use super::{
    broadcast::broadcast_pattern,
    kernel_index::KernelIndex,
    match_rows::RowMatch,
    query::{InputSlot, OpQuery, compared_tensors},
    rules::{MatchRule, RuleKind},
    slot_dims::SlotDims,
};
use crate::kernel::Dtype;

/// Output of an element-wise operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElementwiseOutput {
    pub(crate) dims: SlotDims,
    pub(crate) dtype: Dtype,
}

/// Returns the output of a query: the given one, or that of torch's broadcasting and promotion. `None` if it cannot be
/// derived.
pub(crate) fn output_of_query(query: &OpQuery) -> Option<ElementwiseOutput> {
    let inputs: Vec<_> = compared_tensors(&query.inputs).collect();
    let promoted = || {
        let mut dtypes = inputs.iter().map(|input| input.dtype.clone());
        let first = dtypes.next()??;
        dtypes.try_fold(first, |left, right| left.promote_with(&right?))
    };
    let (dims, dtype) = match query.outputs.first() {
        Some(output) => (SlotDims::new(&output.dims), output.dtype.clone().or_else(promoted)?),
        None => {
            let rank = inputs.iter().map(|input| input.dims.len()).max()?;
            let mut dims = vec![1; rank];
            for input in &inputs {
                for (dim, own) in dims.iter_mut().rev().zip(input.dims.iter().rev()) {
                    match (*dim, *own) {
                        (1, own) => *dim = own,
                        (dim, own) if own == 1 || own == dim => {}
                        _ => return None,
                    }
                }
            }
            (SlotDims::new(&dims), promoted()?)
        }
    };
    Some(ElementwiseOutput { dims, dtype })
}

/// Finds rows with this output whose inputs are broadcast as those of the query: of the output's element type, or with
/// `is_scaled` of others, in proportion to the bytes. Another way to broadcast reads another number of elements.
pub(crate) fn find_by_output(
    index: &KernelIndex,
    output: &ElementwiseOutput,
    slots: &[InputSlot<'_>],
    is_scaled: bool,
) -> Vec<RowMatch> {
    let pattern = broadcast_pattern(&output.dims, slots.iter().map(|slot| slot.dims));
    let mut matches = Vec::new();
    for (number, row) in index.rows_with_output(&output.dims) {
        let form = index.rows.form(row);
        let dtype = &form.outputs[0].dtype;
        let scale = match (output.dtype.bytes(), dtype.bytes()) {
            _ if !is_scaled && *dtype == output.dtype => 1.0,
            #[expect(clippy::cast_precision_loss, reason = "at most 8")]
            (Some(ours), Some(theirs)) if is_scaled => ours as f64 / theirs as f64,
            _ => continue,
        };
        if row.latency().is_none() {
            continue;
        }
        let recorded = SlotDims::new(index.rows.output_dims(row, 0));
        let inputs = (0..form.inputs.len()).map(|input| index.rows.logical_input(row, input));
        if broadcast_pattern(&recorded, inputs) != pattern {
            continue;
        }
        let kind = if is_scaled { RuleKind::ElementwiseBytes } else { RuleKind::ElementwiseOutput };
        matches.push(RowMatch::scaled(number, MatchRule::of_kind(kind), scale));
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::lookup::query::QueryTensor;

    fn tensor(dims: &[u64], dtype: Dtype) -> QueryTensor {
        QueryTensor { dims: dims.to_vec(), dtype: Some(dtype), format: None }
    }

    #[test]
    fn outputs_are_derived_as_torch_does() {
        let derived = |inputs: &[(&[u64], Dtype)]| {
            let inputs = inputs.iter().map(|(dims, dtype)| tensor(dims, dtype.clone())).collect();
            let query = OpQuery { inputs, ..OpQuery::default() };
            output_of_query(&query).map(|output| (output.dims.as_slice().to_vec(), output.dtype))
        };
        let (bf16, float) = (Dtype::Bf16, Dtype::Float);
        assert_eq!(derived(&[(&[4, 8], bf16.clone()), (&[8], float.clone())]), Some((vec![4, 8], float)));
        assert_eq!(
            derived(&[(&[4, 1], bf16.clone()), (&[1, 8], bf16.clone())]),
            Some((vec![4, 8], bf16.clone()))
        );
        assert_eq!(derived(&[(&[4, 8], bf16.clone()), (&[3, 8], bf16)]), None);
        assert_eq!(derived(&[]), None);
    }
}
