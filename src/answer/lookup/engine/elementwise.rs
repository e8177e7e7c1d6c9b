//! Lookup of element-wise operators.

use super::lookup_engine::{CandidateKernels, LookupEngine};
use crate::answer::lookup::{
    answer::{LookupAnswer, MissReason},
    elementwise::{self, ElementwiseOutput},
    index::LookupError,
    interpolation::{InterpolationKind, InterpolationQuery, interpolate_rows},
    match_rows::{InputComparison, RowsSeen, find_exact},
    query::{InputSlot, OpQuery, input_slots, input_variants},
    rules::LookupRules,
    superseded,
};
use crate::answer::op_mapping::MappedOperator;

impl LookupEngine {
    /// Looks an element-wise operator up: by its inputs, then by its output.
    pub(super) fn lookup_elementwise(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let kernels = self.candidates(&operator.kernels)?;
        if kernels.indices.is_empty() {
            return Ok(LookupAnswer::missed(MissReason::CsvNotFound(kernels.missing)));
        }
        let slots = input_slots(&query.inputs);
        let has_dtypes = slots.iter().all(|slot| slot.dtype.is_some());
        let comparison = InputComparison::new(false, &[]);
        let mut seen = RowsSeen::default();
        if self.rules == LookupRules::Superseded {
            return Ok(self.lookup_elementwise_superseded(&kernels, query));
        }
        for index in &kernels.indices {
            let variants = input_variants(index.traits, slots.clone());
            let matches = find_exact(index, &variants, comparison, &mut seen);
            if !matches.is_empty() {
                return Ok(self.choose(index, &matches, has_dtypes, None));
            }
        }
        let Some(output) = elementwise::output_of_query(query) else {
            return Ok(LookupAnswer::missed(seen.reason()));
        };
        let by_output = |is_scaled: bool| {
            kernels.indices.iter().find_map(|index| {
                let matches = elementwise::find_by_output(index, &output, &slots, is_scaled);
                (!matches.is_empty()).then(|| self.choose(index, &matches, true, None))
            })
        };
        if let Some(answer) = by_output(false)
            .or_else(|| self.interpolate_elementwise(&kernels, &slots, &output))
            .or_else(|| by_output(true))
        {
            return Ok(answer);
        }
        let reason = seen.reason();
        Ok(LookupAnswer::missed(match reason {
            MissReason::NotMeasured => reason,
            _ => MissReason::ElementwiseOutputShapeMismatch,
        }))
    }

    fn interpolate_elementwise(
        &self,
        kernels: &CandidateKernels<'_>,
        slots: &[InputSlot<'_>],
        output: &ElementwiseOutput,
    ) -> Option<LookupAnswer> {
        let comparison = InputComparison::new(false, &[]);
        if slots.iter().any(|slot| slot.dtype.is_none()) {
            return None;
        }
        kernels.indices.iter().find_map(|index| {
            let variants = input_variants(index.traits, slots.to_vec());
            let (variants, outputs, kind) = (&*variants, &[output.dims][..], InterpolationKind::Elementwise);
            let query = InterpolationQuery { variants, outputs, comparison, kind };
            interpolate_rows(index, query, self.mapping.policy(index.rows.kernel.as_str()))
        })
    }

    /// Looks an element-wise operator up as the superseded tool does: by its output in the table of the first kernel,
    /// scaled by the bytes of the element type, then interpolated.
    fn lookup_elementwise_superseded(&self, kernels: &CandidateKernels<'_>, query: &OpQuery) -> LookupAnswer {
        let missed = || LookupAnswer::missed(MissReason::ElementwiseOutputShapeMismatch);
        let (Some(output), Some(index)) = (elementwise::output_of_query(query), kernels.indices.first())
        else {
            return missed();
        };
        let policy = self.mapping.policy(index.rows.kernel.as_str());
        superseded::find_first_output(index, &output, policy)
            .or_else(|| self.interpolate_elementwise(kernels, &input_slots(&query.inputs), &output))
            .unwrap_or_else(missed)
    }
}
