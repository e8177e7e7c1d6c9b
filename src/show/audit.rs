//! Audits against the density standard: a table and JSON lines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    cases::grid::{AxisAudit, AxisGap, AxisGroup, KernelAudit},
    show::table::{DETAIL, FittedColumn, FittedRow, FittedTable},
};

/// Numbers of a list that the table shows; JSON has all.
const SHOWN: usize = 4;
/// Incomplete groups that the table shows.
const WORST: usize = 3;

/// Formats a row for each axis, and below it a line for each of its worst groups.
pub(crate) fn audit_table(kernels: &[KernelAudit<'_>], width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(8),
        FittedColumn::text("axis", 0).shortened_to(8),
        FittedColumn::number("values", DETAIL),
        FittedColumn::text("range", DETAIL),
        FittedColumn::number("planned", DETAIL),
        FittedColumn::text("gaps that are too wide", 0).shortened_to(14).wanted(24).with_long_header(),
        FittedColumn::text("points to add", 0).shortened_to(16).wanted(20),
    ];
    let mut rows = Vec::new();
    let empty = String::new;
    for KernelAudit { kernel, axes, .. } in kernels {
        for axis in axes {
            let [values, range] = [axis.values.to_string(), format_range(axis)];
            let planned =
                if axis.planned.is_empty() { String::new() } else { axis.planned.len().to_string() };
            let (name, points) = (axis.axis.name.clone(), format_points(&axis.proposed));
            let gaps = shorten_list(&format_missing(axis));
            rows.push([kernel.to_string(), name, values, range, planned, gaps, points]);
            if axis.groups.is_empty() {
                continue;
            }
            let name = format!("{} by {}", axis.axis.name, group_names(axis).join(","));
            let [complete, of] = [count_complete(&axis.groups), axis.groups.len()];
            let complete = format!("{complete} of {of} complete");
            rows.push([kernel.to_string(), name, empty(), empty(), empty(), complete, empty()]);
            for group in worst_groups(&axis.groups) {
                let plural = if group.values == 1 { "" } else { "s" };
                let key = format!("{}: {} value{plural}", format_key(axis, group), group.values);
                rows.push([empty(), empty(), empty(), empty(), empty(), key, format_points(&group.proposed)]);
            }
        }
    }
    let rows = rows.iter().map(|cells| FittedRow::from_cells(cells)).collect();
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

fn format_range(axis: &AxisAudit<'_>) -> String {
    axis.range.map_or_else(String::new, |(least, greatest)| format!("{least}..{greatest}"))
}

/// Formats missing endpoints, required points and gaps.
fn format_missing(axis: &AxisAudit<'_>) -> Vec<String> {
    let short = &axis.shortfall;
    let mut parts = Vec::new();
    for (label, points) in [("missing endpoints", &short.ends), ("missing", &short.required)] {
        if !points.is_empty() {
            parts.push(format!("{label} {}", shorten_list(&to_texts(points))));
        }
    }
    parts
        .extend(short.gaps.iter().map(|AxisGap { from, to, allowed }| format!("{from} to {to} ({allowed})")));
    parts
}

fn to_texts(numbers: &[i64]) -> Vec<String> {
    numbers.iter().map(ToString::to_string).collect()
}

/// Formats the first items of a list, and the number of the others.
fn shorten_list(items: &[String]) -> String {
    let mut text = items.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if items.len() > SHOWN {
        let _ = write!(text, " and {} more", items.len() - SHOWN);
    }
    text
}

fn format_points(points: &[i64]) -> String {
    match points.len() {
        0 => String::new(),
        count => format!("{count}: {}", shorten_list(&to_texts(points))),
    }
}

fn count_complete(groups: &[AxisGroup]) -> usize {
    groups.iter().filter(|group| group.is_complete).count()
}

fn worst_groups(groups: &[AxisGroup]) -> impl Iterator<Item = &AxisGroup> {
    groups.iter().filter(|group| !group.is_complete).take(WORST)
}

fn group_names<'a>(axis: &AxisAudit<'a>) -> Vec<&'a str> {
    axis.axis.group_names().collect()
}

fn format_key(axis: &AxisAudit<'_>, group: &AxisGroup) -> String {
    let pairs = group_names(axis).into_iter().zip(&group.key).map(|(name, value)| format!("{name} {value}"));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Formats a line of JSON for each axis.
pub(crate) fn audit_json(kernels: &[KernelAudit<'_>]) -> String {
    let mut text = String::new();
    for audit in kernels {
        for axis in &audit.axes {
            let short = &axis.shortfall;
            let object = json!({
                "kernel": audit.kernel.as_str(), "axis": axis.axis.name, "standard": axis.axis.standard.name,
                "measured_rows": audit.measured, "planned_rows": audit.planned, "unread_rows": audit.unread,
                "least": axis.range.map(|range| range.0), "greatest": axis.range.map(|range| range.1),
                "values": axis.values, "planned": axis.planned, "missing_ends": short.ends,
                "missing_required": short.required, "gaps": gaps_json(&short.gaps), "missing": short.points,
                "proposed": axis.proposed, "groups": groups_json(axis), "complete": axis.is_complete(),
            });
            let _ = writeln!(text, "{object}");
        }
    }
    text
}

fn gaps_json(gaps: &[AxisGap]) -> Vec<Value> {
    let gaps = gaps.iter();
    gaps.map(|AxisGap { from, to, allowed }| json!({"from": from, "to": to, "allowed": allowed.to_string()}))
        .collect()
}

/// Returns the numbers of all and of complete groups, and the incomplete ones.
fn groups_json(axis: &AxisAudit<'_>) -> Value {
    if axis.groups.is_empty() {
        return Value::Null;
    }
    let incomplete = axis.groups.iter().filter(|group| !group.is_complete);
    let incomplete: Vec<Value> = incomplete
        .map(|group| json!({"key": group.key, "values": group.values, "proposed": group.proposed}))
        .collect();
    json!({
        "names": group_names(axis), "total": axis.groups.len(), "complete": count_complete(&axis.groups),
        "incomplete": incomplete,
    })
}
