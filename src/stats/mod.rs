//! Robust statistics of repeated measurements: summaries, intervals of the median, outliers.
//!
//! Layer 0: imports no module of this crate. Input are slices of integer nanoseconds. No IO, and the same bits on
//! every machine: sums are exact integers, floats appear only where a result is rounded, and the only function of the
//! platform's maths library is the square root, which IEEE 754 rounds exactly.

mod bootstrap;
mod deviates;
mod interval;
mod outlier;
mod random;
mod summary;

pub(crate) use bootstrap::median_interval_of_collections;
pub(crate) use deviates::{
    hash_numbers, hash_text, normal_deviate, pick_number, signed_unit_deviate, small_exponential,
};
pub(crate) use interval::median_interval;
pub(crate) use outlier::{OutlierFence, OutlierKind};
pub use random::SplitMix64;
pub(crate) use summary::{SampleSummary, median_of_sorted};
