//! Lookup of collectives.

use super::lookup_engine::{LookupEngine, try_best_of};
use crate::lookup::{
    answer::{LookupAnswer, MissReason},
    collective::CollectiveMessage,
    index::LookupError,
    query::{OpQuery, element_bytes},
};
use crate::op_mapping::{MappedKernel, MessageInterpolation};

/// Collective whose tables have the output of one rank.
const REDUCE_SCATTER: &str = "hcom_reduceScatter_";

impl LookupEngine {
    /// Looks a collective up by its first input. That of an operator that scatters is the input of all ranks together;
    /// tables have the output of one.
    pub(super) fn lookup_collective(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_operator: bool,
    ) -> Result<LookupAnswer, LookupError> {
        let Some(ranks) = query.ranks.filter(|ranks| *ranks > 0) else {
            return Ok(LookupAnswer::missed(MissReason::RanksNotGiven));
        };
        let input = query.inputs.first();
        let dtype = input.and_then(|input| input.dtype.clone());
        let bytes = input.zip(dtype.as_ref()).and_then(|(input, dtype)| {
            let size = element_bytes(dtype)?;
            input.dims.iter().try_fold(size, |product, dim| product.checked_mul(*dim))
        });
        let scatters = kernels.first().is_some_and(|kernel| kernel.name.as_str() == REDUCE_SCATTER);
        let bytes = match bytes {
            Some(bytes) if is_operator && scatters => bytes.is_multiple_of(ranks).then(|| bytes / ranks),
            bytes => bytes,
        };
        let Some(bytes) = bytes else { return Ok(LookupAnswer::missed(MissReason::MessageUnknown)) };
        let message = CollectiveMessage {
            bytes,
            ranks,
            tier: query.tier,
            dtype,
            interpolation: MessageInterpolation::default(),
        };
        let answers = kernels.iter().map(|kernel| self.lookup_message(kernel, &message));
        Ok(try_best_of(answers, self.rules)?.unwrap_or_else(|| LookupAnswer::missed(MissReason::Unmapped)))
    }

    pub(super) fn lookup_message(
        &self,
        kernel: &MappedKernel,
        message: &CollectiveMessage,
    ) -> Result<LookupAnswer, LookupError> {
        Ok(match self.index.collective(&kernel.name, &self.mapping)? {
            Some(table) => table.lookup(message, self.rules),
            None => LookupAnswer::missed(MissReason::CsvNotFound(vec![self.place_of(kernel)])),
        })
    }
}
