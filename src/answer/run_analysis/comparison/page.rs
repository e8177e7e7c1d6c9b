//! Comparison of two recorded runs as a page.

use serde_json::{Value, json};

use super::{
    ComparisonReport, PARTS,
    call_tables::call_sections,
    cells::{SELF_COLUMNS, amount, amount_cell, calls_cell, has_amount, ratio_cell, self_cell, signed},
    compared_kernels::{IN_MODEL_COLUMNS, in_model_rows},
    detail_heading, heading, run_text,
};
use crate::{
    base::assets::AssetFiles,
    kernel::render::{RenderError, render_page},
    profile::timeline::ComparedPart,
};

const TEMPLATE: &str = "comparison.html.hbs";

/// Renders the page. Fails with [`RenderError`] if the template of the user is wrong.
pub(crate) fn comparison_page(
    assets: &AssetFiles,
    report: &ComparisonReport<'_>,
) -> Result<String, RenderError> {
    render_page(assets, TEMPLATE, &page_data(report))
}

fn page_data(report: &ComparisonReport<'_>) -> Value {
    let comparison = report.comparison;
    let largest = comparison.attribution.iter().map(|part| part.difference.abs()).fold(0.0, f64::max);
    let attribution = comparison.attribution.iter().map(|part| {
        let width = if largest > 0.0 { 100.0 * part.difference.abs() / largest } else { 0.0 };
        json!({
            "difference": signed(amount(ComparedPart::Overall, part.difference)),
            "class": if part.difference < 0.0 { "shorter" } else { "longer" },
            "width": format!("{width:.3}"), "kind": part.kind, "shapes": part.shapes,
            "name": if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() },
        })
    });
    let parts = PARTS.into_iter().map(|part| {
        let rows = report.part_rows(part).into_iter().filter(|row| has_amount(row));
        let rows = rows.map(|row| {
            json!({
                "name": row.name, "shapes": row.shapes,
                "base": amount_cell(part, row.base), "other": amount_cell(part, row.other),
                "difference": signed(amount(part, row.difference())), "ratio": ratio_cell(row),
                "base_calls": calls_cell(row.base), "other_calls": calls_cell(row.other),
                "self_times": match part {
                    ComparedPart::HostCall => vec![self_cell(row.base), self_cell(row.other)],
                    _ => Vec::new(),
                },
            })
        });
        let self_columns = if part == ComparedPart::HostCall { &SELF_COLUMNS[..] } else { &[] };
        json!({"heading": heading(part), "detail": detail_heading(part), "self_columns": self_columns, "rows": rows.collect::<Vec<_>>()})
    });
    json!({
        "base": run_text("base", report.base, report.base_sums),
        "other": run_text("other", report.other, report.other_sums),
        "span": signed(amount(ComparedPart::Overall, comparison.span_difference)),
        "attribution": attribution.collect::<Vec<_>>(),
        "parts": parts.collect::<Vec<_>>(),
        "not_compared": comparison.not_compared,
        "calls": call_sections(report.calls.unwrap_or_default()),
        "has_database": report.in_model.is_some(),
        "no_measured_row": report.in_model.map(|database| report.no_measured_row(&database)),
        "in_model_columns": IN_MODEL_COLUMNS,
        "in_model": in_model_rows(report),
    })
}
