//! Answers from rows: of those that fit a query equally well, and between rows.

use super::{
    answer::{AnswerSource, LatencyColumn, LookupAnswer, Micros, MissReason, UsedRow},
    kernel_rows::KernelRows,
    rules::{MatchRule, RuleKind},
};
use crate::{answer::op_mapping::KernelPolicy, kernel::Verdict};

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

/// Returns the answer of one of several rows.
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
        miss: None,
        parts: Vec::new(),
        overhead: None,
    }
}

/// Returns a row with its latency in a column.
pub(crate) fn used_row(rows: &KernelRows, number: u32, column: LatencyColumn) -> UsedRow {
    let row = &rows.rows[number as usize];
    let latency = Micros(row.latency_in(column).unwrap_or_default());
    UsedRow { kernel: rows.kernel.clone(), line: row.line, column, latency, coordinates: None }
}

/// Returns the answer of an interpolation between rows with their coordinates.
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
        miss: None,
        parts: Vec::new(),
        overhead: None,
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

/// Returns the factor of the confidence in a replay with this verdict.
pub(crate) const fn verdict_factor(verdict: Option<Verdict>) -> f64 {
    match verdict {
        Some(Verdict::Noisy) => 0.9,
        Some(Verdict::Suspicious) => 0.7,
        _ => 1.0,
    }
}
