//! Audits against the density standard: a table and JSON lines.

use super::prelude::*;
use crate::cases::grid::{AxisAudit, AxisGap, AxisGroup, KernelAudit};

/// Numbers of a list that the table shows; JSON has all.
const SHOWN: usize = 4;
/// Incomplete groups that the table shows.
const WORST: usize = 3;

#[derive(Default)]
struct AuditRow {
    kernel: String,
    axis: String,
    values: String,
    range: String,
    planned: String,
    gaps: String,
    points: String,
}

pub(crate) fn audit_table(kernels: &[KernelAudit<'_>], width: Option<usize>) -> String {
    let mut rows = Vec::new();
    for (audit, axis) in kernels.iter().flat_map(|audit| audit.axes.iter().map(move |axis| (audit, axis))) {
        let kernel = audit.kernel.to_string();
        rows.push(AuditRow {
            kernel: kernel.clone(),
            axis: axis.axis.name.clone(),
            values: axis.values.to_string(),
            range: or_empty(axis.range.map(|(least, greatest)| format!("{least}..{greatest}"))),
            planned: unless_zero(axis.planned.len()),
            gaps: shorten_list(&format_missing(axis)),
            points: format_points(&axis.proposed),
        });
        if axis.groups.is_empty() {
            continue;
        }
        let names: Vec<&str> = axis.axis.group_names().collect();
        let [complete, all] = [count_complete(&axis.groups), axis.groups.len()];
        rows.push(AuditRow {
            kernel,
            axis: format!("{} by {}", axis.axis.name, names.join(",")),
            gaps: format!("{complete} of {all} complete"),
            ..AuditRow::default()
        });
        for group in axis.groups.iter().filter(|group| !group.is_complete).take(WORST) {
            let key =
                joined(names.iter().zip(&group.key).map(|(name, value)| format!("{name} {value}")), ", ");
            rows.push(AuditRow {
                gaps: format!("{key}: {}", format_count(group.values, "value")),
                points: format_points(&group.proposed),
                ..AuditRow::default()
            });
        }
    }
    Table::new(&rows)
        .text("kernel", rank(0).min(8), |row| &row.kernel)
        .text("axis", rank(0).min(8), |row| &row.axis)
        .number("values", DETAIL, |row| &row.values)
        .text("range", DETAIL, |row| &row.range)
        .number("planned", DETAIL, |row| &row.planned)
        .text("gaps that are too wide", rank(0).min(14).wanted(24).with_long_header(), |row| &row.gaps)
        .text("points to add", rank(0).min(16).wanted(20), |row| &row.points)
        .print(width)
}

fn format_missing(axis: &AxisAudit<'_>) -> Vec<String> {
    let short = &axis.shortfall;
    let lists = [("missing endpoints", &short.ends), ("missing", &short.required)];
    let lists = lists.into_iter().filter(|(_, points)| !points.is_empty());
    let lists = lists.map(|(label, points)| format!("{label} {}", shorten_list(points)));
    let gaps = short.gaps.iter().map(|AxisGap { from, to, allowed }| format!("{from} to {to} ({allowed})"));
    lists.chain(gaps).collect()
}

/// Formats the first items of a list, and the number of the others.
fn shorten_list(items: &[impl ToString]) -> String {
    let shown: Vec<String> = items.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = items.len().saturating_sub(SHOWN);
    shown.join(", ") + &or_empty((more > 0).then(|| format!(" and {more} more")))
}

fn format_points(points: &[i64]) -> String {
    or_empty(
        Some(points)
            .filter(|points| !points.is_empty())
            .map(|points| format!("{}: {}", points.len(), shorten_list(points))),
    )
}

fn count_complete(groups: &[AxisGroup]) -> usize {
    groups.iter().filter(|group| group.is_complete).count()
}

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
    incomplete: Vec<&'a AxisGroup>,
    names: Vec<&'a str>,
    total: usize,
}

pub(crate) fn axis_records<'a>(kernels: &'a [KernelAudit<'a>]) -> Vec<AxisRecord<'a>> {
    let axes = kernels.iter().flat_map(|audit| audit.axes.iter().map(move |axis| (audit, axis)));
    axes.map(|(audit, axis)| AxisRecord {
        axis: &axis.axis.name,
        complete: axis.is_complete(),
        gaps: axis.shortfall.gaps.iter().map(gap_record).collect(),
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

fn gap_record(gap: &AxisGap) -> GapRecord {
    GapRecord { allowed: gap.allowed.to_string(), from: gap.from, to: gap.to }
}

impl<'a> GroupsRecord<'a> {
    fn new(axis: &'a AxisAudit<'a>) -> Self {
        Self {
            complete: count_complete(&axis.groups),
            incomplete: axis.groups.iter().filter(|group| !group.is_complete).collect(),
            names: axis.axis.group_names().collect(),
            total: axis.groups.len(),
        }
    }
}
