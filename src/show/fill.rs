//! Fills: the cases that close gaps, the forecast, and the coverage that was reached.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::{
        coverage::FilledBy,
        fill::{FillPreview, NotMeasured},
    },
    base::count_text::format_count,
    kernel::timestamp::format_duration,
    show::{
        coverage::percent,
        table::{FittedColumn, FittedRow, FittedTable},
    },
};

/// Cases that a table on screen has; JSON has all.
const SHOWN_CASES: usize = 40;
/// Reasons of a kind of gaps that the text has; JSON has all.
const SHOWN_REASONS: usize = 8;

/// Gaps that no case closes, of one kind of closing.
#[derive(Debug, Default)]
struct OpenGaps {
    count: usize,
    share: f64,
    /// Operators with what would close their gaps, without repetitions.
    reasons: Vec<String>,
}

/// Returns the gaps that no case closes, by what would close them.
fn not_filled(preview: &FillPreview<'_>) -> BTreeMap<&'static str, OpenGaps> {
    let mut by_kind: BTreeMap<&'static str, OpenGaps> = BTreeMap::new();
    let gaps = preview.gaps.iter().zip(&preview.fill.filled_by);
    for (gap, _) in gaps.filter(|(_, filled_by)| **filled_by == FilledBy::Nothing) {
        let open = by_kind.entry(gap.closing.kind()).or_default();
        open.count += 1;
        open.share += gap.share.unwrap_or(0.0);
        let reason = format!("{}: {}", gap.query.op, gap.closing);
        if !open.reasons.contains(&reason) {
            open.reasons.push(reason);
        }
    }
    by_kind
}

fn in_time(preview: &FillPreview<'_>) -> usize {
    preview.ends.iter().filter(|end| end.is_ok()).count()
}

/// Returns the number of composites of which a case closes one part, and other parts may be missing.
fn gaps_in_part(preview: &FillPreview<'_>) -> usize {
    preview.fill.filled_by.iter().filter(|by| matches!(by, FilledBy::Part(_))).count()
}

/// Returns the table of the cases, and the forecast.
pub(crate) fn fill_text(report: &FillPreview<'_>, width: Option<usize>) -> String {
    let cases: Vec<_> = report.fill.needed().zip(&report.ends).collect();
    let unmeasured = report.fill.cases.iter().filter(|case| report.fill.unmeasured.contains(case.case.id()));
    let all = report.gaps.iter().filter_map(|gap| gap.time).sum::<f64>()
        + unmeasured.map(|case| case.value).sum::<f64>();
    let mut text = String::new();
    if !cases.is_empty() {
        let columns = vec![
            FittedColumn::text("kernel", 0).shortened_to(12),
            FittedColumn::text("inputs", 0).shortened_to(16).wanted(24),
            FittedColumn::number("part of the missing time", 1),
            FittedColumn::text("measured after", 2).shortened_to(14),
            FittedColumn::text("case", 3),
        ];
        let mut rows = Vec::new();
        for (case, end) in cases.iter().take(SHOWN_CASES) {
            let end = match end {
                Ok(seconds) => format_duration(*seconds),
                Err(not_measured) => not_measured.reason().to_owned(),
            };
            rows.push(FittedRow::from_cells(&[
                case.case.kernel.as_str().to_owned(),
                case.case.shapes(),
                percent((all > 0.0).then(|| case.value / all)),
                end,
                case.case.id().as_str().to_owned(),
            ]));
        }
        text += &FittedTable { columns, rows, ..FittedTable::default() }.print(width, false);
        if cases.len() > SHOWN_CASES {
            text += &format!("{} further cases\n", cases.len() - SHOWN_CASES);
        }
        text += "\n";
    }
    for (kind, open) in not_filled(report) {
        text += &format!(
            "{} of {} of the time without a case ({kind}):\n",
            format_count(open.count, "gap"),
            percent(Some(open.share))
        );
        for reason in open.reasons.iter().take(SHOWN_REASONS) {
            text += &format!("  {reason}\n");
        }
        if open.reasons.len() > SHOWN_REASONS {
            text +=
                &format!("  {} more: `npubench coverage` lists them\n", open.reasons.len() - SHOWN_REASONS);
        }
    }
    let in_part = gaps_in_part(report);
    if in_part > 0 {
        let text_of_count = format_count(in_part, "composite");
        text += &format!("{text_of_count} with other parts that may be missing: not in the expected share\n");
    }
    match report.fill.unmeasured.len() {
        0 => {}
        1 => {
            text += "1 row has a duration of production profiles only: it counts in M5, and is measured as well\n";
        }
        rows => {
            text += &format!(
                "{rows} rows have durations of production profiles only: they count in M5, and are measured as well\n"
            );
        }
    }
    let between = report.fill.cases.len() - cases.len();
    if between > 0 {
        text +=
            &format!("{} answered between these, measured if time is left\n", format_count(between, "case"));
    }
    text += &format!(
        "{} of {} in {}: M5 {} before, {} expected\n",
        in_time(report),
        format_count(cases.len(), "case"),
        format_duration(report.seconds),
        percent(report.share_before),
        percent(report.share_forecast)
    );
    text
}

/// A fill in JSON: a record for each case, then one of the forecast.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum FillRecord<'a> {
    Case {
        case: &'a str,
        kernel: &'a str,
        inputs: String,
        /// Time of the workloads that the case stands for.
        time_us: f64,
        /// True for a row that has a duration of production profiles only.
        unmeasured_row: bool,
        /// Predicted seconds until the case is measured.
        #[serde(skip_serializing_if = "Option::is_none")]
        end_s: Option<f64>,
        /// Reason why the case is not measured before the deadline.
        #[serde(skip_serializing_if = "Option::is_none")]
        not_launched: Option<&'a str>,
    },
    Forecast {
        gaps: usize,
        cases: usize,
        in_time: usize,
        seconds: f64,
        /// Number of gaps that no case closes, by what would close them.
        not_filled: BTreeMap<&'static str, usize>,
        reasons: BTreeMap<&'static str, Vec<String>>,
        in_part: usize,
        unmeasured_rows: usize,
        m5_before: Option<f64>,
        m5_forecast: Option<f64>,
    },
}

