//! Published errors of interpolations, as text and JSON.

use serde_json::{Value, json};

use crate::database::KernelInterpolationError;

/// Describes the published error of a kernel: `90 % of the interpolations of MatMulV2 within 4.9 % (60 hold-outs, ...)`.
pub(super) fn error_text(kernel: &str, error: &KernelInterpolationError) -> String {
    let within = error.p90.map_or_else(
        || format!("no estimate for {kernel}: too few hold-outs, or hold-outs without an answer"),
        |p90| format!("90 % of the interpolations of {kernel} within {:.1} %", p90 * 100.0),
    );
    format!("{within} ({} hold-outs, npubench adapt, {})", error.hold_outs.len(), error.date)
}

/// Returns the published error of a kernel for JSON; errors are relative, null without an estimate.
pub(super) fn error_json(kernel: &str, error: &KernelInterpolationError) -> Value {
    json!({
        "kernel": kernel, "p50": error.p50, "p90": error.p90, "max": error.max,
        "hold_outs": error.hold_outs.len(), "date": error.date,
    })
}
