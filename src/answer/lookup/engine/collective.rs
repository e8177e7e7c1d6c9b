//! Lookup of collectives.

use super::lookup_engine::{LookupEngine, try_best_of, unmapped};
use crate::{
    answer::{
        lookup::{
            answer::{LookupAnswer, MissReason},
            index::LookupError,
            query::OpQuery,
        },
        op_mapping::{MappedKernel, OperatorRoute},
        op_query::{
            collective_message::{CollectiveMessage, message_of_query},
            sweep_of_query::sweep_of_query,
        },
    },
    kernel::KernelName,
};

impl LookupEngine {
    /// Looks a collective up by its first input.
    pub(super) fn lookup_collective(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_operator: bool,
    ) -> Result<LookupAnswer, LookupError> {
        let message = match message_of_query(kernels.first().map(|kernel| &kernel.name), query, is_operator) {
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
        let kernel = kernels.into_iter().next()?.name;
        let message = message_of_query(Some(&kernel), query, is_operator).ok()?;
        Some((kernel, message))
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
        let (folder, data_kind) = (self.index.folder(), self.index.kind());
        Some(sweep_of_query(query, kernel, reason, folder, data_kind)?.to_string())
    }
}
