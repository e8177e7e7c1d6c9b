//! Groups of devices for collectives, as a table or as JSON lines.

use serde_json::json;

use crate::{
    kernel::collective::CommNetwork,
    measure::collective::GroupSize,
    show::{
        run_lines::device_ranges,
        table::{FittedColumn, fitted_text},
    },
};

/// Groups of one size, the preferred one first.
#[derive(Clone, Debug)]
pub(crate) struct GroupChoice {
    pub(crate) size: GroupSize,
    pub(crate) groups: Vec<Vec<u32>>,
}

/// Returns a table of groups with the links of their tiers.
pub(crate) fn groups_table(network: &CommNetwork, choices: &[GroupChoice], width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::number("tier", 0),
        FittedColumn::text("links", 1),
        FittedColumn::number("GB/s", 2),
        FittedColumn::number("us", 3),
        FittedColumn::number("ranks", 0),
        FittedColumn::number("groups", 0),
        FittedColumn::text("preferred devices", 0).shortened_to(17),
    ];
    let cells = |GroupChoice { size, groups }: &GroupChoice| {
        let tier = network.tiers.get(size.tier)?;
        Some(vec![
            size.tier.to_string(),
            tier.kind.to_string(),
            tier.gb_per_s.to_string(),
            tier.latency_us.to_string(),
            size.ranks.to_string(),
            groups.len().to_string(),
            groups.first().map_or_else(String::new, |devices| device_ranges(devices)),
        ])
    };
    fitted_text(columns, choices.iter().filter_map(cells), width)
}

/// Returns a JSON object for each size, with all its groups.
pub(crate) fn groups_json(network: &CommNetwork, choices: &[GroupChoice]) -> String {
    let line = |GroupChoice { size, groups }: &GroupChoice| {
        let link = network.tiers.get(size.tier);
        let object = json!({ "tier": size.tier, "ranks": size.ranks, "grid": network.grid, "link": link, "groups": groups });
        format!("{object}\n")
    };
    choices.iter().map(line).collect()
}
