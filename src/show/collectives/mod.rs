//! Output about collectives: groups, sweeps, fits, comparisons with the analytic model.

mod fit;
mod model;
mod plot;

pub(crate) use fit::{FitReport, fit_records, fit_text};
pub(crate) use model::{ModelRecord, model_text};
pub(crate) use plot::bandwidth_plot;

use super::{prelude::*, run_lines::device_ranges};
use crate::{
    kernel::{CollectiveKind, collective::CommTier},
    measure::collective::{
        GroupSize, Sweep,
        sweep_session::{SweepLine, SweepPreview},
    },
};

record! {
    SweepKeyRecord<'a>(sweep: &'a Sweep, kind: DataKind) {
        kind: DataKind = kind,
        collective: CollectiveKind = sweep.kind,
        ranks: u64 = sweep.key.ranks,
        tier: Option<u64> = sweep.key.tier,
        dtype: Option<&'a str> = sweep.key.dtype.as_ref().map(Dtype::as_str),
        environment: &'a str = &sweep.key.environment,
        part_weights: String = sweep.key.parts.to_string(),
    }
}

fn four_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 || size == 0.0 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.01234, 1.23456, 12.3456, 123.456, 12345.6].map(four_digits);
        assert_eq!(numbers, ["0.000", "0.0123", "1.235", "12.35", "123.5", "12346"]);
    }
}

/// Groups of one size, the preferred one first.
pub(crate) type GroupChoice = (GroupSize, Vec<Vec<u32>>);

/// Returns a table of groups with the links of their tiers.
pub(crate) fn groups_table(network: &CommNetwork, choices: &[GroupChoice], width: Option<usize>) -> String {
    let rows = choices.iter();
    let rows = rows.filter_map(|(size, groups)| Some((*size, groups, network.tiers.get(size.1)?)));
    Table::new(rows)
        .number("tier", 0, |(size, ..)| size.1)
        .text("links", 1, |(.., tier)| &tier.kind)
        .number("GB/s", 2, |(.., tier)| tier.gb_per_s)
        .number("us", 3, |(.., tier)| tier.latency_us)
        .number("ranks", 0, |(size, ..)| size.0)
        .number("groups", 0, |(_, groups, _)| groups.len())
        .text("preferred devices", rank(0).min(17), |(_, groups, _)| {
            or_empty(groups.first().map(|devices| device_ranges(devices)))
        })
        .print(width)
}

record! {
    /// Groups of one size in JSON, with the links of their tier.
    pub(crate) GroupRecord<'a>(network: &'a CommNetwork, choice: &'a GroupChoice) {
        tier: usize = choice.0.1,
        ranks: usize = choice.0.0,
        grid: &'a [u64] = &network.grid,
        link: Option<&'a CommTier> = network.tiers.get(choice.0.1),
        groups: &'a [Vec<u32>] = &choice.1,
    }
}

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
    for (kernel, rows) in &preview.rows_of_earlier_keys {
        text.push_str(&format!(
            "\n{} of {kernel} without {} in the key: earlier versions of npubench left these variables out of the key, so that \
             the rows may have been measured with them; they stay as they are",
            format_count(*rows, "measured row"),
            preview.new_variables.join(", ")
        ));
    }
    text
}

/// Returns a table of the lines, then the totals.
pub(crate) fn sweep_table(preview: &SweepPreview, width: Option<usize>) -> String {
    let size = |size: Option<&u64>| or_empty(size.map(|size| size_text(*size)));
    let groups = |line: &SweepLine| match line.other_groups {
        0 => String::new(),
        others => format!(" or {}", format_count(others, "other group")),
    };
    let table = Table::new(&preview.lines)
        .text("collective", 0, |line| &line.collective)
        .number("ranks", 0, |line| line.ranks)
        .number("tier", 1, |line| line.tier)
        .text("dtype", 3, |line| &line.dtype)
        .text("devices", rank(1).min(16), |line| device_ranges(&line.devices) + &groups(line))
        .number("sizes", 2, |line| line.sizes.len())
        .text("bytes", DETAIL, |line| format!("{} to {}", size(line.sizes.first()), size(line.sizes.last())))
        .number("time", 0, |line| format_duration(line.seconds))
        .print(width);
    let separator = if table.is_empty() { "" } else { "\n" };
    format!("{table}{separator}{}\n", sweep_summary(preview))
}
