//! Coverage of workloads: tables, JSON lines, and a CSV with every question.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::{
        coverage::{
            AnswerClass, AnsweredQuestion, CoverageGap, CoverageMetrics, CoverageTotals, KernelCoverage,
            MetricRatio, WorkloadCoverage, coverage_metrics, entry_share, kernel_coverage, modelled_micros,
        },
        lookup::{AnswerSource, OpQuery, QueryTensor},
    },
    database::{InterpolationErrors, KernelInterpolationError},
    kernel::{DataKind, Dims},
    show::{
        interpolation_error::{ErrorRecord, error_text},
        table::{DETAIL, FittedColumn, FittedRow, FittedTable},
    },
};

/// Kernels that a table on screen has; JSON and the page have all.
const SHOWN_KERNELS: usize = 20;

pub(super) const METRICS: [&str; 5] =
    ["M1 invocations", "M2 functions", "M3 functions that run a kernel", "M4 shapes", "M5 time"];

/// Answers of a database for workloads.
#[derive(Debug)]
pub(crate) struct CoverageReport<'a> {
    pub(crate) database: String,
    pub(crate) kind: DataKind,
    pub(crate) coverages: &'a [WorkloadCoverage<'a>],
    pub(crate) gaps: &'a [CoverageGap<'a>],
    pub(crate) shown_gaps: usize,
    pub(crate) errors: &'a InterpolationErrors,
}

impl CoverageReport<'_> {
    /// Returns the names and metrics of each workload, and of all together if there are several.
    pub(super) fn metrics(&self) -> Vec<(&str, CoverageMetrics)> {
        let each = self.coverages.iter().map(|coverage| {
            (coverage.workload.name.as_str(), coverage_metrics(std::slice::from_ref(coverage)))
        });
        let all = (self.coverages.len() > 1).then(|| ("all", coverage_metrics(self.coverages)));
        each.chain(all).collect()
    }

    /// Returns the kernels whose rows interpolated answers are from and that have a published error.
    fn published_errors(&self) -> BTreeMap<&str, &KernelInterpolationError> {
        let answers = self.coverages.iter().flat_map(|coverage| &coverage.answers);
        let interpolated = answers
            .filter_map(|answered| answered.answer.as_ref())
            .filter(|answer| answer.source == AnswerSource::Interpolated);
        let kernels = interpolated.filter_map(|answer| Some(answer.rows.first()?.kernel.as_str()));
        kernels.filter_map(|kernel| Some((kernel, self.errors.kernels.get(kernel)?))).collect()
    }
}

/// Returns the tables of the screen: totals, metrics, kernels and gaps.
pub(crate) fn coverage_text(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let mut parts = vec![totals_table(report, width), metrics_table(report, width)];
    for coverage in report.coverages {
        parts.push(kernels_table(report, coverage, width));
    }
    if !report.gaps.is_empty() {
        parts.push(gaps_table(report, width));
    }
    parts.push(entry_lines(report) + &error_lines(report));
    parts.join("\n")
}

/// Returns the invocations and the time of each workload by answer. A narrow terminal has the time alone.
fn totals_table(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let mut columns = vec![
        FittedColumn::text("workload", 0).shortened_to(8).wanted(24),
        FittedColumn::number("weight", DETAIL),
        FittedColumn::number("invocations", 4),
    ];
    columns.extend(["measured", "interpolated", "missing"].map(|name| FittedColumn::number(name, DETAIL)));
    columns.push(FittedColumn::number("time ms", 3));
    columns.extend(["measured", "interpolated", "missing"].map(|name| FittedColumn::number(name, 0)));
    columns.push(FittedColumn::text("durations", DETAIL).shortened_to(12));
    let row = |coverage: &WorkloadCoverage<'_>| {
        let (totals, workload) = (coverage.totals(), coverage.workload);
        let counts = AnswerClass::ALL.map(|class| totals.count(class).to_string());
        let times = AnswerClass::ALL.map(|class| percent(totals.time_share(class)));
        let untimed = match totals.untimed {
            0 => String::new(),
            count => format!(", none for {count}"),
        };
        let mut row = vec![workload.name.clone(), number(workload.weight), totals.all_count().to_string()];
        row.extend(counts);
        row.push(milliseconds(totals.all_time()));
        row.extend(times);
        row.push(format!("{}{untimed}", workload.durations));
        FittedRow::from_cells(&row)
    };
    let rows = report.coverages.iter().map(row).collect();
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

