//! Lookups of the questions of a workload, sums of counts and times by class, the metrics M1 to M5, and the time that a database
//! predicts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    answer::{
        lookup::{
            AnswerSource, LatencyColumn, LookupAnswer, LookupEngine, MissReason, OpQuery, RuleKind, UsedRow,
        },
        op_mapping::MappedOperator,
        workload::{PredictedTime, Workload, WorkloadQuestion},
    },
    base::command_error::CommandError,
    kernel::{KernelName, Nanos, catalogue::Catalogue},
};

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

fn function_name(op: &str) -> &str {
    let op = op.strip_prefix("torch.ops.").unwrap_or(op);
    let group = FUSED_GROUPS.iter().find(|(_, members)| members.iter().any(|member| op.starts_with(member)));
    group.map_or(op, |(name, _)| name)
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum AnswerClass {
    Measured,
    Interpolated,
    Missing,
}

impl AnswerClass {
    pub const ALL: [Self; 3] = [Self::Measured, Self::Interpolated, Self::Missing];
}

/// Counts and times of answers. Each invocation is in one class, and its time, if it is known, in the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoverageTotals {
    counts: [u64; 3],
    times: [i64; 3],
    pub untimed: u64,
}

impl CoverageTotals {
    pub(super) fn add_invocations(&mut self, class: AnswerClass, count: u64, time: Option<Nanos>) {
        let class = class as usize;
        self.counts[class] = self.counts[class].saturating_add(count);
        match time {
            Some(time) => self.times[class] = self.times[class].saturating_add(time.0),
            None => self.untimed = self.untimed.saturating_add(count),
        }
    }

    pub const fn count(&self, class: AnswerClass) -> u64 {
        self.counts[class as usize]
    }

    pub const fn time(&self, class: AnswerClass) -> i64 {
        self.times[class as usize]
    }

    pub fn all_count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn all_time(&self) -> i64 {
        self.times.iter().fold(0, |sum, time| sum.saturating_add(*time))
    }

    /// Returns the share of a class in the invocations; `None` without any.
    pub fn count_share(&self, class: AnswerClass) -> Option<f64> {
        ratio(self.count(class), self.all_count())
    }

