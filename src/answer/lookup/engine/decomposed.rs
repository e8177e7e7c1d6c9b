//! Lookup of composites whose kernels follow from the shapes.

use super::{compute::KernelsQuery, lookup_engine::LookupEngine};
use crate::answer::lookup::{
    answer::{LookupAnswer, PartAnswer},
    composite::sum_of_sub_kernels,
    decomposer::{SubKernel, SubKernelQuery, decompose},
    index::LookupError,
    match_rows::InputComparison,
    query::{OpQuery, input_slots},
};
use crate::answer::op_mapping::{DecomposedRule, MappedKernel};

impl LookupEngine {
    /// Looks the kernels of a composite up and adds them.
    pub(super) fn lookup_decomposed(
        &self,
        alternates: &[MappedKernel],
        rule: &DecomposedRule,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let kernels = match decompose(query, rule, alternates, self.rules) {
            Ok(kernels) => kernels,
            Err(reason) => return Ok(LookupAnswer::missed(reason)),
        };
        let parts = kernels.iter().map(|kernel| self.lookup_sub_kernel(kernel));
        Ok(sum_of_sub_kernels(parts.collect::<Result<_, _>>()?, rule.requires_all))
    }

    fn lookup_sub_kernel(&self, kernel: &SubKernel) -> Result<PartAnswer, LookupError> {
        let candidates = self.candidates(&kernel.kernels)?;
        let answer = match &kernel.query {
            SubKernelQuery::Inputs(inputs) => {
                let formats = expected_formats(kernel);
                let query = KernelsQuery {
                    slots: input_slots(inputs),
                    ..KernelsQuery::of_part(InputComparison::new(true, &formats))
                };
                self.match_kernels(&candidates, &query)
            }
            SubKernelQuery::Attention(work) => {
                self.best_answer(&candidates, |index| self.find_work(index, work))?
            }
            SubKernelQuery::Cache(query) => {
                self.best_answer(&candidates, |index| Ok(self.find_cache_write(index, query)))?
            }
        };
        let ran = answer.rows.first().map(|row| row.kernel.as_str());
        let first = kernel.kernels.first().map_or("", |kernel| kernel.name.as_str());
        Ok(PartAnswer { name: ran.unwrap_or(first).to_owned(), answer })
    }
}

/// Returns the formats of rows that precede others: weights of quantized products are in blocks.
fn expected_formats(kernel: &SubKernel) -> Vec<String> {
    let is_quantized =
        kernel.kernels.first().is_some_and(|kernel| kernel.name.as_str() == "QuantBatchMatmulV3");
    if is_quantized { vec!["ND".to_owned(), "FRACTAL_NZ".to_owned()] } else { Vec::new() }
}
