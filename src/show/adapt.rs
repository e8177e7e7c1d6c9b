//! Adaptive grids: the cases of a batch with the reasons for them, and the estimated errors of kernels.

use super::prelude::*;
use crate::answer::{
    adapt::{ChosenCase, KernelDesign},
    adaptive::{ChoiceReason, ErrorEstimate},
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

pub(crate) fn adapt_line(KernelDesign { kernel, design, .. }: &KernelDesign, target: f64) -> String {
    let estimate = match design.estimate() {
        None => format!("no estimate yet from {}", format_count(design.hold_out_errors().len(), "hold-out")),
        Some(ErrorEstimate { hold_outs, p50, p90, max }) => {
            let [p50, p90, max] = [p50, p90, max].map(error_text);
            format!("error p50 {p50}, p90 {p90}, max {max} of {}", format_count(hold_outs, "hold-out"))
        }
    };
    let (rows, candidates) = (format_count(design.measured(), "row"), design.candidates.len());
    format!("{kernel}: {rows} of {candidates} candidates, {estimate}; target {}", error_text(target))
}

pub(crate) fn adapt_table(kernels: &[KernelDesign], target: f64, width: Option<usize>) -> String {
    let error = |KernelDesign { design, .. }: &KernelDesign, of: fn(&ErrorEstimate) -> f64| {
        or_dash(design.estimate().map(|estimate| error_text(of(&estimate))))
    };
    Table::new(kernels)
        .text("kernel", rank(0).min(16), |one| &one.kernel)
        .number("rows", 1, |one| one.design.measured())
        .number("candidates", DETAIL, |one| one.design.candidates.len())
        .number("hold-outs", DETAIL, |one| one.design.hold_out_errors().len())
        .number("p50", 2, |one| error(one, |estimate| estimate.p50))
        .number("p90", 0, |one| error(one, |estimate| estimate.p90))
        .number("max", 2, |one| error(one, |estimate| estimate.max))
        .number("target", 1, |_| error_text(target))
        .text("met", 0, |one| yes_no(one.design.is_met()))
        .print(width)
}

record! {
    /// State of the adaptive grid of a kernel in JSON. Errors are relative, null without an estimate, or if a hold-out has no
    /// answer.
    pub(crate) AdaptRecord<'a>(one: &'a KernelDesign, target: f64)
    with {
        let design = &one.design;
        let relative = |log: f64| log.is_finite().then(|| log.exp_m1());
        let error = |of: fn(&ErrorEstimate) -> f64| relative(of(&design.estimate()?));
    } {
        kernel: &'a str = one.kernel.as_str(),
        rows: usize = design.measured(),
        candidates: usize = design.candidates.len(),
        hold_outs: usize = design.hold_out_errors().len(),
        p50: Option<f64> = error(|estimate| estimate.p50),
        p90: Option<f64> = error(|estimate| estimate.p90),
        max: Option<f64> = error(|estimate| estimate.max),
        target: Option<f64> = relative(target),
        met: bool = design.is_met(),
    }
}

pub(crate) fn chosen_table(chosen: &[ChosenCase], width: Option<usize>) -> String {
    let answer = |latency: f64| format!("{latency:.2}");
    Table::new(chosen)
        .text("kernel", rank(0).min(16), |(case, _)| &case.kernel)
        .text("inputs", rank(0).min(16), |(case, _)| case.shapes())
        .text("reason", rank(1).min(16), |(_, chosen)| reason_text(chosen.reason))
        .number("answer (us)", 2, |(_, chosen)| chosen.predicted.map_or_else(|| "none".to_owned(), answer))
        .text("case", 3, |(case, _)| case.id())
        .print(width)
}

record! {
    pub(crate) ChosenRecord<'a>(chosen: &'a ChosenCase) with { let (case, chosen) = chosen; } {
        case: &'a str = case.id().as_str(),
        kernel: &'a str = case.kernel.as_str(),
        inputs: String = case.shapes(),
        reason: &'static str = match chosen.reason {
            ChoiceReason::LineEnd => "line_end",
            ChoiceReason::WorstBracket(_) => "worst_bracket",
            ChoiceReason::HoldOut => "hold_out",
        },
        /// Latency that lookups answer before the case is measured.
        answer_us: Option<f64> = chosen.predicted,
    }
}
