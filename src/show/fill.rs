//! Fills: the cases that close gaps, the forecast, and the coverage that was reached.

use indexmap::IndexSet;

use super::prelude::*;
use crate::answer::{
    coverage::{FillCase, FilledBy},
    fill::{FillOutcome, FillPreview, NotMeasured},
};

const SHOWN_CASES: usize = 40;
const SHOWN_REASONS: usize = 8;

fn not_filled<'a>(preview: &'a FillPreview<'_>) -> BTreeMap<&'static str, Vec<&'a CoverageGap<'a>>> {
    let mut by_kind: BTreeMap<&'static str, Vec<&CoverageGap<'_>>> = BTreeMap::new();
    let gaps = preview.gaps.iter().zip(&preview.fill.filled_by);
    for (gap, _) in gaps.filter(|(_, filled_by)| **filled_by == FilledBy::Nothing) {
        by_kind.entry(gap.closing.kind()).or_default().push(gap);
    }
    by_kind
}

fn open_reasons(gaps: &[&CoverageGap<'_>]) -> Vec<String> {
    let reasons = gaps.iter().map(|gap| format!("{}: {}", gap.query.op, gap.closing));
    reasons.collect::<IndexSet<String>>().into_iter().collect()
}

fn in_time(preview: &FillPreview<'_>) -> usize {
    preview.ends.iter().filter(|end| end.is_ok()).count()
}

fn gaps_in_part(preview: &FillPreview<'_>) -> usize {
    preview.fill.filled_by.iter().filter(|by| matches!(by, FilledBy::Part(_))).count()
}

pub(crate) fn fill_text(report: &FillPreview<'_>, width: Option<usize>) -> String {
    let cases: Vec<_> = report.fill.needed().zip(&report.ends).collect();
    let unmeasured = report.fill.cases.iter().filter(|case| report.fill.unmeasured.contains(case.case.id()));
    let all = report.gaps.iter().filter_map(|gap| gap.time).sum::<f64>()
        + unmeasured.map(|case| case.value).sum::<f64>();
    let mut text = Table::new(cases.iter().take(SHOWN_CASES))
        .text("kernel", rank(0).min(12), |(case, _)| &case.case.kernel)
        .text("inputs", rank(0).min(16).wanted(24), |(case, _)| case.case.shapes())
        .number("part of the missing time", 1, |(case, _)| percent((all > 0.0).then(|| case.value / all)))
        .text("measured after", rank(2).min(14), |(_, end)| match end {
            Ok(seconds) => format_duration(*seconds),
            Err(not_measured) => not_measured.reason.clone(),
        })
        .text("case", 3, |(case, _)| case.case.id())
        .print(width);
    if cases.len() > SHOWN_CASES {
        text += &format!("{} further cases\n", cases.len() - SHOWN_CASES);
    }
    if !cases.is_empty() {
        text += "\n";
    }
    for (kind, open) in not_filled(report) {
        let reasons = open_reasons(&open);
        let share = open.iter().filter_map(|gap| gap.share).reduce(|sum, share| sum + share);
        let share = or_empty(share.map(|share| format!(" of {} of the time", percent(Some(share)))));
        text += &format!("{}{share} without a case ({kind}):\n", format_count(open.len(), "gap"));
        text.extend(reasons.iter().take(SHOWN_REASONS).map(|reason| format!("  {reason}\n")));
        if reasons.len() > SHOWN_REASONS {
            text += &format!("  {} more: `npubench coverage` lists them\n", reasons.len() - SHOWN_REASONS);
        }
    }
    let in_part = gaps_in_part(report);
    if in_part > 0 {
        let composites = format_count(in_part, "composite");
        text += &format!("{composites} with other parts that may be missing: not in the expected share\n");
    }
    let unmeasured = report.fill.unmeasured.len();
    if unmeasured > 0 {
        let (rows, have) = (format_count(unmeasured, "row"), if unmeasured == 1 { "has" } else { "have" });
        text += &format!(
            "{rows} {have} durations of production profiles only: they count in M5, and are measured as well\n"
        );
    }
    let between = report.fill.cases.len() - cases.len();
    if between > 0 {
        let between = format_count(between, "case");
        text += &format!("{between} answered between these, measured if time is left\n");
    }
    text + &format!(
        "{} of {} in {}: M5 {} before, {} expected\n",
        in_time(report),
        format_count(cases.len(), "case"),
        format_duration(report.seconds),
        percent(report.share_before),
        percent(report.share_forecast)
    )
}

record! {
    CaseRecord<'a>(case: &'a FillCase, end: &'a Result<f64, NotMeasured>, preview: &'a FillPreview<'a>) {
        case: &'a str = case.case.id().as_str(),
        kernel: &'a str = case.case.kernel.as_str(),
        inputs: String = case.case.shapes(),
        time_us: f64 = case.value / 1e3,
        /// True for a row that has a duration of production profiles only.
        unmeasured_row: bool = preview.fill.unmeasured.contains(case.case.id()),
        #[serde(skip_serializing_if = "Option::is_none")]
        end_s: Option<f64> = end.as_ref().ok().copied(),
        #[serde(skip_serializing_if = "Option::is_none")]
        not_launched: Option<&'a str> = end.as_ref().err().map(|end| end.reason.as_str()),
    }
}

record! {
    ForecastRecord(preview: &FillPreview<'_>) with { let open = not_filled(preview); } {
        gaps: usize = preview.gaps.len(),
        cases: usize = preview.ends.len(),
        in_time: usize = in_time(preview),
        seconds: f64 = preview.seconds,
        not_filled: BTreeMap<&'static str, usize> = open.iter().map(|(kind, open)| (*kind, open.len())).collect(),
        reasons: BTreeMap<&'static str, Vec<String>> =
            open.into_iter().map(|(kind, open)| (kind, open_reasons(&open))).collect(),
        in_part: usize = gaps_in_part(preview),
        unmeasured_rows: usize = preview.fill.unmeasured.len(),
        m5_before: Option<f64> = preview.share_before,
        m5_forecast: Option<f64> = preview.share_forecast,
    }
}

pub(crate) fn fill_records(preview: &FillPreview<'_>) -> Vec<Box<RawValue>> {
    let cases = preview.fill.needed().zip(&preview.ends);
    let cases = cases.map(|(case, end)| json_record(&CaseRecord::new(case, end, preview)));
    cases.chain([json_record(&ForecastRecord::new(preview))]).collect()
}

record! {
    pub(crate) FillResult(outcome: &FillOutcome, preview: &FillPreview<'_>, m5_after: Option<f64>) {
        added: usize = outcome.added,
        further_runs: usize = outcome.further_runs,
        /// M5 of all workloads together; null without times.
        m5_before: Option<f64> = preview.share_before,
        m5_forecast: Option<f64> = preview.share_forecast,
        m5_after: Option<f64> = m5_after,
    }
}

pub(crate) fn fill_result_text(result: &FillResult) -> String {
    let FillResult { added, further_runs, m5_before, m5_forecast, m5_after } = *result;
    let runs = format_count(further_runs, "run");
    let further =
        (further_runs > 0).then(|| format!(", rows of the workloads were measured further in {runs}"));
    let further = or_empty(further);
    format!(
        "{} added; M5 {} before, {} expected, {} reached{further}\n",
        format_count(added, "row"),
        percent(m5_before),
        percent(m5_forecast),
        percent(m5_after)
    )
}
