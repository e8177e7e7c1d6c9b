//! Sums of counts and times by class, of all answers and of single kernels, the share of kernels that cannot be measured, and
//! the time that a database predicts for a workload.

use std::collections::{BTreeMap, BTreeSet};

use super::{AnsweredQuestion, WorkloadCoverage};
use crate::{
    answer::{lookup::LookupAnswer, workload::PredictedTime},
    kernel::{KernelName, Nanos},
};

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

#[expect(clippy::cast_precision_loss, reason = "a share is printed with a few digits")]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[derive(Clone, Debug, PartialEq)]
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
        let kernel = kernels.entry(name).or_insert_with(|| KernelCoverage {
            name: name.to_owned(),
            totals: CoverageTotals::default(),
            questions: 0,
            has_entry: None,
        });
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
        let add = |sum: &mut Nanos, micros: f64| {
            #[expect(clippy::cast_precision_loss, reason = "a number of invocations")]
            let all = Nanos::from_seconds(micros * 1e-6 * count as f64);
            *sum += all;
        };
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
                add(&mut predicted.communication, communication);
                add(&mut predicted.compute, compute);
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
        #[expect(clippy::cast_precision_loss, reason = "a number of invocations")]
        let count = answered.question.count as f64;
        match latency {
            Some(latency) => latency.0 * count,
            None => answered.question.time.map_or(0.0, Nanos::micros),
        }
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
