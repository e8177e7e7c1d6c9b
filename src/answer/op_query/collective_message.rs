//! Message of the collective of a query, or of a composite.

use super::{
    answer::MissReason,
    query::{OpQuery, QueryTensor, element_bytes},
};
use crate::{
    answer::op_mapping::{MessageBytes, MessageInterpolation, RankGroup},
    kernel::{Dtype, KernelName},
};

/// Collective whose tables have the output of one rank.
const REDUCE_SCATTER: &str = "hcom_reduceScatter_";

/// Relative difference of durations that noise explains.
const NOISE: f64 = 0.1;

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

/// Returns the bytes of a product's output, as a collective behind it sends them. Products of one-byte types have an
/// output of two bytes per element.
pub(crate) fn product_bytes(inputs: &[QueryTensor]) -> Option<u64> {
    let [input, weight, ..] = inputs else { return None };
    let ([outer @ .., k], &[one, other]) = (&*input.dims, &*weight.dims) else { return None };
    let n = match (one == *k, other == *k) {
        (true, _) => other,
        (false, true) => one,
        (false, false) => return None,
    };
    let size = element_bytes(input.dtype.as_ref()?)?.max(2);
    outer.iter().chain([&n, &size]).try_fold(1_u64, |product, dim| product.checked_mul(*dim))
}

/// Returns the message of a composite's collective; the error is the reason of a miss.
pub(crate) fn message_of_product(
    query: &OpQuery,
    mode: MessageBytes,
    group: Option<RankGroup>,
) -> Result<u64, MissReason> {
    let ranks = query.ranks.ok_or(MissReason::RanksNotGiven)?;
    if group == Some(RankGroup::TensorParallel) && query.tp_size != Some(ranks) {
        return Err(MissReason::RanksNotGiven);
    }
    let bytes = product_bytes(&query.inputs).ok_or(MissReason::MessageUnknown)?;
    match mode {
        MessageBytes::FullOutput => Ok(bytes),
        MessageBytes::PerRankOutput if ranks > 1 && bytes.is_multiple_of(ranks) => Ok(bytes / ranks),
        MessageBytes::PerRankOutput | MessageBytes::RoutedInput => Err(MissReason::MessageUnknown),
    }
}

/// Returns true if no latency and bandwidth give both durations: the larger message is faster, or takes longer than in proportion to
/// its size. The algorithm changes between the two sizes then. `smaller` and `larger` are bytes with their durations.
#[expect(clippy::cast_precision_loss, reason = "messages are below 2^53 bytes")]
pub(crate) fn is_across_change(smaller: (u64, f64), larger: (u64, f64)) -> bool {
    let (sizes, durations) = (larger.0 as f64 / smaller.0 as f64, larger.1 / smaller.1);
    durations < 1.0 - NOISE || durations > sizes * (1.0 + NOISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_no_line_gives_are_those_of_two_algorithms() {
        for (larger, expected) in [
            ((2048, 10.0), false),
            ((2048, 9.5), false),
            ((2048, 20.0), false),
            ((2048, 21.0), false),
            ((2048, 8.0), true),
            ((2048, 23.0), true),
            ((1 << 20, 23.0), false),
        ] {
            assert_eq!(is_across_change((1024, 10.0), larger), expected, "{larger:?}");
        }
    }
}
