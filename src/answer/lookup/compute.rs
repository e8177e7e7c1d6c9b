//! Lookup of kernels by the shapes of their inputs.

use super::{
    AnswerSource, CacheQuery, CandidateKernels, FusedProduct, InputSlot, InputVariant, InterpolationKind,
    KernelIndex, KernelsQuery, LookupAnswer, LookupEngine, LookupError, MissReason, OpQuery, QuerySource,
    QueryTensor, RequiredOutput, RowMatch, SlotDims, best_of, choose_row, find_exact, find_padded,
    input_slots, input_variants, interpolate_rows, recorded_inputs, token_variants,
};
use crate::{
    answer::op_mapping::{ComputeSubcategory, MappedKernel, MappedOperator, ShardAxis, TpLinearProjection},
    kernel::KernelName,
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

impl LookupEngine {
    /// Looks a kernel up by its own name, with the inputs in its own order.
    pub(super) fn lookup_kernel(
        &self,
        kernel: &KernelName,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let kernels = self.candidates(&[MappedKernel::unmapped(kernel.clone())])?;
        if kernels.indices.is_empty() {
            return Ok(LookupAnswer::missed(MissReason::Unmapped));
        }
        let with_output;
        let product = FusedProduct::of_kernel(kernel).filter(|_| self.rules.compares_outputs());
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
        let is_known = self.rules.compares_outputs() && !query.outputs.is_empty();
        let output = outputs.first().filter(|_| is_known).map(|dims| RequiredOutput {
            dims: *dims,
            dtype: query.outputs.first().and_then(|output| output.dtype.as_ref()),
            product,
        });
        let (ep_size, ranks) = (query.ep_size, query.ranks);
        let query = KernelsQuery { slots, outputs, output, ep_size, ranks, ..KernelsQuery::default() };
        Ok(self.match_kernels(&kernels, &query))
    }

    pub(super) fn lookup_compute(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
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
            let slots = recorded_slots(index, query.slots.clone(), query.source == QuerySource::Operator);
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
        let may_be_padded = query.source != QuerySource::Kernel;
        self.find_rows(variants, query, &mut reason)
            .or_else(|| self.find_cache_writes(variants, query))
            .or_else(|| self.interpolate_kernels(variants, query))
            .or_else(|| if may_be_padded { self.find_padded_rows(variants, query) } else { None })
            .unwrap_or_else(|| missed(variants, query, reason))
    }

    pub(in crate::answer) fn interpolate_kernels(
        &self,
        variants: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> Option<LookupAnswer> {
        variants
            .iter()
            .filter(|_| query.has_dtypes())
            .find_map(|(index, variants)| interpolate_rows(index, variants, query))
    }

    fn find_rows(
        &self,
        variants: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
        seen: &mut MissReason,
    ) -> Option<LookupAnswer> {
        let choose = |index: &KernelIndex, matches: &[RowMatch]| {
            Some(choose_row(index, matches, query.has_dtypes(), query.outputs.first()))
        };
        let mut relaxed: Option<(&KernelIndex, Vec<RowMatch>)> = None;
        for (index, variants) in variants {
            let matches = find_exact(index, variants, query, seen);
            let is_exact = matches.iter().any(|found| !found.rule.has_relaxed_dtype);
            if is_exact {
                return choose(index, &matches);
            }
            if !matches.is_empty() && relaxed.is_none() {
                relaxed = Some((index, matches));
            }
        }
        relaxed.and_then(|(index, matches)| choose(index, &matches))
    }

    /// Finds rows of kernels that write caches, whose capacity is no work.
    fn find_cache_writes(
        &self,
        variants: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> Option<LookupAnswer> {
        let answers = variants.iter().filter(|_| query.has_dtypes()).filter_map(|(index, variants)| {
            let query = CacheQuery::of_kernel(&index.rows.kernel, &variants[0].slots)?;
            Some(Ok(index.find_cache_write(&query)))
        });
        best_of(answers, &*self.rules)
            .ok()?
            .filter(|answer| matches!(answer.miss, None | Some(MissReason::OpenAttributes(_))))
    }

    /// Finds rows with the tokens that a framework had before it padded them, in the order of the kernels.
    fn find_padded_rows(
        &self,
        variants: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> Option<LookupAnswer> {
        variants.iter().find_map(|(index, variants)| {
            let matches = find_padded(index, &token_variants(variants), query);
            let output = query.outputs.first();
            (!matches.is_empty()).then(|| choose_row(index, &matches, query.has_dtypes(), output))
        })
    }

    /// Looks a projection that halves its input up as a plain product, any other one as its operator.
    pub(super) fn lookup_mtp_projection(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
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
