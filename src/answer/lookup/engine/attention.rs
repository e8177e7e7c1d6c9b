//! Lookup of attention, and of kernels that write caches.

use super::lookup_engine::{CandidateKernels, LookupEngine, try_best_of};
use crate::{
    answer::{
        lookup::{
            answer::{LookupAnswer, MissReason},
            attention_work::{AttentionFamily, AttentionWork, KeyOrder},
            cache_rows::CacheQuery,
            index::LookupError,
            kernel_index::KernelIndex,
            query::{OpQuery, QueryTensor, compared_tensors},
        },
        op_mapping::MappedKernel,
    },
    kernel::Dtype,
};

impl LookupEngine {
    /// Looks attention up in the order of the kernels.
    pub(super) fn lookup_attention(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
        order: KeyOrder,
    ) -> Result<LookupAnswer, LookupError> {
        self.best_answer(&self.candidates(kernels)?, |index| {
            let family = AttentionFamily::of_kernel(&index.rows.kernel).unwrap_or(AttentionFamily::Fused);
            match AttentionWork::of_query(query, family, order) {
                Ok(work) => self.find_work(index, &work),
                Err(reason) => Ok(LookupAnswer::missed(reason)),
            }
        })
    }

    /// Looks the work of a call of attention up.
    pub(super) fn find_work(
        &self,
        index: &KernelIndex,
        work: &AttentionWork,
    ) -> Result<LookupAnswer, LookupError> {
        let policy = self.mapping.policy(index.rows.kernel.as_str());
        Ok(self.index.attention(index)?.lookup(&index.rows, work, policy, self.rules))
    }

    /// Looks the write of rows to a cache up. A framework passes the rows, the cache and the indices; the kernel has
    /// the cache, the indices and the rows.
    pub(super) fn lookup_cache_update(
        &self,
        kernels: &[MappedKernel],
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let is_index = |tensor: &QueryTensor| matches!(tensor.dtype, Some(Dtype::Int32 | Dtype::Int64));
        let tensors: Vec<QueryTensor> = compared_tensors(&query.inputs).cloned().collect();
        let inputs = match tensors.as_slice() {
            [cache, index, rows] if is_index(index) => vec![cache.clone(), index.clone(), rows.clone()],
            [rows, cache, index] => vec![cache.clone(), index.clone(), rows.clone()],
            _ => return Ok(LookupAnswer::missed(MissReason::InputCountMismatch)),
        };
        if inputs.iter().any(|tensor| tensor.dtype.is_none()) {
            return Ok(LookupAnswer::missed(MissReason::ContextMissing("dtype")));
        }
        let query = CacheQuery { inputs, attributes: Vec::new() };
        self.best_answer(&self.candidates(kernels)?, |index| Ok(self.find_cache_write(index, &query)))
    }

    pub(super) fn find_cache_write(&self, index: &KernelIndex, query: &CacheQuery) -> LookupAnswer {
        let policy = self.mapping.policy(index.rows.kernel.as_str());
        index.cache_table().lookup(&index.rows, query, policy)
    }

    /// Returns the best answer of several kernels, else the first miss.
    pub(super) fn best_answer(
        &self,
        kernels: &CandidateKernels<'_>,
        lookup: impl Fn(&KernelIndex) -> Result<LookupAnswer, LookupError>,
    ) -> Result<LookupAnswer, LookupError> {
        let answers = kernels.indices.iter().map(|index| lookup(index));
        let missing = || LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing.clone()));
        Ok(try_best_of(answers, self.rules)?.unwrap_or_else(missing))
    }
}