/// Returns the records of a preview.
pub(crate) fn fill_records<'a>(preview: &'a FillPreview<'_>) -> Vec<FillRecord<'a>> {
    let cases = preview.fill.needed().zip(&preview.ends).map(|(case, end)| FillRecord::Case {
        case: case.case.id().as_str(),
        kernel: case.case.kernel.as_str(),
        inputs: case.case.shapes(),
        time_us: case.value / 1e3,
        unmeasured_row: preview.fill.unmeasured.contains(case.case.id()),
        end_s: end.as_ref().ok().copied(),
        not_launched: end.as_ref().err().map(NotMeasured::reason),
    });
    let open = not_filled(preview);
    let forecast = FillRecord::Forecast {
        gaps: preview.gaps.len(),
        cases: preview.ends.len(),
        in_time: in_time(preview),
        seconds: preview.seconds,
        not_filled: open.iter().map(|(kind, open)| (*kind, open.count)).collect(),
        reasons: open.into_iter().map(|(kind, open)| (kind, open.reasons)).collect(),
        in_part: gaps_in_part(preview),
        unmeasured_rows: preview.fill.unmeasured.len(),
        m5_before: preview.share_before,
        m5_forecast: preview.share_forecast,
    };
    cases.chain([forecast]).collect()
}

/// Result of a fill in JSON.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct FillResult {
    /// Number of rows that were added.
    pub(crate) added: usize,
    /// Number of runs that measured rows of the workloads further.
    pub(crate) further_runs: usize,
    /// M5 of all workloads together; null without times.
    pub(crate) m5_before: Option<f64>,
    pub(crate) m5_forecast: Option<f64>,
    pub(crate) m5_after: Option<f64>,
}

/// Returns the line about what a fill has reached.
pub(crate) fn fill_result_text(result: &FillResult) -> String {
    let FillResult { added, further_runs, m5_before, m5_forecast, m5_after } = *result;
    let further = match further_runs {
        0 => String::new(),
        1 => ", rows of the workloads were measured further in 1 run".to_owned(),
        runs => format!(", rows of the workloads were measured further in {runs} runs"),
    };
    format!(
        "{} added; M5 {} before, {} expected, {} reached{further}\n",
        format_count(added, "row"),
        percent(m5_before),
        percent(m5_forecast),
        percent(m5_after)
    )
}
