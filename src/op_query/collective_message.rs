//! Message of the collective of a query.

use super::{
    answer::MissReason,
    query::{OpQuery, element_bytes},
};
use crate::{
    domain::{Dtype, KernelName},
    op_mapping::MessageInterpolation,
};

/// Collective whose tables have the output of one rank.
const REDUCE_SCATTER: &str = "hcom_reduceScatter_";

/// Message whose duration is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectiveMessage {
    pub(crate) bytes: u64,
    pub(crate) ranks: u64,
    pub(crate) tier: Option<u64>,
    pub(crate) dtype: Option<Dtype>,
    /// Interpolation of the superseded tool between sizes.
    pub(crate) interpolation: MessageInterpolation,
}

/// Returns the message of a query for a collective. The input of an operator that scatters is that of all ranks together; tables
/// have the output of one. The error is the reason of a miss.
pub(crate) fn message_of_query(
    kernel: Option<&KernelName>,
    query: &OpQuery,
    is_operator: bool,
) -> Result<CollectiveMessage, MissReason> {
    let ranks = query.ranks.filter(|ranks| *ranks > 0).ok_or(MissReason::RanksNotGiven)?;
    let input = query.inputs.first();
    let dtype = input.and_then(|input| input.dtype.clone());
    let bytes = input.zip(dtype.as_ref()).and_then(|(input, dtype)| {
        let size = element_bytes(dtype)?;
        input.dims.iter().try_fold(size, |product, dim| product.checked_mul(*dim))
    });
    let scatters = kernel.is_some_and(|kernel| kernel.as_str() == REDUCE_SCATTER);
    let bytes = match bytes {
        Some(bytes) if is_operator && scatters => bytes.is_multiple_of(ranks).then(|| bytes / ranks),
        bytes => bytes,
    };
    let bytes = bytes.ok_or(MissReason::MessageUnknown)?;
    Ok(CollectiveMessage {
        bytes,
        ranks,
        tier: query.tier,
        dtype,
        interpolation: MessageInterpolation::default(),
    })
}
