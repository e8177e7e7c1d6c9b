//! Static composites: the kernels that run for one operator, and the sum of their answers.

use super::{
    AnswerSource, AttentionFamily, InterpolationKind, KernelsQuery, LookupAnswer, LookupEngine, LookupError,
    LookupRules, MatchRule, Micros, MissReason, OpQuery, PartAnswer, QuerySource, RuleKind, input_slots,
    message_of_product,
};
use crate::{
    answer::op_mapping::{CompositePart, MappedKernel, MappedOperator},
    kernel::KernelName,
};

impl LookupEngine {
    /// Looks the parts of a composite up and adds them. The first kernel has the inputs of the operator, later ones its
    /// output, which has the shape of the first input.
    pub(super) fn lookup_composite(
        &self,
        operator: &MappedOperator,
        query: &OpQuery,
    ) -> Result<LookupAnswer, LookupError> {
        let mut answers: Vec<PartAnswer> = Vec::new();
        for step in composite_steps(operator.parts(), &*self.rules) {
            let (name, answer) = match step {
                CompositeStep::Operator(name) => {
                    let answer = self.lookup(&OpQuery { op: name.clone(), ..query.clone() })?;
                    (name, answer)
                }
                CompositeStep::Collective(kernel) => {
                    let name = Some(kernel.name.as_str());
                    let rule = operator.sequence_parallel().filter(|rule| {
                        query.is_sequence_parallel && rule.source_kernel_type.as_deref() == name
                    });
                    let kernel = match rule {
                        Some(rule) => MappedKernel { name: rule.kernel_type.name.clone(), ..kernel },
                        None => kernel,
                    };
                    let answer = match message_of_product(query, rule) {
                        Ok(message) => self.lookup_message(&kernel, &message)?,
                        Err(reason) => LookupAnswer::missed(reason),
                    };
                    (kernel.name.to_string(), answer)
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

    /// Looks a step of a composite up, of whose kernels one runs. The first step has the inputs of the operator.
    pub(super) fn lookup_kernels(
        &self,
        operator: &MappedOperator,
        kernels: &[MappedKernel],
        query: &OpQuery,
        is_first: bool,
    ) -> Result<LookupAnswer, LookupError> {
        let mut slots = input_slots(&query.inputs);
        slots.truncate(if is_first { operator.input_count.unwrap_or(usize::MAX) } else { 1 });
        let query = KernelsQuery {
            slots,
            formats: &operator.formats,
            is_prefix: operator.input_count.is_some() || !is_first,
            interpolation: match self.rules.interpolates_composites() {
                true => InterpolationKind::Kernel,
                false => InterpolationKind::Disabled,
            },
            source: QuerySource::Operator,
            ..KernelsQuery::default()
        };
        Ok(self.match_kernels(&self.candidates(kernels)?, &query))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CompositeStep {
    /// Kernels of which one runs, in the order of preference.
    Kernels(Vec<MappedKernel>),
    Collective(MappedKernel),
    Operator(String),
}

/// Divides the parts of a composite into steps. Kernels of products are alternatives of each other: of `MatMulV2,
/// MatMulV3` one runs, of `RmsNorm, DynamicQuant` both.
pub(crate) fn composite_steps(parts: &[CompositePart], rules: &dyn LookupRules) -> Vec<CompositeStep> {
    let is_alternative = |kernel: &MappedKernel| rules.is_alternative(&kernel.name);
    let mut steps: Vec<CompositeStep> = Vec::new();
    for part in parts {
        match (part, steps.last_mut()) {
            (CompositePart::Operator(name), _) => steps.push(CompositeStep::Operator(name.clone())),
            (CompositePart::Kernel(kernel), _) if kernel.name.is_collective() => {
                steps.push(CompositeStep::Collective(kernel.clone()));
            }
            (CompositePart::Kernel(kernel), Some(CompositeStep::Kernels(kernels)))
                if is_alternative(kernel) && kernels.iter().all(is_alternative) =>
            {
                kernels.push(kernel.clone());
            }
            (CompositePart::Kernel(kernel), _) => steps.push(CompositeStep::Kernels(vec![kernel.clone()])),
        }
    }
    steps
}

fn is_missed(part: &PartAnswer) -> bool {
    part.answer.source == AnswerSource::Miss
}

fn sub_kernel_miss(kind: &'static str, part: &PartAnswer) -> MissReason {
    let reason = Box::new(part.answer.miss.clone().unwrap_or(MissReason::Unmapped));
    MissReason::SubKernelMiss { kind, part: part.name.clone(), reason }
}

/// Adds up the parts of a composite; the answer is a miss if one of them is.
pub(crate) fn sum_of_parts(parts: Vec<PartAnswer>) -> LookupAnswer {
    let is_collective = |part: &PartAnswer| KernelName::is_collective_name(&part.name);
    if let Some(part) = parts.iter().find(|part| is_missed(part)) {
        let kind = if is_collective(part) { "comm_" } else { "" };
        return LookupAnswer::missed(sub_kernel_miss(kind, part));
    }
    let is_computed = |part: &PartAnswer| part.answer.source != AnswerSource::Measured;
    let computes_kernel = parts.iter().any(|part| is_computed(part) && !is_collective(part));
    let confidence = match (computes_kernel, parts.iter().any(is_collective)) {
        (true, _) => 0.5,
        (false, true) => 0.9,
        (false, false) => 0.8,
    };
    let least = parts.iter().map(|part| part.answer.confidence).fold(1.0, f64::min);
    LookupAnswer {
        latency: Some(Micros(parts.iter().filter_map(|part| Some(part.answer.latency?.0)).sum())),
        // The sum is as good as its worst part.
        source: parts.iter().map(|part| part.answer.source).max().unwrap_or(AnswerSource::Measured),
        confidence: f64::min(confidence, least),
        rule: Some(MatchRule::of_kind(RuleKind::SumOfParts)),
        equal_rows: 1,
        miss: parts.iter().find(|part| part.answer.miss.is_some()).map(|part| sub_kernel_miss("", part)),
        parts,
        ..LookupAnswer::default()
    }
}

/// Adds up the parts that have an answer; the first one must. The answer is partial if another part has none.
pub(crate) fn sum_of_known_parts(parts: Vec<PartAnswer>) -> LookupAnswer {
    match parts.as_slice() {
        [first, rest @ ..] if rest.is_empty() || is_missed(first) => first.answer.clone(),
        _ => sum_of_sub_kernels(parts, false),
    }
}

/// Adds up the kernels of a shape-dependent composite. Attention must have an answer; of others one must, or all if the
/// mapping states so. The confidence of a sum that lacks parts is at most their share.
pub(crate) fn sum_of_sub_kernels(parts: Vec<PartAnswer>, requires_all: bool) -> LookupAnswer {
    let is_attention = |part: &&PartAnswer| {
        KernelName::new(&part.name).is_ok_and(|name| AttentionFamily::of_kernel(&name).is_some())
    };
    if let Some(part) = parts.iter().filter(is_attention).find(|part| is_missed(part)) {
        return LookupAnswer::missed(sub_kernel_miss("attention_", part));
    }
    let Some(missed) = parts.iter().find(|part| is_missed(part)) else {
        return if let [part] = parts.as_slice() { part.answer.clone() } else { sum_of_parts(parts) };
    };
    let reason = sub_kernel_miss("", missed);
    if requires_all || parts.iter().all(is_missed) {
        return LookupAnswer::missed(reason);
    }
    let known = sum_of_parts(parts.iter().filter(|part| !is_missed(part)).cloned().collect());
    #[expect(clippy::cast_precision_loss, reason = "a few parts")]
    let share = known.parts.len() as f64 / parts.len() as f64;
    LookupAnswer {
        source: AnswerSource::Partial,
        confidence: f64::min(known.confidence, share),
        miss: Some(reason),
        parts,
        ..known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::lookup::{collective::product_bytes, tests::tensors};

    #[test]
    fn kernels_of_one_call_are_alternatives_and_others_run_in_turn() {
        let part = |name: &str| {
            CompositePart::Kernel(MappedKernel { name: KernelName::new(name).expect("a name"), line: 0 })
        };
        let steps = |names: &[&str]| -> Vec<usize> {
            let parts: Vec<CompositePart> = names.iter().map(|name| part(name)).collect();
            let length = |step: &CompositeStep| match step {
                CompositeStep::Kernels(kernels) => kernels.len(),
                CompositeStep::Collective(_) | CompositeStep::Operator(_) => 0,
            };
            composite_steps(&parts, &crate::answer::lookup::engine::UsualRules).iter().map(length).collect()
        };
        assert_eq!(steps(&["MatMulV2", "MatMulV3", "MatMulCommon", "hcom_allReduce_"]), [3, 0]);
        assert_eq!(steps(&["RmsNorm", "DynamicQuant"]), [1, 1]);
    }

    #[test]
    fn messages_are_outputs_of_at_least_two_bytes_per_element() {
        for (shapes, dtype, bytes) in [
            ("41040,512;512,5120", "DT_BF16", Some(41040 * 5120 * 2)),
            ("8,512;5120,512", "INT8", Some(8 * 5120 * 2)),
            ("8,512;512,64", "FLOAT8_E4M3FN", Some(8 * 64 * 2)),
            ("8,512;512,64", "FLOAT", Some(8 * 64 * 4)),
            ("1,8,512;512,64", "DT_BF16", Some(8 * 64 * 2)),
            ("8,512;100,64", "DT_BF16", None),
            ("8,512;512,64", "HIFLOAT", None),
            ("4294967296,512;512,4294967296", "DT_BF16", None),
        ] {
            assert_eq!(product_bytes(&tensors(shapes, dtype)), bytes, "{shapes} {dtype}");
        }
    }
}
