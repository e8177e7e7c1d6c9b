//! Audits against the density standard: a table and JSON lines.

use super::prelude::*;
use crate::cases::grid::{AxisAudit, AxisGap, AxisGroup, KernelAudit};

const SHOWN: usize = 4;
const WORST: usize = 3;

pub(crate) fn audit_table(kernels: &[KernelAudit<'_>], width: Option<usize>) -> String {
    // Kernel, axis, number of values, range, planned values, gaps, points to add.
    let mut rows: Vec<[String; 7]> = Vec::new();
    let empty = String::new;
    for (audit, axis) in kernels.iter().flat_map(|audit| audit.axes.iter().map(move |axis| (audit, axis))) {
        let kernel = audit.kernel.to_string();
        rows.push([
            kernel.clone(),
            axis.axis.name.clone(),
            axis.values.to_string(),
            or_empty(axis.range.map(|(least, greatest)| format!("{least}..{greatest}"))),
            unless_zero(axis.planned.len()),
            shorten_list(&format_missing(axis)),
            format_points(&axis.proposed),
        ]);
        if axis.groups.is_empty() {
            continue;
        }
        let names: Vec<&str> = axis.axis.group_names().collect();
        let [complete, all] = [count_complete(&axis.groups), axis.groups.len()];
        let by = format!("{} by {}", axis.axis.name, names.join(","));
        let found = format!("{complete} of {all} complete");
        rows.push([kernel, by, empty(), empty(), empty(), found, empty()]);
        for group in axis.groups.iter().filter(|group| !group.is_complete).take(WORST) {
            let key =
                joined(names.iter().zip(&group.key).map(|(name, value)| format!("{name} {value}")), ", ");
            let gaps = format!("{key}: {}", format_count(group.values, "value"));
            let points = format_points(&group.proposed);
            rows.push([empty(), empty(), empty(), empty(), empty(), gaps, points]);
        }
    }
    Table::new(&rows)
        .text("kernel", rank(0).min(8), |row| &row[0])
        .text("axis", rank(0).min(8), |row| &row[1])
        .number("values", DETAIL, |row| &row[2])
        .text("range", DETAIL, |row| &row[3])
        .number("planned", DETAIL, |row| &row[4])
        .text("gaps that are too wide", rank(0).min(14).wanted(24).with_long_header(), |row| &row[5])
        .text("points to add", rank(0).min(16).wanted(20), |row| &row[6])
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

fn shorten_list(items: &[impl ToString]) -> String {
    let shown: Vec<String> = items.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = items.len().saturating_sub(SHOWN);
    shown.join(", ") + &or_empty((more > 0).then(|| format!(" and {more} more")))
}

fn format_points(points: &[i64]) -> String {
    or_empty((!points.is_empty()).then(|| format!("{}: {}", points.len(), shorten_list(points))))
}

fn count_complete(groups: &[AxisGroup]) -> usize {
    groups.iter().filter(|group| group.is_complete).count()
}

record! {
    pub(crate) AxisRecord<'a>(audit: &'a KernelAudit<'a>, axis: &'a AxisAudit<'a>) {
        axis: &'a str = &axis.axis.name,
        complete: bool = axis.is_complete(),
        gaps: Vec<GapRecord> = axis.shortfall.gaps.iter().map(GapRecord::new).collect(),
        greatest: Option<i64> = axis.range.map(|range| range.1),
        groups: Option<GroupsRecord<'a>> = (!axis.groups.is_empty()).then(|| GroupsRecord::new(axis)),
        kernel: &'a str = audit.kernel.as_str(),
        least: Option<i64> = axis.range.map(|range| range.0),
        measured_rows: usize = audit.measured,
        missing: &'a [i64] = &axis.shortfall.points,
        missing_ends: &'a [i64] = &axis.shortfall.ends,
        missing_required: &'a [i64] = &axis.shortfall.required,
        planned: &'a [i64] = &axis.planned,
        planned_rows: usize = audit.planned,
        proposed: &'a [i64] = &axis.proposed,
        standard: &'a str = &axis.axis.standard.name,
        unread_rows: usize = audit.unread,
        values: usize = axis.values,
    }
}

record! {
    GapRecord(gap: &AxisGap) {
        allowed: String = gap.allowed.to_string(),
        from: i64 = gap.from,
        to: i64 = gap.to,
    }
}

record! {
    GroupsRecord<'a>(axis: &'a AxisAudit<'a>) {
        complete: usize = count_complete(&axis.groups),
        incomplete: Vec<&'a AxisGroup> = axis.groups.iter().filter(|group| !group.is_complete).collect(),
        names: Vec<&'a str> = axis.axis.group_names().collect(),
        total: usize = axis.groups.len(),
    }
}
