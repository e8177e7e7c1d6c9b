//! Comparison of two recorded runs as CSV and as JSON lines.

use std::path::PathBuf;

use super::{
    super::{emit::csv_text, prelude::*, run_modules::InModelRecord},
    ComparisonReport,
    calls::{CALL_COLUMNS, call_cells},
    kernels::{ComparedKernel, compared_kernels},
    part_name,
};
use crate::{
    answer::coverage::InModelKernel,
    profile::timeline::{CallKind, ComparedCall, ComparedPart, ComparedRow, RecordedCall, TimeSum},
};

/// Part of the kernels with their durations alone.
const ALONE_PART: &str = "kernel_alone";
const COLUMNS: [&str; 11] = [
    "part",
    "name",
    "shapes",
    "base",
    "base calls",
    "other",
    "other calls",
    "difference",
    "ratio",
    "base self",
    "other self",
];
/// Columns of the kernels with their durations alone, behind the others.
const ALONE_COLUMNS: [&str; 3] = ["alone", "base slowdown", "other slowdown"];

/// Returns all rows as CSV; times are nanoseconds per step, memory is bytes. With a database, the kernels with their
/// durations alone follow, and then the single calls, with columns of their own.
pub(crate) fn comparison_csv(report: &ComparisonReport<'_>) -> String {
    let empty = String::new;
    let mut header = COLUMNS.to_vec();
    header.extend(report.in_model.iter().flat_map(|_| ALONE_COLUMNS));
    let first_of_calls = header.len();
    header.extend(report.calls.iter().flat_map(|_| CALL_COLUMNS));
    let mut records = vec![header.iter().map(|name| (*name).to_owned()).collect()];
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
    records.iter_mut().for_each(|record: &mut Vec<String>| record.resize(header.len(), empty()));
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

/// What `compare --format json` prints: the comparison, then a record for each part of the difference, each row, each call,
/// and each kernel in the database. Times are nanoseconds, those of rows and kernels per step.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "item", rename_all = "snake_case")]
pub(crate) enum ComparisonRecord<'a> {
    Comparison {
        base_files: &'a [PathBuf],
        other_files: &'a [PathBuf],
        base_steps: usize,
        other_steps: usize,
        span_difference_ns: f64,
        by_kernel_name: bool,
        not_compared: &'a [String],
    },
    Difference {
        part: &'static str,
        name: &'a str,
        shapes: &'a str,
        difference_ns: f64,
        /// True for what no row explains.
        remainder: bool,
    },
    Row {
        part: &'static str,
        name: &'a str,
        shapes: &'a str,
        /// `bytes` or `ns`.
        unit: &'static str,
        base: Option<SumRecord>,
        other: Option<SumRecord>,
        difference: Option<f64>,
        ratio: Option<f64>,
    },
    Call {
        part: &'static str,
        name: Option<&'a str>,
        thread: usize,
        base: Option<CallRecord<'a>>,
        other: Option<CallRecord<'a>>,
        difference_ns: i64,
        ratio: Option<f64>,
    },
    Kernel {
        /// `base` or `other`.
        run: &'static str,
        #[serde(flatten)]
        kernel: Box<InModelRecord<'a, f64, f64>>,
    },
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SumRecord {
    total: Option<f64>,
    calls: f64,
    mean: Option<f64>,
    shortest: Option<i64>,
    longest: Option<i64>,
    #[serde(rename = "self", skip_serializing_if = "Option::is_none")]
    self_total: Option<f64>,
}

impl SumRecord {
    fn new(row: &ComparedRow, sum: TimeSum) -> Self {
        let mean = (row.has_total() && sum.calls > 0.0).then(|| sum.total / sum.calls);
        Self {
            total: row.has_total().then_some(sum.total),
            calls: sum.calls,
            mean,
            shortest: sum.shortest,
            longest: sum.longest,
            self_total: sum.self_total,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CallRecord<'a> {
    step: Option<u64>,
    /// Number among the calls of the name in the step, from 1.
    call: usize,
    start_ns: i64,
    shapes: &'a str,
    total_ns: i64,
    self_ns: Option<i64>,
    copies_ns: Option<i64>,
    /// Null for modules.
    kernels: Option<Vec<CalledKernel<'a>>>,
}

#[derive(Serialize, JsonSchema)]
struct CalledKernel<'a> {
    kernel: &'a str,
    duration_ns: i64,
}

impl<'a> ComparisonReport<'a> {
    #[expect(clippy::cast_precision_loss, reason = "sums of durations have fewer than 53 bits")]
    pub(crate) fn records(&self) -> Vec<ComparisonRecord<'a>> {
        let comparison = self.comparison;
        let mut records = vec![ComparisonRecord::Comparison {
            base_files: &self.base.files,
            other_files: &self.other.files,
            base_steps: self.base_sums.steps,
            other_steps: self.other_sums.steps,
            span_difference_ns: comparison.span_difference,
            by_kernel_name: comparison.by_kernel_name,
            not_compared: &comparison.not_compared,
        }];
        records.extend(comparison.attribution.iter().map(|part| ComparisonRecord::Difference {
            part: part.kind,
            name: &part.name,
            shapes: &part.shapes,
            difference_ns: part.difference,
            remainder: part.is_remainder,
        }));
        records.extend(comparison.rows.iter().map(|row| ComparisonRecord::Row {
            part: row.part.into(),
            name: &row.name,
            shapes: &row.shapes,
            unit: if row.part == ComparedPart::Memory { "bytes" } else { "ns" },
            base: row.base.map(|sum| SumRecord::new(row, sum)),
            other: row.other.map(|sum| SumRecord::new(row, sum)),
            difference: row.has_total().then(|| row.difference()),
            ratio: row.ratio(),
        }));
        records.extend(self.calls.unwrap_or_default().iter().map(call_record));
        let Some(joined) = self.in_model else { return records };
        let runs = [("base", self.base_sums, joined.base), ("other", self.other_sums, joined.other)];
        for (run, sums, found) in runs {
            let steps = sums.steps as f64;
            records.extend(found.kernels.iter().map(|kernel| {
                let (calls, total) = (kernel.calls as f64 / steps, kernel.total as f64 / steps);
                let excess = kernel.excess().map(|excess| excess / steps);
                let kernel = Box::new(InModelRecord::new(kernel, calls, total, excess));
                ComparisonRecord::Kernel { run, kernel }
            }));
        }
        records
    }
}

fn call_record<'a>(call: &ComparedCall<'a>) -> ComparisonRecord<'a> {
    let side = |own: &'a RecordedCall<'a>| {
        let kernels = own.kernels.iter();
        let kernels = kernels.map(|(kernel, duration_ns)| CalledKernel { kernel, duration_ns: *duration_ns });
        CallRecord {
            step: own.step,
            call: own.number,
            start_ns: own.start,
            shapes: own.shapes,
            total_ns: own.total,
            self_ns: own.self_time,
            copies_ns: own.copies,
            kernels: (call.kind == CallKind::OperatorCall).then(|| kernels.collect()),
        }
    };
    ComparisonRecord::Call {
        part: call.kind.into(),
        name: call.base_or_other().map(|own| &*own.name),
        thread: call.thread,
        base: call.base.map(side),
        other: call.other.map(side),
        difference_ns: call.difference(),
        ratio: call.ratio(),
    }
}
