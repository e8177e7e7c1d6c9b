//! Devices of several nodes as devices of one grid.

use serde::{Deserialize, Serialize};

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

    /// Returns the devices of all nodes, of which each has those with these numbers.
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
