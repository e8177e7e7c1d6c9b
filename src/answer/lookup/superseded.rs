//! Rows as the superseded tool chooses them, for `--compat`. Every row is compared, in the order of the file.

use super::{
    answer::{AnswerSource, LatencyColumn, LookupAnswer, Micros, MissReason},
    elementwise::ElementwiseOutput,
    kernel_index::KernelIndex,
    kernel_rows::IndexedRow,
    match_rows::{InputComparison, is_padded_for_superseded},
    query::InputSlot,
    row_answers::{FoundRows, answer_of_row, preferred_columns},
    rules::{MatchRule, Padding, RuleKind},
    slot_dims::SlotDims,
};
use crate::{answer::op_mapping::KernelPolicy, kernel::EP_SIZE};

/// Row that fits a query.
#[derive(Clone, Copy, Debug)]
struct SupersededMatch {
    row: u32,
    rule: MatchRule,
    scale: f64,
    /// Padded rows follow others, unless another rule came behind the padding; then the kernel and the column decide.
    score: (bool, usize, usize),
    column: LatencyColumn,
}

/// Returns the first row with the best score among those of several kernels. Rows of a kernel whose mapping requires
/// agreement must agree.
pub(crate) fn find_first_row(
    kernels: &[(&KernelIndex, Vec<InputSlot<'_>>, KernelPolicy)],
    comparison: InputComparison<'_>,
) -> Option<LookupAnswer> {
    let mut best: Vec<SupersededMatch> = Vec::new();
    for (place, (index, slots, policy)) in kernels.iter().enumerate() {
        for (number, row) in (0..).zip(&index.rows.rows) {
            let Some((column, column_place)) = column_of_row(row, *policy) else { continue };
            if let Some(rule) = match_row(index, row, slots, comparison) {
                let score = (rule.padding != Padding::None, place, column_place);
                keep_best(&mut best, SupersededMatch { row: number, rule, scale: 1.0, score, column });
            }
        }
    }
    let (index, _, policy) = &kernels[best.first()?.score.1];
    Some(answer_of_first(index, &best, *policy))
}

/// Returns the first row with this output, of any element type, in proportion to the bytes.
pub(crate) fn find_first_output(
    index: &KernelIndex,
    output: &ElementwiseOutput,
    policy: KernelPolicy,
) -> Option<LookupAnswer> {
    let wanted = strip(&output.dims);
    for (number, row) in (0..).zip(&index.rows.rows) {
        let (Some(form), Some((column, _))) =
            (index.rows.form(row).outputs.first(), column_of_row(row, policy))
        else {
            continue;
        };
        let recorded = SlotDims::new(index.rows.output_dims(row, 0));
        let flat = flattened(&wanted);
        let fits = |dims: &SlotDims| {
            [recorded, strip(&recorded)].iter().any(|row| dims == row || is_padded(dims, row))
        };
        if !fits(&wanted) && !flat.is_some_and(|flat| recorded.as_slice().len() == 2 && fits(&flat)) {
            continue;
        }
        let is_same = form.dtype == output.dtype;
        let scale = match (output.dtype.bytes(), form.dtype.bytes()) {
            _ if is_same => 1.0,
            #[expect(clippy::cast_precision_loss, reason = "at most 8")]
            (Some(ours), Some(theirs)) => ours as f64 / theirs as f64,
            _ => continue,
        };
        let kind = if is_same { RuleKind::ElementwiseOutput } else { RuleKind::ElementwiseBytes };
        let rule = MatchRule::of_kind(kind);
        let found = SupersededMatch { row: number, rule, scale, score: (false, 0, 0), column };
        return Some(answer_of_first(index, &[found], KernelPolicy { requires_unique: false, ..policy }));
    }
    None
}

fn column_of_row(row: &IndexedRow, policy: KernelPolicy) -> Option<(LatencyColumn, usize)> {
    let (column, _) = row.latency()?;
    let place = preferred_columns(policy).iter().position(|other| *other == column)?;
    Some((column, place))
}

fn keep_best(best: &mut Vec<SupersededMatch>, found: SupersededMatch) {
    match best.first().map(|first| first.score.cmp(&found.score)) {
        Some(std::cmp::Ordering::Less) => {}
        Some(std::cmp::Ordering::Equal) => best.push(found),
        Some(std::cmp::Ordering::Greater) | None => *best = vec![found],
    }
}

fn answer_of_first(index: &KernelIndex, best: &[SupersededMatch], policy: KernelPolicy) -> LookupAnswer {
    let rows = &index.rows;
    let latency = |found: &SupersededMatch| {
        rows.rows[found.row as usize].latency_in(found.column).unwrap_or_default() * found.scale
    };
    let first = &best[0];
    if policy.requires_unique && best.iter().any(|found| (latency(found) - latency(first)).abs() > 1e-12) {
        let kernel = rows.kernel.as_str().to_owned();
        return LookupAnswer::missed(MissReason::AmbiguousSemanticMatch(kernel));
    }
    let is_scaled = first.rule.kind == RuleKind::ElementwiseBytes;
    let confidence = if is_scaled { 0.9 } else { 1.0 };
    let found = FoundRows { numbers: Vec::new(), rule: first.rule, confidence };
    let answer = answer_of_row(rows, &found, (first.row, first.column), best.len());
    LookupAnswer { latency: Some(Micros(latency(first))), source: AnswerSource::Measured, ..answer }
}

/// Returns the rule by which the inputs of a row fit. Each input may be padded in any dimension.
fn match_row(
    index: &KernelIndex,
    row: &IndexedRow,
    slots: &[InputSlot<'_>],
    comparison: InputComparison<'_>,
) -> Option<MatchRule> {
    let form = index.rows.form(row);
    let count = form.inputs.len();
    if count != slots.len() && !(comparison.is_prefix && count > slots.len()) {
        return None;
    }
    if comparison.needs_ep_size {
        let ranks = form.attributes.get(EP_SIZE).and_then(|text| text.parse::<u64>().ok());
        if ranks != comparison.ep_size {
            return None;
        }
    }
    let mut found = MatchRule::of_kind(RuleKind::Identity);
    for (input, (slot, tensor)) in slots.iter().zip(&form.inputs).enumerate() {
        if let Some(dtype) = slot.dtype {
            let (fits, is_relaxed) = index.traits.match_dtype(dtype, &tensor.dtype);
            if !fits {
                return None;
            }
            found.has_relaxed_dtype |= is_relaxed;
        }
        let (kind, padding) = match_input(index, input, &slot.dims, &index.rows.logical_input(row, input))?;
        let is_plain = matches!(found.kind, RuleKind::Identity | RuleKind::BatchStrip);
        match (kind, padding) {
            (RuleKind::Identity, Padding::None) => {}
            // Padding does not replace the name of another rule, but every other rule that of padding.
            (RuleKind::Identity | RuleKind::BatchStrip, Padding::Query) if !is_plain => {}
            (RuleKind::Identity, Padding::Query) if found.kind != RuleKind::Identity => {}
            (kind, padding) => (found.kind, found.padding) = (kind, padding),
        }
    }
    Some(found)
}

fn match_input(
    index: &KernelIndex,
    input: usize,
    query: &SlotDims,
    row: &SlotDims,
) -> Option<(RuleKind, Padding)> {
    if let Some(kind) = index.traits.match_slot(input, query, row) {
        return Some((kind, Padding::None));
    }
    let stripped = strip(query);
    if is_padded(&stripped, row) {
        return Some((RuleKind::Identity, Padding::Query));
    }
    if is_padded(&stripped, &strip(row)) {
        return Some((RuleKind::BatchStrip, Padding::Query));
    }
    if row.as_slice().len() != 2 {
        return None;
    }
    let three = if stripped.as_slice().len() == 3 { stripped } else { *query };
    let flat = flattened(&three).filter(|_| index.traits.flattens_batch);
    let merged = match *three.as_slice() {
        [tokens, heads, dim] if index.traits.merges_last_dims => {
            Some(SlotDims::new(&[tokens, heads.saturating_mul(dim)]))
        }
        _ => None,
    };
    [(flat, RuleKind::FlattenThreeDims), (merged, RuleKind::MergeLastDims)].into_iter().find_map(
        |(dims, kind)| {
            let dims = dims?;
            if dims == *row {
                return Some((kind, Padding::None));
            }
            is_padded(&dims, row).then_some((kind, Padding::Query))
        },
    )
}

fn flattened(dims: &SlotDims) -> Option<SlotDims> {
    match *dims.as_slice() {
        [one, two, three] => Some(SlotDims::new(&[one.saturating_mul(two), three])),
        _ => None,
    }
}

/// Returns the dimensions without one leading 1.
fn strip(dims: &SlotDims) -> SlotDims {
    match dims.as_slice() {
        [1, rest @ ..] if !rest.is_empty() => SlotDims::new(rest),
        _ => *dims,
    }
}

/// Returns true if dimensions of a query are those of a row, completed to tiles in at least one.
fn is_padded(query: &SlotDims, row: &SlotDims) -> bool {
    let (query, row) = (query.as_slice(), row.as_slice());
    query.len() == row.len()
        && query != row
        && query.iter().zip(row).all(|(query, row)| query == row || is_padded_for_superseded(*query, *row))
}
