//! Element-wise operators: rows with the same output, also of another element type.

use super::{
    CandidateKernels, InputSlot, InterpolationKind, KernelIndex, KernelsQuery, LookupAnswer, LookupEngine,
    LookupError, MatchRule, MissReason, OpQuery, RowMatch, RuleKind, SlotDims, choose_row, compared_tensors,
    find_exact, input_slots, input_variants, interpolate_rows,
};
use crate::{answer::op_mapping::MappedOperator, kernel::Dtype};

impl LookupEngine {
    pub(super) fn lookup_elementwise(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let kernels = self.candidates(&operator.kernels)?;
        if kernels.indices.is_empty() {
            return Ok(kernels.missed());
        }
        Ok(self.rules.lookup_elementwise(self, &kernels, query))
    }

    /// Finds rows of an element-wise operator: by its inputs, then by its output.
    pub(super) fn find_elementwise(&self, kernels: &CandidateKernels<'_>, query: &OpQuery) -> LookupAnswer {
        let slots = input_slots(&query.inputs);
        let has_dtypes = slots.iter().all(|slot| slot.dtype.is_some());
        let mut reason = MissReason::InputCountMismatch;
        for index in &kernels.indices {
            let variants = input_variants(index.traits, slots.clone());
            let matches = find_exact(index, &variants, &KernelsQuery::default(), &mut reason);
            if !matches.is_empty() {
                return choose_row(index, &matches, has_dtypes, None);
            }
        }
        let Some(output) = output_of_query(query) else {
            return LookupAnswer::missed(reason);
        };
        let by_output = |is_scaled: bool| {
            kernels.indices.iter().find_map(|index| {
                let matches = find_by_output(index, &output, &slots, is_scaled);
                (!matches.is_empty()).then(|| choose_row(index, &matches, true, None))
            })
        };
        if let Some(answer) = by_output(false)
            .or_else(|| self.interpolate_elementwise(kernels, &slots, &output))
            .or_else(|| by_output(true))
        {
            return answer;
        }
        LookupAnswer::missed(match reason {
            MissReason::NotMeasured => reason,
            _ => MissReason::ElementwiseOutputShapeMismatch,
        })
    }

    pub(in crate::answer) fn interpolate_elementwise(
        &self,
        kernels: &CandidateKernels<'_>,
        slots: &[InputSlot<'_>],
        output: &ElementwiseOutput,
    ) -> Option<LookupAnswer> {
        if slots.iter().any(|slot| slot.dtype.is_none()) {
            return None;
        }
        let interpolation = InterpolationKind::Elementwise;
        let query = KernelsQuery { outputs: vec![output.dims], interpolation, ..KernelsQuery::default() };
        kernels.indices.iter().find_map(|index| {
            let variants = input_variants(index.traits, slots.to_vec());
            interpolate_rows(index, &variants, &query)
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElementwiseOutput {
    pub(crate) dims: SlotDims,
    pub(crate) dtype: Dtype,
}

/// Returns the output of a query: the given one, or the result of torch's broadcasting and promotion. `None` if it
/// cannot be derived.
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

/// Finds rows with this output whose inputs are broadcast in the same way as the inputs of the query: of the output's
/// element type, or with `is_scaled` of others, in proportion to the bytes. Another way to broadcast reads another
/// number of elements.
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
        matches.push(RowMatch { row: number, rule: MatchRule::of_kind(kind), scale, format_rank: 0 });
    }
    matches
}

/// Relation of each dimension of each input to the same dimension of the output, as digits: 1 equal, 2 broadcast, 3
/// another length. The first dimension of the output is the most significant one, missing dimensions are 0.
pub(crate) fn broadcast_pattern(output: &SlotDims, inputs: impl Iterator<Item = SlotDims>) -> Vec<u64> {
    let output = output.without_leading_ones(1);
    let output = output.as_slice();
    let relation = |input: SlotDims| {
        let input = input.without_leading_ones(1);
        let mut digits = 0;
        let missing = output.len().saturating_sub(input.as_slice().len());
        let skipped = input.as_slice().len().saturating_sub(output.len());
        for (own, dim) in input.as_slice().iter().skip(skipped).zip(&output[missing..]) {
            digits = digits * 4
                + match (*own, *dim) {
                    (own, dim) if own == dim => 1,
                    (1, _) => 2,
                    _ => 3,
                };
        }
        digits
    };
    inputs.map(relation).collect()
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

#[cfg(test)]
mod broadcast_tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_broadcasting() {
        let pattern = |output: &[u64], inputs: &[&[u64]]| {
            broadcast_pattern(&SlotDims::new(output), inputs.iter().map(|dims| SlotDims::new(dims)))
        };
        let full = pattern(&[4, 8], &[&[4, 8], &[4, 8]]);
        assert_eq!(full, pattern(&[1, 9, 7], &[&[9, 7], &[1, 9, 7]]));
        assert_ne!(full, pattern(&[4, 8], &[&[4, 8], &[8]]));
        assert_ne!(pattern(&[4, 8], &[&[4, 8], &[8]]), pattern(&[4, 8], &[&[4, 8], &[4, 1]]));
    }
}
