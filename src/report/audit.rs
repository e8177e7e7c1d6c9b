//! Where values fall short of the density standard: a table, and JSON lines.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde_json::{Value, json};

use crate::{
    domain::KernelName,
    grid::{AxisAudit, AxisGap, AxisGroup, KernelAudit},
};

/// One kernel.
#[derive(Debug)]
pub struct AuditRow<'a> {
    /// The kernel.
    pub kernel: &'a KernelName,
    /// Its cases.
    pub audit: &'a KernelAudit<'a>,
    /// Its axes, judged.
    pub axes: &'a [AxisAudit<'a>],
}

/// So many numbers of a list stand in a table; JSON has all.
const SHOWN: usize = 4;
/// So many groups that lack most are named.
const WORST: usize = 3;

/// A row for each axis, with a line for each of its worst groups below.
#[must_use]
pub fn audit_table(kernels: &[AuditRow<'_>]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header([
        "kernel",
        "axis",
        "values",
        "range",
        "planned",
        "gaps that are too wide",
        "points to add",
    ]);
    for AuditRow { kernel, axes, .. } in kernels {
        for axis in *axes {
            let [values, range] = [axis.values.to_string(), range(axis)];
            let planned =
                if axis.planned.is_empty() { String::new() } else { axis.planned.len().to_string() };
            let name = axis.axis.name.clone();
            let gaps = listed(&missing(axis));
            table.add_row([kernel.to_string(), name, values, range, planned, gaps, points(&axis.proposed)]);
            if axis.groups.is_empty() {
                continue;
            }
            let name = format!("{} by {}", axis.axis.name, names(axis).join(","));
            let [complete, of] = [complete(&axis.groups), axis.groups.len()];
            let empty = String::new;
            let row =
                [kernel.to_string(), name, empty(), empty(), empty(), format!("{complete} of {of} complete")];
            table.add_row(row);
            for group in worst(&axis.groups) {
                let plural = if group.values == 1 { "" } else { "s" };
                let key = format!("{}: {} value{plural}", key(axis, group), group.values);
                let row = [empty(), empty(), empty(), empty(), empty(), key, points(&group.proposed)];
                table.add_row(row);
            }
        }
    }
    for column in [2, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.trim_fmt();
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn range(axis: &AxisAudit<'_>) -> String {
    axis.range.map_or_else(String::new, |(least, greatest)| format!("{least}..{greatest}"))
}

/// Ends, required points and gaps in words.
fn missing(axis: &AxisAudit<'_>) -> Vec<String> {
    let short = &axis.shortfall;
    let mut words = Vec::new();
    for (what, points) in [("no end", &short.ends), ("without", &short.required)] {
        if !points.is_empty() {
            words.push(format!("{what} {}", listed(&texts(points))));
        }
    }
    words
        .extend(short.gaps.iter().map(|AxisGap { from, to, allowed }| format!("{from} to {to} ({allowed})")));
    words
}

fn texts(numbers: &[i64]) -> Vec<String> {
    numbers.iter().map(ToString::to_string).collect()
}

/// The first words of a list, and how many more there are.
fn listed(words: &[String]) -> String {
    let mut text = words.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if words.len() > SHOWN {
        let _ = write!(text, " and {} more", words.len() - SHOWN);
    }
    text
}

fn points(points: &[i64]) -> String {
    match points.len() {
        0 => String::new(),
        count => format!("{count}: {}", listed(&texts(points))),
    }
}

fn complete(groups: &[AxisGroup]) -> usize {
    groups.iter().filter(|group| group.is_complete).count()
}

fn worst(groups: &[AxisGroup]) -> impl Iterator<Item = &AxisGroup> {
    groups.iter().filter(|group| !group.is_complete).take(WORST)
}

fn names<'a>(axis: &AxisAudit<'a>) -> Vec<&'a str> {
    axis.axis.group_names().collect()
}

fn key(axis: &AxisAudit<'_>, group: &AxisGroup) -> String {
    let pairs = names(axis).into_iter().zip(&group.key).map(|(name, value)| format!("{name} {value}"));
    pairs.collect::<Vec<_>>().join(", ")
}

/// A line of JSON for each axis.
#[must_use]
pub fn audit_json(kernels: &[AuditRow<'_>]) -> String {
    let mut text = String::new();
    for AuditRow { kernel, audit, axes } in kernels {
        for axis in *axes {
            let short = &axis.shortfall;
            let object = json!({
                "kernel": kernel.as_str(), "axis": axis.axis.name, "standard": axis.axis.standard.name,
                "measured_rows": audit.measured, "planned_rows": audit.planned, "unread_rows": audit.unread,
                "least": axis.range.map(|range| range.0), "greatest": axis.range.map(|range| range.1),
                "values": axis.values, "planned": axis.planned, "missing_ends": short.ends,
                "missing_required": short.required, "gaps": gaps(&short.gaps), "missing": short.points,
                "proposed": axis.proposed, "groups": groups(axis), "complete": axis.is_complete(),
            });
            let _ = writeln!(text, "{object}");
        }
    }
    text
}

fn gaps(gaps: &[AxisGap]) -> Vec<Value> {
    let gaps = gaps.iter();
    gaps.map(|AxisGap { from, to, allowed }| json!({"from": from, "to": to, "allowed": allowed.to_string()}))
        .collect()
}

/// How many there are, how many are complete, and those that are not.
fn groups(axis: &AxisAudit<'_>) -> Value {
    if axis.groups.is_empty() {
        return Value::Null;
    }
    let incomplete = axis.groups.iter().filter(|group| !group.is_complete);
    let incomplete: Vec<Value> = incomplete
        .map(|group| json!({"key": group.key, "values": group.values, "proposed": group.proposed}))
        .collect();
    json!({
        "names": names(axis), "total": axis.groups.len(), "complete": complete(&axis.groups),
        "incomplete": incomplete,
    })
}
