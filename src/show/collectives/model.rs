//! Comparison of sweeps with the analytic model, as a table or as JSON lines.

use super::{super::prelude::*, SweepKeyRecord, four_digits};
use crate::{
    kernel::PartWeights,
    measure::collective::{ModelComparison, ModelVerdict},
};

pub(crate) fn model_text(
    comparisons: &[ModelComparison<'_>],
    device: &str,
    kind: DataKind,
    tolerance: f64,
    width: Option<usize>,
) -> String {
    let has_parts = comparisons.iter().any(|row| row.sweep.key.parts != PartWeights::Equal);
    let table = Table::new(comparisons)
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
            .map(|verdict| comparisons.iter().filter(|row| row.verdict == verdict).count());
    let separator = if table.is_empty() { "" } else { "\n" };
    format!(
        "{table}{separator}{pass} PASS (ratio up to {t} or 1/{t}), {warn} WARN (up to {}), {fail} FAIL, {none} without a model, by {}{}\n",
        2.0 * tolerance,
        device,
        kind.mark(),
        t = tolerance,
    )
}

record! {
    pub(crate) ModelRecord<'a>(row: &'a ModelComparison<'a>, device: &'a str, kind: DataKind, tolerance: f64) {
        #[serde(flatten)]
        key: SweepKeyRecord<'a> = SweepKeyRecord::new(row.sweep, kind),
        message_bytes: u64 = row.point.message,
        us: f64 = row.point.micros,
        model_us: Option<f64> = row.predicted_us,
        ratio: Option<f64> = row.ratio(),
        verdict: ModelVerdict = row.verdict,
        by_npubench: bool = !row.point.is_foreign,
        device: &'a str = device,
        tolerance: f64 = tolerance,
    }
}
