//! Comparison of sweeps with the analytic model, as a table or as JSON lines.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    kernel::{CollectiveKind, DataKind, Dtype, PartWeights},
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

/// Row beside its prediction in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelRecord<'a> {
    #[schemars(with = "String")]
    kind: DataKind,
    #[schemars(with = "String")]
    collective: CollectiveKind,
    ranks: u64,
    tier: Option<u64>,
    dtype: Option<&'a str>,
    environment: &'a str,
    part_weights: String,
    message_bytes: u64,
    us: f64,
    model_us: Option<f64>,
    /// Measured by predicted time.
    ratio: Option<f64>,
    verdict: ModelVerdict,
    by_npubench: bool,
    device: &'a str,
    tolerance: f64,
}

impl<'r> ModelReport<'r> {
    pub(crate) fn records(&self) -> Vec<ModelRecord<'r>> {
        let record = |row: &'r ModelComparison<'r>| ModelRecord {
            kind: self.kind,
            collective: row.sweep.kind,
            ranks: row.sweep.key.ranks,
            tier: row.sweep.key.tier,
            dtype: row.sweep.key.dtype.as_ref().map(Dtype::as_str),
            environment: &row.sweep.key.environment,
            part_weights: row.sweep.key.parts.to_string(),
            message_bytes: row.point.message,
            us: row.point.micros,
            model_us: row.predicted_us,
            ratio: row.ratio(),
            verdict: row.verdict,
            by_npubench: !row.point.is_foreign,
            device: self.device,
            tolerance: self.tolerance,
        };
        self.comparisons.iter().map(record).collect()
    }
}
