//! Comparison of two recorded runs as CSV and as JSON lines.

use serde_json::Number;

use super::{
    super::{prelude::*, run_modules::InModelRecord},
    ComparisonReport,
    calls::{CALL_COLUMNS, call_cells},
    kernels::{ComparedKernel, compared_kernels},
    part_name,
};
use crate::profile::timeline::{AttributedTime, CallKind, ComparedPart, ComparedRow, RecordedCall, TimeSum};

const ALONE_PART: &str = "kernel_alone";
const COLUMNS: &str =
    "part,name,shapes,base,base calls,other,other calls,difference,ratio,base self,other self";
const ALONE_COLUMNS: &str = "alone,base slowdown,other slowdown";

/// Returns all rows as CSV; times are nanoseconds per step, memory is bytes. With a database, the kernels with their
/// durations alone follow, and then the single calls, with columns of their own.
pub(crate) fn comparison_csv(report: &ComparisonReport<'_>) -> String {
    let empty = String::new;
    let mut header: Vec<String> = COLUMNS.split(',').map(str::to_owned).collect();
    header.extend(report.in_model.iter().flat_map(|_| ALONE_COLUMNS.split(',').map(str::to_owned)));
    let first_of_calls = header.len();
    header.extend(report.calls.iter().flat_map(|_| CALL_COLUMNS.split(',').map(str::to_owned)));
    let width = header.len();
    let mut records = vec![header];
    records.extend(report.comparison.attribution.iter().map(|part| {
        let kind = format!("difference of the step: {}", part.kind);
        let (name, shapes, difference) = (part_name(part), part.shapes.clone(), part.difference.to_string());
        vec![kind, name, shapes, empty(), empty(), empty(), empty(), difference]
    }));
    records.extend(report.comparison.rows.iter().map(|row| {
        let total = |sum: Option<TimeSum>| or_empty(sum.filter(|_| row.has_total()).map(|sum| sum.total));
        vec![
            row.part.to_string(),
            row.name.clone(),
            row.shapes.clone(),
            total(row.base),
            or_empty(row.base.map(|sum| sum.calls)),
            total(row.other),
            or_empty(row.other.map(|sum| sum.calls)),
            or_empty(row.has_total().then(|| row.difference())),
            or_empty(row.ratio()),
            or_empty(row.base.and_then(|sum| sum.self_total)),
            or_empty(row.other.and_then(|sum| sum.self_total)),
        ]
    }));
    records.extend(compared_kernels(report).iter().filter_map(alone_record));
    records.extend(report.calls.unwrap_or_default().iter().map(|call| call_cells(call, first_of_calls)));
    // Rows without the columns of kernels and calls are shorter.
    records.iter_mut().for_each(|record: &mut Vec<String>| record.resize(width, empty()));
    csv_text(records)
}

fn alone_record(pair: &ComparedKernel<'_>) -> Option<Vec<String>> {
    let kernel = pair.base_or_other()?;
    let ([base, other], [base_calls, other_calls]) = (pair.times, pair.calls);
    let ratio = base.zip(other).filter(|(base, _)| *base > 0.0).map(|(base, other)| other / base);
    Some(vec![
        ALONE_PART.to_owned(),
        kernel.case.kernel.to_string(),
        kernel.case.signature(),
        or_empty(base),
        or_empty(base_calls),
        or_empty(other),
        or_empty(other_calls),
        pair.difference().to_string(),
        or_empty(ratio),
        String::new(),
        String::new(),
        or_empty(kernel.alone.map(|alone| alone.duration)),
        or_empty(pair.base.and_then(InModelKernel::slowdown)),
        or_empty(pair.other.and_then(InModelKernel::slowdown)),
    ])
}

record! {
    HeadRecord<'a>(report: &ComparisonReport<'a>) {
        item: &'static str = "comparison",
        base_files: &'a [PathBuf] = &report.base.files,
        other_files: &'a [PathBuf] = &report.other.files,
        base_steps: usize = report.base_sums.steps,
        other_steps: usize = report.other_sums.steps,
        span_difference_ns: f64 = report.comparison.span_difference,
        by_kernel_name: bool = report.comparison.by_kernel_name,
        not_compared: &'a [String] = &report.comparison.not_compared,
    }
}