    /// Returns the share of a class in the time; `None` without any.
    pub fn time_share(&self, class: AnswerClass) -> Option<f64> {
        ratio(self.time(class).unsigned_abs(), self.all_time().unsigned_abs())
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCoverage {
    pub name: String,
    pub totals: CoverageTotals,
    pub questions: usize,
    /// True if the catalogue can measure it; `None` if no kernel runs, and for collectives.
    pub has_entry: Option<bool>,
}

/// Returns the coverage of each kernel or operator of a workload, the longest missing time first, then the longest
/// time.
pub fn kernel_coverage(coverage: &WorkloadCoverage<'_>) -> Vec<KernelCoverage> {
    let mut kernels: BTreeMap<&str, KernelCoverage> = BTreeMap::new();
    for answer in &coverage.answers {
        let name = answer.question.query.op.as_str();
        let unknown = || KernelCoverage { name: name.to_owned(), ..KernelCoverage::default() };
        let kernel = kernels.entry(name).or_insert_with(unknown);
        kernel.totals.add_invocations(answer.class, answer.question.count, answer.question.time);
        kernel.questions += 1;
        kernel.has_entry = kernel.has_entry.or(answer.has_entry);
    }
    let mut kernels: Vec<KernelCoverage> = kernels.into_values().collect();
    kernels.sort_by_key(|kernel| {
        let totals = &kernel.totals;
        let missing = (totals.time(AnswerClass::Missing), totals.count(AnswerClass::Missing));
        std::cmp::Reverse((missing, totals.all_time(), totals.all_count()))
    });
    kernels
}

/// Share of what the catalogue cannot measure, among kernels that run and are no collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryShare {
    pub(crate) kernels: (u64, u64),
    pub(crate) invocations: (u64, u64),
    /// Time in nanoseconds without an entry, and all.
    pub(crate) time: (i64, i64),
}

pub(crate) fn entry_share(coverage: &WorkloadCoverage<'_>) -> EntryShare {
    let sums = |is_counted: fn(bool) -> bool| {
        let answers = coverage.answers.iter().filter(|answer| answer.has_entry.is_some_and(is_counted));
        let names: BTreeSet<&str> = answers.clone().map(|answer| answer.question.query.op.as_str()).collect();
        answers.fold((names.len() as u64, 0_u64, 0_i64), |(names, count, time), answer| {
            let own = answer.question.time.map_or(0, |time| time.0);
            (names, count.saturating_add(answer.question.count), time.saturating_add(own))
        })
    };
    let (without, all) = (sums(|has_entry| !has_entry), sums(|_| true));
    EntryShare { kernels: (without.0, all.0), invocations: (without.1, all.1), time: (without.2, all.2) }
}

/// Sums the latencies of all complete answers; collectives are summed separately. Invocations without a complete answer
/// have no predicted time; theirs in the workload, if it is known, is that of others. Only the parts that rows of
/// `kernels` answer are summed, all if it is empty.
pub(crate) fn predicted_time(coverage: &WorkloadCoverage<'_>, kernels: &[KernelName]) -> PredictedTime {
    let mut predicted = PredictedTime::default();
    for answered in &coverage.answers {
        let count = answered.question.count;
        let is_named =
            kernels.is_empty() || kernels.iter().any(|kernel| kernel.as_str() == answered.query.op);
        let all = |micros: f64| Nanos::from_seconds(micros * 1e-6 * count as f64);
        match (answered.class, &answered.answer) {
            (AnswerClass::Missing, _) | (_, None) if !is_named => {}
            (AnswerClass::Missing, _) | (_, None) => {
                predicted.others = predicted.others.saturating_add(count);
                predicted.others_time += answered.question.time.unwrap_or_default();
            }
            (_, Some(answer)) => {
                let latency = answer.latency.map_or(0.0, |latency| latency.0);
                let [compute, communication] = match kernels {
                    [] => {
                        let communication = communication_of(answered, answer, latency);
                        [latency - communication, communication]
                    }
                    _ => micros_of_kernels(answer, kernels),
                };
                if compute + communication > 0.0 {
                    predicted.events = predicted.events.saturating_add(count);
                }
                predicted.communication += all(communication);
                predicted.compute += all(compute);
            }
        }
    }
    predicted
}

/// Returns the latencies in microseconds that rows of some kernels contribute to an answer, separately for kernels and
/// for collectives.
fn micros_of_kernels(answer: &LookupAnswer, kernels: &[KernelName]) -> [f64; 2] {
    if answer.parts.is_empty() {
        let row = answer.rows.first().filter(|row| kernels.contains(&row.kernel));
        let micros = row.and(answer.latency).map_or(0.0, |latency| latency.0);
        let is_collective = row.is_some_and(|row| row.kernel.is_collective());
        return if is_collective { [0.0, micros] } else { [micros, 0.0] };
    }
    answer.parts.iter().fold([0.0, 0.0], |[compute, communication], part| {
        let [own, own_communication] = micros_of_kernels(&part.answer, kernels);
        [compute + own, communication + own_communication]
    })
}

/// Returns the time in microseconds that a performance model computes for a workload: latencies of complete and partial
/// answers, and for the rest the workload's own time.
pub(crate) fn modelled_micros(coverage: &WorkloadCoverage<'_>) -> f64 {
    let micros = |answered: &AnsweredQuestion<'_>| {
        let latency = answered.answer.as_ref().and_then(|answer| answer.latency);
        let count = answered.question.count as f64;
        latency.map_or_else(|| answered.question.time.map_or(0.0, Nanos::micros), |latency| latency.0 * count)
    };
    coverage.answers.iter().map(micros).sum()
}

fn communication_of(answered: &AnsweredQuestion<'_>, answer: &LookupAnswer, latency: f64) -> f64 {
    let is_collective = KernelName::is_collective_name;
    if answer.parts.is_empty() {
        let by_rows = answer.rows.first().is_some_and(|row| row.kernel.is_collective());
        return if by_rows || is_collective(&answered.query.op) { latency } else { 0.0 };
    }
    let parts = answer.parts.iter().map(|part| match part.answer.latency {
        Some(own) if is_collective(&part.name) => own.0,
        Some(own) => communication_of(answered, &part.answer, own.0),
        None => 0.0,
    });
    parts.sum::<f64>().min(latency)
}

#[derive(Clone, Debug)]
pub struct AnsweredQuestion<'w> {
    pub question: &'w WorkloadQuestion,
    /// The query that the answer is for: of kernels of which one runs, the first with the best answer, from
    /// [`AnswerSource::Measured`] on.
    pub query: &'w OpQuery,
    /// The answer; `None` if the question cannot be looked up.
    pub answer: Option<LookupAnswer>,
    pub class: AnswerClass,
    /// True if no kernel runs, or one that counts as 0.
    pub is_free: bool,
    /// True if the catalogue has an entry of a kernel that would run; `None` if none runs, and for collectives.
    pub has_entry: Option<bool>,
}

impl AnsweredQuestion<'_> {
    /// Returns the reason of a missing answer; empty for others.
    pub fn reason(&self) -> String {
        self.reason_by(ToString::to_string)
    }

    pub(super) fn reason_by(&self, text: impl Fn(&MissReason) -> String) -> String {
        let reason = match &self.answer {
            Some(answer) => answer.miss.as_ref().map(text),
            None => self.question.unreadable.as_ref().map(ToString::to_string),
        };
        reason.filter(|_| self.class == AnswerClass::Missing).unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub struct WorkloadCoverage<'w> {
    pub workload: &'w Workload,
    pub answers: Vec<AnsweredQuestion<'w>>,
}

