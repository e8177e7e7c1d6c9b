//! Groups of devices for collectives, as a table or as JSON lines.

use serde_json::json;

use super::super::{
    summary_tables::{align_right, plain_table, trim_lines},
    text::device_ranges,
};
use crate::{collective::GroupSize, config::CommNetwork};

/// Groups of one size, the preferred one first.
#[derive(Clone, Debug)]
pub(crate) struct GroupChoice {
    pub(crate) size: GroupSize,
    pub(crate) groups: Vec<Vec<u32>>,
}

/// Returns a table of groups with the links of their tiers.
pub(crate) fn groups_table(network: &CommNetwork, choices: &[GroupChoice]) -> String {
    let mut table = plain_table(["tier", "links", "GB/s", "us", "ranks", "groups", "preferred devices"]);
    for GroupChoice { size, groups } in choices {
        let Some(tier) = network.tiers.get(size.tier) else { continue };
        table.add_row([
            size.tier.to_string(),
            tier.kind.to_string(),
            tier.gb_per_s.to_string(),
            tier.latency_us.to_string(),
            size.ranks.to_string(),
            groups.len().to_string(),
            groups.first().map_or_else(String::new, |devices| device_ranges(devices)),
        ]);
    }
    align_right(&mut table, [0, 2, 3, 4, 5]);
    trim_lines(&table)
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
