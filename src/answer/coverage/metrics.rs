//! The metrics M1 to M5 of a workload in a database.

use std::collections::{BTreeMap, BTreeSet};

use super::{AnswerClass, AnsweredQuestion, WorkloadCoverage};
use crate::answer::lookup::{LatencyColumn, LookupAnswer, UsedRow};

/// Operators that one fused kernel replaces: a group is one function, which hits if all of its members do. Names are
/// those of the framework without `torch.ops.`, and begin with one of the words.
const FUSED_GROUPS: [(&str, &[&str]); 4] = [
    (
        "DispatchFFNCombine",
        &[
            "tensor_cast.init_routing_v2",
            "tensor_cast.grouped_matmul",
            "tensor_cast.unpermute_tokens",
            "tensor_cast.all_to_all",
        ],
    ),
    ("MLAPO", &["tensor_cast.mlapo"]),
    ("MLA", &["tensor_cast.multihead_latent_attention"]),
    (
        "MC2",
        &[
            "tensor_cast.matmul_all_reduce",
            "tensor_cast.static_quant_linear_all_reduce",
            "tensor_cast.fp8_linear_all_reduce",
        ],
    ),
];

const SHOWN_NAMES: usize = 6;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricRatio {
    /// The part that hits: invocations (M1), functions (M2, M3), pairs of function and shapes (M4), or nanoseconds
    /// (M5).
    pub hits: f64,
    pub total: f64,
}

impl MetricRatio {
    /// Returns the ratio; `None` for an empty whole.
    pub fn value(self) -> Option<f64> {
        (self.total > 0.0).then(|| self.hits / self.total)
    }
}

/// Metrics of one or several workloads; counts and times are multiplied by the weights of the workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoverageMetrics {
    /// M1: invocations with a complete answer.
    pub invocations: MetricRatio,
    /// M2: functions all of whose invocations have one.
    pub functions: MetricRatio,
    /// M3: as M2, without functions that run no kernel.
    pub functions_that_run: MetricRatio,
    /// M4: pairs of function and shapes, without functions that run no kernel.
    pub shapes: MetricRatio,
    /// M5: time of the invocations with a complete answer, in nanoseconds. Invocations without a time do not count.
    pub time: MetricRatio,
}

impl CoverageMetrics {
    pub const fn all(&self) -> [(&'static str, MetricRatio); 5] {
        [
            ("M1", self.invocations),
            ("M2", self.functions),
            ("M3", self.functions_that_run),
            ("M4", self.shapes),
            ("M5", self.time),
        ]
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares are printed with a few digits")]
pub fn coverage_metrics(coverages: &[WorkloadCoverage<'_>]) -> CoverageMetrics {
    let mut metrics = CoverageMetrics::default();
    for coverage in coverages {
        let (totals, weight) = (coverage.totals(), coverage.workload.weight);
        let hits =
            |of: &dyn Fn(AnswerClass) -> f64| of(AnswerClass::Measured) + of(AnswerClass::Interpolated);
        metrics.invocations.hits += weight * hits(&|class| totals.count(class) as f64);
        metrics.invocations.total += weight * totals.all_count() as f64;
        metrics.time.hits += weight * hits(&|class| totals.time(class) as f64);
        metrics.time.total += weight * totals.all_time() as f64;
    }
    let answers: Vec<&AnsweredQuestion<'_>> =
        coverages.iter().flat_map(|coverage| &coverage.answers).collect();
    // Each function, if all of its invocations have an answer, and if one of them runs a kernel.
    let mut functions: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for answer in &answers {
        let (has_answers, runs) =
            functions.entry(function_name(&answer.question.query.op)).or_insert((true, false));
        *has_answers &= answer.class != AnswerClass::Missing;
        *runs |= !answer.is_free;
    }
    let ratio = |is_counted: fn(&&(bool, bool)) -> bool| MetricRatio {
        hits: functions.values().filter(is_counted).filter(|(has_answers, _)| *has_answers).count() as f64,
        total: functions.values().filter(is_counted).count() as f64,
    };
    metrics.functions = ratio(|_| true);
    metrics.functions_that_run = ratio(|(_, runs)| *runs);
    metrics.shapes = shape_ratio(&answers);
    metrics
}

/// Returns a note on invocations that count in M1 and not in M5, because they have no time; `None` without such ones,
/// and without any time.
pub(crate) fn untimed_note(coverages: &[WorkloadCoverage<'_>]) -> Option<String> {
    let answers = coverages.iter().flat_map(|coverage| &coverage.answers);
    let is_timed = answers.clone().any(|answer| answer.question.time.is_some());
    let (mut count, mut missing, mut names) = (0_u64, 0_u64, BTreeSet::new());
    for answer in answers.filter(|answer| answer.question.time.is_none()) {
        let own = answer.question.count;
        count = count.saturating_add(own);
        missing = missing.saturating_add(if answer.class == AnswerClass::Missing { own } else { 0 });
        names.insert(answer.question.query.op.as_str());
    }
    (is_timed && count > 0).then(|| {
        let shown: Vec<&str> = names.iter().copied().take(SHOWN_NAMES).collect();
        let more = names.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "{count} invocations have no time ({}{more}): they count in M1 and not in M5; {missing} of them have no answer",
            shown.join(", ")
        )
    })
}

/// Returns a note on invocations that rows with durations of production profiles answer; `None` without such ones.
pub(crate) fn production_note(coverages: &[WorkloadCoverage<'_>]) -> Option<String> {
    // Collectives are measured by sweeps.
    let is_of_production =
        |row: &&UsedRow| row.column != LatencyColumn::Replay && !row.kernel.is_collective();
    let has_production_duration = |answered: &&AnsweredQuestion<'_>| {
        let rows = answered.answer.as_ref().map(LookupAnswer::all_rows).unwrap_or_default();
        answered.class != AnswerClass::Missing && rows.iter().any(is_of_production)
    };
    let answers = coverages.iter().flat_map(|coverage| &coverage.answers).filter(has_production_duration);
    let count = answers.fold(0_u64, |count, answered| count.saturating_add(answered.question.count));
    (count > 0).then(|| {
        format!(
            "{} with durations of production profiles, which are those in a model: `npubench fill` measures their kernels alone",
            if count == 1 { "1 invocation is answered".to_owned() } else { format!("{count} invocations are answered") }
        )
    })
}

/// Returns the fused group of an operator, or its own name.
fn function_name(op: &str) -> &str {
    let op = op.strip_prefix("torch.ops.").unwrap_or(op);
    let group = FUSED_GROUPS.iter().find(|(_, members)| members.iter().any(|member| op.starts_with(member)));
    group.map_or(op, |(name, _)| name)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of shapes")]
fn shape_ratio(answers: &[&AnsweredQuestion<'_>]) -> MetricRatio {
    let mut hits: BTreeSet<(&str, Vec<&[u64]>)> = BTreeSet::new();
    let mut all = BTreeSet::new();
    for answer in answers.iter().filter(|answer| !answer.is_free) {
        let query = &answer.question.query;
        let op = query.op.strip_prefix("torch.ops.").unwrap_or(&query.op);
        let key = (op, query.inputs.iter().map(|tensor| tensor.dims.as_slice()).collect::<Vec<_>>());
        if answer.class != AnswerClass::Missing {
            hits.insert(key.clone());
        }
        all.insert(key);
    }
    MetricRatio { hits: hits.len() as f64, total: all.len() as f64 }
}
