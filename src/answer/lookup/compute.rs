//! Lookup of kernels by the shapes of their inputs, and of element-wise operators by their output, also of another element type.

use super::{
    AnswerSource, CacheQuery, CandidateKernels, FusedProduct, InputSlot, InputVariant, InterpolationKind,
    KernelIndex, KernelTraits, KernelsQuery, LookupAnswer, LookupEngine, LookupResult, MatchRule, MissReason,
    OpQuery, QuerySource, QueryTensor, RequiredOutput, RowMatch, RuleKind, SlotDims, best_of, choose_row,
    compared_tensors, find_exact, find_padded, input_slots, input_variants, interpolate_rows,
    recorded_inputs, token_variants,
};
use crate::{
    answer::op_mapping::{ComputeSubcategory, MappedKernel, MappedOperator, ShardAxis, TpLinearProjection},
    kernel::{Dtype, KernelName},
};

/// Tables of kernels with the forms in which their rows may show the inputs of a query.
pub(crate) type VariantsOfKernels<'k> = [(&'k KernelIndex, Vec<InputVariant<'k>>)];

/// Returns the miss of a query; `reason` says why the rows with its inputs do not answer.
pub(in crate::answer) fn missed(
    variants: &VariantsOfKernels<'_>,
    query: &KernelsQuery<'_>,
    mut reason: MissReason,
) -> LookupAnswer {
    let has_count = variants.iter().any(|(index, variants)| {
        let count = variants[0].slots.len();
        let mut inputs = index.rows.forms.iter().map(|form| form.inputs.len());
        inputs.any(|inputs| inputs == count || query.is_prefix && inputs > count)
    });
    if has_count {
        reason.add(MissReason::ShapeMismatch);
    }
    LookupAnswer::missed(reason)
}

pub(crate) fn interpolate_kernels(
    variants: &VariantsOfKernels<'_>,
    query: &KernelsQuery<'_>,
) -> Option<LookupAnswer> {
    let typed = variants.iter().filter(|_| query.has_dtypes());
    typed.into_iter().find_map(|(index, variants)| interpolate_rows(index, variants, query))
}

impl LookupEngine {
    pub(super) fn lookup_kernel(&self, kernel: &KernelName, query: &OpQuery) -> LookupResult {
        let kernels = self.candidates(&[MappedKernel::unmapped(kernel.clone())])?;
        if kernels.indices.is_empty() {
            return Ok(LookupAnswer::missed(MissReason::Unmapped));
        }
        let with_output;
        let product = FusedProduct::of_kernel(kernel).filter(|_| !self.rules.is_superseded());
        let without_output = product.filter(|_| query.outputs.is_empty());
        let query = match without_output.map(|product| product.output_of_query(query)) {
            Some(Ok(output)) => {
                with_output = OpQuery { outputs: vec![output], ..query.clone() };
                &with_output
            }
            Some(Err(reason)) => return Ok(LookupAnswer::missed(reason)),
            None => query,
        };
        let slots = input_slots(&query.inputs);
        let outputs = output_dims(kernel.as_str(), &slots, &query.outputs);
        let is_known = !self.rules.is_superseded() && !query.outputs.is_empty();
        let output = outputs.first().filter(|_| is_known).map(|dims| RequiredOutput {
            dims: *dims,
            dtype: query.outputs.first().and_then(|output| output.dtype.as_ref()),
            product,
        });
        let (ep_size, ranks) = (query.ep_size, query.ranks);
        let is_hf32 = query.is_hf32;
        let query =
            KernelsQuery { slots, outputs, output, ep_size, ranks, is_hf32, ..KernelsQuery::default() };
        Ok(self.match_kernels(&kernels, &query))
    }

    pub(super) fn lookup_compute(&self, operator: &MappedOperator, query: &OpQuery) -> LookupResult {
        let mut slots = match prepared_slots(Some(operator), query) {
            Ok(slots) => slots,
            Err(reason) => return Ok(LookupAnswer::missed(reason)),
        };
        if let Some(count) = operator.input_count {
            slots.truncate(count);
        }
        let kernels = self.candidates(&ordered_kernels(operator, &query.inputs))?;
        let name = operator.kernels.first().map_or("", |kernel| kernel.name.as_str());
        let outputs = output_dims(name, &slots, &query.outputs);
        let query = KernelsQuery {
            slots,
            outputs,
            formats: &operator.formats,
            is_prefix: operator.input_count.is_some(),
            ranks: query.ranks,
            is_hf32: query.is_hf32,
            interpolation: match operator.subcategory {
                Some(ComputeSubcategory::ComputeScale) => InterpolationKind::Scale,
                Some(ComputeSubcategory::QuantizedMatmul) | None => InterpolationKind::Kernel,
            },
            source: QuerySource::Operator,
            ..KernelsQuery::default()
        };
        Ok(self.match_kernels(&kernels, &query))
    }