record! {
    DifferenceRecord<'a>(part: &'a AttributedTime) {
        item: &'static str = "difference",
        part: &'static str = part.kind,
        name: &'a str = &part.name,
        shapes: &'a str = &part.shapes,
        difference_ns: f64 = part.difference,
        remainder: bool = part.is_remainder,
    }
}

record! {
    RowRecord<'a>(row: &'a ComparedRow) {
        item: &'static str = "row",
        part: &'static str = row.part.into(),
        name: &'a str = &row.name,
        shapes: &'a str = &row.shapes,
        unit: &'static str = if row.part == ComparedPart::Memory { "bytes" } else { "ns" },
        base: Option<SumRecord> = row.base.map(|sum| SumRecord::new(row, sum)),
        other: Option<SumRecord> = row.other.map(|sum| SumRecord::new(row, sum)),
        difference: Option<f64> = row.has_total().then(|| row.difference()),
        ratio: Option<f64> = row.ratio(),
    }
}

record! {
    SumRecord(row: &ComparedRow, sum: TimeSum) {
        total: Option<f64> = row.has_total().then_some(sum.total),
        calls: f64 = sum.calls,
        mean: Option<f64> = (row.has_total() && sum.calls > 0.0).then(|| sum.total / sum.calls),
        shortest: Option<i64> = sum.shortest,
        longest: Option<i64> = sum.longest,
        #[serde(rename = "self", skip_serializing_if = "Option::is_none")]
        self_total: Option<f64> = sum.self_total,
    }
}

record! {
    CallRecord<'a>(call: &'a ComparedCall<'a>) {
        item: &'static str = "call",
        part: &'static str = call.kind.into(),
        name: Option<&'a str> = call.base_or_other().map(|own| &*own.name),
        thread: usize = call.thread,
        base: Option<SideRecord<'a>> = call.base.map(|own| SideRecord::new(own, call.kind)),
        other: Option<SideRecord<'a>> = call.other.map(|own| SideRecord::new(own, call.kind)),
        difference_ns: i64 = call.difference(),
        ratio: Option<f64> = call.ratio(),
    }
}

record! {
    SideRecord<'a>(own: &'a RecordedCall<'a>, kind: CallKind)
    with { let kernels = own.kernels.iter(); } {
        step: Option<u64> = own.step,
        call: usize = own.number,
        start_ns: i64 = own.start,
        shapes: &'a str = own.shapes,
        total_ns: i64 = own.total,
        self_ns: Option<i64> = own.self_time,
        copies_ns: Option<i64> = own.copies,
        /// Null for modules.
        kernels: Option<Vec<CalledKernel<'a>>> = (kind == CallKind::OperatorCall)
            .then(|| kernels.map(|(kernel, time)| CalledKernel { kernel, duration_ns: *time }).collect()),
    }
}

#[derive(Serialize)]
struct CalledKernel<'a> {
    kernel: &'a str,
    duration_ns: i64,
}

#[derive(Serialize)]
struct KernelRecord<'a> {
    item: &'static str,
    run: &'static str,
    #[serde(flatten)]
    kernel: InModelRecord<'a>,
}

/// What `compare --format json` prints: the comparison, then a record for each part of the difference, each row, each call,
/// and each kernel in the database. Times are nanoseconds, those of rows and kernels per step.
pub(crate) fn comparison_records(report: &ComparisonReport<'_>) -> Vec<Box<RawValue>> {
    let comparison = report.comparison;
    let mut records = vec![json_record(&HeadRecord::new(report))];
    records.extend(comparison.attribution.iter().map(|part| json_record(&DifferenceRecord::new(part))));
    records.extend(comparison.rows.iter().map(|row| json_record(&RowRecord::new(row))));
    records.extend(report.calls.unwrap_or_default().iter().map(|call| json_record(&CallRecord::new(call))));
    let Some(joined) = report.in_model else { return records };
    let runs = [("base", report.base_sums, &joined.base), ("other", report.other_sums, &joined.other)];
    for (run, sums, found) in runs {
        let per_step = |time: f64| time / sums.steps as f64;
        let number = |count: f64| Number::from_f64(per_step(count)).unwrap_or_else(|| 0.into());
        records.extend(found.kernels.iter().map(|kernel| {
            let (calls, total) = (number(kernel.calls as f64), number(kernel.total as f64));
            let kernel = InModelRecord::new(kernel, calls, total, kernel.excess().map(per_step));
            json_record(&KernelRecord { item: "kernel", run, kernel })
        }));
    }
    records
}
