//! The order in which an operator is looked up.

use super::{
    compute::{ordered_kernels, recorded_slots},
    lookup_engine::{LookupEngine, unmapped},
};
use crate::{
    answer::{
        lookup::{
            answer::{LookupAnswer, MissReason, NearestRow, UsedRow},
            attention_work::{AttentionFamily, KeyOrder},
            index::LookupError,
            nearest::nearest_rows,
            query::{OpQuery, input_slots},
            rules::{LookupRules, MatchRule, RuleKind},
        },
        op_mapping::OperatorRoute,
    },
    kernel::{Dtype, KernelName},
};

impl LookupEngine {
    /// Looks an operator up. Fails with [`LookupError`] if a table cannot be read.
    pub fn lookup(&self, query: &OpQuery) -> Result<LookupAnswer, LookupError> {
        let tensors = || query.inputs.iter().chain(&query.outputs);
        if self.rules == LookupRules::Superseded
            && tensors().any(|tensor| tensor.dtype == Some(Dtype::Float16))
        {
            return self.lookup_by_route(&query.with_dtype(&Dtype::Float16, &Dtype::Bf16));
        }
        self.lookup_by_route(query)
    }

    /// Looks an operator up as if these rows were not measured, which shows how well the others answer for them.
    pub fn lookup_without_rows(
        &mut self,
        query: &OpQuery,
        rows: &[UsedRow],
    ) -> Result<LookupAnswer, LookupError> {
        self.index.set_hidden(rows, true);
        let answer = self.lookup(query);
        self.index.set_hidden(rows, false);
        answer
    }

    fn lookup_by_route(&self, query: &OpQuery) -> Result<LookupAnswer, LookupError> {
        let Some(operator) = self.mapping.operator(&query.op) else {
            return match KernelName::new(&query.op) {
                Ok(kernel) if AttentionFamily::of_kernel(&kernel).is_some() => {
                    self.lookup_attention(&[unmapped(kernel)], query, KeyOrder::Recorded)
                }
                Ok(kernel) if kernel.is_collective() => {
                    self.lookup_collective(&[unmapped(kernel)], query, false)
                }
                Ok(kernel) => self.lookup_kernel(&kernel, query),
                Err(_) => Ok(LookupAnswer::missed(MissReason::Unmapped)),
            };
        };
        Ok(match &operator.route {
            OperatorRoute::ZeroCost => LookupAnswer::zero(MatchRule::of_kind(RuleKind::ZeroCost)),
            OperatorRoute::AcceptedMiss => LookupAnswer::zero(MatchRule::of_kind(RuleKind::AcceptedMiss)),
            OperatorRoute::Compute => return self.lookup_compute(operator, query),
            OperatorRoute::Elementwise => return self.lookup_elementwise(operator, query),
            OperatorRoute::MtpProjection(kernel) => {
                return self.lookup_mtp_projection(operator, kernel.as_ref(), query);
            }
            OperatorRoute::Attention | OperatorRoute::KeyScores => {
                return self.lookup_attention(&operator.kernels, query, KeyOrder::Framework);
            }
            OperatorRoute::CacheUpdate => return self.lookup_cache_update(&operator.kernels, query),
            OperatorRoute::Decomposed(rule) => {
                return self.lookup_decomposed(&operator.kernels, rule, query);
            }
            OperatorRoute::MoeFused(rule) => return self.lookup_moe(operator, rule, query),
            OperatorRoute::Communication => return self.lookup_collective(&operator.kernels, query, true),
            OperatorRoute::StaticComposite { parts, sequence_parallel } => {
                return self.lookup_composite(operator, parts, sequence_parallel.as_ref(), query);
            }
        })
    }

    /// Returns the rows that are nearest to a query, for a miss.
    pub fn nearest_rows(&self, query: &OpQuery, limit: usize) -> Result<Vec<NearestRow>, LookupError> {
        let (kernels, is_operator) = match self.mapping.operator(&query.op) {
            Some(operator) => (ordered_kernels(operator, &query.inputs), true),
            None => (KernelName::new(&query.op).into_iter().map(unmapped).collect(), false),
        };
        let mut rows = Vec::new();
        for index in self.candidates(&kernels)?.indices {
            let slots = recorded_slots(index, input_slots(&query.inputs), is_operator);
            rows.extend(nearest_rows(index, &slots, limit));
        }
        rows.sort_by(|one, other| one.distance.total_cmp(&other.distance));
        rows.truncate(limit);
        Ok(rows)
    }
}
