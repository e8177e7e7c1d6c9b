//! M6: predicted against recorded time of forward passes, as a table and JSON lines.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::prelude::*;
use crate::{
    answer::workload::{ForwardPass, PredictedTime},
    kernel::Nanos,
};

#[derive(Debug)]
pub(crate) struct ProfiledPass {
    pub(crate) file: String,
    pub(crate) pass: ForwardPass,
}

/// The prediction of a forward pass, and recorded ones.
#[derive(Debug)]
pub(crate) struct M6Report<'a> {
    pub(crate) predicted: PredictedTime,
    pub(crate) passes: &'a [ProfiledPass],
}

/// Times of a pass, or means of several passes, in nanoseconds, without the time of AI CPUs.
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

    fn ratios(self, predicted: Self) -> RatioRecord {
        RatioRecord::new(predicted, self)
    }
}

impl M6Report<'_> {
    fn predicted_times(&self) -> PassTimes {
        PassTimes::new(self.predicted.compute, self.predicted.communication)
    }

    /// Returns the mean times of the complete passes, or of all if none is, for each number of tokens: the phases of a
    /// run have different times.
    fn mean_times(&self) -> Vec<MeanTimes> {
        let is_any_complete = self.passes.iter().any(|pass| pass.pass.is_complete);
        let mut groups: BTreeMap<Option<u64>, Vec<&ForwardPass>> = BTreeMap::new();
        for ProfiledPass { pass, .. } in self.passes {
            if pass.is_complete || !is_any_complete {
                groups.entry(pass.tokens).or_default().push(pass);
            }
        }
        let mean = |(tokens, passes): (Option<u64>, Vec<&ForwardPass>)| {
            #[expect(clippy::cast_precision_loss, reason = "a number of passes")]
            let mean = |time: fn(&ForwardPass) -> Nanos| {
                passes.iter().map(|pass| float(time(pass).0)).sum::<f64>() / passes.len() as f64
            };
            let (compute, communication) = (mean(|pass| pass.compute), mean(|pass| pass.communication));
            MeanTimes { tokens, passes: passes.len(), times: PassTimes { compute, communication } }
        };
        groups.into_iter().map(mean).collect()
    }
}

struct MeanTimes {
    tokens: Option<u64>,
    passes: usize,
    times: PassTimes,
}

/// A row of the table: a pass, a mean, or the prediction.
struct M6Row<'a> {
    name: String,
    pass: Option<&'a ForwardPass>,
    tokens: Option<u64>,
    kernels: Option<u64>,
    times: PassTimes,
    ratios: Option<RatioRecord>,
}

pub(crate) fn m6_text(report: &M6Report<'_>, width: Option<usize>) -> String {
    let predicted = report.predicted_times();
    let passes = report.passes.iter().zip(1..).map(|(ProfiledPass { pass, .. }, number)| {
        let times = PassTimes::new(pass.compute, pass.communication);
        M6Row {
            name: number.to_string(),
            pass: Some(pass),
            tokens: pass.tokens,
            kernels: Some(pass.kernels),
            times,
            ratios: Some(times.ratios(predicted)),
        }
    });
    let means = report.mean_times().into_iter().map(|MeanTimes { tokens, passes, times }| M6Row {
        name: format!("mean of {passes}"),
        pass: None,
        tokens,
        kernels: None,
        times,
        ratios: Some(times.ratios(predicted)),
    });
    let prediction = M6Row {
        name: "predicted".to_owned(),
        pass: None,
        tokens: None,
        kernels: Some(report.predicted.events),
        times: predicted,
        ratios: None,
    };
    let rows: Vec<M6Row<'_>> = passes.chain(means).chain([prediction]).collect();
    let ms = |nanos: f64| decimals3(nanos / 1e6);
    let ratio = |row: &M6Row<'_>, of: fn(&RatioRecord) -> Option<f64>| {
        or_empty(row.ratios.as_ref().map(|ratios| or_dash(of(ratios).map(|ratio| format!("{ratio:.4}")))))
    };
    let table = Table::new(&rows)
        .text("pass", 0, |row| &row.name)
        .text("device", rank(DETAIL).min(12), |row| or_empty(row.pass.map(|pass| &pass.device)))
        .number("tokens", 1, |row| or_empty(row.tokens))
        .number("kernels", DETAIL, |row| or_empty(row.kernels))
        .number("compute ms", 3, |row| ms(row.times.compute))
        .number("comm ms", 3, |row| ms(row.times.communication))
        .number("total ms", 1, |row| ms(row.times.total()))
        .number("aicpu ms", DETAIL, |row| or_empty(row.pass.map(|pass| millis(pass.aicpu.0))))
        .number("M6", 0, |row| ratio(row, |ratios| ratios.m6))
        .number("M6 compute", 2, |row| ratio(row, |ratios| ratios.compute))
        .number("M6 comm", 2, |row| ratio(row, |ratios| ratios.communication))
        .text("complete", 4, |row| or_empty(row.pass.map(|pass| yes_no(pass.is_complete))));
    let others = (report.predicted.others > 0).then(|| {
        format!(
            "{} invocations without an answer of the database, {} ms, are not in the prediction\n",
            report.predicted.others,
            millis(report.predicted.others_time.0)
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
    PassRecord<'a>(number: usize, profiled: &'a ProfiledPass, predicted: PassTimes)
    with { let pass = &profiled.pass; } {
        #[serde(flatten)]
        ratios: RatioRecord = PassTimes::new(pass.compute, pass.communication).ratios(predicted),
        /// From 1.
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
    MeanRecord(mean: &MeanTimes, predicted: PassTimes) {
        #[serde(flatten)]
        ratios: RatioRecord = mean.times.ratios(predicted),
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
        /// Invocations that the prediction does not contain.
        other_invocations: u64 = predicted.others,
        other_us: f64 = predicted.others_time.micros(),
    }
}

/// Returns M6 in JSON: a record for each pass, then one for each mean, then one with the prediction.
pub(crate) fn m6_records(report: &M6Report<'_>) -> Vec<Box<RawValue>> {
    let predicted = report.predicted_times();
    let passes = (1..).zip(report.passes);
    let passes = passes.map(|(number, pass)| json_record(&PassRecord::new(number, pass, predicted)));
    let means = report.mean_times().into_iter().map(|mean| json_record(&MeanRecord::new(&mean, predicted)));
    passes.chain(means).chain([json_record(&PredictionRecord::new(&report.predicted))]).collect()
}
