//! Choice among the rows of a kernel that fit a query.

use std::collections::BTreeSet;

use super::{
    answer::{AnswerSource, LatencyColumn, LookupAnswer, Micros, MissReason, UsedRow},
    kernel_index::KernelIndex,
    match_rows::RowMatch,
    row_answers::{PADDED_CONFIDENCE, preferred_columns, verdict_factor},
    rules::{MatchRule, Padding, RuleKind},
    slot_dims::SlotDims,
};
use crate::{answer::op_mapping::KernelPolicy, kernel::Dtype};

/// Chooses among the rows of a kernel that fit: exact types and preferred formats first, then the column of the
/// latency. Of several equal ones the answer has the median, so that it does not depend on the order of rows. Rows with
/// as many elements in the output as the query's precede others.
pub(crate) fn choose_row(
    index: &KernelIndex,
    matches: &[RowMatch],
    policy: KernelPolicy,
    has_dtypes: bool,
    output: Option<&SlotDims>,
) -> Result<LookupAnswer, MissReason> {
    let columns = preferred_columns(policy);
    let latency_of = |found: &RowMatch| {
        let row = &index.rows.rows[found.row as usize];
        columns.iter().enumerate().find_map(|(rank, column)| Some((rank, *column, row.latency_in(*column)?)))
    };
    let rank = |found: &RowMatch| {
        (found.rule.has_relaxed_dtype, found.format_rank, latency_of(found).map(|(rank, ..)| rank))
    };
    let Some(least) = matches.iter().map(rank).min() else { return Err(MissReason::ShapeMismatch) };
    let mut equal: Vec<(&RowMatch, LatencyColumn, f64)> = matches
        .iter()
        .filter(|found| rank(found) == least)
        .filter_map(|found| {
            let (_, column, latency) = latency_of(found)?;
            Some((found, column, latency * found.scale))
        })
        .collect();
    let elements = |found: &RowMatch| {
        index.first_output(&index.rows.rows[found.row as usize]).map(|dims| dims.element_count())
    };
    if let Some(output) = output.map(SlotDims::element_count)
        && equal.iter().any(|(found, ..)| elements(found) == Some(output))
    {
        equal.retain(|(found, ..)| elements(found) == Some(output));
    }
    equal.sort_by(|one, other| one.2.total_cmp(&other.2).then(one.0.row.cmp(&other.0.row)));
    if !has_dtypes {
        let dtypes = |found: &RowMatch| -> Vec<&Dtype> {
            let form = index.rows.form(&index.rows.rows[found.row as usize]);
            form.inputs.iter().map(|input| &input.dtype).collect()
        };
        if equal.iter().any(|(found, ..)| dtypes(found) != dtypes(equal[0].0)) {
            return Err(MissReason::AmbiguousDtype);
        }
    }
    let differ = equal.last().is_some_and(|last| last.2 - equal[0].2 > 1e-12);
    if differ && equal.iter().any(|(found, ..)| elements(found) != elements(equal[0].0)) {
        return Err(MissReason::AmbiguousOutput);
    }
    let attributes = |found: &RowMatch| &index.rows.form(&index.rows.rows[found.row as usize]).attributes;
    if differ
        && let Some((other, ..)) =
            equal.iter().find(|(found, ..)| attributes(found) != attributes(equal[0].0))
    {
        let names =
            attributes(other).iter().chain(attributes(equal[0].0).iter()).map(|(name, _)| name.to_owned());
        return Err(MissReason::OpenAttributes(names.collect::<BTreeSet<_>>().into_iter().collect()));
    }
    if policy.requires_unique && differ {
        return Err(MissReason::AmbiguousSemanticMatch(index.rows.kernel.as_str().to_owned()));
    }
    let (found, column, latency) = equal[(equal.len() - 1) / 2];
    let row = &index.rows.rows[found.row as usize];
    Ok(LookupAnswer {
        latency: Some(Micros(latency)),
        source: AnswerSource::of_rule(found.rule),
        confidence: confidence(found.rule)
            * verdict_factor(row.verdict.filter(|_| column == LatencyColumn::Replay)),
        rule: Some(found.rule),
        rows: vec![UsedRow {
            kernel: index.rows.kernel.clone(),
            line: row.line,
            column,
            latency: Micros(latency / found.scale),
            coordinates: None,
        }],
        equal_rows: equal.len(),
        miss: None,
        parts: Vec::new(),
        overhead: None,
    })
}

fn confidence(rule: MatchRule) -> f64 {
    if rule.padding != Padding::None {
        return PADDED_CONFIDENCE;
    }
    let is_approximate = rule.has_relaxed_dtype
        || matches!(rule.kind, RuleKind::ElementwiseOutput | RuleKind::ElementwiseBytes);
    if is_approximate { 0.9 } else { 1.0 }
}
