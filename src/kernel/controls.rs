//! Control kernels: the same launches at both ends of each collection, by which devices, collections and nights are compared.
//! They detect changes; no duration is ever scaled by them.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};

use crate::base::stats::CycleRate;

/// A control kernel, by what bounds its duration.
#[derive(Serialize, Deserialize, Display, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ControlKernel {
    /// Product of matrices: the cube cores.
    Matmul,
    /// Copy of a tensor: memory and cache.
    Copy,
    /// Element-wise kernel of a few microseconds: the start of a kernel.
    Vector,
}

#[derive(Serialize, Deserialize, Display, EnumString, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CollectionEnd {
    /// Before the first case.
    Begin,
    /// After the last case.
    End,
}

impl CollectionEnd {
    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;
}

/// Launches of a control kernel at one end of a collection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlReading {
    pub(crate) control: ControlKernel,
    pub(crate) end: CollectionEnd,
    /// Device as the host numbers it.
    pub(crate) device: u32,
    /// Kernel that ran, by the profiler's name.
    pub(crate) kernel: String,
    /// Durations of the launches after the warm-up in nanoseconds, in launch order.
    pub(crate) durations: Vec<i64>,
    /// Cycles per time of these launches; `None` if the profile does not show them.
    pub(crate) cycle_rate: Option<CycleRate>,
}

impl ControlReading {
    /// Returns the median duration in nanoseconds; `None` without launches.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        crate::base::stats::median_of_sorted(&sorted)
    }
}
