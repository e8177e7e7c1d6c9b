//! Cases of rows that answer queries of operators: the inputs as the profiler records them, with the slots that the
//! rows of the kernel or the catalogue add, and the outputs of the catalogue.

use std::collections::BTreeSet;

use super::{CoverageAnalyzer, GapClosing};
use crate::{
    answer::{
        attention_call::{AttentionCall, CACHE_BLOCK},
        lookup::{
            AttentionFamily, AttentionWork, BatchLengths, BatchPhase, KeyOrder, MissReason, OpQuery,
            QueryTensor,
        },
    },
    database::TableCases,
    kernel::{
        Case, CaseAttributes, Dtype, KernelName, SequenceLengths, Slot, Tensor, TensorFormat,
        catalogue::{CatalogueEntry, EntryForm, InputSlot, PatternTerm, TensorSlot},
    },
};

/// Maximum length of a list on the host that is found by trial: lists of dimensions.
const MAX_HOST_LIST: u64 = 8;

struct CandidateCase {
    case: Case,
    form: String,
    added: usize,
}

/// Content of a slot: empty, a scalar, or a tensor.
type SlotKinds = Vec<Option<bool>>;

impl CoverageAnalyzer<'_> {
    /// Returns the case of a row that answers a query, of the first of these kernels that has one; kernels with a
    /// table precede.
    pub(super) fn case_of_query(
        &self,
        query: &OpQuery,
        kernels: &[KernelName],
    ) -> Result<Case, Option<GapClosing>> {
        let has_table = |kernel: &KernelName| self.engine.index.kernels().any(|known| known == kernel);
        let mut kernels: Vec<&KernelName> =
            kernels.iter().filter(|kernel| self.catalogue.entry(kernel).is_some()).collect();
        kernels.sort_by_key(|kernel| !has_table(kernel));
        let mut first_problem = None;
        for kernel in kernels {
            match self.case_of_kernel(query, kernel) {
                Ok(case) => return Ok(case),
                Err(problem) => {
                    first_problem.get_or_insert(problem);
                }
            }
        }
        Err(first_problem)
    }

    fn case_of_kernel(&self, query: &OpQuery, kernel: &KernelName) -> Result<Case, GapClosing> {
        let unknown = |reason: String| GapClosing::UnknownCase { kernel: kernel.to_string(), reason };
        let Some(entry) = self.catalogue.entry(kernel) else {
            return Err(unknown("the catalogue has no entry".to_owned()));
        };
        if query.inputs.iter().any(|tensor| tensor.dtype.is_none()) {
            return Err(GapClosing::QueryParameter("element types".to_owned()));
        }
        if AttentionFamily::of_kernel(kernel).is_some() {
            let case = attention_case(query, kernel)?;
            entry.resolve_call(&case).map_err(|problem| unknown(problem.to_string()))?;
            return match self.engine.unanswered_reason(query, &case) {
                None => Ok(case),
                Some(miss) => Err(unknown(not_answered(&case, &miss))),
            };
        }
        let forms = self.engine.recorded_forms(query, kernel).map_err(|reason| match reason {
            MissReason::TpProjectionInvalid(_) => GapClosing::QueryParameter("tp".to_owned()),
            reason => unknown(reason.to_string()),
        })?;
        let rows = self.engine.index.table_cases(kernel).unwrap_or_default();
        let mut problem = None;
        let mut candidates = Vec::new();
        for inputs in forms {
            match self.candidates(query, entry, &inputs, &rows.examples) {
                Ok(found) => candidates.extend(found),
                Err(reason) => {
                    problem.get_or_insert(reason);
                }
            }
        }
        if candidates.is_empty() {
            let reason = problem.unwrap_or_else(|| "the catalogue has no form for these inputs".to_owned());
            return Err(unknown(reason));
        }
        let mut first_miss = None;
        candidates.retain(|candidate| match self.engine.unanswered_reason(query, &candidate.case) {
            Some(miss) => {
                first_miss.get_or_insert_with(|| not_answered(&candidate.case, &miss));
                false
            }
            None => true,
        });
        if let Some(miss) = first_miss.filter(|_| candidates.is_empty()) {
            return Err(unknown(miss));
        }
        choose(&candidates, &rows).map_err(|forms| {
            let problem = "and no row of it shows which one runs";
            unknown(format!("the inputs fit several of its calls ({forms}), {problem}"))
        })
    }

    /// Returns the cases that the forms of an entry make of these inputs; the error is the reason why there are none.
    fn candidates(
        &self,
        query: &OpQuery,
        entry: &CatalogueEntry,
        inputs: &[QueryTensor],
        rows: &[Case],
    ) -> Result<Vec<CandidateCase>, String> {
        let operator = self.engine.mapping.operator(&query.op);
        let may_add = operator.is_some_and(|operator| operator.input_count.is_some());
        let is_operator = operator.is_some();
        let formats = expected_formats(rows);
        let tensors: Option<Vec<Tensor>> =
            inputs.iter().enumerate().map(|(at, tensor)| recorded_tensor(tensor, at, &formats)).collect();
        let tensors = tensors.ok_or("rows of the kernel have matrices in blocks that do not divide these")?;
        let (mut found, mut problem) = (Vec::new(), None);
        let mut attempt = |form: &EntryForm, tensors: &[Tensor], length: u64| -> Result<(), String> {
            let (inputs, added) = fill_slots(entry, form, tensors, may_add, length)?;
            let attributes = CaseAttributes::default();
            let case = Case { kernel: entry.kernel.clone(), inputs, outputs: Vec::new(), attributes };
            let case = complete_outputs(entry, &case, query, is_operator)?;
            if found.iter().all(|other: &CandidateCase| other.case != case) {
                found.push(CandidateCase { case, form: form.rule.name.clone(), added });
            }
            Ok(())
        };
        let short_indices = with_short_indices(&tensors);
        for form in entry.forms.iter().filter(|form| form.unsupported.is_none()) {
            let lengths = if has_host_list(form) { 1..=MAX_HOST_LIST } else { 1..=1 };
            for length in lengths {
                let tried = attempt(form, &tensors, length);
                let tried = match (tried, &short_indices) {
                    (Err(first), Some(tensors)) => attempt(form, tensors, length).map_err(|_| first),
                    (tried, _) => tried,
                };
                if let Err(reason) = tried {
                    problem.get_or_insert(reason);
                }
            }
        }
        match (found.is_empty(), problem) {
            (true, Some(problem)) => Err(problem),
            _ => Ok(found),
        }
    }
}

