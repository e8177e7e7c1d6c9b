//! Comparison of sweeps with the analytic model, as a table or as JSON lines.

use serde_json::json;

use crate::{
    kernel::{DataKind, Dtype, PartWeights},
    measure::collective::{ModelComparison, ModelVerdict},
    show::{
        collectives::four_digits,
        table::{DETAIL, FittedColumn, fitted_text},
    },
};

/// Comparison of the rows of a database with the model of a device profile.
#[derive(Clone, Debug)]
pub(crate) struct ModelReport<'r> {
    pub(crate) comparisons: &'r [ModelComparison<'r>],
    pub(crate) device: &'r str,
    /// Kind of the database.
    pub(crate) kind: DataKind,
    pub(crate) tolerance: f64,
}

impl ModelReport<'_> {
    fn count(&self, verdict: ModelVerdict) -> usize {
        self.comparisons.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// Returns a table of all rows, then the numbers of verdicts.
pub(crate) fn model_text(report: &ModelReport<'_>, width: Option<usize>) -> String {
    let has_parts = report.comparisons.iter().any(|row| row.sweep.key.parts != PartWeights::Equal);
    let columns = vec![
        FittedColumn::text("collective", 0),
        FittedColumn::number("tier", 2),
        FittedColumn::number("ranks", 0),
        FittedColumn::text("type", 3),
        FittedColumn::number("bytes", 0),
        FittedColumn::number("us", 1),
        FittedColumn::number("model us", 1),
        FittedColumn::number("ratio", 0),
        FittedColumn::text("verdict", 0),
        FittedColumn::text("parts", DETAIL).shortened_to(12),
    ];
    let cells = |row: &ModelComparison<'_>| {
        let key = &row.sweep.key;
        let dash = || "-".to_owned();
        vec![
            row.sweep.kind.to_string(),
            key.tier.map_or_else(dash, |tier| tier.to_string()),
            key.ranks.to_string(),
            key.dtype.as_ref().map_or_else(dash, |dtype| dtype.as_str().to_owned()),
            row.point.message.to_string(),
            four_digits(row.point.micros),
            row.predicted_us.map_or_else(dash, four_digits),
            row.ratio().map_or_else(dash, |ratio| format!("{ratio:.2}")),
            row.verdict.to_string(),
            if has_parts { key.parts.to_string() } else { String::new() },
        ]
    };
    let table = fitted_text(columns, report.comparisons.iter().map(cells), width);
    let [pass, warn, fail, none] =
        [ModelVerdict::Pass, ModelVerdict::Warn, ModelVerdict::Fail, ModelVerdict::NoModel]
            .map(|verdict| report.count(verdict));
    let separator = if table.is_empty() { "" } else { "\n" };
    format!(
        "{table}{separator}{pass} PASS (ratio up to {t} or 1/{t}), {warn} WARN (up to {}), {fail} FAIL, {none} without a model, by {}{}\n",
        2.0 * report.tolerance,
        report.device,
        report.kind.mark(),
        t = report.tolerance,
    )
}

/// Returns a JSON object for each row.
pub(crate) fn model_json(report: &ModelReport<'_>) -> String {
    let line = |row: &ModelComparison<'_>| {
        let key = &row.sweep.key;
        let object = json!({
            "kind": report.kind, "collective": row.sweep.kind, "ranks": key.ranks, "tier": key.tier,
            "dtype": key.dtype.as_ref().map(Dtype::as_str), "environment": key.environment,
            "part_weights": key.parts.to_string(), "message_bytes": row.point.message, "us": row.point.micros, "model_us": row.predicted_us,
            "ratio": row.ratio(), "verdict": row.verdict, "by_npubench": !row.point.is_foreign,
            "device": report.device, "tolerance": report.tolerance,
        });
        format!("{object}\n")
    };
    report.comparisons.iter().map(line).collect()
}
