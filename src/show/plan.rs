//! `npubench plan`: cases by kernel, predicted duration, and reasons of cases that would not be measured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    base::count_text::format_count,
    cases::plan::{InitialCosts, RunPlan},
    kernel::{
        CacheState, CaseOutcome, Cause, IdentifiedCase, KernelName, Verdict,
        timestamp::{Timestamp, format_duration},
    },
    measure::engine::PlanPreview,
    show::table::{FittedColumn, FittedRow, FittedTable},
};

/// A case of a plan in JSON. A case has no keys without a value.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct PlannedCaseRecord<'a> {
    case: &'a str,
    kernel: &'a str,
    inputs: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_s: Option<f64>,
    /// Case with the same call whose launches it shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    launched_as: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    /// Reason why the case would not be launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_launched: Option<String>,
    /// Name of the cause of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheState>,
}

/// Returns the cases of a plan, with the state of the cache if it is given: scheduled cases in the order of the plan, each
/// followed by those that share its launches, then cases that are not launched.
pub(crate) fn planned_cases<'a>(
    plan: &'a RunPlan,
    preview: &PlanPreview,
    costs: &InitialCosts,
    cache: Option<CacheState>,
) -> Vec<PlannedCaseRecord<'a>> {
    let record = |case: &'a IdentifiedCase| PlannedCaseRecord {
        case: case.id().as_str(),
        kernel: case.kernel.as_str(),
        inputs: case.shapes(),
        cache,
        ..PlannedCaseRecord::default()
    };
    let scheduled = plan.cases.iter().zip(&preview.cases).flat_map(|(planned, slot)| {
        planned.cases().map(move |case| {
            let is_launched = case.id() == planned.case.id();
            let cost = if is_launched { costs.case_seconds(planned.predicted_launch()) } else { 0.0 };
            PlannedCaseRecord {
                weight: Some(planned.value),
                cost_s: Some(cost),
                launched_as: (!is_launched).then(|| planned.case.id().as_str()),
                collection: slot.as_ref().ok().map(|slot| slot.collection),
                device: slot.as_ref().ok().map(|slot| slot.device),
                start_s: slot.as_ref().ok().map(|slot| slot.starts_at),
                end_s: slot.as_ref().ok().map(|slot| slot.ends_at),
                not_launched: slot.as_ref().err().map(ToString::to_string),
                cause: slot.as_ref().err().map(Cause::name),
                ..record(case)
            }
        })
    });
    let others = plan.not_launched.iter().map(|(case, outcome)| PlannedCaseRecord {
        verdict: Some(outcome.verdict),
        not_launched: Some(format!("{}: {}", outcome.verdict, outcome.reason)),
        cause: Some(outcome.reason.cause.name()),
        ..record(case)
    });
    scheduled.chain(others).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlannedAction {
    Measured,
    /// The case would not be started in time, or needs more devices.
    NotInTime(Cause),
    /// The case would not be launched.
    NotLaunched(CaseOutcome),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanTotals {
    pub collections: usize,
    pub devices: usize,
    /// Predicted duration in seconds.
    pub seconds: f64,
    /// Number of cases that already have a result.
    pub already_measured: usize,
    /// Number of measured cases that share the launches of another one with the same call.
    pub equal_cases: usize,
    /// Further collections; `None` if each case has one.
    pub further: Option<FurtherCollections>,
    /// Given time in seconds; `None` without a deadline.
    pub budget: Option<f64>,
    /// Seconds until the start, such as those of the state of the cache that is measured before.
    pub starts_in: f64,
    /// True if another state of the cache takes the time that this one does not use.
    pub is_followed: bool,
    /// Shares of the recorded time of the rows; `None` if no row has one.
    pub recorded: Option<RecordedShares>,
}

impl PlanTotals {
    /// Returns the seconds of the given time that the run does not use, even with all further collections.
    fn unused_seconds(&self) -> Option<f64> {
        if self.is_followed {
            return None;
        }
        let most = self.further.map_or(0.0, |further| further.most);
        self.budget.map(|budget| budget - self.seconds - most).filter(|unused| *unused > 0.0)
    }
}

/// Shares of the time of the production records of a plan's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedShares {
    pub to_measure: f64,
    pub not_in_time: f64,
    pub not_launched: f64,
}

/// Predicted time of the collections after the first of each case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FurtherCollections {
    pub percent: f64,
    /// Seconds of the cases that are measured again in any case.
    pub least: f64,
    /// Seconds if every case needs the maximum number of collections.
    pub most: f64,
}

#[derive(Default)]
struct PlanLine {
    measured: usize,
    not_in_time: usize,
    not_launched: usize,
}

