//! Record of a collective with its size.

use crate::kernel::{Dtype, Nanos};

/// One collective of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CollectiveRecord {
    /// Type of the record, such as `hcom_allReduce_`.
    pub(super) kernel: String,
    /// Name with the digits of its group and its number, such as `hcom_allReduce__586_0_1`.
    pub(super) name: String,
    /// HCCL's name of the group; traces have none.
    pub(super) group: Option<String>,
    /// Number of elements, as HCCL counts them.
    pub(super) count: Option<u64>,
    pub(super) dtype: Option<Dtype>,
    /// Algorithm by level of the network, such as `MESH-RING`; empty if it is not recorded.
    pub(super) algorithm: String,
    pub(super) duration: Option<Nanos>,
}
