//! Coverage of workloads: tables, JSON lines, and a CSV with every question.

use super::{
    lookup::{ErrorRecord, error_text},
    prelude::*,
};
use crate::{
    answer::{
        coverage::{
            AnswerClass, AnsweredQuestion, CoverageMetrics, CoverageTotals, EntryShare, KernelCoverage,
            MetricRatio, WorkloadCoverage, coverage_metrics, entry_share, kernel_coverage, modelled_micros,
        },
        lookup::{AnswerSource, QueryTensor},
    },
    database::{InterpolationErrors, KernelInterpolationError},
    kernel::{Dims, TensorFormat},
};

const SHOWN_KERNELS: usize = 20;

pub(super) const METRICS: [&str; 5] =
    ["M1 invocations", "M2 functions", "M3 functions that run a kernel", "M4 shapes", "M5 time"];

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

pub(crate) fn coverage_text(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let mut parts = vec![totals_table(report, width), metrics_table(report, width)];
    parts.extend(report.coverages.iter().map(|coverage| kernels_table(report, coverage, width)));
    parts.extend((!report.gaps.is_empty()).then(|| gaps_table(report, width)));
    let errors = report.published_errors().into_iter();
    let errors = errors.map(|(kernel, error)| error_text(kernel, error) + "\n");
    parts.push(entry_lines(report) + &errors.collect::<String>());
    parts.join("\n")
}

/// Returns the invocations and the time of each workload by answer. A narrow terminal has the time alone.
fn totals_table(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let coverages: Vec<_> = report.coverages.iter().map(|one| (one.workload, one.totals())).collect();
    let classes = AnswerClass::ALL.into_iter().zip(["measured", "interpolated", "missing"]);
    let mut table = Table::new(&coverages)
        .text("workload", rank(0).min(8).wanted(24), |(workload, _)| &workload.name)
        .number("weight", DETAIL, |(workload, _)| number(workload.weight))
        .number("invocations", 4, |(_, totals)| totals.all_count());
    for (class, name) in classes.clone() {
        table = table.number(name, DETAIL, |(_, totals)| totals.count(class));
    }
    table = table.number("time ms", 3, |(_, totals)| millis(totals.all_time()));
    for (class, name) in classes {
        table = table.number(name, 0, |(_, totals)| percent(totals.time_share(class)));
    }
    let durations = table.text("durations", rank(DETAIL).min(12), |(workload, totals)| {
        let untimed = (totals.untimed > 0).then(|| format!(", none for {}", totals.untimed));
        format!("{}{}", workload.durations, or_empty(untimed))
    });
    durations.print(width)
}

fn metrics_table(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let mut table =
        Table::new(METRICS.into_iter().enumerate()).text("metric", rank(0).min(12), |(_, label)| label);
    for (name, metrics) in report.metrics() {
        // The metrics of all workloads together are the last to be left out.
        let room = rank(u8::from(name != "all")).min(8).with_long_header();
        table = table.number(name, room, |(at, _)| percent(metrics.all()[at].1.value()));
    }
    table.print(width)
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
    let more = kernels.len().saturating_sub(SHOWN_KERNELS);
    let rest = (more > 0).then(|| format!("{more} more kernels: --format json, --csv, --html\n"));
    let table = Table::new(kernels.iter().take(SHOWN_KERNELS))
        .text(title, rank(0).min(12).wanted(24).with_long_header(), |kernel| &kernel.name)
        .number("invocations", 2, |kernel| kernel.totals.all_count())
        .number("measured", DETAIL, |kernel| kernel.totals.count(AnswerClass::Measured))
        .number("interpolated", DETAIL, |kernel| kernel.totals.count(AnswerClass::Interpolated))
        .number("missing", 1, |kernel| kernel.totals.count(AnswerClass::Missing))
        .number("time ms", 0, |kernel| millis(kernel.totals.all_time()))
        .number("missing ms", 0, |kernel| millis(kernel.totals.time(AnswerClass::Missing)))
        .text("entry", DETAIL, |kernel| or_empty(kernel.has_entry.map(yes_no)));
    table.print(width) + &or_empty(rest)
}

