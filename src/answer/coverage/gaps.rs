//! Gaps: questions without a complete answer, with what would close each.

use std::collections::{BTreeMap, BTreeSet};

use super::{AnswerClass, AnsweredQuestion, CoverageAnalyzer, GapClosing, WorkloadCoverage};
use crate::{
    answer::{
        lookup::{KernelTraits, OpQuery, QueryTensor},
        workload::WorkloadQuestion,
    },
    kernel::{AttentionCase, IdentifiedCase, KernelName},
};

/// Minimum number of gaps along the tokens that two rows are to serve.
const MIN_BRACKETED: usize = 3;
const ATTENTION: [&str; 3] = [AttentionCase::KERNEL, "SparseFlashAttention", "LightningIndexer"];

/// Question without a complete answer. Equal questions of several workloads are one gap.
#[derive(Clone, Debug)]
pub struct CoverageGap<'w> {
    pub question: &'w WorkloadQuestion,
    /// The query whose answer is nearest to a complete one.
    pub query: &'w OpQuery,
    /// Invocations, multiplied by the weights of their workloads.
    pub count: f64,
    /// Time in nanoseconds, multiplied likewise; `None` if unknown.
    pub time: Option<f64>,
    /// Share of the time of all workloads; `None` if unknown.
    pub share: Option<f64>,
    pub workloads: Vec<&'w str>,
    pub reason: String,
    pub(crate) short_reason: String,
    pub closing: GapClosing,
    /// The case whose measurement closes it; `None` if none does, or if the question does not determine it.
    pub case: Option<IdentifiedCase>,
    /// True if everything else of the question has an answer, as far as it is known.
    pub is_only_part: bool,
    /// Interpolation bracket that serves it; `None` without one.
    pub bracket: Option<GapBracket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapBracket {
    pub number: usize,
    pub tokens: u64,
}

/// Returns the gaps of workloads, the longest time first; those without a time last, by count.
pub fn coverage_gaps<'w>(
    analyzer: &CoverageAnalyzer<'_>,
    coverages: &[WorkloadCoverage<'w>],
) -> Vec<CoverageGap<'w>> {
    let mut all_time = 0.0;
    let mut gaps: BTreeMap<String, CoverageGap<'w>> = BTreeMap::new();
    for coverage in coverages {
        let weight = coverage.workload.weight;
        for answer in &coverage.answers {
            #[expect(clippy::cast_precision_loss, reason = "weighted sums are printed with a few digits")]
            let (time, count) = (
                answer.question.time.map(|time| weight * time.0 as f64),
                weight * answer.question.count as f64,
            );
            all_time += time.unwrap_or(0.0);
            if answer.class != AnswerClass::Missing {
                continue;
            }
            let gap = gaps.entry(gap_key(answer)).or_insert_with(|| {
                let (closing, case, is_only_part) = analyzer.assess_gap(answer);
                CoverageGap {
                    question: answer.question,
                    query: answer.query,
                    count: 0.0,
                    time: None,
                    share: None,
                    workloads: Vec::new(),
                    reason: answer.reason(),
                    short_reason: answer.short_reason(),
                    case: case.map(IdentifiedCase::new),
                    closing,
                    is_only_part,
                    bracket: None,
                }
            });
            gap.count += count;
            gap.time = time.map(|time| gap.time.unwrap_or(0.0) + time).or(gap.time);
            if !gap.workloads.contains(&coverage.workload.name.as_str()) {
                gap.workloads.push(&coverage.workload.name);
            }
        }
    }
    let mut gaps: Vec<CoverageGap<'w>> = gaps.into_values().collect();
    for gap in &mut gaps {
        gap.share = gap.time.filter(|_| all_time > 0.0).map(|time| time / all_time);
    }
    set_brackets(analyzer, &mut gaps);
    gaps.sort_by(|one, other| {
        let (time, other_time) = (one.time.unwrap_or(-1.0), other.time.unwrap_or(-1.0));
        other_time.total_cmp(&time).then(other.count.total_cmp(&one.count))
    });
    gaps
}

/// Returns a text that is equal for equal questions.
pub(super) fn gap_key(answer: &AnsweredQuestion<'_>) -> String {
    format!("{:?} {:?}", answer.question.query, answer.question.unreadable)
}

/// Marks gaps that differ in their tokens only, and that the interpolation along them would serve.
fn set_brackets(analyzer: &CoverageAnalyzer<'_>, gaps: &mut [CoverageGap<'_>]) {
    let mut groups: BTreeMap<String, Vec<(usize, u64)>> = BTreeMap::new();
    for (at, gap) in gaps.iter().enumerate() {
        if let Some((key, tokens)) = bracket_key(analyzer, gap) {
            groups.entry(key).or_default().push((at, tokens));
        }
    }
    for (number, members) in groups.into_values().enumerate() {
        let all: BTreeSet<u64> = members.iter().map(|(_, tokens)| *tokens).collect();
        let (Some(&min), Some(&max)) = (all.first(), all.last()) else { continue };
        for (at, tokens) in members.iter().filter(|_| all.len() >= MIN_BRACKETED) {
            if let GapClosing::ExactCase { kernel } = &gaps[*at].closing {
                let (kernel, count) = (kernel.clone(), members.len());
                gaps[*at].bracket = Some(GapBracket { number, tokens: *tokens });
                gaps[*at].closing = GapClosing::InterpolationBracket { kernel, min, max, gaps: count };
            }
        }
    }
}

/// Returns a text that is equal for gaps that differ in their tokens only, with the tokens. Lookups interpolate
/// products along their rows, for each number of matrices apart, and other kernels along the first dimension. Attention
/// and collectives have other axes, and a query without types is not interpolated.
fn bracket_key(analyzer: &CoverageAnalyzer<'_>, gap: &CoverageGap<'_>) -> Option<(String, u64)> {
    let GapClosing::ExactCase { kernel } = &gap.closing else { return None };
    let (name, query) = (KernelName::new(kernel).ok()?, gap.query);
    let is_attention = ATTENTION.iter().any(|attention| kernel.starts_with(attention));
    let is_interpolated = analyzer.engine.mapping().policy(kernel).max_interpolation_dim != Some(0);
    let is_typed = query.inputs.iter().all(|tensor| tensor.dtype.is_some());
    if is_attention || !is_interpolated || !is_typed || !gap.is_only_part {
        return None;
    }
    let is_product = KernelTraits::of_kernel(&name).is_product;
    let first = &query.inputs.first()?.dims;
    let axis = if is_product { first.len().checked_sub(2)? } else { 0 };
    let tokens = first.get(axis).copied().filter(|tokens| *tokens > 1)?;
    let shape = |(number, tensor): (usize, &QueryTensor)| {
        let varies = |at: usize, dim: u64| match is_product {
            true => (number, at) == (0, axis),
            false => at == 0 && dim == tokens,
        };
        let dims = tensor.dims.iter().enumerate();
        let dims = dims.map(|(at, dim)| if varies(at, *dim) { "T".to_owned() } else { dim.to_string() });
        format!("{} {:?} {:?}", dims.collect::<Vec<_>>().join(","), tensor.dtype, tensor.format)
    };
    let shapes: Vec<String> = query.inputs.iter().enumerate().map(shape).collect();
    Some((format!("{} {:?} {:?} {}", query.op, query.ep_size, query.ranks, shapes.join(";")), tokens))
}
