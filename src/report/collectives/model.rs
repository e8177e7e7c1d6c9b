//! Comparison of sweeps with the analytic model, as a table or as JSON lines.

use serde_json::json;

use super::{
    super::summary_tables::{align_right, plain_table, trim_lines},
    four_digits,
};
use crate::{
    collective::{ModelComparison, ModelVerdict},
    domain::{DataKind, Dtype, PartWeights},
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
pub(crate) fn model_text(report: &ModelReport<'_>) -> String {
    let has_parts = report.comparisons.iter().any(|row| row.sweep.key.parts != PartWeights::Equal);
    let mut header =
        vec!["collective", "tier", "ranks", "type", "bytes", "us", "model us", "ratio", "verdict"];
    header.extend(has_parts.then_some("parts"));
    let mut table = plain_table(header);
    for row in report.comparisons {
        let key = &row.sweep.key;
        let dash = || "-".to_owned();
        let mut cells = vec![
            row.sweep.kind.to_string(),
            key.tier.map_or_else(dash, |tier| tier.to_string()),
            key.ranks.to_string(),
            key.dtype.as_ref().map_or_else(dash, |dtype| dtype.as_str().to_owned()),
            row.point.message.to_string(),
            four_digits(row.point.micros),
            row.predicted_us.map_or_else(dash, four_digits),
            row.ratio().map_or_else(dash, |ratio| format!("{ratio:.2}")),
            row.verdict.to_string(),
        ];
        cells.extend(has_parts.then(|| key.parts.to_string()));
        table.add_row(cells);
    }
    align_right(&mut table, [1, 2, 4, 5, 6, 7]);
    let [pass, warn, fail, none] =
        [ModelVerdict::Pass, ModelVerdict::Warn, ModelVerdict::Fail, ModelVerdict::NoModel]
            .map(|verdict| report.count(verdict));
    format!(
        "{}\n{pass} PASS (ratio up to {t} or 1/{t}), {warn} WARN (up to {}), {fail} FAIL, {none} without a model, by {}{}\n",
        trim_lines(&table),
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