fn gaps_table(report: &CoverageReport<'_>, width: Option<usize>) -> String {
    let more = report.gaps.len().saturating_sub(report.shown_gaps);
    let rest = (more > 0).then(|| format!("{more} more gaps: --gaps N, --csv FILE, --html FILE\n"));
    let table = Table::new(report.gaps.iter().take(report.shown_gaps))
        .text("gap", rank(0).min(10), |gap| &gap.query.op)
        .text("inputs", rank(0).min(12).wanted(16), |gap| tensors_text(&gap.query.inputs))
        .number("invocations", DETAIL, |gap| number(gap.count))
        .number("time ms", 3, |gap| or_dash(gap.time.map(|time| decimals3(time / 1e6))))
        .number("share", 0, |gap| percent(gap.share))
        .text("reason", rank(DETAIL).min(16), |gap| &gap.short_reason)
        .text("closed by", rank(1).min(24).wanted(30), |gap| &gap.closing);
    table.print(width) + &or_empty(rest)
}

fn entry_lines(report: &CoverageReport<'_>) -> String {
    let line = |coverage: &WorkloadCoverage<'_>| {
        let share = entry_share(coverage);
        let name = match report.coverages {
            [_] => String::new(),
            _ => format!("{}: ", coverage.workload.name),
        };
        let time =
            Some(share.time).filter(|(_, whole)| *whole > 0).map(|(part, whole)| float(part) / float(whole));
        format!(
            "{name}without a catalogue entry: {} of {} kernels, {} of {} invocations{}\n",
            share.kernels.0,
            share.kernels.1,
            share.invocations.0,
            share.invocations.1,
            or_empty(time.map(|time| format!(", {} of the time", percent(Some(time)))))
        )
    };
    report.coverages.iter().map(line).collect()
}

record! {
    TotalsRecord(totals: &CoverageTotals)
    with { let classes = || AnswerClass::ALL.into_iter().map(|class| (class.to_string(), class)); } {
        invocations: u64 = totals.all_count(),
        time_us: f64 = float(totals.all_time()) / 1e3,
        untimed: u64 = totals.untimed,
        counts: BTreeMap<String, u64> = classes().map(|(name, class)| (name, totals.count(class))).collect(),
        times_us: BTreeMap<String, f64> =
            classes().map(|(name, class)| (name, float(totals.time(class)) / 1e3)).collect(),
    }
}

record! {
    MetricRecord(ratio: MetricRatio) {
        value: Option<f64> = ratio.value(),
        hits: f64 = ratio.hits,
        total: f64 = ratio.total,
    }
}

fn metric_records(coverages: &[WorkloadCoverage<'_>]) -> BTreeMap<&'static str, MetricRecord> {
    let metrics = coverage_metrics(coverages).all().into_iter();
    metrics.map(|(name, ratio)| (name, MetricRecord::new(ratio))).collect()
}

record! {
    KernelRecord(kernel: KernelCoverage) {
        kernel: String = kernel.name,
        #[serde(flatten)]
        totals: TotalsRecord = TotalsRecord::new(&kernel.totals),
        questions: usize = kernel.questions,
        has_entry: Option<bool> = kernel.has_entry,
    }
}

record! {
    WithoutEntryRecord(share: &EntryShare) {
        kernels: u64 = share.kernels.0,
        of_kernels: u64 = share.kernels.1,
        invocations: u64 = share.invocations.0,
        of_invocations: u64 = share.invocations.1,
        time_us: f64 = float(share.time.0) / 1e3,
        of_time_us: f64 = float(share.time.1) / 1e3,
    }
}

record! {
    CoverageGapRecord<'a>(gap: &'a CoverageGap<'a>) {
        op: &'a str = &gap.query.op,
        inputs: Vec<&'a [u64]> = dims_list(&gap.query.inputs),
        dtypes: Vec<Option<&'a str>> = dtype_list(&gap.query.inputs),
        outputs: Vec<&'a [u64]> = dims_list(&gap.query.outputs),
        count: f64 = gap.count,
        time_us: Option<f64> = gap.time.map(|time| time / 1e3),
        share: Option<f64> = gap.share,
        reason: &'a str = &gap.reason,
        closing: &'static str = gap.closing.kind(),
        closed_by: String = gap.closing.to_string(),
        workloads: &'a [&'a str] = &gap.workloads,
        line: Option<u64> = gap.question.line,
    }
}