fn not_answered(case: &Case, miss: &str) -> String {
    let dtypes: Vec<&str> = case.inputs.iter().flatten().map(|tensor| tensor.dtype.as_str()).collect();
    format!("lookups would not answer it by a row of {} ({}): {miss}", case.shapes(), dtypes.join(";"))
}

/// Chooses the case whose row exists, else the one with the slots of the rows, else the one without further slots.
/// The error lists forms that are equally good.
fn choose(candidates: &[CandidateCase], rows: &TableCases) -> Result<Case, String> {
    if let Some(known) = candidates.iter().find(|found| rows.ids.contains(&found.case.id())) {
        return Ok(known.case.clone());
    }
    let rows = &rows.examples;
    let shapes = |case: &Case| -> Vec<Option<usize>> {
        case.inputs.iter().map(|slot| slot.as_ref().map(|tensor| tensor.dims.len())).collect()
    };
    let is_like = |found: &&CandidateCase| rows.iter().any(|row| slot_kinds(row) == slot_kinds(&found.case));
    let has_rank = |found: &&CandidateCase| rows.iter().any(|row| shapes(row) == shapes(&found.case));
    let like = candidates.iter().find(has_rank).or_else(|| candidates.iter().find(is_like));
    if let Some(like) = like {
        return Ok(like.case.clone());
    }
    let least = candidates.iter().map(|found| found.added).min().unwrap_or_default();
    let plain: Vec<&CandidateCase> = candidates.iter().filter(|found| found.added == least).collect();
    let kinds: BTreeSet<SlotKinds> = plain.iter().map(|found| slot_kinds(&found.case)).collect();
    match plain.first() {
        Some(first) if kinds.len() == 1 => Ok(first.case.clone()),
        _ => {
            let names: BTreeSet<&str> = plain.iter().map(|found| found.form.as_str()).collect();
            Err(names.into_iter().collect::<Vec<_>>().join("; "))
        }
    }
}

fn slot_kinds(case: &Case) -> SlotKinds {
    let mut kinds: SlotKinds =
        case.inputs.iter().map(|slot| slot.as_ref().map(|tensor| tensor.dims.is_empty())).collect();
    while kinds.last() == Some(&None) {
        kinds.pop();
    }
    kinds
}

