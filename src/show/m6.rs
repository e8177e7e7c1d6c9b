//! M6: predicted against recorded time of forward passes, as a table and JSON lines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::workload::{ForwardPass, PredictedTime},
    kernel::Nanos,
    show::{
        coverage::milliseconds,
        table::{DETAIL, FittedColumn, fitted_text},
    },
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

/// Times of a pass, or means of several, in nanoseconds, without those of AI CPUs.
#[derive(Clone, Copy, Debug)]
struct PassTimes {
    compute: f64,
    communication: f64,
}

impl PassTimes {
    #[expect(clippy::cast_precision_loss, reason = "times of passes have fewer than 53 bits")]
    fn new(compute: Nanos, communication: Nanos) -> Self {
        Self { compute: compute.0 as f64, communication: communication.0 as f64 }
    }

    /// Returns M6, and its parts for compute and communication; `None` where nothing is recorded.
    fn ratios(self, predicted: Self) -> [Option<f64>; 3] {
        let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        [
            ratio(predicted.compute + predicted.communication, self.compute + self.communication),
            ratio(predicted.compute, self.compute),
            ratio(predicted.communication, self.communication),
        ]
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
                passes.iter().map(|pass| time(pass).0 as f64).sum::<f64>() / passes.len() as f64
            };
            let times = PassTimes {
                compute: mean(|pass| pass.compute),
                communication: mean(|pass| pass.communication),
            };
            MeanTimes { tokens, passes: passes.len(), times }
        };
        groups.into_iter().map(mean).collect()
    }
}

struct MeanTimes {
    tokens: Option<u64>,
    passes: usize,
    times: PassTimes,
}

fn ratio_cell(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.4}"))
}

/// Returns a table of the passes with M6, and the means.
pub(crate) fn m6_text(report: &M6Report<'_>, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("pass", 0),
        FittedColumn::text("device", DETAIL).shortened_to(12),
        FittedColumn::number("tokens", 1),
        FittedColumn::number("kernels", DETAIL),
        FittedColumn::number("compute ms", 3),
        FittedColumn::number("comm ms", 3),
        FittedColumn::number("total ms", 1),
        FittedColumn::number("aicpu ms", DETAIL),
        FittedColumn::number("M6", 0),
        FittedColumn::number("M6 compute", 2),
        FittedColumn::number("M6 comm", 2),
        FittedColumn::text("complete", 4),
    ];
    let mut rows = Vec::new();
    let predicted = report.predicted_times();
    let cells = |times: PassTimes| times.ratios(predicted).map(ratio_cell);
    for (number, ProfiledPass { pass, .. }) in report.passes.iter().enumerate() {
        let mut row = vec![
            (number + 1).to_string(),
            pass.device.clone(),
            pass.tokens.map_or_else(String::new, |tokens| tokens.to_string()),
            pass.kernels.to_string(),
        ];
        row.extend(
            [pass.compute, pass.communication, pass.total(), pass.aicpu].map(|time| milliseconds(time.0)),
        );
        row.extend(cells(PassTimes::new(pass.compute, pass.communication)));
        row.push(if pass.is_complete { "yes" } else { "no" }.to_owned());
        rows.push(row);
    }
    let millis = |nanos: f64| format!("{:.3}", nanos / 1e6);
    for mean in report.mean_times() {
        let tokens = mean.tokens.map_or_else(String::new, |tokens| tokens.to_string());
        let mut row = vec![format!("mean of {}", mean.passes), String::new(), tokens, String::new()];
        let PassTimes { compute, communication } = mean.times;
        row.extend([compute, communication, compute + communication].map(millis));
        row.push(String::new());
        row.extend(cells(mean.times));
        rows.push(row);
    }
    let mut row =
        vec!["predicted".to_owned(), String::new(), String::new(), report.predicted.events.to_string()];
    let total = predicted.compute + predicted.communication;
    row.extend([predicted.compute, predicted.communication, total].map(millis));
    rows.push(row);
    let others = match report.predicted.others {
        0 => String::new(),
        count => format!(
            "{count} invocations without an answer of the database, {} ms, are not in the prediction\n",
            milliseconds(report.predicted.others_time.0)
        ),
    };
    fitted_text(columns, rows, width) + &others
}

/// Ratio of predicted and recorded time, and its parts; null where nothing is recorded.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RatioRecord {
    #[serde(rename = "M6")]
    m6: Option<f64>,
    #[serde(rename = "M6_compute")]
    compute: Option<f64>,
    #[serde(rename = "M6_communication")]
    communication: Option<f64>,
}

/// M6 in JSON: a record for each pass, then one for each mean, then one with the prediction.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum M6Record<'a> {
    Pass {
        #[serde(flatten)]
        ratios: RatioRecord,
        /// From 1.
        pass: usize,
        file: &'a str,
        device: &'a str,
        tokens: Option<u64>,
        kernels: u64,
        compute_us: f64,
        communication_us: f64,
        total_us: f64,
        aicpu_us: f64,
        complete: bool,
    },
    Mean {
        #[serde(flatten)]
        ratios: RatioRecord,
        /// Null.
        pass: Option<usize>,
        passes: usize,
        tokens: Option<u64>,
        compute_us: f64,
        communication_us: f64,
        total_us: f64,
    },
    Prediction {
        /// Null.
        pass: Option<usize>,
        predicted_compute_us: f64,
        predicted_communication_us: f64,
        predicted_invocations: u64,
        /// Invocations that the prediction does not contain.
        other_invocations: u64,
        other_us: f64,
    },
}

/// Returns the records of a report.
pub(crate) fn m6_records<'a>(report: &M6Report<'a>) -> Vec<M6Record<'a>> {
    let predicted = report.predicted_times();
    let ratios = |times: PassTimes| {
        let [m6, compute, communication] = times.ratios(predicted);
        RatioRecord { m6, compute, communication }
    };
    let passes = report.passes.iter().enumerate().map(|(at, ProfiledPass { file, pass })| M6Record::Pass {
        ratios: ratios(PassTimes::new(pass.compute, pass.communication)),
        pass: at + 1,
        file,
        device: &pass.device,
        tokens: pass.tokens,
        kernels: pass.kernels,
        compute_us: pass.compute.micros(),
        communication_us: pass.communication.micros(),
        total_us: pass.total().micros(),
        aicpu_us: pass.aicpu.micros(),
        complete: pass.is_complete,
    });
    let means = report.mean_times().into_iter().map(|MeanTimes { tokens, passes, times }| M6Record::Mean {
        ratios: ratios(times),
        pass: None,
        passes,
        tokens,
        compute_us: times.compute / 1e3,
        communication_us: times.communication / 1e3,
        total_us: (times.compute + times.communication) / 1e3,
    });
    let prediction = M6Record::Prediction {
        pass: None,
        predicted_compute_us: report.predicted.compute.micros(),
        predicted_communication_us: report.predicted.communication.micros(),
        predicted_invocations: report.predicted.events,
        other_invocations: report.predicted.others,
        other_us: report.predicted.others_time.micros(),
    };
    passes.chain(means).chain([prediction]).collect()
}
