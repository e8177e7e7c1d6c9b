//! Audits against the density standard: a table and JSON lines.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

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

/// An audited axis of a kernel in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AxisRecord<'a> {
    axis: &'a str,
    complete: bool,
    gaps: Vec<GapRecord>,
    greatest: Option<i64>,
    groups: Option<GroupsRecord<'a>>,
    kernel: &'a str,
    least: Option<i64>,
    measured_rows: usize,
    missing: &'a [i64],
    missing_ends: &'a [i64],
    missing_required: &'a [i64],
    planned: &'a [i64],
    planned_rows: usize,
    proposed: &'a [i64],
    standard: &'a str,
    unread_rows: usize,
    values: usize,
}

#[derive(Serialize, JsonSchema)]
struct GapRecord {
    allowed: String,
    from: i64,
    to: i64,
}

/// Numbers of all and of complete groups, and the incomplete ones.
#[derive(Serialize, JsonSchema)]
struct GroupsRecord<'a> {
    complete: usize,
    incomplete: Vec<GroupRecord<'a>>,
    names: Vec<&'a str>,
    total: usize,
}

#[derive(Serialize, JsonSchema)]
struct GroupRecord<'a> {
    key: &'a [i64],
    proposed: &'a [i64],
    values: usize,
}

/// Returns a record for each axis.
pub(crate) fn axis_records<'a>(kernels: &'a [KernelAudit<'a>]) -> Vec<AxisRecord<'a>> {
    let axes = kernels.iter().flat_map(|audit| audit.axes.iter().map(move |axis| (audit, axis)));
    axes.map(|(audit, axis)| AxisRecord {
        axis: &axis.axis.name,
        complete: axis.is_complete(),
        gaps: axis.shortfall.gaps.iter().map(GapRecord::new).collect(),
        greatest: axis.range.map(|range| range.1),
        groups: (!axis.groups.is_empty()).then(|| GroupsRecord::new(axis)),
        kernel: audit.kernel.as_str(),
        least: axis.range.map(|range| range.0),
        measured_rows: audit.measured,
        missing: &axis.shortfall.points,
        missing_ends: &axis.shortfall.ends,
        missing_required: &axis.shortfall.required,
        planned: &axis.planned,
        planned_rows: audit.planned,
        proposed: &axis.proposed,
        standard: &axis.axis.standard.name,
        unread_rows: audit.unread,
        values: axis.values,
    })
    .collect()
}

impl GapRecord {
    fn new(gap: &AxisGap) -> Self {
        Self { allowed: gap.allowed.to_string(), from: gap.from, to: gap.to }
    }
}

impl<'a> GroupsRecord<'a> {
    fn new(axis: &'a AxisAudit<'a>) -> Self {
        let incomplete = axis.groups.iter().filter(|group| !group.is_complete);
        let record = |group: &'a AxisGroup| GroupRecord {
            key: &group.key,
            proposed: &group.proposed,
            values: group.values,
        };
        Self {
            complete: count_complete(&axis.groups),
            incomplete: incomplete.map(record).collect(),
            names: group_names(axis),
            total: axis.groups.len(),
        }
    }
}