/// Returns the cases of a plan by kernel, then the totals, and the reasons of cases that would not be measured.
pub(crate) fn plan_table(
    cases: &[(&KernelName, PlannedAction)],
    totals: PlanTotals,
    now: Timestamp,
    width: Option<usize>,
) -> String {
    let mut lines: BTreeMap<&KernelName, PlanLine> = BTreeMap::new();
    let mut groups: BTreeMap<String, SimilarCauses<'_>> = BTreeMap::new();
    for (kernel, action) in cases {
        let line = lines.entry(kernel).or_default();
        match action {
            PlannedAction::Measured => line.measured += 1,
            PlannedAction::NotInTime(_) => line.not_in_time += 1,
            PlannedAction::NotLaunched(_) => line.not_launched += 1,
        }
        let (group, text) = match action {
            PlannedAction::Measured => continue,
            PlannedAction::NotInTime(cause) => (cause.group().join(" "), cause.to_string()),
            PlannedAction::NotLaunched(CaseOutcome { verdict, reason }) => {
                (format!("{verdict} {}", reason.cause.group().join(" ")), format!("{verdict}: {reason}"))
            }
        };
        let similar = groups.entry(group).or_insert_with(|| SimilarCauses {
            first: text.clone(),
            differ: false,
            kernels: BTreeMap::new(),
        });
        similar.differ |= similar.first != text;
        *similar.kernels.entry(kernel).or_default() += 1;
    }
    let names = ["to measure", "not in time", "not launched"];
    let mut columns = vec![FittedColumn::text("kernel", 0).shortened_to(8)];
    columns.extend(names.map(|name| FittedColumn::number(name, 0)));
    let mut rows: Vec<FittedRow> = Vec::new();
    let cell = |count: usize| if count == 0 { String::new() } else { count.to_string() };
    for (kernel, line) in &lines {
        let cells = [line.measured, line.not_in_time, line.not_launched].map(cell);
        rows.push(FittedRow::from_cells(&[&[kernel.to_string()], &cells[..]].concat()));
    }
    let total = |of: fn(&PlanLine) -> usize| lines.values().map(of).sum::<usize>();
    let measured = total(|line| line.measured);
    let cells = [measured, total(|line| line.not_in_time), total(|line| line.not_launched)].map(cell);
    rows.push(FittedRow::from_cells(&[&["all".to_owned()], &cells[..]].concat()));
    let mut text = match cases {
        [] => String::new(),
        _ => FittedTable { columns, rows, ..FittedTable::default() }.print(width, false),
    };
    let already_measured = format_count(totals.already_measured, "case");
    text += &match measured {
        0 => format!("no case would be measured; {already_measured} already measured\n"),
        _ => format!(
            "{} in {} on {} would take about {}; {already_measured} already measured\n",
            format_count(measured, "case"),
            format_count(totals.collections, "collection"),
            format_count(totals.devices, "device"),
            format_duration(totals.seconds),
        ),
    };
    if let Some(FurtherCollections { percent, least, most }) = totals.further {
        let (least, most) = (format_duration(least), format_duration(most));
        text += &format!(
            "further collections for {percent} % take from {least} to {most}, or the rest of the given time\n"
        );
    }
    text += &time_lines(&totals, now, measured > 0);
    if totals.equal_cases > 0 {
        let cases = format_count(totals.equal_cases, "case");
        text += &format!("{cases} with the same call as another one: each call is launched once\n");
    }
    for SimilarCauses { first, differ, kernels } in groups.into_values() {
        let such_as = if differ { ", such as" } else { "" };
        text += &format!("{}{such_as}: {first}\n", cases_by_kernel(&kernels));
    }
    text
}

/// Returns lines about the end of the run, the rest of the given time, and the share of the recorded time.
fn time_lines(totals: &PlanTotals, now: Timestamp, is_measuring: bool) -> String {
    let mut text = String::new();
    if let Some(budget) = totals.budget {
        let [ends, limit] = [totals.seconds, budget]
            .map(|seconds| now.plus_seconds(totals.starts_in + seconds).local_date_time());
        text += &match is_measuring {
            true => format!("the first collections end at about {ends}; the given time ends at {limit}\n"),
            false => format!("the given time ends at {limit}\n"),
        };
    }
    if let Some(unused) = totals.unused_seconds().filter(|unused| *unused >= 60.0) {
        text += &format!(
            "{} of it stay unused: `run` takes more with a smaller `--precision` or a greater `--max-collections`, `--update all` \
             measures all rows again, and `npubench fill` and `npubench adapt` measure cases that the database lacks\n",
            format_duration(unused)
        );
    }
    // Rounded, a share of 0.00 % is nothing.
    let is_shown = |share: f64| share >= 5e-5;
    if let Some(RecordedShares { to_measure, not_in_time, not_launched }) =
        totals.recorded.filter(|recorded| is_shown(1.0 - recorded.to_measure))
    {
        let measured = (1.0 - to_measure - not_in_time - not_launched).max(0.0);
        let shares = [
            (to_measure, "to measure"),
            (not_in_time, "not in time"),
            (not_launched, "not launched"),
            (measured, "already measured"),
        ];
        let shares = shares.into_iter().filter(|(share, _)| is_shown(*share));
        let shares: Vec<String> =
            shares.map(|(share, name)| format!("{:.2} % {name}", 100.0 * share)).collect();
        text += &format!("of the recorded time of the rows: {}\n", shares.join(", "));
    }
    text
}

/// Cases with causes of one group.
struct SimilarCauses<'a> {
    /// Text of the first one.
    first: String,
    /// True if there are several texts.
    differ: bool,
    kernels: BTreeMap<&'a KernelName, usize>,
}

/// Formats numbers of cases: `2 cases of Add`, `5 cases of Add 2, Mul 3`.
fn cases_by_kernel(kernels: &BTreeMap<&KernelName, usize>) -> String {
    let all = format_count(kernels.values().sum::<usize>(), "case");
    let each = kernels.iter().map(|(kernel, count)| match kernels.len() {
        1 => kernel.to_string(),
        _ => format!("{kernel} {count}"),
    });
    format!("{all} of {}", each.collect::<Vec<_>>().join(", "))
}