/// Returns the blocked format of each tensor of a kernel's rows, where all of them have the same one.
fn expected_formats(rows: &[Case]) -> Vec<Option<TensorFormat>> {
    let formats = |row: &Case| -> Vec<Option<TensorFormat>> {
        let tensors = row.inputs.iter().flatten().filter(|tensor| !tensor.dims.is_empty());
        tensors.map(|tensor| tensor.format.private().map(|_| tensor.format.clone())).collect()
    };
    let Some(first) = rows.first().map(formats) else { return Vec::new() };
    if rows.iter().all(|row| formats(row) == first) { first } else { Vec::new() }
}

/// Returns a tensor in the stated format, else in the format of the rows; `None` if its matrix cannot be divided into
/// such blocks.
fn recorded_tensor(tensor: &QueryTensor, at: usize, formats: &[Option<TensorFormat>]) -> Option<Tensor> {
    let dtype = tensor.dtype.clone()?;
    let plain =
        |format: TensorFormat| Some(Tensor { dims: tensor.dims.clone(), dtype: dtype.clone(), format });
    match (&tensor.format, formats.get(at).cloned().flatten()) {
        (Some(format), _) => plain(format.clone()),
        (None, Some(format)) if format.private() == Some("FRACTAL_NZ") => {
            let [batch @ .., rows, columns] = tensor.dims.as_slice() else {
                return plain(TensorFormat::nd());
            };
            let width = 32 / dtype.bytes().filter(|bytes| *bytes > 0 && *bytes <= 4)?;
            let divides = rows.is_multiple_of(width) && columns.is_multiple_of(16);
            let dims = [batch, &[rows / width, columns / 16, 16, width]].concat();
            divides.then(|| Tensor { dims, dtype: dtype.clone(), format })
        }
        (None, Some(_)) => None,
        (None, None) => plain(TensorFormat::nd()),
    }
}

/// Returns the slots of a form with these tensors in their order, and the number of slots that none of them has.
fn fill_slots(
    entry: &CatalogueEntry,
    form: &EntryForm,
    tensors: &[Tensor],
    may_add: bool,
    host_length: u64,
) -> Result<(Vec<Slot>, usize), String> {
    let mut rest = tensors.iter();
    let (mut slots, mut added): (Vec<Slot>, usize) = (Vec::new(), 0);
    let missing = |index: usize, what: &str| {
        let (count, kernel) = (tensors.len(), &entry.kernel);
        format!(
            "the query has {count} inputs, and input {index} ({what}) of {kernel} does not follow from them"
        )
    };
    for (index, slot) in form.inputs.iter().enumerate() {
        let pattern = form.rule.inputs.get(index).and_then(Option::as_ref);
        let filled = match (slot, pattern) {
            (_, None) | (InputSlot::Ignored, _) => None,
            (InputSlot::Tensor(tensor), Some(_)) => Some(match rest.next() {
                Some(given) => given.clone(),
                None => {
                    added += 1;
                    let like = if may_add { like_other_slot(form, index, tensor, &slots) } else { None };
                    like.ok_or_else(|| missing(index, &tensor.argument))?
                }
            }),
            (
                InputSlot::Host(dtype) | InputSlot::Intermediate(dtype) | InputSlot::Omitted(dtype),
                Some(pattern),
            ) => {
                added += usize::from(!pattern.is_empty());
                let dims = host_dims(pattern, host_length)
                    .ok_or_else(|| missing(index, "which is read from the host"))?;
                Some(Tensor { dims, dtype: dtype.clone(), format: TensorFormat::nd() })
            }
        };
        slots.push(filled);
    }
    if rest.next().is_some() {
        return Err(format!("the query has {} inputs, more than {} records", tensors.len(), entry.kernel));
    }
    while slots.last() == Some(&None) {
        slots.pop();
    }
    Ok((slots, added))
}

/// Returns the dimensions of a list on the host; a named one has this length.
fn host_dims(pattern: &[PatternTerm], length: u64) -> Option<Vec<u64>> {
    let dim = |term: &PatternTerm| match term {
        PatternTerm::Name(_) if pattern.len() == 1 => Some(length),
        PatternTerm::Number(number) => u64::try_from(*number).ok(),
        PatternTerm::Name(_) | PatternTerm::Rest(_) => None,
    };
    pattern.iter().map(dim).collect()
}

/// Returns true if the length of a list on the host follows from the conditions of a form.
fn has_host_list(form: &EntryForm) -> bool {
    let slots = form.inputs.iter().zip(&form.rule.inputs);
    slots.into_iter().any(|(slot, pattern)| {
        matches!(slot, InputSlot::Host(_)) && matches!(pattern.as_deref(), Some([PatternTerm::Name(_)]))
    })
}

