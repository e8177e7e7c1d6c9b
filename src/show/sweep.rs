//! Preview of a sweep of collectives.

use super::{
    run_lines::device_ranges,
    table::{DETAIL, FittedColumn, fitted_text},
};
use crate::{
    base::count_text::format_count,
    kernel::timestamp::format_duration,
    measure::collective::{
        size_text,
        sweep_session::{SweepLine, SweepPreview},
    },
};

/// Returns the totals as a line.
pub(crate) fn sweep_summary(preview: &SweepPreview) -> String {
    let cases = preview.lines.iter().map(|line| line.sizes.len()).sum::<usize>();
    let collections = usize::try_from(preview.collections).unwrap_or_default();
    let mut text = format!(
        "{} in {}, about {}; {} already measured",
        format_count(cases, "case"),
        format_count(collections, "collection"),
        format_duration(preview.seconds),
        preview.already_measured
    );
    for reason in &preview.not_launched {
        text.push_str(&format!("\nnot launched: {reason}"));
    }
    for reason in &preview.left_out {
        text.push_str(&format!("\nleft out: {reason}"));
    }
    text
}

/// Returns a table of the lines, then the totals.
pub(crate) fn sweep_table(preview: &SweepPreview, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("collective", 0),
        FittedColumn::number("ranks", 0),
        FittedColumn::number("tier", 1),
        FittedColumn::text("dtype", 3),
        FittedColumn::text("devices", 1).shortened_to(16),
        FittedColumn::number("sizes", 2),
        FittedColumn::text("bytes", DETAIL),
        FittedColumn::number("time", 0),
    ];
    let cells = |line: &SweepLine| {
        let [from, to] = [line.sizes.first(), line.sizes.last()]
            .map(|size| size.map_or_else(String::new, |size| size_text(*size)));
        let more = match line.other_groups {
            0 => String::new(),
            1 => " or 1 other group".to_owned(),
            others => format!(" or {others} other groups"),
        };
        vec![
            line.collective.clone(),
            line.ranks.to_string(),
            line.tier.to_string(),
            line.dtype.clone(),
            format!("{}{more}", device_ranges(&line.devices)),
            line.sizes.len().to_string(),
            format!("{from} to {to}"),
            format_duration(line.seconds),
        ]
    };
    let table = fitted_text(columns, preview.lines.iter().map(cells), width);
    let separator = if table.is_empty() { "" } else { "\n" };
    format!("{table}{separator}{}\n", sweep_summary(preview))
}
