//! Lookup of kernels by the shapes of their inputs.

use super::{
    answer::{AnswerSource, LookupAnswer, MissReason},
    cache_rows::CacheQuery,
    engine::{CandidateKernels, LookupEngine, best_of, unmapped},
    index::LookupError,
    interpolation::{InterpolationKind, InterpolationQuery, interpolate_rows},
    kernel_index::KernelIndex,
    match_rows::{
        FusedProduct, InputComparison, RequiredOutput, RowMatch, RowsSeen, find_exact, find_padded,
        token_variants,
    },
    query::{InputSlot, InputVariant, OpQuery, QueryTensor, input_slots, input_variants, recorded_inputs},
    slot_dims::SlotDims,
};
use crate::{
    answer::op_mapping::{ComputeSubcategory, MappedKernel, MappedOperator, ShardAxis, TpLinearProjection},
    kernel::KernelName,
};

pub(crate) struct KernelsQuery<'q> {
    pub(in crate::answer) slots: Vec<InputSlot<'q>>,
    pub(in crate::answer) outputs: Vec<SlotDims>,
    pub(in crate::answer) comparison: InputComparison<'q>,
    pub(in crate::answer) kind: InterpolationKind,
    /// True if the inputs are arranged as a framework has them.
    pub(super) is_operator: bool,
    /// True if the tokens are those of a framework, which may have padded them.
    pub(super) may_be_padded: bool,
}

/// Tables of kernels with the forms in which their rows may show the inputs of a query.
pub(crate) type VariantsOfKernels<'k> = [(&'k KernelIndex, Vec<InputVariant<'k>>)];

/// Returns the miss of a query; `seen` has the rows with its inputs.
pub(in crate::answer) fn missed(
    variants: &VariantsOfKernels<'_>,
    query: &KernelsQuery<'_>,
    mut seen: RowsSeen,
) -> LookupAnswer {
    let is_prefix = query.comparison.is_prefix;
    seen.same_count = variants.iter().any(|(index, variants)| {
        let count = variants[0].slots.len();
        let mut inputs = index.rows.forms.iter().map(|form| form.inputs.len());
        inputs.any(|inputs| inputs == count || is_prefix && inputs > count)
    });
    LookupAnswer::missed(seen.reason())
}

impl<'q> KernelsQuery<'q> {
    pub(super) fn has_dtypes(&self) -> bool {
        self.slots.iter().all(|slot| slot.dtype.is_some())
    }

    pub(super) const fn new(comparison: InputComparison<'q>) -> Self {
        Self {
            slots: Vec::new(),
            outputs: Vec::new(),
            comparison,
            kind: InterpolationKind::Kernel,
            is_operator: false,
            may_be_padded: false,
        }
    }

    /// Creates a query of a kernel that runs for an operator, with the kernel's inputs.
    pub(super) fn of_part(comparison: InputComparison<'q>) -> Self {
        Self { may_be_padded: true, ..Self::new(comparison) }
    }

    pub(super) fn of_operator(comparison: InputComparison<'q>) -> Self {
        Self { is_operator: true, ..Self::of_part(comparison) }
    }
}

impl LookupEngine {
    /// Looks a kernel up by its own name, with the inputs in its own order.
    pub(super) fn lookup_kernel(
        &self,
        kernel: &KernelName,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let kernels = self.candidates(&[unmapped(kernel.clone())])?;
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
        let comparison = InputComparison {
            ep_size: query.ep_size,
            ranks: query.ranks,
            output,
            ..InputComparison::new(false, &[])
        };
        Ok(self.match_kernels(&kernels, &KernelsQuery { slots, outputs, ..KernelsQuery::new(comparison) }))
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
        let comparison = InputComparison {
            ranks: query.ranks,
            ..InputComparison::new(operator.input_count.is_some(), &operator.formats)
        };
        let kind = match operator.subcategory {
            Some(ComputeSubcategory::ComputeScale) => InterpolationKind::Scale,
            Some(ComputeSubcategory::QuantizedMatmul) | None => InterpolationKind::Kernel,
        };
        let name = operator.kernels.first().map_or("", |kernel| kernel.name.as_str());
        let outputs = output_dims(name, &slots, &query.outputs);
        let query = KernelsQuery { slots, outputs, kind, ..KernelsQuery::of_operator(comparison) };
        Ok(self.match_kernels(&kernels, &query))
    }

    /// Looks the kernels of a query up, of which one runs.
    pub(super) fn match_kernels(
        &self,
        kernels: &CandidateKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> LookupAnswer {
        if kernels.indices.is_empty() {
            return LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing.clone()));
        }
        let variants = kernels.indices.iter().map(|index| {
            let slots = recorded_slots(index, query.slots.clone(), query.is_operator);
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
        let mut seen = RowsSeen::default();
        self.find_rows(variants, query, &mut seen)
            .or_else(|| self.find_cache_writes(variants, query.has_dtypes()))
            .or_else(|| self.interpolate_kernels(variants, query))
            .or_else(|| if query.may_be_padded { self.find_padded_rows(variants, query) } else { None })
            .unwrap_or_else(|| missed(variants, query, seen))
    }

    /// Interpolates between rows, in the order of the kernels.
    pub(in crate::answer) fn interpolate_kernels(
        &self,
        variants: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> Option<LookupAnswer> {
        let (outputs, comparison, kind) = (&query.outputs, query.comparison, query.kind);
        variants.iter().filter(|_| query.has_dtypes()).find_map(|(index, variants)| {
            let interpolation = InterpolationQuery { variants, outputs, comparison, kind };
            interpolate_rows(index, interpolation, self.mapping.policy(index.rows.kernel.as_str()))
        })
    }

    /// Finds rows that fit exactly, in the order of the kernels.
    fn find_rows(
        &self,
        variants: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
        seen: &mut RowsSeen,
    ) -> Option<LookupAnswer> {
        let comparison = query.comparison;
        let has_dtypes = query.has_dtypes();
        let choose = |index: &KernelIndex, matches: &[RowMatch]| {
            Some(self.choose(index, matches, has_dtypes, query.outputs.first()))
        };
        let mut relaxed: Option<(&KernelIndex, Vec<RowMatch>)> = None;
        for (index, variants) in variants {
            let mut of_kernel = RowsSeen::default();
            let matches = find_exact(index, variants, comparison, &mut of_kernel);
            seen.merge(of_kernel);
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
    fn find_cache_writes(&self, variants: &VariantsOfKernels<'_>, has_dtypes: bool) -> Option<LookupAnswer> {
        let answers = variants.iter().filter(|_| has_dtypes).filter_map(|(index, variants)| {
            let query = CacheQuery::of_kernel(&index.rows.kernel, &variants[0].slots)?;
            Some(Ok(self.find_cache_write(index, &query)))
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
        let has_dtypes = query.has_dtypes();
        variants.iter().find_map(|(index, variants)| {
            let matches = find_padded(index, &token_variants(variants), query.comparison);
            let output = query.outputs.first();
            (!matches.is_empty()).then(|| self.choose(index, &matches, has_dtypes, output))
        })
    }

    /// Looks a projection that halves its input up as a plain product, any other one as its operator.
    pub(super) fn lookup_mtp_projection(
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
            let query = KernelsQuery { slots, ..KernelsQuery::of_operator(comparison) };
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