impl WorkloadCoverage<'_> {
    pub fn totals(&self) -> CoverageTotals {
        let mut totals = CoverageTotals::default();
        for answer in &self.answers {
            totals.add_invocations(answer.class, answer.question.count, answer.question.time);
        }
        totals
    }
}

/// Adds the other names of a kernel's call to the alternates of questions about kernels: CANN chooses which of them runs, so that
/// a case of one may have been measured as the other.
pub(crate) fn add_equal_calls(workload: &mut Workload, catalogue: &Catalogue) {
    for question in &mut workload.questions {
        let Ok(kernel) = KernelName::new(&question.query.op) else { continue };
        if catalogue.entry(&kernel).is_none() {
            continue;
        }
        for name in catalogue.names_with_same_call(&kernel).into_iter().skip(1) {
            if question.queries().all(|query| query.op != name.as_str()) {
                question.alternates.push(OpQuery { op: name.as_str().to_owned(), ..question.query.clone() });
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct CoverageAnalyzer<'a> {
    pub engine: &'a LookupEngine,
    pub catalogue: &'a Catalogue,
}

impl CoverageAnalyzer<'_> {
    /// Looks all questions of a workload up. Fails if a table cannot be read.
    pub fn answer_workload<'w>(&self, workload: &'w Workload) -> Result<WorkloadCoverage<'w>, CommandError> {
        let answers = workload.questions.iter().map(|question| self.answer_question(question));
        Ok(WorkloadCoverage { workload, answers: answers.collect::<Result<_, _>>()? })
    }

    pub(crate) fn answer_workloads<'w>(
        &self,
        workloads: &'w [Workload],
    ) -> Result<Vec<WorkloadCoverage<'w>>, CommandError> {
        workloads.iter().map(|workload| self.answer_workload(workload)).collect()
    }

    fn answer_question<'w>(
        &self,
        question: &'w WorkloadQuestion,
    ) -> Result<AnsweredQuestion<'w>, CommandError> {
        let has_entry = self.has_entry(question);
        // If there are no inputs, only operators without a kernel have an answer.
        let is_readable = question.unreadable.is_none() || self.is_free(&question.query.op);
        let mut best: Option<(&OpQuery, LookupAnswer)> = None;
        for query in question.queries().filter(|_| is_readable) {
            let answer = self.engine.lookup(query)?;
            let is_final = answer.source == AnswerSource::Measured;
            let is_better = best.as_ref().is_none_or(|(_, other)| {
                answer.source < other.source
                    || answer.source == other.source && !has_table(other) && has_table(&answer)
            });
            if is_better {
                best = Some((query, answer));
            }
            if is_final {
                break;
            }
        }
        let (query, answer) = best.map_or((&question.query, None), |(query, answer)| (query, Some(answer)));
        let class = match answer.as_ref().map(|answer| answer.source) {
            Some(AnswerSource::Measured) => AnswerClass::Measured,
            Some(AnswerSource::Interpolated | AnswerSource::Scaled | AnswerSource::Padded) => {
                AnswerClass::Interpolated
            }
            Some(AnswerSource::Partial | AnswerSource::Miss) | None => AnswerClass::Missing,
        };
        let rule = answer.as_ref().and_then(|answer| answer.rule).map(|rule| rule.kind);
        let is_free = matches!(rule, Some(RuleKind::ZeroCost | RuleKind::AcceptedMiss));
        let has_entry = has_entry.filter(|_| !is_free);
        Ok(AnsweredQuestion { question, query, answer, class, is_free, has_entry })
    }

    pub(super) fn is_free(&self, op: &str) -> bool {
        self.engine.mapping.operator(op).is_some_and(MappedOperator::is_free)
    }

    /// Returns true if the catalogue can measure a kernel of a question; `None` if its kernels are collectives, or
    /// unknown.
    fn has_entry(&self, question: &WorkloadQuestion) -> Option<bool> {
        let mut is_known = false;
        for query in question.queries() {
            let kernels = self.engine.kernels_of(&query.op, &[]);
            if kernels.iter().any(KernelName::is_collective) {
                continue;
            }
            is_known |= !kernels.is_empty();
            if kernels.iter().any(|kernel| self.catalogue.entry(kernel).is_some()) {
                return Some(true);
            }
        }
        is_known.then_some(false)
    }
}

/// Returns true unless the reason of a miss is that there are no rows of the kernel at all.
fn has_table(answer: &LookupAnswer) -> bool {
    !matches!(answer.miss, Some(MissReason::Unmapped | MissReason::CsvNotFound(_)))
}