record! {
    WorkloadRecord<'a>(coverage: &'a WorkloadCoverage<'a>) {
        workload: &'a str = &coverage.workload.name,
        #[serde(flatten)]
        totals: TotalsRecord = TotalsRecord::new(&coverage.totals()),
        weight: f64 = coverage.workload.weight,
        durations: String = coverage.workload.durations.to_string(),
        /// Time of a performance model that uses the answers, and the workload's own time where there is none.
        modelled_us: f64 = modelled_micros(coverage),
        metrics: BTreeMap<&'static str, MetricRecord> = metric_records(std::slice::from_ref(coverage)),
        kernels: Vec<KernelRecord> = kernel_coverage(coverage).into_iter().map(KernelRecord::new).collect(),
        without_entry: WithoutEntryRecord = WithoutEntryRecord::new(&entry_share(coverage)),
    }
}

record! {
    AllRecord<'a>(report: &'a CoverageReport<'a>) {
        workload: Option<&'a str> = None,
        database: &'a str = &report.database,
        kind: &'static str = report.kind.as_str(),
        metrics: BTreeMap<&'static str, MetricRecord> = metric_records(report.coverages),
        gaps: Vec<CoverageGapRecord<'a>> = report.gaps.iter().map(CoverageGapRecord::new).collect(),
        published_errors: Vec<ErrorRecord<'a>> =
            report.published_errors().into_iter().map(|(kernel, error)| ErrorRecord::new(kernel, error)).collect(),
    }
}

pub(crate) fn coverage_records(report: &CoverageReport<'_>) -> Vec<Box<RawValue>> {
    let each = report.coverages.iter().map(|coverage| json_record(&WorkloadRecord::new(coverage)));
    each.chain([json_record(&AllRecord::new(report))]).collect()
}

pub(super) fn present(tensors: &[QueryTensor]) -> impl Iterator<Item = &QueryTensor> {
    tensors.iter().filter(|tensor| !tensor.is_absent())
}

pub(super) fn dims_list(tensors: &[QueryTensor]) -> Vec<&[u64]> {
    present(tensors).map(|tensor| tensor.dims.as_slice()).collect()
}

pub(super) fn dtype_list(tensors: &[QueryTensor]) -> Vec<Option<&str>> {
    present(tensors).map(|tensor| tensor.dtype.as_ref().map(Dtype::as_str)).collect()
}

const CSV_HEADER: &str =
    "workload,weight,line,op,inputs,dtypes,count,time_us,class,latency_us,confidence,rule,reason";

pub(crate) fn coverage_csv(report: &CoverageReport<'_>) -> String {
    let header = CSV_HEADER.split(',').map(str::to_owned).collect();
    let answers =
        report.coverages.iter().flat_map(|coverage| coverage.answers.iter().map(move |one| (coverage, one)));
    let rows = answers.map(|(coverage, answered)| question_cells(coverage, answered));
    csv_text([header].into_iter().chain(rows))
}

fn question_cells(coverage: &WorkloadCoverage<'_>, answered: &AnsweredQuestion<'_>) -> Vec<String> {
    let (question, query, answer) = (answered.question, answered.query, answered.answer.as_ref());
    vec![
        coverage.workload.name.clone(),
        number(coverage.workload.weight),
        or_empty(question.line),
        query.op.clone(),
        joined(present(&query.inputs).map(|tensor| Dims(&tensor.dims)), ";"),
        joined(dtype_list(&query.inputs).into_iter().map(Option::unwrap_or_default), ";"),
        question.count.to_string(),
        or_empty(question.time),
        answered.class.to_string(),
        or_empty(answer.and_then(|answer| answer.latency).map(|latency| number(latency.0))),
        or_empty(answer.map(|answer| number(answer.confidence))),
        or_empty(answer.and_then(|answer| answer.rule)),
        answered.reason(),
    ]
}

/// Returns tensors as text: `DT_BF16[136,5120] FRACTAL_NZ`.
pub(super) fn tensors_text(tensors: &[QueryTensor]) -> String {
    let text = |tensor: &QueryTensor| {
        let dtype = tensor.dtype.as_ref().map(Dtype::as_str).unwrap_or_default();
        let format = match &tensor.format {
            Some(TensorFormat::Private(name)) => format!(" {name}"),
            _ => String::new(),
        };
        format!("{dtype}[{}]{format}", Dims(&tensor.dims))
    };
    joined(present(tensors).map(text), " ")
}

pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