/// Returns tensors whose indices are INT32, as kernels take those that frameworks have as INT64; `None` without such
/// ones.
fn with_short_indices(tensors: &[Tensor]) -> Option<Vec<Tensor>> {
    let shortened = |tensor: &Tensor| match tensor.dtype {
        Dtype::Int64 => Tensor { dtype: Dtype::Int32, ..tensor.clone() },
        _ => tensor.clone(),
    };
    tensors.iter().any(|tensor| tensor.dtype == Dtype::Int64).then(|| tensors.iter().map(shortened).collect())
}

/// Returns the tensor of a slot that has the shape of another slot by the form's rule.
fn like_other_slot(form: &EntryForm, index: usize, slot: &TensorSlot, slots: &[Slot]) -> Option<Tensor> {
    let pattern = form.rule.inputs.get(index)?.as_ref()?;
    let others = form.rule.inputs.iter().zip(slots).rev();
    let same = others.filter(|(other, _)| other.as_ref() == Some(pattern));
    let dims = same.filter_map(|(_, tensor)| tensor.as_ref()).next()?.dims.clone();
    let dtype = match (&slot.same_type_as, slot.dtypes.as_slice()) {
        (Some(argument), _) => {
            let (other, _) = form.tensor(&argument.value)?;
            slots.get(other)?.as_ref()?.dtype.clone()
        }
        (None, [dtype]) => dtype.clone(),
        (None, _) => return None,
    };
    Some(Tensor { dims, dtype, format: TensorFormat::nd() })
}

/// Returns a case with the outputs of the call. Those of a query by a kernel's own name precede; those of an operator
/// must agree with the first output of the call.
fn complete_outputs(
    entry: &CatalogueEntry,
    case: &Case,
    query: &OpQuery,
    is_operator: bool,
) -> Result<Case, String> {
    let given: Vec<Slot> = query
        .outputs
        .iter()
        .filter_map(|output| {
            let format = output.format.clone().unwrap_or_else(TensorFormat::nd);
            Some(Some(Tensor { dims: output.dims.clone(), dtype: output.dtype.clone()?, format }))
        })
        .collect();
    let resolved = |outputs: Vec<Slot>| -> Result<Case, String> {
        let complete = Case { outputs, ..case.clone() };
        entry.resolve_call(&complete).map_err(|problem| problem.to_string())?;
        Ok(complete)
    };
    if !is_operator && !given.is_empty() {
        return resolved(given);
    }
    let elements = |dims: &[u64]| dims.iter().fold(1_u64, |product, dim| product.saturating_mul(*dim));
    let computed = || -> Result<Case, String> {
        let outputs = entry.resolve_call(case).map_err(|problem| problem.to_string())?.outputs;
        match (query.outputs.first(), outputs.first()) {
            (Some(wanted), Some(found)) if elements(&wanted.dims) != elements(&found.dims) => {
                Err("the call of the catalogue has another output".to_owned())
            }
            _ => resolved(outputs.into_iter().map(Some).collect()),
        }
    };
    match computed() {
        Err(problem) if !given.is_empty() => resolved(given).or(Err(problem)),
        computed => computed,
    }
}

const MAX_SEQUENCES: u64 = 65_536;

