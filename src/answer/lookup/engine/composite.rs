//! Lookup of static composites.

use super::{
    compute::KernelsQuery,
    lookup_engine::{LookupEngine, unmapped},
};
use crate::{
    answer::{
        lookup::{
            answer::{LookupAnswer, PartAnswer},
            composite::{CompositeStep, composite_steps, sum_of_parts},
            index::LookupError,
            interpolation::InterpolationKind,
            match_rows::InputComparison,
            query::{OpQuery, input_slots},
            rules::LookupRules,
        },
        op_mapping::{CommunicationRule, CompositePart, MappedKernel, MappedOperator},
        op_query::collective_message::{CollectiveMessage, message_of_product},
    },
    kernel::KernelName,
};

impl LookupEngine {
    /// Looks the parts of a composite up and adds them. The first kernel has the inputs of the operator, later ones its
    /// output, which has the shape of the first input.
    pub(super) fn lookup_composite(
        &self,
        operator: &MappedOperator,
        parts: &[CompositePart],
        sequence_parallel: Option<&CommunicationRule>,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let mut answers: Vec<PartAnswer> = Vec::new();
        for step in composite_steps(parts, self.rules) {
            let (name, answer) = match step {
                CompositeStep::Operator(name) => {
                    let answer = self.lookup(&OpQuery { op: name.clone(), ..query.clone() })?;
                    (name, answer)
                }
                CompositeStep::Collective(kernel) => {
                    let rule = sequence_parallel.filter(|rule| {
                        let source = rule.source_kernel_type.as_deref();
                        query.is_sequence_parallel && source == Some(kernel.name.as_str())
                    });
                    let kernel = match rule.and_then(|rule| KernelName::new(&rule.kernel_type).ok()) {
                        Some(name) => MappedKernel { name, ..kernel },
                        None => kernel,
                    };
                    let mode = rule.map(|rule| rule.message_bytes_mode).unwrap_or_default();
                    let group = rule.and_then(|rule| rule.group_type);
                    let answer = match message_of_product(query, mode, group) {
                        Ok(bytes) => {
                            let ranks = query.ranks.unwrap_or_default();
                            let interpolation =
                                rule.map(|rule| rule.interpolation_method).unwrap_or_default();
                            let message = CollectiveMessage {
                                bytes,
                                ranks,
                                tier: query.tier,
                                dtype: None,
                                interpolation,
                            };
                            self.lookup_message(&kernel, &message)?
                        }
                        Err(reason) => LookupAnswer::missed(reason),
                    };
                    (kernel.name.as_str().to_owned(), answer)
                }
                CompositeStep::Kernels(kernels) => {
                    let answer = self.lookup_kernels(operator, &kernels, query, answers.is_empty())?;
                    let ran = answer.rows.first().map(|row| row.kernel.as_str().to_owned());
                    (ran.unwrap_or_else(|| kernels[0].name.as_str().to_owned()), answer)
                }
            };
            answers.push(PartAnswer { name, answer });
        }
        Ok(sum_of_parts(answers))
    }

    /// Looks a kernel of a composite up that has the inputs of the operator.
    pub(super) fn lookup_first_kernel(
        &self,
        operator: &MappedOperator,
        kernel: &KernelName,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        self.lookup_kernels(operator, &[unmapped(kernel.clone())], query, true)
    }

    /// Looks a step of a composite up, of whose kernels one runs.
    fn lookup_kernels(
        &self,
        operator: &MappedOperator,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_first: bool,
    ) -> Result<LookupAnswer, LookupError> {
        let mut slots = input_slots(&query.inputs);
        slots.truncate(if is_first { operator.input_count.unwrap_or(usize::MAX) } else { 1 });
        let is_prefix = operator.input_count.is_some() || !is_first;
        let comparison = InputComparison::new(is_prefix, &operator.formats);
        let kind = match self.rules {
            LookupRules::Current => InterpolationKind::Kernel,
            LookupRules::Superseded => InterpolationKind::Disabled,
        };
        let query = KernelsQuery { slots, kind, ..KernelsQuery::of_operator(comparison) };
        Ok(self.match_kernels(&self.candidates(kernels)?, &query))
    }
}