fn metrics_table(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let metrics = report.metrics();
    let mut columns = vec![FittedColumn::text("metric", 0).shortened_to(12)];
    columns.extend(metrics.iter().map(|(name, _)| {
        // The metrics of all workloads together are the last to be left out.
        let rank = u8::from(*name != "all");
        FittedColumn::number(name, rank).shortened_to(8).with_long_header()
    }));
    let row = |(at, label): (usize, &&str)| {
        let mut row = vec![(*label).to_owned()];
        row.extend(metrics.iter().map(|(_, metrics)| metric_cell(metrics.all()[at].1)));
        FittedRow::from_cells(&row)
    };
    let rows = METRICS.iter().enumerate().map(row).collect();
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

fn kernels_table(
    report: &CoverageReport<'_>,
    coverage: &WorkloadCoverage<'_>,
    width: Option<usize>,
) -> String {
    let kernels = kernel_coverage(coverage);
    let title = match report.coverages {
        [_] => "kernel".to_owned(),
        _ => format!("kernel of {}", coverage.workload.name),
    };
    let columns = vec![
        FittedColumn::text(&title, 0).shortened_to(12).wanted(24).with_long_header(),
        FittedColumn::number("invocations", 2),
        FittedColumn::number("measured", DETAIL),
        FittedColumn::number("interpolated", DETAIL),
        FittedColumn::number("missing", 1),
        FittedColumn::number("time ms", 0),
        FittedColumn::number("missing ms", 0),
        FittedColumn::text("entry", DETAIL),
    ];
    let row = |kernel: &KernelCoverage| {
        let totals = &kernel.totals;
        let mut row = vec![kernel.name.clone(), totals.all_count().to_string()];
        row.extend(AnswerClass::ALL.map(|class| totals.count(class).to_string()));
        row.push(milliseconds(totals.all_time()));
        row.push(milliseconds(totals.time(AnswerClass::Missing)));
        row.push(entry_word(kernel.has_entry).to_owned());
        FittedRow::from_cells(&row)
    };
    let rows = kernels.iter().take(SHOWN_KERNELS).map(row).collect();
    let more = kernels.len().saturating_sub(SHOWN_KERNELS);
    let rest = if more == 0 {
        String::new()
    } else {
        format!("{more} more kernels: --format json, --csv, --html\n")
    };
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false) + &rest
}

pub(super) const fn entry_word(has_entry: Option<bool>) -> &'static str {
    match has_entry {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    }
}

fn gaps_table(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("gap", 0).shortened_to(10),
        FittedColumn::text("inputs", 0).shortened_to(12).wanted(16),
        FittedColumn::number("invocations", DETAIL),
        FittedColumn::number("time ms", 3),
        FittedColumn::number("share", 0),
        FittedColumn::text("reason", DETAIL).shortened_to(16),
        FittedColumn::text("closed by", 1).shortened_to(24).wanted(30),
    ];
    let row = |gap: &CoverageGap<'_>| {
        FittedRow::from_cells(&[
            gap.query.op.clone(),
            tensors_text(&gap.query.inputs),
            number(gap.count),
            gap.time.map_or("-".to_owned(), |time| format!("{:.3}", time / 1e6)),
            percent(gap.share),
            short_reason(&gap.reason).to_owned(),
            gap.closing.to_string(),
        ])
    };
    let rows = report.gaps.iter().take(report.shown_gaps).map(row).collect();
    let more = report.gaps.len().saturating_sub(report.shown_gaps);
    let rest = if more == 0 {
        String::new()
    } else {
        format!("{more} more gaps: --gaps N, --csv FILE, --html FILE\n")
    };
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false) + &rest
}

/// Returns a reason without the places in files that it lists.
fn short_reason(reason: &str) -> &str {
    reason.split(" (").next().unwrap_or(reason)
}

fn entry_lines(report: &CoverageReport<'_>) -> String {
    let line = |coverage: &WorkloadCoverage<'_>| {
        let share = entry_share(coverage);
        let name = match report.coverages {
            [_] => String::new(),
            _ => format!("{}: ", coverage.workload.name),
        };
        let time = ratio_i64(share.time).map(|time| format!(", {} of the time", percent(Some(time))));
        format!(
            "{name}without a catalogue entry: {} of {} kernels, {} of {} invocations{}\n",
            share.kernels.0,
            share.kernels.1,
            share.invocations.0,
            share.invocations.1,
            time.unwrap_or_default()
        )
    };
    report.coverages.iter().map(line).collect()
}

