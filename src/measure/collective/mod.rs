//! Collectives: the places of devices in the network, measured sweeps, their fits and the analytic model.

mod analytic;
mod line;
pub(crate) mod production_collectives;
mod scaling;
mod segments;
mod sweep;
mod sweep_fit;
pub(crate) mod sweep_rounds;
pub(crate) mod sweep_session;
mod topology;

pub(crate) use analytic::{ModelComparison, ModelVerdict, compare_with_model};
pub(crate) use scaling::ScalingComparison;
pub(crate) use segments::{MAX_SIZES, MIN_SIZES, RangeLine};
pub(crate) use sweep::{Sweep, SweepKey, SweepPoint, parse_collective, read_sweeps, size_text};
pub(crate) use sweep_fit::{AlgorithmSwitch, ScalingOfGroups, SweepFit, compare_group_sizes};
pub(crate) use topology::{GroupSize, NodeLayout, devices_for, no_tier, reachable_groups, tier_of_group};
