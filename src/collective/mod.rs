//! Collectives: the places of devices in the network, measured sweeps, their fits and the analytic model.
//!
//! Layer 4: imports `domain`, `config` and `database`. It launches and writes nothing.

mod analytic;
mod fit;
mod node_layout;
mod plot;
mod sweep;
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
