//! Comparison of two recorded runs as JSON lines.

use serde_json::json;

use super::{super::module_tables::in_model_json, ComparisonReport, call_tables::call_json};
use crate::profile::timeline::{ComparedPart, TimeSum};

/// Returns a JSON object for each part of the difference, then for each row, each call, and each kernel with its duration
/// alone.
#[expect(clippy::cast_precision_loss, reason = "sums of durations have fewer than 53 bits")]
pub(crate) fn comparison_json(report: &ComparisonReport<'_>) -> String {
    let mut lines = String::new();
    let object = json!({
        "item": "comparison",
        "base_files": report.base.files,
        "other_files": report.other.files,
        "base_steps": report.base_sums.steps,
        "other_steps": report.other_sums.steps,
        "span_difference_ns": report.comparison.span_difference,
        "by_kernel_name": report.comparison.by_kernel_name,
        "not_compared": report.comparison.not_compared,
    });
    lines.push_str(&format!("{object}\n"));
    for part in &report.comparison.attribution {
        let object = json!({
            "item": "difference",
            "part": part.kind,
            "name": part.name,
            "shapes": part.shapes,
            "difference_ns": part.difference,
            "remainder": part.is_remainder,
        });
        lines.push_str(&format!("{object}\n"));
    }
    for row in &report.comparison.rows {
        let unit = if row.part == ComparedPart::Memory { "bytes" } else { "ns" };
        let side = |sum: Option<TimeSum>| {
            sum.map(|sum| {
                let mean = (sum.calls > 0.0).then(|| sum.total / sum.calls);
                let mut side = json!({"total": row.has_total().then_some(sum.total), "calls": sum.calls,
                                      "mean": mean.filter(|_| row.has_total()),
                                      "shortest": sum.shortest, "longest": sum.longest});
                if let Some(time) = sum.self_total {
                    side["self"] = time.into();
                }
                side
            })
        };
        let object = json!({
            "item": "row",
            "part": <&str>::from(row.part),
            "name": row.name,
            "shapes": row.shapes,
            "unit": unit,
            "base": side(row.base),
            "other": side(row.other),
            "difference": row.has_total().then(|| row.difference()),
            "ratio": row.ratio(),
        });
        lines.push_str(&format!("{object}\n"));
    }
    lines.extend(report.calls.unwrap_or_default().iter().map(|call| format!("{}\n", call_json(call))));
    let runs = [("base", report.base_sums), ("other", report.other_sums)];
    for ((run, sums), kernels) in
        runs.into_iter().zip(report.in_model.into_iter().flat_map(|found| [found.base, found.other]))
    {
        let steps = sums.steps as f64;
        for kernel in &kernels.kernels {
            let mut object = in_model_json(kernel);
            object["run"] = run.into();
            object["calls"] = (kernel.calls as f64 / steps).into();
            object["total_ns"] = (kernel.total as f64 / steps).into();
            object["excess_ns"] = kernel.excess().map(|excess| excess / steps).into();
            lines.push_str(&format!("{object}\n"));
        }
    }
    lines
}
