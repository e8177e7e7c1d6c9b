//! Robust statistics of repeated measurements: summaries, intervals of the median, outliers.
//!
//! Layer 0: plain slices of integer nanoseconds in, plain structs out. Knows nothing of kernels,
//! does no IO, and gives the same bits on every machine: sums are exact integers, floats appear
//! only where a result is rounded, and no function of the platform's maths library is called
//! except the square root, which IEEE 754 rounds exactly.

mod bootstrap;
mod interval;
mod outlier;
mod random;
mod summary;

pub use bootstrap::median_interval_of_collections;
pub use interval::{median_interval, rank_interval};
pub use outlier::{OutlierFence, OutlierKind, classify};
pub use random::SplitMix64;
pub use summary::{SampleSummary, mean_of, median_of_sorted};
