//! Time that a database predicts for a workload.

use super::{
    answers::{AnsweredQuestion, WorkloadCoverage},
    totals::AnswerClass,
};
use crate::{
    answer::{lookup::LookupAnswer, workload::PredictedTime},
    kernel::{KernelName, Nanos},
};

/// Sums the latencies of all complete answers, with those of collectives apart. Invocations without a complete answer
/// have no predicted time; theirs in the workload, if it is known, is that of others. Only the parts that rows of `kernels` answer
/// are summed, all if it is empty.
pub(crate) fn predicted_time(coverage: &WorkloadCoverage<'_>, kernels: &[KernelName]) -> PredictedTime {
    let mut predicted = PredictedTime::default();
    for answered in &coverage.answers {
        let count = answered.question.count;
        let latency =
            answered.answer.as_ref().and_then(|answer| answer.latency).map_or(0.0, |latency| latency.0);
        let is_named =
            kernels.is_empty() || kernels.iter().any(|kernel| kernel.as_str() == answered.query.op);
        let add = |sum: &mut Nanos, micros: f64| {
            #[expect(clippy::cast_precision_loss, reason = "a number of invocations")]
            let all = Nanos::from_seconds(micros * 1e-6 * count as f64);
            *sum = Nanos(sum.0.saturating_add(all.0));
        };
        match (answered.class, &answered.answer) {
            (AnswerClass::Missing, _) | (_, None) if !is_named => {}
            (AnswerClass::Missing, _) | (_, None) => {
                predicted.others = predicted.others.saturating_add(count);
                let time = answered.question.time.map_or(0, |time| time.0);
                predicted.others_time = Nanos(predicted.others_time.0.saturating_add(time));
            }
            (_, Some(answer)) if latency > 0.0 => {
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
            _ => {}
        }
    }
    predicted
}

/// Returns the latencies in microseconds that rows of some kernels give to an answer: those of kernels, and those of collectives.
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

/// Returns the part of a latency that collectives take.
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