fn error_lines(report: &CoverageReport<'_>) -> String {
    let errors = report.published_errors().into_iter();
    errors.map(|(kernel, error)| format!("{}\n", error_text(kernel, error))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a share is printed with a few digits")]
fn ratio_i64((part, whole): (i64, i64)) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Invocations and times by answer in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TotalsRecord {
    invocations: u64,
    time_us: f64,
    /// Invocations whose time is unknown.
    untimed: u64,
    counts: BTreeMap<String, u64>,
    times_us: BTreeMap<String, f64>,
}

impl TotalsRecord {
    fn new(totals: &CoverageTotals) -> Self {
        let classes = || AnswerClass::ALL.into_iter().map(|class| (class.to_string(), class));
        Self {
            invocations: totals.all_count(),
            time_us: micros(totals.all_time()),
            untimed: totals.untimed,
            counts: classes().map(|(name, class)| (name, totals.count(class))).collect(),
            times_us: classes().map(|(name, class)| (name, micros(totals.time(class)))).collect(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct MetricRecord {
    value: Option<f64>,
    hits: f64,
    total: f64,
}

fn metric_records(coverages: &[WorkloadCoverage<'_>]) -> BTreeMap<&'static str, MetricRecord> {
    let metrics = coverage_metrics(coverages).all().into_iter();
    let record = |MetricRatio { hits, total }: MetricRatio, value| MetricRecord { value, hits, total };
    metrics.map(|(name, ratio)| (name, record(ratio, ratio.value()))).collect()
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct KernelRecord {
    kernel: String,
    #[serde(flatten)]
    totals: TotalsRecord,
    questions: usize,
    /// Null where no kernel runs, and for collectives.
    has_entry: Option<bool>,
}

/// Kernels that the catalogue cannot measure.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WithoutEntryRecord {
    kernels: u64,
    of_kernels: u64,
    invocations: u64,
    of_invocations: u64,
    time_us: f64,
    of_time_us: f64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CoverageGapRecord<'a> {
    op: &'a str,
    inputs: Vec<&'a [u64]>,
    dtypes: Vec<Option<&'a str>>,
    outputs: Vec<&'a [u64]>,
    count: f64,
    time_us: Option<f64>,
    /// Part of the time of all workloads.
    share: Option<f64>,
    reason: &'a str,
    /// Kind of what would close the gap.
    closing: &'static str,
    closed_by: String,
    workloads: &'a [&'a str],
    line: Option<u64>,
}

/// Coverage in JSON: a record for each workload, then one for all of them with the gaps.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum CoverageRecord<'a> {
    Workload {
        workload: &'a str,
        #[serde(flatten)]
        totals: TotalsRecord,
        weight: f64,
        /// Origin of the durations.
        durations: String,
        /// Time of a performance model that uses the answers, and the workload's own time where there is none.
        modelled_us: f64,
        metrics: BTreeMap<&'static str, MetricRecord>,
        kernels: Vec<KernelRecord>,
        without_entry: WithoutEntryRecord,
    },
    All {
        /// Null.
        workload: Option<&'a str>,
        database: &'a str,
        kind: &'static str,
        metrics: BTreeMap<&'static str, MetricRecord>,
        gaps: Vec<CoverageGapRecord<'a>>,
        published_errors: Vec<ErrorRecord<'a>>,
    },
}

/// Returns the records of a report.
pub(crate) fn coverage_records<'a>(report: &'a CoverageReport<'a>) -> Vec<CoverageRecord<'a>> {
    let each = report.coverages.iter().map(|coverage| {
        let (workload, share) = (coverage.workload, entry_share(coverage));
        let kernels = kernel_coverage(coverage).into_iter().map(|kernel| KernelRecord {
            totals: TotalsRecord::new(&kernel.totals),
            kernel: kernel.name,
            questions: kernel.questions,
            has_entry: kernel.has_entry,
        });
        CoverageRecord::Workload {
            workload: &workload.name,
            totals: TotalsRecord::new(&coverage.totals()),
            weight: workload.weight,
            durations: workload.durations.to_string(),
            modelled_us: modelled_micros(coverage),
            metrics: metric_records(std::slice::from_ref(coverage)),
            kernels: kernels.collect(),
            without_entry: WithoutEntryRecord {
                kernels: share.kernels.0,
                of_kernels: share.kernels.1,
                invocations: share.invocations.0,
                of_invocations: share.invocations.1,
                time_us: micros(share.time.0),
                of_time_us: micros(share.time.1),
            },
        }
    });
    let gaps = report.gaps.iter().map(|gap| CoverageGapRecord {
        op: &gap.query.op,
        inputs: dims_list(&gap.query.inputs),
        dtypes: dtype_list(&gap.query.inputs),
        outputs: dims_list(&gap.query.outputs),
        count: gap.count,
        time_us: gap.time.map(|time| time / 1e3),
        share: gap.share,
        reason: &gap.reason,
        closing: gap.closing.kind(),
        closed_by: gap.closing.to_string(),
        workloads: &gap.workloads,
        line: gap.question.line,
    });
    let errors = report.published_errors().into_iter();
    let all = CoverageRecord::All {
        workload: None,
        database: &report.database,
        kind: report.kind.as_str(),
        metrics: metric_records(report.coverages),
        gaps: gaps.collect(),
        published_errors: errors.map(|(kernel, error)| ErrorRecord::new(kernel, error)).collect(),
    };
    each.chain([all]).collect()
}

pub(super) fn present(tensors: &[QueryTensor]) -> impl Iterator<Item = &QueryTensor> {
    tensors.iter().filter(|tensor| !tensor.is_absent())
}

pub(super) fn dims_list(tensors: &[QueryTensor]) -> Vec<&[u64]> {
    present(tensors).map(|tensor| tensor.dims.as_slice()).collect()
}

pub(super) fn dtype_list(tensors: &[QueryTensor]) -> Vec<Option<&str>> {
    present(tensors).map(|tensor| tensor.dtype.as_ref().map(crate::kernel::Dtype::as_str)).collect()
}

pub(crate) fn coverage_csv(report: &CoverageReport<'_>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = [
        "workload",
        "weight",
        "line",
        "op",
        "inputs",
        "dtypes",
        "count",
        "time_us",
        "class",
        "latency_us",
        "confidence",
        "rule",
        "reason",
    ];
    let _ = writer.write_record(header);
    for coverage in report.coverages {
        for answer in &coverage.answers {
            let _ = writer.write_record(question_cells(coverage, answer));
        }
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn question_cells(coverage: &WorkloadCoverage<'_>, answered: &AnsweredQuestion<'_>) -> [String; 13] {
    let (question, query): (_, &OpQuery) = (answered.question, answered.query);
    let shapes: Vec<String> = present(&query.inputs).map(|tensor| Dims(&tensor.dims).to_string()).collect();
    let dtypes = dtype_list(&query.inputs).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    let answer = answered.answer.as_ref();
    let latency = answer.and_then(|answer| answer.latency).map(|latency| number(latency.0));
    let rule = answer.and_then(|answer| answer.rule).map(|rule| rule.to_string());
    [
        coverage.workload.name.clone(),
        number(coverage.workload.weight),
        question.line.map_or_else(String::new, |line| line.to_string()),
        query.op.clone(),
        shapes.join(";"),
        dtypes.join(";"),
        question.count.to_string(),
        question.time.map_or_else(String::new, |time| time.to_string()),
        answered.class.to_string(),
        latency.unwrap_or_default(),
        answer.map_or_else(String::new, |answer| number(answer.confidence)),
        rule.unwrap_or_default(),
        answered.reason(),
    ]
}

/// Returns tensors as text: `DT_BF16[136,5120] FRACTAL_NZ`.
pub(super) fn tensors_text(tensors: &[QueryTensor]) -> String {
    let text = |tensor: &QueryTensor| {
        let dtype = tensor.dtype.as_ref().map(crate::kernel::Dtype::as_str).unwrap_or_default();
        let format = match &tensor.format {
            Some(crate::kernel::TensorFormat::Private(name)) => format!(" {name}"),
            _ => String::new(),
        };
        format!("{dtype}[{}]{format}", Dims(&tensor.dims))
    };
    present(tensors).map(text).collect::<Vec<_>>().join(" ")
}

pub(super) fn metric_cell(ratio: MetricRatio) -> String {
    match ratio.value() {
        Some(value) => percent(Some(value)),
        None => "-".to_owned(),
    }
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

pub(super) fn milliseconds(nanos: i64) -> String {
    format!("{:.3}", micros(nanos) / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "times of workloads have fewer than 53 bits")]
fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}

/// Formats a number with at most six decimals.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