fn attention_case(query: &OpQuery, kernel: &KernelName) -> Result<Case, GapClosing> {
    let unknown =
        |reason: &str| GapClosing::UnknownCase { kernel: kernel.to_string(), reason: reason.to_owned() };
    if AttentionFamily::of_kernel(kernel) != Some(AttentionFamily::Fused) {
        return Err(unknown("cases of sparse attention are derived from profiles and steps of models only"));
    }
    let order = if query.op == kernel.as_str() { KeyOrder::Recorded } else { KeyOrder::Framework };
    let work =
        AttentionWork::of_query(query, AttentionFamily::Fused, order).map_err(|reason| match reason {
            MissReason::ContextMissing(name) => {
                GapClosing::QueryParameter(MissReason::query_key(name).to_owned())
            }
            reason => unknown(&reason.to_string()),
        })?;
    let regime = &work.regime;
    if regime.sparse_mode.as_deref() != Some("3") {
        return Err(unknown("cases are derived for mask mode 3 only"));
    }
    if regime.layout.as_deref().is_some_and(|layout| layout != "TND") {
        return Err(unknown("cases are derived for layout TND only"));
    }
    if regime.rope_dim.is_some_and(|dim| dim > 0) {
        return Err(unknown("cases with rotary parts are derived from profiles and steps of models only"));
    }
    let kv_heads = regime.kv_heads.ok_or_else(|| GapClosing::QueryParameter("kv_heads".to_owned()))?;
    let lengths = work.lengths.clone().or_else(|| equal_lengths(&work, query)).ok_or_else(|| {
        unknown("the lengths of its sequences do not follow from their mean: `kv_lengths` and `query_lengths` state them")
    })?;
    if lengths.queries.iter().chain(&lengths.keys).any(|length| *length == 0) {
        return Err(unknown("a sequence has no queries or no keys"));
    }
    let block = match (lengths.phase(), regime.block_size.unwrap_or(CACHE_BLOCK)) {
        (BatchPhase::Prefill, _) => None,
        (BatchPhase::Decode, 0) => {
            let problem =
                "the keys of a decode step are in blocks: `block_size` is 0, give a number above it";
            return Err(unknown(problem));
        }
        (BatchPhase::Decode, block) => Some(block),
        (BatchPhase::Mixed, _) => {
            let problem =
                "cases are derived for complete prompts and for decode steps, not for mixed batches";
            return Err(unknown(problem));
        }
    };
    let sum = |lengths: &[u64]| lengths.iter().try_fold(0_u64, |sum, length| sum.checked_add(*length));
    if [&lengths.queries, &lengths.keys].iter().any(|lengths| sum(lengths).is_none()) {
        return Err(unknown("its lengths are too large"));
    }
    let BatchLengths { queries, keys } = lengths;
    let lengths = SequenceLengths { queries, keys, block, packed: true };
    let (layout, sparse_mode, heads) = ("TND", "3", work.heads);
    let call = AttentionCall { layout, sparse_mode, heads, kv_heads, lengths };
    let dtype = regime.dtype.clone().unwrap_or(Dtype::Bf16);
    Ok(call.packed_case(&dtype, work.tokens, [work.head_dim; 2], 0))
}

/// Returns equal sequences of the mean length: the queries of a decode step, or complete prompts. The number of
/// sequences is stated, or that of the rows of the block table.
fn equal_lengths(work: &AttentionWork, query: &OpQuery) -> Option<BatchLengths> {
    let length = (work.kv_length.fract() == 0.0 && (1.0..1e12).contains(&work.kv_length))
        .then_some(work.kv_length as u64)?;
    let table = query.inputs.iter().skip(3).find_map(|input| match (&input.dtype, input.dims.as_slice()) {
        (Some(Dtype::Int32 | Dtype::Int64), &[sequences, _]) => Some(sequences),
        _ => None,
    });
    let batch = work.batch.or(table).filter(|batch| (1..=work.tokens.min(MAX_SEQUENCES)).contains(batch))?;
    let queries = match work.tokens {
        tokens if tokens == batch => 1,
        tokens if batch.checked_mul(length) == Some(tokens) => length,
        _ => return None,
    };
    let count = usize::try_from(batch).ok()?;
    Some(BatchLengths { queries: vec![queries; count], keys: vec![length; count] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        answer::lookup::{AttentionParameters, QueryTensor},
        kernel::AttentionCase,
    };

    /// A decode step needs blocks: a size of 0 is no mixed batch.
    #[test]
    fn a_decode_step_without_blocks_names_the_size() {
        let kernel = KernelName::new(AttentionCase::KERNEL).expect("a name");
        let tensor =
            |dims: &[u64]| QueryTensor { dims: dims.to_vec(), dtype: Some(Dtype::Bf16), format: None };
        let case = |block_size: u64| {
            let attention = AttentionParameters {
                kv_length: Some(256.0),
                batch: Some(4),
                block_size: Some(block_size),
                layout: Some("TND".to_owned()),
                ..AttentionParameters::default()
            };
            let inputs = vec![tensor(&[4, 8, 128]), tensor(&[8, 1, 128, 128]), tensor(&[8, 1, 128, 128])];
            attention_case(
                &OpQuery { op: kernel.to_string(), inputs, attention, ..OpQuery::default() },
                &kernel,
            )
        };
        assert!(case(128).is_ok());
        let Err(GapClosing::UnknownCase { reason, .. }) = case(0) else { panic!("no case") };
        assert!(reason.contains("`block_size` is 0"), "{reason}");
    }
}
