//! Published errors of interpolations, as text and JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::database::KernelInterpolationError;

/// Describes the published error of a kernel: `90 % of the interpolations of MatMulV2 within 4.9 % (60 hold-outs, ...)`.
pub(super) fn error_text(kernel: &str, error: &KernelInterpolationError) -> String {
    let within = error.p90.map_or_else(
        || format!("no estimate for {kernel}: too few hold-outs, or hold-outs without an answer"),
        |p90| format!("90 % of the interpolations of {kernel} within {:.1} %", p90 * 100.0),
    );
    format!("{within} ({} hold-outs, npubench adapt, {})", error.hold_outs.len(), error.date)
}

/// Published error of a kernel in JSON; errors are relative, null without an estimate.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorRecord<'a> {
    kernel: &'a str,
    p50: Option<f64>,
    p90: Option<f64>,
    max: Option<f64>,
    hold_outs: usize,
    date: &'a str,
}

impl<'a> ErrorRecord<'a> {
    pub(super) fn new(kernel: &'a str, error: &'a KernelInterpolationError) -> Self {
        let &KernelInterpolationError { p50, p90, max, .. } = error;
        Self { kernel, p50, p90, max, hold_outs: error.hold_outs.len(), date: &error.date }
    }
}
