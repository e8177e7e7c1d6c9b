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

    fn ratios(self, predicted: Self) -> RatioRecord {
        RatioRecord::new(predicted, self)
    }
}

fn predicted_times(predicted: &PredictedTime) -> PassTimes {
    PassTimes::new(predicted.compute, predicted.communication)
}

/// Returns the mean times of the complete passes, or of all if none is, for each number of tokens: the phases of a run have
/// different times.
fn mean_times(passes: &[ProfiledPass]) -> Vec<MeanTimes> {
    let is_any_complete = passes.iter().any(|pass| pass.pass.is_complete);
    let mut groups: BTreeMap<Option<u64>, Vec<&ForwardPass>> = BTreeMap::new();
    for ProfiledPass { pass, .. } in passes {
        if pass.is_complete || !is_any_complete {
            groups.entry(pass.tokens).or_default().push(pass);
        }
    }
    let mean = |(tokens, passes): (Option<u64>, Vec<&ForwardPass>)| {
        let mean = |time: fn(&ForwardPass) -> Nanos| {
            passes.iter().map(|pass| float(time(pass).0)).sum::<f64>() / passes.len() as f64
        };
        let (compute, communication) = (mean(|pass| pass.compute), mean(|pass| pass.communication));
        MeanTimes { tokens, passes: passes.len(), times: PassTimes { compute, communication } }
    };
    groups.into_iter().map(mean).collect()
}

struct MeanTimes {
    tokens: Option<u64>,
    passes: usize,
    times: PassTimes,
}

struct M6Row<'a> {
    name: String,
    pass: Option<&'a ForwardPass>,
    tokens: Option<u64>,
    kernels: Option<u64>,
    times: PassTimes,
    is_recorded: bool,
}

pub(crate) fn m6_text(predicted: &PredictedTime, passes: &[ProfiledPass], width: Option<usize>) -> String {
    let row = |name: String, pass, tokens, kernels, times| M6Row {
        name,
        pass,
        tokens,
        kernels,
        times,
        is_recorded: true,
    };
    let recorded = passes.iter().zip(1..).map(|(ProfiledPass { pass, .. }, number)| {
        let times = PassTimes::new(pass.compute, pass.communication);
        row(number.to_string(), Some(pass), pass.tokens, Some(pass.kernels), times)
    });
    let means = mean_times(passes).into_iter();
    let means =
        means.map(|mean| row(format!("mean of {}", mean.passes), None, mean.tokens, None, mean.times));
    let times = predicted_times(predicted);
    let prediction = row("predicted".to_owned(), None, None, Some(predicted.events), times);
    let prediction = M6Row { is_recorded: false, ..prediction };
    let rows: Vec<M6Row<'_>> = recorded.chain(means).chain([prediction]).collect();
    let ms = |nanos: f64| decimals3(nanos / 1e6);
    let ratio = |row: &M6Row<'_>, of: fn(&RatioRecord) -> Option<f64>| {
        let ratio =
            |row: &M6Row<'_>| or_dash(of(&row.times.ratios(times)).map(|ratio| format!("{ratio:.4}")));
        or_empty(row.is_recorded.then(|| ratio(row)))
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
    PassRecord<'a>(number: usize, profiled: &'a ProfiledPass, predicted: PassTimes)
    with { let pass = &profiled.pass; } {
        #[serde(flatten)]
        ratios: RatioRecord = PassTimes::new(pass.compute, pass.communication).ratios(predicted),
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
        other_invocations: u64 = predicted.others,
        other_us: f64 = predicted.others_time.micros(),
    }
}

pub(crate) fn m6_records(prediction: &PredictedTime, passes: &[ProfiledPass]) -> Vec<Box<RawValue>> {
    let predicted = predicted_times(prediction);
    let means = mean_times(passes).into_iter().map(|mean| json_record(&MeanRecord::new(&mean, predicted)));
    let passes = (1..).zip(passes);
    let passes = passes.map(|(number, pass)| json_record(&PassRecord::new(number, pass, predicted)));
    passes.chain(means).chain([json_record(&PredictionRecord::new(prediction))]).collect()
}
