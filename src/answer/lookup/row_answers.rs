//! Answers from rows: of those that fit a query equally well, and between rows.

use std::collections::BTreeSet;

use super::{
    answer::{AnswerSource, LatencyColumn, LookupAnswer, Micros, MissReason, UsedRow},
    kernel_index::KernelIndex,
    kernel_rows::KernelRows,
    match_rows::RowMatch,
    rules::{MatchRule, Padding, RuleKind},
    slot_dims::SlotDims,
};
use crate::{
    answer::op_mapping::KernelPolicy,
    kernel::{Dtype, Verdict},
};

/// Rows that fit equally well.
#[derive(Clone, Debug)]
pub(crate) struct FoundRows {
    pub(crate) numbers: Vec<u32>,
    pub(crate) rule: MatchRule,
    pub(crate) confidence: f64,
}

/// Confidence of an answer from a row with other tokens, of which one number is the other one padded.
pub(crate) const PADDED_CONFIDENCE: f64 = 0.6;

/// Returns the columns of latencies in the order of preference.
pub(crate) const fn preferred_columns(policy: KernelPolicy) -> [LatencyColumn; LatencyColumn::COUNT] {
    if policy.prefers_profiling {
        [LatencyColumn::Production, LatencyColumn::Replay, LatencyColumn::Profile]
    } else {
        LatencyColumn::ALL
    }
}

/// Returns the median of rows, of those with the preferred column. At least one row has a latency. The error is the
/// reason of a miss: rows whose mapping requires agreement differ.
pub(crate) fn choose_median(
    rows: &KernelRows,
    found: &FoundRows,
    policy: KernelPolicy,
) -> Result<LookupAnswer, MissReason> {
    let mut column_rows = preferred_columns(policy).into_iter().map(|column| {
        let value = |number: &u32| Some((rows.rows[*number as usize].latency_in(column)?, *number));
        (column, found.numbers.iter().filter_map(value).collect::<Vec<_>>())
    });
    let Some((column, mut values)) = column_rows.find(|(_, values)| !values.is_empty()) else {
        return Err(MissReason::NotMeasured);
    };
    values.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let spread = values[values.len() - 1].0 - values[0].0;
    if policy.requires_unique && spread > 1e-12 {
        return Err(MissReason::AmbiguousSemanticMatch(rows.kernel.as_str().to_owned()));
    }
    let (_, number) = values[(values.len() - 1) / 2];
    Ok(answer_of_row(rows, found, (number, column), values.len()))
}

pub(crate) fn answer_of_row(
    rows: &KernelRows,
    found: &FoundRows,
    (number, column): (u32, LatencyColumn),
    equal_rows: usize,
) -> LookupAnswer {
    let used = used_row(rows, number, column);
    let verdict = rows.rows[number as usize].verdict.filter(|_| column == LatencyColumn::Replay);
    LookupAnswer {
        latency: Some(used.latency),
        source: AnswerSource::of_rule(found.rule),
        confidence: found.confidence * verdict_factor(verdict),
        rule: Some(found.rule),
        rows: vec![used],
        equal_rows,
        ..LookupAnswer::NONE
    }
}

pub(crate) fn used_row(rows: &KernelRows, number: u32, column: LatencyColumn) -> UsedRow {
    let row = &rows.rows[number as usize];
    let latency = Micros(row.latency_in(column).unwrap_or_default());
    UsedRow { kernel: rows.kernel.clone(), line: row.line, column, latency, coordinates: None }
}

pub(crate) fn interpolated_answer(
    rows: &KernelRows,
    value: f64,
    used: &[(u32, [f64; 3])],
    column: LatencyColumn,
    (rule, confidence): (MatchRule, f64),
) -> LookupAnswer {
    let verdicts = used.iter().map(|(number, _)| rows.rows[*number as usize].verdict);
    let factors = verdicts.map(|verdict| verdict_factor(verdict.filter(|_| column == LatencyColumn::Replay)));
    LookupAnswer {
        latency: Some(Micros(value)),
        source: AnswerSource::of_rule(rule),
        confidence: confidence * factors.fold(1.0, f64::min),
        rule: Some(rule),
        rows: used
            .iter()
            .map(|(number, at)| UsedRow { coordinates: Some(*at), ..used_row(rows, *number, column) })
            .collect(),
        equal_rows: 1,
        ..LookupAnswer::NONE
    }
}

/// Returns the rule and the confidence of an interpolation in this number of dimensions.
pub(crate) const fn kind_of_dims(dims: u32) -> (RuleKind, f64) {
    match dims {
        1 => (RuleKind::InterpolatedOneDim, 0.7),
        2 => (RuleKind::InterpolatedTwoDims, 0.65),
        _ => (RuleKind::InterpolatedThreeDims, 0.6),
    }
}

pub(crate) const fn verdict_factor(verdict: Option<Verdict>) -> f64 {
    match verdict {
        Some(Verdict::Noisy) => 0.9,
        Some(Verdict::Suspicious) => 0.7,
        _ => 1.0,
    }
}

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
        ..LookupAnswer::NONE
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
