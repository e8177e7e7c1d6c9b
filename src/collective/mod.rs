//! Collectives: the places of devices in the network.
//!
//! Layer 4: imports no module of this crate. It launches and writes nothing.

mod topology;

pub(crate) use topology::{GroupSize, TopologyError, devices_for, reachable_groups, tier_of_group};
