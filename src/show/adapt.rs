//! Adaptive grids: the cases of a batch with the reasons for them, and the estimated errors of kernels.

use serde_json::{Value, json};

use crate::{
    answer::adaptive::{ChoiceReason, ErrorEstimate},
    base::count_text::format_count,
    kernel::{IdentifiedCase, KernelName},
    show::table::{DETAIL, FittedColumn, fitted_text},
};

#[derive(Clone, Debug)]
pub(crate) struct ChosenCase {
    pub(crate) case: IdentifiedCase,
    pub(crate) reason: ChoiceReason,
    /// Latency in microseconds that lookups answer before it is measured.
    pub(crate) predicted: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AdaptedState<'a> {
    pub(crate) kernel: &'a KernelName,
    pub(crate) rows: usize,
    pub(crate) candidates: usize,
    pub(crate) estimate: Option<ErrorEstimate>,
    /// Number of random candidates with a known error, also without an estimate.
    pub(crate) hold_outs: usize,
    pub(crate) is_met: bool,
}

/// Formats an error that is the absolute logarithm of a ratio.
fn error_text(log: f64) -> String {
    if log.is_finite() { format!("{:.1} %", 100.0 * log.exp_m1()) } else { "no answer".to_owned() }
}

fn reason_text(reason: ChoiceReason) -> String {
    match reason {
        ChoiceReason::LineEnd => "end of a line".to_owned(),
        ChoiceReason::WorstBracket(error) if error.is_finite() => {
            format!("expected error {}", error_text(error))
        }
        ChoiceReason::WorstBracket(_) => "expected error unknown".to_owned(),
        ChoiceReason::HoldOut => "random, for the estimate".to_owned(),
    }
}

/// Returns the line about a kernel after a batch.
pub(crate) fn adapt_line(state: &AdaptedState<'_>, target: f64) -> String {
    let estimate = match state.estimate {
        None => format!("no estimate yet from {}", format_count(state.hold_outs, "hold-out")),
        Some(ErrorEstimate { hold_outs, p50, p90, max }) => format!(
            "error p50 {}, p90 {}, max {} of {}",
            error_text(p50),
            error_text(p90),
            error_text(max),
            format_count(hold_outs, "hold-out")
        ),
    };
    let rows = format_count(state.rows, "row");
    format!(
        "{}: {rows} of {} candidates, {estimate}; target {}",
        state.kernel,
        state.candidates,
        error_text(target)
    )
}

pub(crate) fn adapt_table(states: &[AdaptedState<'_>], target: f64, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(16),
        FittedColumn::number("rows", 1),
        FittedColumn::number("candidates", DETAIL),
        FittedColumn::number("hold-outs", DETAIL),
        FittedColumn::number("p50", 2),
        FittedColumn::number("p90", 0),
        FittedColumn::number("max", 2),
        FittedColumn::number("target", 1),
        FittedColumn::text("met", 0),
    ];
    let cells = |state: &AdaptedState<'_>| {
        let error = |of: fn(&ErrorEstimate) -> f64| {
            state.estimate.as_ref().map_or_else(|| "-".to_owned(), |estimate| error_text(of(estimate)))
        };
        vec![
            state.kernel.to_string(),
            state.rows.to_string(),
            state.candidates.to_string(),
            state.hold_outs.to_string(),
            error(|estimate| estimate.p50),
            error(|estimate| estimate.p90),
            error(|estimate| estimate.max),
            error_text(target),
            if state.is_met { "yes" } else { "no" }.to_owned(),
        ]
    };
    fitted_text(columns, states.iter().map(cells), width)
}

/// Returns the same as JSON lines, with relative errors; an error is null without an estimate, or if a hold-out has no
/// answer.
pub(crate) fn adapt_json(states: &[AdaptedState<'_>], target: f64) -> String {
    let relative = |log: f64| if log.is_finite() { json!(log.exp_m1()) } else { Value::Null };
    let line = |state: &AdaptedState<'_>| {
        let error = |of: fn(&ErrorEstimate) -> f64| {
            state.estimate.as_ref().map_or(Value::Null, |estimate| relative(of(estimate)))
        };
        let line = json!({
            "kernel": state.kernel.as_str(), "rows": state.rows, "candidates": state.candidates,
            "hold_outs": state.hold_outs,
            "p50": error(|estimate| estimate.p50), "p90": error(|estimate| estimate.p90),
            "max": error(|estimate| estimate.max), "target": relative(target), "met": state.is_met,
        });
        format!("{line}\n")
    };
    states.iter().map(line).collect()
}

pub(crate) fn chosen_table(chosen: &[ChosenCase], width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(16),
        FittedColumn::text("inputs", 0).shortened_to(16),
        FittedColumn::text("reason", 1).shortened_to(16),
        FittedColumn::number("answer (us)", 2),
        FittedColumn::text("case", 3),
    ];
    let cells = |chosen: &ChosenCase| {
        vec![
            chosen.case.kernel.to_string(),
            chosen.case.shapes(),
            reason_text(chosen.reason),
            chosen.predicted.map_or_else(|| "none".to_owned(), |latency| format!("{latency:.2}")),
            chosen.case.id().as_str().to_owned(),
        ]
    };
    fitted_text(columns, chosen.iter().map(cells), width)
}

pub(crate) fn chosen_json(chosen: &[ChosenCase]) -> String {
    let line = |chosen: &ChosenCase| {
        let reason = match chosen.reason {
            ChoiceReason::LineEnd => "line_end",
            ChoiceReason::WorstBracket(_) => "worst_bracket",
            ChoiceReason::HoldOut => "hold_out",
        };
        let line = json!({
            "case": chosen.case.id().as_str(), "kernel": chosen.case.kernel.as_str(),
            "inputs": chosen.case.shapes(), "reason": reason, "answer_us": chosen.predicted,
        });
        format!("{line}\n")
    };
    chosen.iter().map(line).collect()
}
