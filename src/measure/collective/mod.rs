//! Collectives: the places of devices in the network, measured sweeps, their fits and the analytic model.

mod analytic;
mod fit;
pub(crate) mod measured_sweeps;
mod node_layout;
mod plot;
pub(crate) mod production_collectives;
pub(crate) mod profile_network;
mod sweep;
pub(crate) mod sweep_database;
pub(crate) mod sweep_parts;
pub(crate) mod sweep_rounds;
pub(crate) mod sweep_session;
mod topology;
mod validate;

pub(crate) use fit::{
    AlgorithmSwitch, LEAST_SIZES, LineFit, MOST_SIZES, RangeLine, ScalingComparison, ScalingOfGroups,
    SweepFit, compare_group_sizes,
};
pub(crate) use node_layout::NodeLayout;
pub(crate) use plot::bandwidth_plot;
pub(crate) use sweep::{Sweep, SweepKey, SweepPoint, SweepTable, size_text};
pub(crate) use topology::{GroupSize, TopologyError, devices_for, reachable_groups, tier_of_group};
pub(crate) use validate::{ModelComparison, ModelVerdict, compare_with_model};
