//! Composites whose kernels follow from the shapes: latent attention, its preparation, and the selection of keys.

mod indexer;
mod latent_attention;
mod latent_preprocess;
mod sequences;
mod sub_kernel;

pub(crate) use sub_kernel::{SubKernel, SubKernelQuery};

use super::{answer::MissReason, query::OpQuery, rules::LookupRules};
use crate::answer::op_mapping::{DecomposedOperator, DecomposedRule, MappedKernel};

/// Returns the kernels of an operator in the order of their runs; the error is the reason of a miss. `alternates` are
/// those of the mapping.
pub(crate) fn decompose(
    query: &OpQuery,
    rule: &DecomposedRule,
    alternates: &[MappedKernel],
    rules: LookupRules,
) -> Result<Vec<SubKernel>, MissReason> {
    let Some(operator) = rule.operator else {
        return Err(MissReason::UnsupportedQueryMode("decomposer"));
    };
    match operator {
        DecomposedOperator::LatentAttention | DecomposedOperator::QuantizedLatentAttention => {
            latent_attention::decompose_dense(query, operator, rules)
        }
        DecomposedOperator::SparseLatentAttention | DecomposedOperator::QuantizedSparseLatentAttention => {
            latent_attention::decompose_sparse(query, operator, &rule.options, rules)
        }
        DecomposedOperator::LatentPreprocess | DecomposedOperator::QuantizedLatentPreprocess => {
            latent_preprocess::decompose(query, operator, &rule.options)
        }
        DecomposedOperator::KeyIndexer => indexer::decompose(query, rule, alternates, rules),
    }
}
