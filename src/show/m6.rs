//! M6: predicted against recorded time of forward passes, as a table and JSON lines.

use super::prelude::*;
use crate::answer::workload::{ForwardPass, PredictedTime};

#[derive(Debug)]
pub(crate) struct ProfiledPass {
    pub(crate) file: String,
    pub(crate) pass: ForwardPass,
}

/// Nanoseconds, without the time of AI CPUs.
#[derive(Clone, Copy, Debug)]
struct PassTimes {
    compute: f64,
    communication: f64,
}

impl PassTimes {
    const fn new(compute: Nanos, communication: Nanos) -> Self {
        Self { compute: float(compute.0), communication: float(communication.0) }
    }

    fn total(self) -> f64 {
        self.compute + self.communication
    }
}

/// A forward pass, the mean of several ones, or the prediction.
struct M6Row<'a> {
    name: String,
    pass: Option<&'a ProfiledPass>,
    /// Number of passes: more than 1 for a mean, 0 for the prediction.
    passes: usize,
    tokens: Option<u64>,
    times: PassTimes,
}

fn predicted_times(predicted: &PredictedTime) -> PassTimes {
    PassTimes::new(predicted.compute, predicted.communication)
}

/// Returns the passes, then the mean times of the complete ones, or of all if none is, for each number of tokens: the phases of
/// a run have different times.
fn recorded_rows(passes: &[ProfiledPass]) -> Vec<M6Row<'_>> {
    let is_any_complete = passes.iter().any(|pass| pass.pass.is_complete);
    let mut groups: BTreeMap<Option<u64>, Vec<PassTimes>> = BTreeMap::new();
    let mut rows = Vec::new();
    for (own, number) in passes.iter().zip(1..) {
        let ForwardPass { tokens, compute, communication, is_complete, .. } = own.pass;
        let times = PassTimes::new(compute, communication);
        if is_complete || !is_any_complete {
            groups.entry(tokens).or_default().push(times);
        }
        rows.push(M6Row { name: format!("{number}"), pass: Some(own), passes: 1, tokens, times });
    }
    rows.extend(groups.into_iter().map(|(tokens, group)| {
        let passes = group.len();
        let mean = |time: fn(&PassTimes) -> f64| group.iter().map(time).sum::<f64>() / passes as f64;
        let times =
            PassTimes { compute: mean(|own| own.compute), communication: mean(|own| own.communication) };
        M6Row { name: format!("mean of {passes}"), pass: None, passes, tokens, times }
    }));
    rows
}

pub(crate) fn m6_text(predicted: &PredictedTime, passes: &[ProfiledPass], width: Option<usize>) -> String {
    let times = predicted_times(predicted);
    let mut rows = recorded_rows(passes);
    rows.push(M6Row { name: "predicted".to_owned(), pass: None, passes: 0, tokens: None, times });
    let kernels = |row: &M6Row<'_>| match row.passes {
        0 => Some(predicted.events),
        _ => row.pass.map(|own| own.pass.kernels),
    };
    let ms = |nanos: f64| decimals3(nanos / 1e6);
    let ratio = |row: &M6Row<'_>, of: fn(&RatioRecord) -> Option<f64>| {
        let ratio = || or_dash(of(&RatioRecord::new(times, row.times)).map(|ratio| format!("{ratio:.4}")));
        or_empty((row.passes > 0).then(ratio))
    };
    let table = Table::new(&rows)
        .text("pass", 0, |row| &row.name)
        .text("device", rank(DETAIL).min(12), |row| or_empty(row.pass.map(|own| &own.pass.device)))
        .number("tokens", 1, |row| or_empty(row.tokens))
        .number("kernels", DETAIL, |row| or_empty(kernels(row)))
        .number("compute ms", 3, |row| ms(row.times.compute))
        .number("comm ms", 3, |row| ms(row.times.communication))
        .number("total ms", 1, |row| ms(row.times.total()))
        .number("aicpu ms", DETAIL, |row| or_empty(row.pass.map(|own| millis(own.pass.aicpu.0))))
        .number("M6", 0, |row| ratio(row, |ratios| ratios.m6))
        .number("M6 compute", 2, |row| ratio(row, |ratios| ratios.compute))
        .number("M6 comm", 2, |row| ratio(row, |ratios| ratios.communication))
        .text("complete", 4, |row| or_empty(row.pass.map(|own| yes_no(own.pass.is_complete))));
    let others = (predicted.others > 0).then(|| {
        format!(
            "{} invocations without an answer of the database, {} ms, are not in the prediction\n",
            predicted.others,
            millis(predicted.others_time.0)
        )
    });
    table.print(width) + &or_empty(others)
}

record! {
    /// Ratio of predicted and recorded time, and its parts; null where nothing is recorded.
    RatioRecord(predicted: PassTimes, recorded: PassTimes)
    with { let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole); } {
        #[serde(rename = "M6")]
        m6: Option<f64> = ratio(predicted.total(), recorded.total()),
        #[serde(rename = "M6_compute")]
        compute: Option<f64> = ratio(predicted.compute, recorded.compute),
        #[serde(rename = "M6_communication")]
        communication: Option<f64> = ratio(predicted.communication, recorded.communication),
    }
}

record! {
    PassRecord<'a>(number: usize, profiled: &'a ProfiledPass, times: PassTimes, predicted: PassTimes)
    with { let pass = &profiled.pass; } {
        #[serde(flatten)]
        ratios: RatioRecord = RatioRecord::new(predicted, times),
        pass: usize = number,
        file: &'a str = &profiled.file,
        device: &'a str = &pass.device,
        tokens: Option<u64> = pass.tokens,
        kernels: u64 = pass.kernels,
        compute_us: f64 = pass.compute.micros(),
        communication_us: f64 = pass.communication.micros(),
        total_us: f64 = pass.total().micros(),
        aicpu_us: f64 = pass.aicpu.micros(),
        complete: bool = pass.is_complete,
    }
}

record! {
    MeanRecord(mean: &M6Row<'_>, predicted: PassTimes) {
        #[serde(flatten)]
        ratios: RatioRecord = RatioRecord::new(predicted, mean.times),
        pass: Option<usize> = None,
        passes: usize = mean.passes,
        tokens: Option<u64> = mean.tokens,
        compute_us: f64 = mean.times.compute / 1e3,
        communication_us: f64 = mean.times.communication / 1e3,
        total_us: f64 = mean.times.total() / 1e3,
    }
}

record! {
    PredictionRecord(predicted: &PredictedTime) {
        pass: Option<usize> = None,
        predicted_compute_us: f64 = predicted.compute.micros(),
        predicted_communication_us: f64 = predicted.communication.micros(),
        predicted_invocations: u64 = predicted.events,
        other_invocations: u64 = predicted.others,
        other_us: f64 = predicted.others_time.micros(),
    }
}

pub(crate) fn m6_records(prediction: &PredictedTime, passes: &[ProfiledPass]) -> Vec<Box<RawValue>> {
    let predicted = predicted_times(prediction);
    let rows = recorded_rows(passes);
    let recorded = (1..).zip(&rows).map(|(number, row)| match row.pass {
        Some(pass) => json_record(&PassRecord::new(number, pass, row.times, predicted)),
        None => json_record(&MeanRecord::new(row, predicted)),
    });
    recorded.chain([json_record(&PredictionRecord::new(prediction))]).collect()
}
