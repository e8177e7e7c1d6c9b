//! Collectives of HCCL: their names in profiles and tables, and what their sizes mean.
//!
//! `message_bytes` is the size by which existing readers of the tables search. It is a size per rank, but not the same one for
//! each collective. Bandwidths follow the convention of nccl-tests (doc/PERFORMANCE.md): the algorithm bandwidth is S / t, the
//! bus bandwidth S / t times a factor that makes it comparable with the peak of a link.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};

use super::{Dtype, KernelName, PartWeights};

/// A collective, or the transfer between two ranks.
#[derive(Serialize, Deserialize, Display, EnumString, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    /// Every rank has the sum of all.
    AllReduce,
    /// Every rank has the data of all.
    AllGather,
    /// Every rank has its part of the sum.
    ReduceScatter,
    /// Every rank sends an equal part to each rank.
    AllToAll,
    /// Every rank sends parts of different sizes.
    AllToAllV,
    /// Every rank has the data of the first.
    Broadcast,
    /// One rank sends, another receives.
    SendReceive,
}

/// Element types of the messages that `comm run` measures.
const MESSAGE_DTYPES: [Dtype; 7] =
    [Dtype::Bf16, Dtype::Float16, Dtype::Float, Dtype::Int8, Dtype::Uint8, Dtype::Int32, Dtype::Int64];

impl Dtype {
    /// Returns true for the types of messages that a sweep measures.
    pub(crate) fn is_of_messages(&self) -> bool {
        MESSAGE_DTYPES.contains(self)
    }
}

