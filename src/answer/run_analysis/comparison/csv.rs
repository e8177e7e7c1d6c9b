//! Comparison of two recorded runs as CSV.

use super::{
    ComparisonReport,
    call_tables::{CALL_COLUMNS, call_cells},
    compared_kernels::{ComparedKernel, compared_kernels},
};
use crate::{answer::coverage::InModelKernel, profile::timeline::TimeSum};

/// Part of the kernels with their durations alone, and the columns that only they have.
const ALONE_PART: &str = "kernel_alone";
const ALONE_COLUMNS: [&str; 3] = ["alone", "base slowdown", "other slowdown"];

/// Returns all rows as CSV; times are nanoseconds per step, memory is bytes. With a database, the kernels with their
/// durations alone follow, and then the single calls, with columns of their own.
pub(crate) fn comparison_csv(report: &ComparisonReport<'_>) -> String {
    let mut csv = csv::Writer::from_writer(Vec::new());
    let header = [
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
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let mut records = vec![header.map(str::to_owned).to_vec()];
    for part in &report.comparison.attribution {
        let name = if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() };
        let empty = String::new;
        records.push(vec![
            format!("difference of the step: {}", part.kind),
            name,
            part.shapes.clone(),
            empty(),
            empty(),
            empty(),
            empty(),
            part.difference.to_string(),
            empty(),
            empty(),
            empty(),
        ]);
    }
    for row in &report.comparison.rows {
        let total = |sum: Option<TimeSum>| number(sum.filter(|_| row.has_total()).map(|sum| sum.total));
        records.push(vec![
            row.part.to_string(),
            row.name.clone(),
            row.shapes.clone(),
            total(row.base),
            number(row.base.map(|sum| sum.calls)),
            total(row.other),
            number(row.other.map(|sum| sum.calls)),
            number(row.has_total().then(|| row.difference())),
            number(row.ratio()),
            number(row.base.and_then(|sum| sum.self_total)),
            number(row.other.and_then(|sum| sum.self_total)),
        ]);
    }
    if report.in_model.is_some() {
        records[0].extend(ALONE_COLUMNS.map(str::to_owned));
        let columns = records[0].len();
        records.iter_mut().for_each(|record| record.resize(columns, String::new()));
        records.extend(compared_kernels(report).iter().filter_map(alone_record));
    }
    if let Some(calls) = report.calls {
        records[0].extend(CALL_COLUMNS.map(str::to_owned));
        let columns = records[0].len();
        records.iter_mut().for_each(|record| record.resize(columns, String::new()));
        let alone = if report.in_model.is_some() { ALONE_COLUMNS.len() } else { 0 };
        records.extend(calls.iter().map(|call| call_cells(call, alone)));
    }
    for record in records {
        // Writing to memory does not fail, and all records have the same length.
        let _ = csv.write_record(record);
    }
    String::from_utf8(csv.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Returns the cells of a kernel with its duration alone.
fn alone_record(pair: &ComparedKernel<'_>) -> Option<Vec<String>> {
    let kernel = pair.base_or_other()?;
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let ([base, other], [base_calls, other_calls]) = (pair.times.map(number), pair.calls.map(number));
    let ratio =
        pair.times[0].zip(pair.times[1]).filter(|(base, _)| *base > 0.0).map(|(base, other)| other / base);
    Some(vec![
        ALONE_PART.to_owned(),
        kernel.case.kernel.to_string(),
        kernel.case.signature(),
        base,
        base_calls,
        other,
        other_calls,
        pair.difference().to_string(),
        number(ratio),
        String::new(),
        String::new(),
        number(kernel.alone.map(|alone| alone.duration)),
        number(pair.base.and_then(InModelKernel::slowdown)),
        number(pair.other.and_then(InModelKernel::slowdown)),
    ])
}
