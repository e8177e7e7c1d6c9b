//! Fits of sweeps: lines over ranges of sizes, the sizes where the algorithm changes, and the algorithm that fits the
//! dependence on the number of ranks.

mod line;
mod scaling;
mod segments;
mod sweep_fit;

pub(crate) use scaling::ScalingComparison;
pub(crate) use segments::{MAX_SIZES, MIN_SIZES, RangeLine};
pub(crate) use sweep_fit::{AlgorithmSwitch, ScalingOfGroups, SweepFit, compare_group_sizes};
