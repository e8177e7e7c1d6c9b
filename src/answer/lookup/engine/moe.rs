//! Lookup of fused mixtures of experts.

use super::{
    compute::KernelsQuery,
    lookup_engine::{LookupEngine, unmapped},
};
use crate::{
    answer::{
        lookup::{
            answer::{AnswerSource, LookupAnswer, MissReason, PartAnswer},
            composite::sum_of_known_parts,
            index::LookupError,
            match_rows::{InputComparison, RowsSeen, find_exact},
            moe_inputs::{MoeInputs, moe_inputs},
            query::{OpQuery, input_slots, input_variants},
        },
        op_mapping::{
            CommunicationRule, EmbeddedCompute, InputProjection, MappedOperator, MoeFusedRule, RankGroup,
        },
        op_query::collective_message::CollectiveMessage,
    },
    kernel::{Dtype, KernelName},
};

impl LookupEngine {
    /// Looks a fused mixture of experts up, and what runs beside it.
    pub(super) fn lookup_moe(
        &self,
        operator: &MappedOperator,
        rule: &MoeFusedRule,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let Some(ep_size) = query.ep_size else {
            return Ok(LookupAnswer::missed(MissReason::EpSizeNotConfigured));
        };
        let moe = moe_inputs(query);
        let inputs = match &moe {
            Some(moe) if rule.projects_full_shape => &moe.kernel,
            None if rule.projects_full_shape => return Ok(LookupAnswer::missed(MissReason::DecomposeFailed)),
            _ => &query.inputs,
        };
        let comparison = InputComparison {
            ep_size: Some(ep_size),
            needs_ep_size: true,
            ..InputComparison::new(
                operator.input_count.is_some() && !rule.projects_full_shape,
                &operator.formats,
            )
        };
        let mut slots = input_slots(inputs);
        slots.truncate(operator.input_count.filter(|_| !rule.projects_full_shape).unwrap_or(usize::MAX));
        let kernels = self.candidates(&operator.kernels)?;
        let answer =
            self.match_kernels(&kernels, &KernelsQuery { slots, ..KernelsQuery::of_part(comparison) });
        let name = operator.kernels.first().map_or("", |kernel| kernel.name.as_str()).to_owned();
        let mut parts = vec![PartAnswer { name, answer }];
        if parts[0].answer.source != AnswerSource::Miss {
            for embedded in &rule.embedded_compute {
                let answer = self.lookup_embedded(embedded, moe.as_ref())?;
                parts.push(PartAnswer { name: embedded.kernel_type.clone(), answer });
            }
            if let Some(collective) = &rule.embedded_communication {
                let answer = self.lookup_routed_message(collective, moe.as_ref(), query)?;
                // The collective runs for messages of measured sizes only.
                if !matches!(answer.miss, Some(MissReason::MessageOutOfRange { .. })) {
                    parts.push(PartAnswer { name: collective.kernel_type.clone(), answer });
                }
            }
        }
        Ok(sum_of_known_parts(parts))
    }

    /// Looks a kernel up that runs beside a fused mixture of experts.
    fn lookup_embedded(
        &self,
        embedded: &EmbeddedCompute,
        moe: Option<&MoeInputs>,
    ) -> Result<LookupAnswer, LookupError> {
        let (Some(moe), Ok(name)) = (moe, KernelName::new(&embedded.kernel_type)) else {
            return Ok(LookupAnswer::missed(MissReason::DecomposeFailed));
        };
        let kernels = self.candidates(&[unmapped(name)])?;
        let inputs = match embedded.input_projection {
            InputProjection::ResidualNormFromActivation => moe.norm_inputs(),
            InputProjection::RoutingWeightCast => vec![moe.cast_input()],
        };
        let slots = input_slots(&inputs);
        let comparison = InputComparison::new(true, &[]);
        let Some(dtype) = &embedded.output_dtype else {
            return Ok(
                self.match_kernels(&kernels, &KernelsQuery { slots, ..KernelsQuery::of_part(comparison) })
            );
        };
        let Some(index) = kernels.indices.first() else {
            return Ok(LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing)));
        };
        let mut seen = RowsSeen::default();
        let variants = input_variants(index.traits, slots);
        let mut matches = find_exact(index, &variants, comparison, &mut seen);
        let wanted = Dtype::parse(dtype);
        matches.retain(|found| {
            let outputs = &index.rows.form(&index.rows.rows[found.row as usize]).outputs;
            outputs.first().map(|output| &output.dtype) == wanted.as_ref()
        });
        match matches.is_empty() {
            true => Ok(LookupAnswer::missed(seen.reason())),
            false => Ok(self.choose(index, &matches, true, None)),
        }
    }

    /// Looks the collective up that sends tokens to their experts.
    fn lookup_routed_message(
        &self,
        rule: &CommunicationRule,
        moe: Option<&MoeInputs>,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let ranks = query.ranks.or(query.ep_size).unwrap_or_default();
        if rule.group_type == Some(RankGroup::ExpertParallel) && query.ep_size != Some(ranks) {
            return Ok(LookupAnswer::missed(MissReason::RanksNotGiven));
        }
        let bytes = moe.and_then(MoeInputs::routed_bytes);
        let (Some(bytes), Ok(name)) = (bytes, KernelName::new(&rule.kernel_type)) else {
            return Ok(LookupAnswer::missed(MissReason::MessageUnknown));
        };
        let message = CollectiveMessage {
            bytes,
            ranks,
            tier: query.tier,
            dtype: None,
            interpolation: rule.interpolation_method,
        };
        self.lookup_message(&unmapped(name), &message)
    }
}
