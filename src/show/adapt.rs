//! Adaptive grids: the cases of a batch with the reasons for them, and the estimated errors of kernels.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::{
        adapt::{ChosenCase, KernelDesign},
        adaptive::{ChoiceReason, ErrorEstimate},
    },
    base::count_text::format_count,
    show::table::{DETAIL, FittedColumn, fitted_text},
};

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
pub(crate) fn adapt_line(KernelDesign { kernel, design, .. }: &KernelDesign, target: f64) -> String {
    let estimate = match design.estimate() {
        None => format!("no estimate yet from {}", format_count(design.hold_out_errors().len(), "hold-out")),
        Some(ErrorEstimate { hold_outs, p50, p90, max }) => format!(
            "error p50 {}, p90 {}, max {} of {}",
            error_text(p50),
            error_text(p90),
            error_text(max),
            format_count(hold_outs, "hold-out")
        ),
    };
    let (rows, candidates) = (format_count(design.measured(), "row"), design.candidates().len());
    format!("{kernel}: {rows} of {candidates} candidates, {estimate}; target {}", error_text(target))
}

pub(crate) fn adapt_table(kernels: &[KernelDesign], target: f64, width: Option<usize>) -> String {
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
    let cells = |KernelDesign { kernel, design, .. }: &KernelDesign| {
        let error = |of: fn(&ErrorEstimate) -> f64| {
            design.estimate().as_ref().map_or_else(|| "-".to_owned(), |estimate| error_text(of(estimate)))
        };
        vec![
            kernel.to_string(),
            design.measured().to_string(),
            design.candidates().len().to_string(),
            design.hold_out_errors().len().to_string(),
            error(|estimate| estimate.p50),
            error(|estimate| estimate.p90),
            error(|estimate| estimate.max),
            error_text(target),
            if design.is_met() { "yes" } else { "no" }.to_owned(),
        ]
    };
    fitted_text(columns, kernels.iter().map(cells), width)
}

/// State of the adaptive grid of a kernel in JSON. Errors are relative, null without an estimate, or if a hold-out has no
/// answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AdaptRecord<'a> {
    kernel: &'a str,
    rows: usize,
    candidates: usize,
    hold_outs: usize,
    p50: Option<f64>,
    p90: Option<f64>,
    max: Option<f64>,
    target: Option<f64>,
    met: bool,
}

impl<'a> AdaptRecord<'a> {
    pub(crate) fn new(KernelDesign { kernel, design, .. }: &'a KernelDesign, target: f64) -> Self {
        let relative = |log: f64| log.is_finite().then(|| log.exp_m1());
        let error = |of: fn(&ErrorEstimate) -> f64| relative(of(&design.estimate()?));
        Self {
            kernel: kernel.as_str(),
            rows: design.measured(),
            candidates: design.candidates().len(),
            hold_outs: design.hold_out_errors().len(),
            p50: error(|estimate| estimate.p50),
            p90: error(|estimate| estimate.p90),
            max: error(|estimate| estimate.max),
            target: relative(target),
            met: design.is_met(),
        }
    }
}

pub(crate) fn chosen_table(chosen: &[ChosenCase], width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(16),
        FittedColumn::text("inputs", 0).shortened_to(16),
        FittedColumn::text("reason", 1).shortened_to(16),
        FittedColumn::number("answer (us)", 2),
        FittedColumn::text("case", 3),
    ];
    let cells = |(case, chosen): &ChosenCase| {
        vec![
            case.kernel.to_string(),
            case.shapes(),
            reason_text(chosen.reason),
            chosen.predicted.map_or_else(|| "none".to_owned(), |latency| format!("{latency:.2}")),
            case.id().as_str().to_owned(),
        ]
    };
    fitted_text(columns, chosen.iter().map(cells), width)
}

/// Case of a batch in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChosenRecord<'a> {
    case: &'a str,
    kernel: &'a str,
    inputs: String,
    reason: &'static str,
    /// Latency that lookups answer before the case is measured.
    answer_us: Option<f64>,
}

impl<'a> ChosenRecord<'a> {
    pub(crate) fn new((case, chosen): &'a ChosenCase) -> Self {
        Self {
            case: case.id().as_str(),
            kernel: case.kernel.as_str(),
            inputs: case.shapes(),
            reason: match chosen.reason {
                ChoiceReason::LineEnd => "line_end",
                ChoiceReason::WorstBracket(_) => "worst_bracket",
                ChoiceReason::HoldOut => "hold_out",
            },
            answer_us: chosen.predicted,
        }
    }
}
