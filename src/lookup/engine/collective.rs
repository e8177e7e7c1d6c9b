//! Lookup of collectives.

use super::lookup_engine::{LookupEngine, try_best_of, unmapped};
use crate::{
    domain::{CollectiveKind, Dtype, KernelName},
    lookup::{
        answer::{LookupAnswer, MissReason},
        index::LookupError,
        query::OpQuery,
    },
    op_mapping::{MappedKernel, OperatorRoute},
    op_query::collective_message::{CollectiveMessage, message_of_query},
};

/// Smallest message of a sweep that a command names.
const SWEEP_START: u64 = 1024;

impl LookupEngine {
    /// Looks a collective up by its first input.
    pub(super) fn lookup_collective(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_operator: bool,
    ) -> Result<LookupAnswer, LookupError> {
        let message = match message_of_query(kernels, query, is_operator) {
            Ok(message) => message,
            Err(reason) => return Ok(LookupAnswer::missed(reason)),
        };
        let answers = kernels.iter().map(|kernel| self.lookup_message(kernel, &message));
        Ok(try_best_of(answers, self.rules)?.unwrap_or_else(|| LookupAnswer::missed(MissReason::Unmapped)))
    }

    /// Returns the collective that answers a query, with its message; `None` for other queries, and without a number of ranks or
    /// a size.
    pub(crate) fn collective_of_query(&self, query: &OpQuery) -> Option<(KernelName, CollectiveMessage)> {
        let (kernels, is_operator) = match self.mapping.operator(&query.op) {
            Some(operator) if operator.route == OperatorRoute::Communication => {
                (operator.kernels.clone(), true)
            }
            Some(_) => return None,
            None => {
                let kernel = KernelName::new(&query.op).ok().filter(KernelName::is_collective)?;
                (vec![unmapped(kernel)], false)
            }
        };
        let message = message_of_query(&kernels, query, is_operator).ok()?;
        Some((kernels.into_iter().next()?.name, message))
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

    /// Returns the command that measures the rows of a collective that a query lacks; `None` for a collective that no
    /// sweep has, and without the number of ranks.
    pub(crate) fn collective_command(
        &self,
        query: &OpQuery,
        kernel: &KernelName,
        reason: Option<&MissReason>,
    ) -> Option<String> {
        let kind = CollectiveKind::of_kernel(kernel)?;
        let ranks = query.ranks.filter(|ranks| *ranks > 1)?;
        // A collective has one input; others are those of a composite.
        let is_operator = query.op != kernel.as_str();
        let message = message_of_query(&[unmapped(kernel.clone())], query, is_operator).ok();
        let message = message.filter(|_| query.inputs.len() == 1).map(|message| message.bytes);
        let sizes = match (reason, message) {
            (Some(MissReason::MessageOutOfRange { bytes, .. }), _) => format!(" --sizes {bytes}"),
            (_, Some(bytes)) => {
                let most = bytes.max(SWEEP_START).checked_next_power_of_two()?;
                format!(" --from {SWEEP_START} --to {most}")
            }
            (_, None) => String::new(),
        };
        let tier = query.tier.map_or_else(String::new, |tier| format!(" --tiers {tier}"));
        let dtype =
            query.inputs.first().and_then(|input| input.dtype.as_ref()).and_then(|dtype| match dtype {
                Dtype::Bf16 => Some("bf16"),
                Dtype::Float16 => Some("fp16"),
                Dtype::Float => Some("fp32"),
                Dtype::Int8 => Some("int8"),
                _ => None,
            });
        let dtype = dtype.map_or_else(String::new, |dtype| format!(" --dtypes {dtype}"));
        let db = self.index.folder().display();
        Some(format!("npubench comm run --db {db} --ops {kind} --ranks {ranks}{tier}{sizes}{dtype}"))
    }
}
