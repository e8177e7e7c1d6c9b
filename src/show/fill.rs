//! Fills: the cases that close gaps, the forecast, and the coverage that was reached.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    answer::coverage::{CoverageGap, FillCase, FillCases, FilledBy},
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CaseEnd {
    /// Seconds until the end.
    After(f64),
    /// Reason why it does not end before the deadline.
    NotInTime(String),
    /// Reason why the case cannot be launched.
    NotLaunchable(String),
}

impl CaseEnd {
    pub(crate) const fn is_in_time(&self) -> bool {
        matches!(self, Self::After(_))
    }
}

/// Cases that close the gaps of workloads, and what they are predicted to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillReport<'a> {
    pub(crate) gaps: &'a [CoverageGap<'a>],
    pub(crate) fill: &'a FillCases,
    /// Ends of the first measurements of the needed cases, in their order.
    pub(crate) ends: &'a [CaseEnd],
    /// Seconds until the last one ends.
    pub(crate) seconds: f64,
    /// M5 of all workloads together before; `None` without times.
    pub(crate) share_before: Option<f64>,
    /// M5 if all cases with an end are measured.
    pub(crate) share_forecast: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FillResult<'a> {
    pub(crate) report: &'a FillReport<'a>,
    /// M5 after the measurements.
    pub(crate) share_after: Option<f64>,
    pub(crate) added: usize,
    /// Number of runs that measured rows of the workloads further.
    pub(crate) further_runs: usize,
}

impl FillReport<'_> {
    /// Returns true if every case that can be launched is measured in time. Cases that cannot, and gaps without a case, are
    /// reported, and no measurement fails by them.
    pub(crate) fn measures_all(&self) -> bool {
        !self.ends.iter().any(|end| matches!(end, CaseEnd::NotInTime(_)))
    }

    fn in_time(&self) -> usize {
        self.ends.iter().filter(|end| end.is_in_time()).count()
    }

    /// Returns the gaps that no case closes, by what would close them.
    fn not_filled(&self) -> BTreeMap<&'static str, OpenGaps> {
        let mut by_kind: BTreeMap<&'static str, OpenGaps> = BTreeMap::new();
        let gaps = self.gaps.iter().zip(&self.fill.filled_by);
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
}

/// Gaps that no case closes, of one kind of closing.
#[derive(Debug, Default)]
struct OpenGaps {
    count: usize,
    share: f64,
    /// Operators with what would close their gaps, without repetitions.
    reasons: Vec<String>,
}

/// Returns the table of the cases, and the forecast.
pub(crate) fn fill_text(report: &FillReport<'_>, width: Option<usize>) -> String {
    let cases: Vec<(&FillCase, &CaseEnd)> = report.fill.needed().zip(report.ends).collect();
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
                CaseEnd::After(seconds) => format_duration(*seconds),
                CaseEnd::NotInTime(reason) | CaseEnd::NotLaunchable(reason) => reason.clone(),
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
    for (kind, open) in report.not_filled() {
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
    let in_part = report.fill.filled_by.iter().filter(|by| matches!(by, FilledBy::Part(_))).count();
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
        report.in_time(),
        format_count(cases.len(), "case"),
        format_duration(report.seconds),
        percent(report.share_before),
        percent(report.share_forecast)
    );
    text
}

/// Returns a JSON line for each case, and one of the forecast.
pub(crate) fn fill_json(report: &FillReport<'_>) -> String {
    let mut text = String::new();
    for (case, end) in report.fill.needed().zip(report.ends) {
        let mut line = json!({
            "case": case.case.id().as_str(), "kernel": case.case.kernel.as_str(),
            "inputs": case.case.shapes(), "time_us": case.value / 1e3,
            "unmeasured_row": report.fill.unmeasured.contains(case.case.id()),
        });
        match end {
            CaseEnd::After(seconds) => line["end_s"] = json!(seconds),
            CaseEnd::NotInTime(reason) | CaseEnd::NotLaunchable(reason) => {
                line["not_launched"] = json!(reason);
            }
        }
        text += &format!("{line}\n");
    }
    let open = report.not_filled();
    let not_filled: BTreeMap<&str, usize> = open.iter().map(|(kind, open)| (*kind, open.count)).collect();
    let reasons: BTreeMap<&str, &[String]> =
        open.iter().map(|(kind, open)| (*kind, &*open.reasons)).collect();
    let in_part = report.fill.filled_by.iter().filter(|by| matches!(by, FilledBy::Part(_))).count();
    text += &json!({
        "gaps": report.gaps.len(), "cases": report.ends.len(), "in_time": report.in_time(),
        "seconds": report.seconds, "not_filled": not_filled, "reasons": reasons, "in_part": in_part,
        "unmeasured_rows": report.fill.unmeasured.len(),
        "m5_before": report.share_before, "m5_forecast": report.share_forecast,
    })
    .to_string();
    text + "\n"
}

/// Returns the line about what a fill has reached.
pub(crate) fn fill_result_text(result: &FillResult<'_>) -> String {
    let FillResult { report, share_after, added, further_runs } = result;
    let further = match further_runs {
        0 => String::new(),
        1 => ", rows of the workloads were measured further in 1 run".to_owned(),
        runs => format!(", rows of the workloads were measured further in {runs} runs"),
    };
    format!(
        "{} added; M5 {} before, {} expected, {} reached{further}\n",
        format_count(*added, "row"),
        percent(report.share_before),
        percent(report.share_forecast),
        percent(*share_after)
    )
}

pub(crate) fn fill_result_json(result: &FillResult<'_>) -> String {
    let FillResult { report, share_after, added, further_runs } = result;
    json!({
        "added": added, "further_runs": further_runs, "m5_before": report.share_before,
        "m5_forecast": report.share_forecast, "m5_after": share_after,
    })
    .to_string()
        + "\n"
}