impl CollectiveKind {
    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the type of the profiler's records, which is also the name of the table. That of a transfer is the sender's.
    pub const fn kernel_name(self) -> &'static str {
        match self {
            Self::AllReduce => "hcom_allReduce_",
            Self::AllGather => "hcom_allGather_",
            Self::ReduceScatter => "hcom_reduceScatter_",
            Self::AllToAll => "hcom_alltoall_",
            Self::AllToAllV => "hcom_alltoallv_",
            Self::Broadcast => "hcom_broadcast_",
            Self::SendReceive => "hcom_send_",
        }
    }

    /// Returns the collective with a table of this name.
    pub fn of_kernel(kernel: &KernelName) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.kernel_name() == kernel.as_str())
    }

    /// Returns true if each rank needs data of all others, so that all kernels end together. The root of a broadcast and the
    /// sender of a transfer may end before the others, and so may a rank that receives less than the others.
    pub(crate) const fn ends_together(self) -> bool {
        match self {
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll => true,
            Self::AllToAllV | Self::Broadcast | Self::SendReceive => false,
        }
    }

    /// Describes which size `message_bytes` is.
    pub const fn size_semantics(self) -> &'static str {
        match self {
            Self::AllReduce => "buffer of one rank",
            Self::AllGather => "input of one rank",
            Self::ReduceScatter => "output of one rank",
            Self::AllToAll => "input of one rank, its own part included",
            Self::AllToAllV => "input of the rank that sends most, its own part included",
            Self::Broadcast => "buffer of the root",
            Self::SendReceive => "bytes in one direction",
        }
    }

    /// Returns the message size in bytes of a call with this number of elements as HCCL counts them for the profiler: of
    /// `all_to_all` those for one rank, else those of `message_bytes` (`ReportHcclOpInfo` in HCCL's sources). `None` above
    /// 2^64, and for `all_to_all_v`, whose parts are not recorded.
    pub fn message_of_count(self, count: u64, element_bytes: u64, ranks: u64) -> Option<u64> {
        let bytes = count.checked_mul(element_bytes)?;
        match self {
            Self::AllToAll => bytes.checked_mul(ranks),
            Self::AllToAllV => None,
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::Broadcast | Self::SendReceive => {
                Some(bytes)
            }
        }
    }

    /// Returns the number of bytes of which each message size is a multiple.
    pub(crate) const fn size_granularity(self, element_bytes: u64, ranks: u64) -> u64 {
        match self {
            Self::AllToAll | Self::AllToAllV => element_bytes.saturating_mul(ranks),
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::Broadcast | Self::SendReceive => {
                element_bytes
            }
        }
    }

    /// Returns the size of the input of one rank in bytes; `None` above 2^64.
    pub fn send_bytes(self, message: u64, ranks: u64) -> Option<u64> {
        match self {
            Self::ReduceScatter => message.checked_mul(ranks),
            _ => Some(message),
        }
    }

    /// Returns the size of the output of one rank in bytes, of `all_to_all_v` that of the rank that receives most; `None` above
    /// 2^64.
    pub fn receive_bytes(self, message: u64, ranks: u64, parts: &PartWeights) -> Option<u64> {
        match self {
            Self::AllGather => message.checked_mul(ranks),
            Self::AllToAllV => Some(parts.busiest_sizes(message, ranks).received),
            _ => Some(message),
        }
    }

    /// Returns S, the size of which bandwidths are computed, in bytes: of gathers and scatters that of all ranks together. `None`
    /// above 2^64.
    pub fn bandwidth_bytes(self, message: u64, ranks: u64) -> Option<u64> {
        match self {
            Self::AllGather | Self::ReduceScatter => message.checked_mul(ranks),
            _ => Some(message),
        }
    }

    /// Returns the factor from the algorithm bandwidth to the bus bandwidth: of `all_to_all_v` the largest transfer of a rank
    /// with others by the size of the message, see [`PartWeights`]. It is 0 for collectives of one rank, which use no link.
    #[expect(clippy::cast_precision_loss, reason = "numbers of ranks are below 2^53")]
    pub fn bus_factor(self, ranks: u64, parts: &PartWeights) -> f64 {
        /// Message of which rounding is no part of the factor.
        const LONG: u64 = 1 << 52;
        let others = ranks.saturating_sub(1) as f64 / ranks.max(1) as f64;
        match self {
            Self::AllReduce => 2.0 * others,
            Self::AllToAllV if *parts != PartWeights::Equal => {
                parts.busiest_sizes(LONG, ranks).with_others as f64 / LONG as f64
            }
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::AllToAllV => others,
            Self::Broadcast | Self::SendReceive => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Factors of nccl-tests, and of the bus bandwidths of chunks of m bytes: (n - 1) m / t.
    #[test]
    fn bandwidths_follow_the_convention_of_nccl_tests() {
        let bus_bytes = |kind: CollectiveKind, message: u64, ranks: u64| {
            kind.bandwidth_bytes(message, ranks).expect("below 2^64") as f64
                * kind.bus_factor(ranks, &PartWeights::Equal)
        };
        assert!((bus_bytes(CollectiveKind::AllReduce, 1 << 20, 16) - 1_966_080.0).abs() < 1e-6);
        for kind in [CollectiveKind::AllGather, CollectiveKind::ReduceScatter] {
            assert!((bus_bytes(kind, 1 << 20, 16) - 15.0 * 1_048_576.0).abs() < 1e-6);
        }
        assert!((bus_bytes(CollectiveKind::AllToAll, 1 << 20, 4) - 786_432.0).abs() < 1e-6);
        assert!((bus_bytes(CollectiveKind::SendReceive, 1 << 20, 2) - 1_048_576.0).abs() < 1e-6);
        assert_eq!(CollectiveKind::AllGather.bandwidth_bytes(u64::MAX, 2), None);
        // nccl-tests have no unequal parts: the busiest rank receives 3 of 4 parts of 4/7 of a message.
        let hot = CollectiveKind::AllToAllV.bus_factor(4, &PartWeights::Hot(4));
        assert!((hot - 12.0 / 7.0).abs() < 1e-9, "{hot}");
    }

    #[test]
    fn tables_and_options_name_each_collective() {
        for &kind in CollectiveKind::ALL {
            let kernel = KernelName::new(kind.kernel_name()).expect("a name");
            assert_eq!(CollectiveKind::of_kernel(&kernel), Some(kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("all_to_all_v".parse(), Ok(CollectiveKind::AllToAllV));
    }
}