    pub(super) fn match_kernels(
        &self,
        kernels: &CandidateKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> LookupAnswer {
        if kernels.indices.is_empty() {
            return kernels.missed();
        }
        let variants = kernels.indices.iter().map(|index| {
            let slots =
                recorded_slots(index.traits, query.slots.clone(), query.source == QuerySource::Operator);
            (*index, input_variants(index.traits, slots))
        });
        self.rules.match_kernels(self, &variants.collect::<Vec<_>>(), query)
    }

    /// Finds rows that fit exactly, then those of kernels that write caches of another capacity, then rows to interpolate
    /// between, then padded ones, each in the order of the kernels.
    pub(super) fn find_kernels(
        &self,
        variants: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> LookupAnswer {
        let mut reason = MissReason::InputCountMismatch;
        let choose = |index: &KernelIndex, matches: &[RowMatch]| {
            choose_row(index, matches, query.has_dtypes(), query.outputs.first())
        };
        let mut relaxed: Option<(&KernelIndex, Vec<RowMatch>)> = None;
        for (index, variants) in variants {
            let matches = find_exact(index, variants, query, &mut reason);
            if matches.iter().any(|found| !found.rule.has_relaxed_dtype) {
                return choose(index, &matches);
            }
            if !matches.is_empty() && relaxed.is_none() {
                relaxed = Some((index, matches));
            }
        }
        if let Some((index, matches)) = relaxed {
            return choose(index, &matches);
        }
        let cache_writes = variants.iter().filter(|_| query.has_dtypes()).filter_map(|(index, variants)| {
            let query = CacheQuery::of_kernel(&index.rows.kernel, &variants[0].slots)?;
            Some(Ok(index.find_cache_write(&query)))
        });
        let cache_write = best_of(cache_writes, &*self.rules).ok().flatten();
        let may_be_padded = query.source != QuerySource::Kernel;
        let padded = || {
            variants.iter().filter(|_| may_be_padded).find_map(|(index, variants)| {
                let matches = find_padded(index, &token_variants(variants), query);
                (!matches.is_empty()).then(|| choose(index, &matches))
            })
        };
        cache_write
            .filter(|answer| matches!(answer.miss, None | Some(MissReason::OpenAttributes(_))))
            .or_else(|| interpolate_kernels(variants, query))
            .or_else(padded)
            .unwrap_or_else(|| missed(variants, query, reason))
    }

    /// Looks a projection that halves its input up as a plain product, any other one as its operator.
    pub(super) fn lookup_mtp_projection(&self, operator: &MappedOperator, query: &OpQuery) -> LookupResult {
        if let (Some(kernel), [input, weight, ..], [output, ..]) =
            (&operator.mtp_projection_kernel_type, &*query.inputs, &*query.outputs)
            && let (&[tokens, width], &[one, other], &[out_tokens, out_width]) =
                (&*input.dims, &*weight.dims, &*output.dims)
            && tokens == out_tokens
            && out_width.checked_mul(2) == Some(width)
            && ((one, other) == (width, out_width) || (one, other) == (out_width, width))
        {
            let plain = |tensor: &QueryTensor| QueryTensor { dtype: output.dtype.clone(), ..tensor.clone() };
            let inputs = [plain(input), plain(weight)];
            let kernels = self.candidates(std::slice::from_ref(kernel))?;
            let (slots, source) = (input_slots(&inputs), QuerySource::Operator);
            let query = KernelsQuery { slots, is_prefix: true, source, ..KernelsQuery::default() };
            let answer = self.match_kernels(&kernels, &query);
            if answer.source != AnswerSource::Miss {
                return Ok(answer);
            }
        }
        self.lookup_compute(operator, query)
    }

    pub(super) fn lookup_elementwise(&self, operator: &MappedOperator, query: &OpQuery) -> LookupResult {
        let kernels = self.candidates(&operator.kernels)?;
        if kernels.indices.is_empty() {
            return Ok(kernels.missed());
        }
        Ok(self.rules.lookup_elementwise(self, &kernels, query))
    }

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
            MissReason::NotMeasured | MissReason::WrongDuration(_) => reason,
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

/// Returns the inputs of a query as one rank has them; the error is the reason of a miss.
pub(super) fn prepared_slots<'q>(
    operator: Option<&MappedOperator>,
    query: &'q OpQuery,
) -> Result<Vec<InputSlot<'q>>, MissReason> {
    let mut slots = input_slots(&query.inputs);
    if let Some(rule) = operator.and_then(|operator| operator.tp_projection.as_ref()) {
        project_under_tp(rule, &mut slots, query.tp_size)?;
    }
    Ok(slots)
}

pub(super) fn ordered_kernels(operator: &MappedOperator, inputs: &[QueryTensor]) -> Vec<MappedKernel> {
    // A product of batches whose contracted dimension is 1.
    let dims = inputs.iter().map(|tensor| tensor.dims.as_slice()).take(2).collect::<Vec<_>>();
    let is_outer_product = matches!(*dims, [[_, _, 1], [_, 1, _]]);
    let rank = inputs.iter().find(|tensor| !tensor.dims.is_empty()).map(|tensor| tensor.dims.len());
    let preferred = rank.and_then(|rank| operator.kernels_by_rank.get(&rank));
    let degenerate = operator.degenerate_bmm_kernel.as_ref().filter(|_| is_outer_product);
    let mut kernels: Vec<MappedKernel> = Vec::new();
    for kernel in preferred.into_iter().flatten().chain(&operator.kernels).chain(degenerate) {
        if kernels.iter().all(|other| other.name != kernel.name) {
            kernels.push(kernel.clone());
        }
    }
    kernels
}

/// Returns the dimensions of the outputs: the given ones, or the dimensions that follow from a table from which rows
/// are gathered.
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

pub(super) fn recorded_slots<'q>(
    traits: KernelTraits,
    slots: Vec<InputSlot<'q>>,
    is_operator: bool,
) -> Vec<InputSlot<'q>> {
    let recorded = is_operator.then(|| recorded_inputs(traits, &slots)).flatten();
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
            let axis = rule.shard_axis;
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
mod elementwise_tests {
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
