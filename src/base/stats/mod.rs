//! Robust statistics of repeated measurements: summaries, intervals of the median, outliers, the joint fit of all cases.

mod block_effects;
mod bootstrap;
mod comparison;
mod control_change;
mod cycle_rates;
mod deviates;
mod duration_pattern;
mod interval;
mod joint_fit;
mod measurement_rounds;
mod neighbour_fit;
mod outlier;
mod random;
pub(crate) mod simplex_interpolation;
mod summary;
mod variance_sources;

pub(crate) use block_effects::{BlockEffect, block_effects};
pub(crate) use bootstrap::median_interval_of_collections;
pub(crate) use comparison::{ComparisonVerdict, EstimateDifference, FALSE_DISCOVERY_RATE, compare_estimates};
pub(crate) use control_change::{CONTROL_CHANGE_ERRORS, ControlChange, MIN_CONTROL_CHANGE};
pub use cycle_rates::{ClockDeficit, CycleRate, CycleReading, find_clock_deficits};
pub(crate) use cycle_rates::{MIN_CLOCK_DEFICIT, median_of_floats, medians_by_key};
#[cfg(test)]
pub(crate) use deviates::normal_deviate;
pub(crate) use deviates::{hash_numbers, signed_unit_deviate};
pub(crate) use duration_pattern::{
    DurationPattern, MIN_CHANGE, MIN_SAMPLES, MIN_TREND_DEVIATE, find_common_modes, find_common_trend,
    find_duration_pattern,
};
pub(crate) use interval::median_interval;
pub use joint_fit::{
    CaseEstimate, CollectionMedian, DeviceEffects, EffectComponents, EffectModel, JointFit,
    MIN_REPEATED_CASES, VariancePrior, estimate_median, fit_medians,
};
pub use measurement_rounds::{CaseCosts, MIN_OWN_COLLECTIONS, PrecisionAim, least_repeats, repeated_cases};
pub(crate) use neighbour_fit::{
    NEIGHBOUR_DEVIATIONS, NEIGHBOUR_FACTOR, NeighbourFit, ShapePoint, fit_neighbours,
};
pub(crate) use outlier::OutlierFence;
pub use random::SplitMix64;
pub(crate) use summary::{SampleSummary, median, median_of_sorted};
pub(crate) use variance_sources::{CollectionPlace, MeasurementDesign, VarianceSources};
