//! Groups of devices for collectives, as a table or as JSON lines.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    kernel::collective::{CommNetwork, CommTier},
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

/// Groups of one size in JSON, with the links of their tier.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GroupRecord<'a> {
    tier: usize,
    ranks: usize,
    grid: &'a [u64],
    link: Option<&'a CommTier>,
    groups: &'a [Vec<u32>],
}

impl<'a> GroupRecord<'a> {
    pub(crate) fn new(network: &'a CommNetwork, GroupChoice { size, groups }: &'a GroupChoice) -> Self {
        let link = network.tiers.get(size.tier);
        Self { tier: size.tier, ranks: size.ranks, grid: &network.grid, link, groups }
    }
}
