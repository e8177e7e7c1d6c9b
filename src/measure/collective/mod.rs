//! Collectives: the places of devices in the network, measured sweeps, their fits and the analytic model.

mod analytic;
mod fit;
mod node_layout;
pub(crate) mod production_collectives;
mod sweep;
pub(crate) mod sweep_rounds;
pub(crate) mod sweep_session;
mod topology;

pub(crate) use analytic::{ModelComparison, ModelVerdict, compare_with_model};
pub(crate) use fit::{
    AlgorithmSwitch, MAX_SIZES, MIN_SIZES, RangeLine, ScalingComparison, ScalingOfGroups, SweepFit,
    compare_group_sizes,
};
pub(crate) use node_layout::NodeLayout;
pub(crate) use sweep::{DatabaseSweeps, Sweep, SweepKey, SweepPoint, parse_collective, size_text};
pub(crate) use topology::{GroupSize, TopologyError, devices_for, reachable_groups, tier_of_group};
