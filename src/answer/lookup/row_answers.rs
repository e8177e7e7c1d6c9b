//! Answers from rows: of those that fit a query equally well, and between rows.

use super::{
    AnswerSource, KernelIndex, KernelRows, LatencyColumn, LookupAnswer, MatchRule, Micros, MissReason,
    Padding, RowMatch, RuleKind, SlotDims, UsedRow,
};
use crate::kernel::{Dtype, Verdict};

/// Confidence of an answer from a row with other tokens, of which one number is the other one padded.
pub(crate) const PADDED_CONFIDENCE: f64 = 0.6;

/// Returns the median of rows that fit equally well, of those with the preferred column; a miss if no row has a latency, or if rows
/// whose mapping requires agreement differ.
pub(crate) fn choose_median(rows: &KernelRows, numbers: &[u32], rule: (MatchRule, f64)) -> LookupAnswer {
    let mut column_rows = rows.columns().into_iter().map(|column| {
        let value = |number: &u32| Some((rows.rows[*number as usize].latency_in(column)?, *number));
        (column, numbers.iter().filter_map(value).collect::<Vec<_>>())
    });
    let Some((column, mut values)) = column_rows.find(|(_, values)| !values.is_empty()) else {
        return LookupAnswer::missed(MissReason::NotMeasured);
    };
    values.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let spread = values[values.len() - 1].0 - values[0].0;
    if rows.policy.requires_unique && spread > 1e-12 {
        return LookupAnswer::missed(MissReason::AmbiguousSemanticMatch(rows.kernel.as_str().to_owned()));
    }
    let (_, number) = values[(values.len() - 1) / 2];
    answer_of_row(rows, (number, column), rule, values.len())
}

/// Returns the answer of a row, one of several that fit equally well, by a rule with its confidence.
pub(crate) fn answer_of_row(
    rows: &KernelRows,
    (number, column): (u32, LatencyColumn),
    (rule, confidence): (MatchRule, f64),
    equal_rows: usize,
) -> LookupAnswer {
    let used = used_row(rows, number, column);
    LookupAnswer {
        latency: Some(used.latency),
        source: AnswerSource::of_rule(rule),
        confidence: confidence * trust(rows, number, column),
        rule: Some(rule),
        rows: vec![used],
        equal_rows,
        ..LookupAnswer::default()
    }
}

fn used_row(rows: &KernelRows, number: u32, column: LatencyColumn) -> UsedRow {
    let row = &rows.rows[number as usize];
    let latency = Micros(row.latency_in(column).unwrap_or_default());
    UsedRow { kernel: rows.kernel.clone(), line: row.line, column, latency, coordinates: None }
}

/// Returns the factor of the confidence in a row, which depends on the verdict of its replay.
fn trust(rows: &KernelRows, number: u32, column: LatencyColumn) -> f64 {
    verdict_factor(rows.rows[number as usize].verdict.filter(|_| column == LatencyColumn::Replay))
}

pub(crate) fn interpolated_answer(
    rows: &KernelRows,
    value: f64,
    used: &[(u32, [f64; 3])],
    column: LatencyColumn,
    (rule, confidence): (MatchRule, f64),
) -> LookupAnswer {
    let factors = used.iter().map(|(number, _)| trust(rows, *number, column));
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
        ..LookupAnswer::default()
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
    has_dtypes: bool,
    output: Option<&SlotDims>,
) -> LookupAnswer {
    best_row(index, matches, has_dtypes, output).unwrap_or_else(LookupAnswer::missed)
}

fn best_row(
    index: &KernelIndex,
    matches: &[RowMatch],
    has_dtypes: bool,
    output: Option<&SlotDims>,
) -> Result<LookupAnswer, MissReason> {
    let columns = index.rows.columns();
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
        let names = attributes(other).iter().chain(attributes(equal[0].0).iter());
        return Err(MissReason::OpenAttributes(names.map(|(name, _)| name.to_owned()).collect()));
    }
    if index.rows.policy.requires_unique && differ {
        return Err(MissReason::AmbiguousSemanticMatch(index.rows.kernel.as_str().to_owned()));
    }
    let (found, column, latency) = equal[(equal.len() - 1) / 2];
    let rule = (found.rule, confidence(found.rule));
    let answer = answer_of_row(&index.rows, (found.row, column), rule, equal.len());
    Ok(LookupAnswer { latency: Some(Micros(latency)), ..answer })
}

fn confidence(rule: MatchRule) -> f64 {
    if rule.padding != Padding::None {
        return PADDED_CONFIDENCE;
    }
    let is_approximate = rule.has_relaxed_dtype
        || matches!(rule.kind, RuleKind::ElementwiseOutput | RuleKind::ElementwiseBytes);
    if is_approximate { 0.9 } else { 1.0 }
}
