//! The places of devices in the grid of a network, and the groups of devices that span one of its tiers.
//!
//! The coordinates of a device are the digits of its number, outermost first. Devices of one block share all coordinates
//! before a dimension; a part of a block are those that share the coordinate of the dimension as well. A group spans a tier
//! if it lies in one block of that dimension and in at least two of its parts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::command_error::CommandError;

const GROUPS_HINT: &str = "`npubench comm groups` lists the groups of each tier";

pub(crate) fn no_tier(tier: usize, grid: &[u64]) -> CommandError {
    let last = grid.len().saturating_sub(1);
    let problem = format!("tier {tier} does not exist: the grid {grid:?} has the tiers 0 to {last}");
    CommandError::bad_input(problem, "tier 0 is the outermost dimension")
}

pub(crate) type GroupSize = (usize, usize);

fn coordinates(grid: &[u64], device: u32) -> Vec<u64> {
    let mut rest = u64::from(device);
    let mut digits = vec![0; grid.len()];
    for (digit, size) in digits.iter_mut().zip(grid).rev() {
        (*digit, rest) = (rest % (*size).max(1), rest / (*size).max(1));
    }
    digits
}

fn placed(grid: &[u64], devices: &[u32]) -> Result<BTreeMap<u32, Vec<u64>>, CommandError> {
    let size = grid.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
    let mut places = BTreeMap::new();
    for &device in devices {
        if u64::from(device) >= size {
            let problem =
                format!("device {device} is outside of the grid {grid:?}, which has {size} devices");
            let hint = "give other devices, or correct `grid` in the device profile";
            return Err(CommandError::bad_input(problem, hint));
        }
        if places.insert(device, coordinates(grid, device)).is_some() {
            let problem = format!("device {device} is named twice");
            return Err(CommandError::bad_input(problem, "name each device once"));
        }
    }
    Ok(places)
}

/// Returns the tier of a group: the outermost dimension in which its members differ. That of a single device is the
/// innermost one.
pub(crate) fn tier_of_group(grid: &[u64], devices: &[u32]) -> Result<usize, CommandError> {
    let places = placed(grid, devices)?;
    let innermost = grid.len().saturating_sub(1);
    let Some(first) = places.values().next() else { return Ok(innermost) };
    let differs = |dimension: &usize| places.values().any(|place| place[*dimension] != first[*dimension]);
    Ok((0..grid.len()).find(differs).unwrap_or(innermost))
}

/// Devices that share the coordinates before a dimension, divided by the coordinate of that dimension.
type Block = Vec<Vec<u32>>;

fn blocks(places: &BTreeMap<u32, Vec<u64>>, tier: usize) -> Vec<Block> {
    let mut blocks: BTreeMap<&[u64], BTreeMap<u64, Vec<u32>>> = BTreeMap::new();
    for (device, place) in places {
        let parts = blocks.entry(&place[..tier]).or_default();
        parts.entry(place[tier]).or_default().push(*device);
    }
    blocks.into_values().map(|parts| parts.into_values().collect()).collect()
}

fn largest_group(block: &Block) -> usize {
    if block.len() < 2 { 0 } else { block.iter().map(Vec::len).sum() }
}

/// Returns the candidates for a group of `ranks` devices that spans a tier, the preferred one first. All have the same layout
/// in the network, so that measurements on any of them belong to one row.
///
/// They are consecutive devices; where these would be in one part of a block, the devices are distributed over as many parts
/// as possible. Other layouts of as many ranks exist and are not among the candidates.
pub(crate) fn devices_for(
    grid: &[u64],
    devices: &[u32],
    ranks: usize,
    tier: usize,
) -> Result<Vec<Vec<u32>>, CommandError> {
    let places = placed(grid, devices)?;
    if tier >= grid.len() {
        return Err(no_tier(tier, grid));
    }
    if ranks < 2 {
        let problem = format!("a group of {ranks} has no links, expected at least 2 ranks");
        return Err(CommandError::bad_input(problem, "give a larger number of ranks"));
    }
    if ranks > devices.len() {
        let problem = format!("{ranks} ranks are more than the {} devices", devices.len());
        return Err(CommandError::bad_input(problem, GROUPS_HINT));
    }
    let blocks = blocks(&places, tier);
    let large = blocks.iter().filter(|block| largest_group(block) >= ranks);
    let groups = large.flat_map(|block| groups_of_block(block, ranks));
    let mut found: Vec<Candidate> = groups.map(|group| Candidate::new(&places, tier, group)).collect();
    found.sort();
    let Some(layout) = found.first().map(|candidate| candidate.layout.clone()) else {
        let most = blocks.iter().map(largest_group).max().unwrap_or(0);
        let devices = devices.len();
        let problem = format!(
            "no {ranks} of these {devices} devices span tier {tier} of the grid {grid:?}: at most {most} do"
        );
        return Err(CommandError::bad_input(problem, GROUPS_HINT));
    };
    found.retain(|candidate| candidate.layout == layout);
    Ok(found.into_iter().map(|candidate| candidate.devices).collect())
}

