//! Table of `npubench plan`: cases by kernel, predicted duration, and reasons of cases that would not be measured.

use std::collections::BTreeMap;

use super::{
    summary_tables::{align_right, plain_table},
    text::format_count,
    timestamp::format_duration,
};
use crate::domain::KernelName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlannedAction {
    Measured,
    /// The case would not be started in time, or needs more devices; with the reason.
    NotInTime(String),
    /// The case would not be launched; with verdict and reason.
    NotLaunched(String),
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
pub(crate) fn plan_table(cases: &[(&KernelName, PlannedAction)], totals: PlanTotals) -> String {
    let mut lines: BTreeMap<&KernelName, PlanLine> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, BTreeMap<&KernelName, usize>> = BTreeMap::new();
    for (kernel, action) in cases {
        let line = lines.entry(kernel).or_default();
        match action {
            PlannedAction::Measured => line.measured += 1,
            PlannedAction::NotInTime(_) => line.not_in_time += 1,
            PlannedAction::NotLaunched(_) => line.not_launched += 1,
        }
        if let PlannedAction::NotInTime(reason) | PlannedAction::NotLaunched(reason) = action {
            *reasons.entry(reason).or_default().entry(kernel).or_default() += 1;
        }
    }
    let mut table = plain_table(["kernel", "to measure", "not in time", "not launched"]);
    let cell = |count: usize| if count == 0 { String::new() } else { count.to_string() };
    for (kernel, line) in &lines {
        table.add_row([
            kernel.to_string(),
            cell(line.measured),
            cell(line.not_in_time),
            cell(line.not_launched),
        ]);
    }
    let total = |of: fn(&PlanLine) -> usize| lines.values().map(of).sum::<usize>();
    let measured = total(|line| line.measured);
    let cells = [measured, total(|line| line.not_in_time), total(|line| line.not_launched)].map(cell);
    table.add_row(std::iter::once("all".to_owned()).chain(cells));
    align_right(&mut table, 1..);
    let mut text = table.trim_fmt() + "\n";
    text += &format!(
        "{} in {} on {} would take about {}; {} already measured\n",
        format_count(measured, "case"),
        format_count(totals.collections, "collection"),
        format_count(totals.devices, "device"),
        format_duration(totals.seconds),
        format_count(totals.already_measured, "case"),
    );
    if let Some(FurtherCollections { percent, least, most }) = totals.further {
        let (least, most) = (format_duration(least), format_duration(most));
        text += &format!(
            "further collections for {percent} % take from {least} to {most}, or the rest of the given time\n"
        );
    }
    if totals.equal_cases > 0 {
        let cases = format_count(totals.equal_cases, "case");
        text += &format!("{cases} with the same call as another one: each call is launched once\n");
    }
    for (reason, kernels) in reasons {
        text += &format!("{}: {reason}\n", cases_by_kernel(&kernels));
    }
    text
}

/// Formats numbers of cases: `2 cases of Add`, `5 cases of Add 2, Mul 3`.
fn cases_by_kernel(kernels: &BTreeMap<&KernelName, usize>) -> String {
    let all = format_count(kernels.values().sum(), "case");
    let each = kernels.iter().map(|(kernel, count)| match kernels.len() {
        1 => kernel.to_string(),
        _ => format!("{kernel} {count}"),
    });
    format!("{all} of {}", each.collect::<Vec<_>>().join(", "))
}
