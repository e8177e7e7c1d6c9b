//! A plan as a table: what would be measured, by kernel, and how long it would take.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets::NOTHING};

use super::{text::plural, timestamp::span};
use crate::domain::KernelName;

/// What becomes of a case of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedAction {
    /// It would be measured.
    Measured,
    /// There is no time, or no device, for it.
    Left(String),
    /// It is not launched at all.
    Refused(String),
}

/// What a plan comes to.
#[derive(Clone, Copy, Debug)]
pub struct PlanTotals {
    /// Collections.
    pub collections: usize,
    /// Devices that would be used.
    pub devices: usize,
    /// Seconds that it would take.
    pub seconds: f64,
    /// Cases that have a result already.
    pub already_measured: usize,
}

#[derive(Default)]
struct PlanLine {
    measured: usize,
    left: usize,
    refused: usize,
}

/// The cases of a plan by kernel, then what it comes to and what is left out.
#[must_use]
pub fn plan_table(cases: &[(&KernelName, PlannedAction)], sum: PlanTotals) -> String {
    let mut lines: BTreeMap<&KernelName, PlanLine> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (kernel, fate) in cases {
        let line = lines.entry(kernel).or_default();
        match fate {
            PlannedAction::Measured => line.measured += 1,
            PlannedAction::Left(_) => line.left += 1,
            PlannedAction::Refused(_) => line.refused += 1,
        }
        if let PlannedAction::Left(reason) | PlannedAction::Refused(reason) = fate {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["kernel", "measured", "not in time", "refused"]);
    let shown = |count: usize| if count == 0 { String::new() } else { count.to_string() };
    for (kernel, line) in &lines {
        table.add_row([kernel.to_string(), shown(line.measured), shown(line.left), shown(line.refused)]);
    }
    let all = |of: fn(&PlanLine) -> usize| lines.values().map(of).sum::<usize>();
    let measured = all(|line| line.measured);
    let cells = [measured, all(|line| line.left), all(|line| line.refused)].map(shown);
    table.add_row(std::iter::once("all".to_owned()).chain(cells));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = table.trim_fmt() + "\n";
    text += &format!(
        "{} in {} on {} would take about {}; {} measured already\n",
        plural(measured, "case"),
        plural(sum.collections, "collection"),
        plural(sum.devices, "device"),
        span(sum.seconds),
        plural(sum.already_measured, "case"),
    );
    for (reason, count) in reasons {
        text += &format!("{}: {reason}\n", plural(count, "case"));
    }
    text
}