/// A group with its layout: for each member and dimension from the tier on, the order of its coordinate among the
/// coordinates of the members that share the coordinates before it. Members are in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// True for devices taken in turns, because no regular group is possible in the block.
    is_irregular: bool,
    layout: Vec<usize>,
    devices: Vec<u32>,
}

impl Candidate {
    fn new(places: &BTreeMap<u32, Vec<u64>>, tier: usize, (is_irregular, devices): (bool, Vec<u32>)) -> Self {
        let depth = places.values().next().map_or(0, |place| place.len() - tier);
        let mut orders = vec![0; depth];
        let mut layout = Vec::with_capacity(depth * devices.len());
        for (index, device) in devices.iter().enumerate() {
            if let Some(before) = index.checked_sub(1).map(|before| &places[&devices[before]]) {
                let place = &places[device];
                let differing =
                    (tier..place.len()).find(|at| place[*at] != before[*at]).unwrap_or(tier) - tier;
                orders[differing] += 1;
                orders[differing + 1..].fill(0);
            }
            layout.extend_from_slice(&orders);
        }
        Self { is_irregular, layout, devices }
    }
}

/// Returns groups of a block that span its tier, at least one if the block has enough devices; true for an irregular one.
fn groups_of_block(block: &Block, ranks: usize) -> Vec<(bool, Vec<u32>)> {
    let largest_part = block.iter().map(Vec::len).max().unwrap_or(0);
    let groups = match ranks > largest_part {
        true => consecutive_groups(block, ranks),
        false => distributed_groups(block, ranks),
    };
    if groups.is_empty() {
        // Devices are taken from the parts in turns.
        let turns =
            (0..largest_part).flat_map(|turn| block.iter().filter_map(move |part| part.get(turn).copied()));
        let mut devices: Vec<u32> = turns.take(ranks).collect();
        devices.sort_unstable();
        return vec![(true, devices)];
    }
    groups.into_iter().map(|devices| (false, devices)).collect()
}

/// Returns the groups of consecutive devices that begin with a part; more devices than any part has.
fn consecutive_groups(block: &Block, ranks: usize) -> BTreeSet<Vec<u32>> {
    let group = |first: usize| block[first..].iter().flatten().copied().take(ranks).collect::<Vec<u32>>();
    (0..block.len()).map(group).filter(|devices| devices.len() == ranks).collect()
}

/// Returns the groups that are distributed over as many parts as possible, in equal shares, the first ones larger by one
/// device.
fn distributed_groups(block: &Block, ranks: usize) -> BTreeSet<Vec<u32>> {
    let used = ranks.min(block.len());
    let share = |index: usize| ranks / used + usize::from(index < ranks % used);
    let mut groups = BTreeSet::new();
    for parts in block.windows(used) {
        for start in (0..parts[0].len()).step_by(share(0)) {
            let shares = parts.iter().enumerate().map(|(index, part)| part.get(start..start + share(index)));
            groups.extend(shares.collect::<Option<Vec<_>>>().map(|shares| shares.concat()));
        }
    }
    groups
}

pub(crate) fn reachable_groups(grid: &[u64], devices: &[u32]) -> Result<Vec<GroupSize>, CommandError> {
    let places = placed(grid, devices)?;
    let groups = (0..grid.len()).flat_map(|tier| {
        let most = blocks(&places, tier).iter().map(largest_group).max().unwrap_or(0);
        (2..=most).map(move |ranks| (ranks, tier))
    });
    Ok(groups.collect())
}

/// Numbers of the devices of several nodes: the numbers of one node follow each other, and begin at a multiple of the
/// same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeLayout {
    pub(crate) nodes: usize,
    /// Difference between the numbers of the same device of successive nodes.
    span: u32,
}

