//! Comparison of sweeps with the analytic model, as a table or as JSON lines.

use super::{super::prelude::*, SweepKeyRecord, four_digits};
use crate::{
    kernel::PartWeights,
    measure::collective::{ModelComparison, ModelVerdict},
};

#[derive(Clone, Debug)]
pub(crate) struct ModelReport<'r> {
    pub(crate) comparisons: &'r [ModelComparison<'r>],
    pub(crate) device: &'r str,
    pub(crate) kind: DataKind,
    pub(crate) tolerance: f64,
}

pub(crate) fn model_text(report: &ModelReport<'_>, width: Option<usize>) -> String {
    let has_parts = report.comparisons.iter().any(|row| row.sweep.key.parts != PartWeights::Equal);
    let table = Table::new(report.comparisons)
        .text("collective", 0, |row| row.sweep.kind)
        .number("tier", 2, |row| or_dash(row.sweep.key.tier))
        .number("ranks", 0, |row| row.sweep.key.ranks)
        .text("type", 3, |row| or_dash(row.sweep.key.dtype.as_ref().map(Dtype::as_str)))
        .number("bytes", 0, |row| row.point.message)
        .number("us", 1, |row| four_digits(row.point.micros))
        .number("model us", 1, |row| or_dash(row.predicted_us.map(four_digits)))
        .number("ratio", 0, |row| or_dash(row.ratio().map(|ratio| format!("{ratio:.2}"))))
        .text("verdict", 0, |row| row.verdict)
        .text("parts", rank(DETAIL).min(12), |row| or_empty(has_parts.then_some(&row.sweep.key.parts)))
        .print(width);
    let [pass, warn, fail, none] =
        [ModelVerdict::Pass, ModelVerdict::Warn, ModelVerdict::Fail, ModelVerdict::NoModel]
            .map(|verdict| report.comparisons.iter().filter(|row| row.verdict == verdict).count());
    let separator = if table.is_empty() { "" } else { "\n" };
    format!(
        "{table}{separator}{pass} PASS (ratio up to {t} or 1/{t}), {warn} WARN (up to {}), {fail} FAIL, {none} without a model, by {}{}\n",
        2.0 * report.tolerance,
        report.device,
        report.kind.mark(),
        t = report.tolerance,
    )
}

record! {
    pub(crate) ModelRecord<'a>(row: &'a ModelComparison<'a>, report: &ModelReport<'a>) {
        #[serde(flatten)]
        key: SweepKeyRecord<'a> = SweepKeyRecord::new(row.sweep, report.kind),
        message_bytes: u64 = row.point.message,
        us: f64 = row.point.micros,
        model_us: Option<f64> = row.predicted_us,
        ratio: Option<f64> = row.ratio(),
        verdict: ModelVerdict = row.verdict,
        by_npubench: bool = !row.point.is_foreign,
        device: &'a str = report.device,
        tolerance: f64 = report.tolerance,
    }
}

pub(crate) fn model_records<'r>(report: &ModelReport<'r>) -> Vec<ModelRecord<'r>> {
    report.comparisons.iter().map(|row| ModelRecord::new(row, report)).collect()
}