impl NodeLayout {
    /// A node takes the fewest inner dimensions of the grid that have its `devices`, so that devices of different
    /// nodes differ in a dimension outside of them.
    pub(crate) fn new(grid: &[u64], nodes: usize, devices: u32) -> Self {
        let mut sizes = grid.iter().rev().scan(1_u64, |product, size| {
            *product = product.saturating_mul((*size).max(1));
            Some(*product)
        });
        let span = sizes.find(|size| *size >= u64::from(devices)).unwrap_or(u64::from(devices));
        Self { nodes, span: u32::try_from(span).unwrap_or(u32::MAX).max(1) }
    }

    pub(crate) fn all_devices(&self, of_node: &[u32]) -> Vec<u32> {
        let nodes = u32::try_from(self.nodes).unwrap_or(u32::MAX);
        let of_all = |node: u32| of_node.iter().map(move |device| (node, *device));
        let number = |(node, device): (u32, u32)| node.saturating_mul(self.span).saturating_add(device);
        (0..nodes).flat_map(of_all).map(number).collect()
    }

    pub(crate) const fn node_of(&self, device: u32) -> usize {
        (device / self.span) as usize
    }

    pub(crate) const fn number_on_host(&self, device: u32) -> u32 {
        device % self.span
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A server of 8 chips with 2 dies, as part of the grid of a superpod.
    const GRID: [u64; 3] = [48, 8, 2];
    const SERVER: [u32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn first(grid: &[u64], devices: &[u32], ranks: usize, tier: usize) -> Vec<u32> {
        devices_for(grid, devices, ranks, tier).expect("a group").remove(0)
    }

    /// Two ranks of tier 1 are on different chips: devices 0 and 1 are the dies of one (row 39 of the known defects).
    #[test]
    fn a_group_really_spans_its_tier() {
        assert_eq!(first(&GRID, &SERVER, 2, 1), [0, 2]);
        assert_eq!(first(&GRID, &SERVER, 2, 2), [0, 1]);
        assert_eq!(first(&GRID, &SERVER, 4, 1), [0, 1, 2, 3]);
        assert_eq!(first(&GRID, &SERVER, 16, 1), SERVER);
        let pods: Vec<u32> = (0..768).collect();
        assert_eq!(first(&GRID, &pods, 2, 0), [0, 16]);
        assert_eq!(first(&GRID, &pods, 32, 0), (0..32).collect::<Vec<_>>());
        assert_eq!(first(&GRID, &pods, 16, 0), (0..256).step_by(16).collect::<Vec<_>>());
        assert_eq!(first(&[2, 8, 2], &(0..32).collect::<Vec<_>>(), 4, 0), [0, 1, 16, 17]);
        assert_eq!(tier_of_group(&GRID, &[0, 1]), Ok(2));
        assert_eq!(tier_of_group(&GRID, &[0, 2]), Ok(1));
        assert_eq!(tier_of_group(&GRID, &[5, 21]), Ok(0));
        assert_eq!(tier_of_group(&GRID, &[7]), Ok(2));
    }

    #[test]
    fn candidates_of_a_server_can_be_used_at_once() {
        let pairs = devices_for(&GRID, &SERVER, 2, 2).expect("pairs");
        assert_eq!(pairs, (0..8).map(|chip| vec![2 * chip, 2 * chip + 1]).collect::<Vec<_>>());
        let strided = devices_for(&GRID, &SERVER, 2, 1).expect("pairs");
        assert_eq!(strided[..3], [vec![0, 2], vec![1, 3], vec![2, 4]]);
        let fours = devices_for(&GRID, &SERVER, 4, 1).expect("fours");
        assert!(fours.contains(&vec![4, 5, 6, 7]) && fours.contains(&vec![12, 13, 14, 15]));
        assert!(!fours.contains(&vec![1, 2, 3, 4]), "it has another layout");
    }

    #[test]
    fn impossible_groups_are_refused_with_the_reason() {
        let text = |ranks, tier| devices_for(&GRID, &SERVER, ranks, tier).expect_err("none").message;
        assert_eq!(text(32, 1), "32 ranks are more than the 16 devices");
        assert_eq!(text(4, 2), "no 4 of these 16 devices span tier 2 of the grid [48, 8, 2]: at most 2 do");
        assert_eq!(text(2, 0), "no 2 of these 16 devices span tier 0 of the grid [48, 8, 2]: at most 0 do");
        assert_eq!(text(2, 3), "tier 3 does not exist: the grid [48, 8, 2] has the tiers 0 to 2");
        assert_eq!(text(1, 1), "a group of 1 has no links, expected at least 2 ranks");
        let outside = devices_for(&[8], &[0, 8], 2, 0).expect_err("outside");
        assert_eq!(outside.message, "device 8 is outside of the grid [8], which has 8 devices");
        let twice = devices_for(&[8], &[1, 1], 2, 0).expect_err("twice");
        assert_eq!(twice.message, "device 1 is named twice");
    }

    #[test]
    fn a_server_reaches_pairs_of_dies_and_all_numbers_of_chips() {
        let groups = reachable_groups(&GRID, &SERVER).expect("groups");
        let of_tier = |tier| groups.iter().filter(|(_, own)| *own == tier).count();
        assert_eq!((of_tier(0), of_tier(1), of_tier(2)), (0, 15, 1));
    }

    fn grids() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(2_u64..4, 1..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// All subsets of up to 12 devices are the reference.
        #[test]
        fn groups_agree_with_all_subsets(grid in grids(), picks in proptest::collection::btree_set(0_u32..27, 1..12)) {
            let size: u64 = grid.iter().product();
            let devices: Vec<u32> = picks.into_iter().filter(|device| u64::from(*device) < size).collect();
            let mut expected = BTreeSet::new();
            for mask in 0_u32..1 << devices.len() {
                let subset: Vec<u32> =
                    devices.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, d)| *d).collect();
                if subset.len() > 1 {
                    // Tier by definition: the first digit, from the left, in which two members differ.
                    let digits = |device: u32, dimension: usize| {
                        u64::from(device) / grid[dimension + 1..].iter().product::<u64>() % grid[dimension]
                    };
                    let tier = (0..grid.len())
                        .find(|dimension| subset.iter().any(|d| digits(*d, *dimension) != digits(subset[0], *dimension)))
                        .expect("different devices differ");
                    prop_assert_eq!(tier_of_group(&grid, &subset), Ok(tier));
                    expected.insert((subset.len(), tier));
                }
            }
            let reachable: BTreeSet<GroupSize> = reachable_groups(&grid, &devices).expect("inside").into_iter().collect();
            prop_assert_eq!(&reachable, &expected);
            for ranks in 2..=devices.len() {
                for tier in 0..grid.len() {
                    let found = devices_for(&grid, &devices, ranks, tier);
                    prop_assert_eq!(found.is_ok(), expected.contains(&(ranks, tier)), "{:?}", found);
                    let groups = found.unwrap_or_default();
                    let distinct: BTreeSet<&Vec<u32>> = groups.iter().collect();
                    prop_assert_eq!(distinct.len(), groups.len());
                    for group in &groups {
                        prop_assert_eq!(group.len(), ranks);
                        prop_assert!(group.iter().all(|device| devices.contains(device)));
                        prop_assert_eq!(tier_of_group(&grid, group), Ok(tier));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod node_tests {
    use super::*;
    use crate::measure::collective::topology::{devices_for, tier_of_group};

    #[test]
    fn devices_of_different_nodes_differ_in_an_outer_dimension() {
        let a3 = [48, 8, 2];
        for devices in [8, 9, 16] {
            let layout = NodeLayout::new(&a3, 2, devices);
            let all = layout.all_devices(&[0, 3]);
            assert_eq!(all, [0, 3, 16, 19], "a host of {devices} devices");
            assert_eq!(tier_of_group(&a3, &all[1..3]).expect("in the grid"), 0);
            assert_eq!((layout.node_of(19), layout.number_on_host(19)), (1, 3));
        }
        let a5 = NodeLayout::new(&[2, 2, 4], 4, 4);
        let all = a5.all_devices(&[0, 1, 2, 3]);
        assert_eq!(all.len(), 16);
        assert_eq!(devices_for(&[2, 2, 4], &all, 8, 1).expect("two nodes")[0], (0..8).collect::<Vec<u32>>());
        // More devices than the grid has are found by the topology.
        assert!(devices_for(&[8], &NodeLayout::new(&[8], 2, 8).all_devices(&[0]), 2, 0).is_err());
    }
}
