//! Selected rows of grids and mutations: a table, JSON lines and notes.

use std::slice;

use super::prelude::*;
use crate::{
    cases::grid::{AxisRange, CandidateSource, MutationCount, RejectCount, RejectReason, SelectedRows},
    kernel::attention_attribute,
};

/// Formats a row for each kernel and a row of sums; reasons that did not occur have no column.
pub(crate) fn grid_table(kernels: &[SelectedRows<'_>], width: Option<usize>) -> String {
    let rows = kernels.iter().map(|kernel| (Some(kernel), slice::from_ref(kernel))).chain([(None, kernels)]);
    // In the order of the reasons; expressions of one kind share a column.
    let reasons: BTreeSet<&RejectReason> =
        kernels.iter().flat_map(|kernel| &kernel.rejected_by_part).flat_map(BTreeMap::keys).collect();
    let mut labels: Vec<&str> = reasons.into_iter().map(RejectReason::label).collect();
    labels.dedup();
    let sum = |kernels: &[SelectedRows<'_>], of: &dyn Fn(&SelectedRows<'_>) -> u64| {
        or_empty(Some(kernels.iter().map(of).sum::<u64>()).filter(|sum| *sum > 0))
    };
    let mut table = Table::new(rows)
        .text("kernel", rank(0).min(12), |(kernel, _)| kernel.map_or("all", |one| one.kernel.as_str()))
        .number("candidates", 3, |(_, kernels)| sum(kernels, &|kernel| kernel.candidates));
    for label in labels {
        let rejected = |kernel: &SelectedRows<'_>| {
            let of_label = kernel.rejected().into_iter().filter(|(reason, _)| reason.label() == label);
            of_label.map(|(_, rejected)| rejected.count).sum()
        };
        table = table.number(label.replace('_', " "), DETAIL, |(_, kernels)| sum(kernels, &rejected));
    }
    let is_mutation = kernels.iter().any(|kernel| matches!(kernel.source, CandidateSource::Mutation { .. }));
    let detail = if is_mutation { "rows by mutation" } else { "ranges of the rows" };
    let fastest = |kernels: &[SelectedRows<'_>]| {
        let seconds = kernels.iter().filter(|kernel| kernel.rows() > 0).filter_map(|kernel| kernel.fastest);
        or_empty(seconds.reduce(|one, other| one + other).map(format_seconds))
    };
    table
        .number("rows", 0, |(_, kernels)| sum(kernels, &|kernel| kernel.rows() as u64))
        .number("at least", 2, |(_, kernels)| fastest(kernels))
        .text(detail, rank(1).min(24).wanted(40), |(kernel, _)| or_empty(kernel.map(format_detail)))
        .print(width)
}

fn format_detail(kernel: &SelectedRows<'_>) -> String {
    match kernel.source {
        CandidateSource::Grid(_) => joined(kernel.ranges().into_iter().map(format_range), ", "),
        CandidateSource::Listed(_) => String::new(),
        CandidateSource::Mutation { .. } => {
            let mutations = kernel.mutations().filter(|(_, count)| count.rows > 0);
            with_counts(mutations.map(|(name, count)| (name, count.rows)))
        }
    }
}

fn format_seconds(seconds: f64) -> String {
    match seconds {
        ..1e-3 => format!("{:.1} us", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

fn format_range((name, range): (String, AxisRange)) -> String {
    match range {
        AxisRange { least, values: 1, .. } => format!("{name} {least}"),
        AxisRange { least, greatest, values } => format!("{name} {least}..{greatest} ({values})"),
    }
}

record! {
    pub(crate) GridRecord<'a>(
        kernel: &'a SelectedRows<'a>, models: &'a [String], seed: u64, dry_run: bool, has_shapes: bool
    )
    with {
        let cases = match &kernel.source {
            CandidateSource::Mutation { cases, .. } => Some(cases.len()),
            CandidateSource::Grid(_) | CandidateSource::Listed(_) => None,
        };
        let has_ranges = matches!(kernel.source, CandidateSource::Grid(_));
        let shapes = || {
            let mut shapes = Vec::new();
            kernel.for_each(|row| {
                shapes.push(ShapeRecord { provenance: row.provenance.to_owned(), shapes: row.case.shapes() });
            });
            shapes
        };
    } {
        candidates: u64 = kernel.candidates,
        #[serde(skip_serializing_if = "Option::is_none")]
        cases: Option<usize> = cases,
        #[serde(skip_serializing_if = "Option::is_none")]
        cases_unread: Option<u64> = cases.map(|_| kernel.unread.count),
        dry_run: bool = dry_run,
        /// Sum of the fastest possible times of the rows in seconds. Whole nanoseconds, so that rounding errors are not printed.
        fastest_s: Option<f64> = kernel.fastest.map(|seconds| (seconds * 1e9).round() / 1e9),
        kernel: &'a str = kernel.kernel.as_str(),
        #[serde(skip_serializing_if = "Option::is_none")]
        models: Option<&'a [String]> = cases.is_none().then_some(models),
        #[serde(skip_serializing_if = "Option::is_none")]
        mutations: Option<BTreeMap<&'a str, MutationCount>> = cases.map(|_| kernel.mutations().collect()),
        #[serde(skip_serializing_if = "Option::is_none")]
        ranges: Option<BTreeMap<String, AxisRange>> = has_ranges.then(|| kernel.ranges().into_iter().collect()),
        rejected: Vec<RejectRecord<'a>> =
            kernel.rejected().into_iter().map(|(reason, of)| RejectRecord::new(reason, of)).collect(),
        rows: usize = kernel.rows(),
        seed: u64 = seed,
        #[serde(skip_serializing_if = "Option::is_none")]
        shapes: Option<Vec<ShapeRecord>> = has_shapes.then(shapes),
    }
}

record! {
    RejectRecord<'a>(reason: &'a RejectReason, rejected: RejectCount) {
        count: u64 = rejected.count,
        #[serde(skip_serializing_if = "Option::is_none")]
        example: Option<String> = rejected.example,
        #[serde(skip_serializing_if = "Option::is_none")]
        expression: Option<&'a str> = reason.expression(),
        reason: &'static str = reason.label(),
    }
}

#[derive(Serialize)]
struct ShapeRecord {
    provenance: String,
    shapes: String,
}

pub(crate) fn grid_shapes(kernels: &[SelectedRows<'_>], width: Option<usize>) -> String {
    let mut rows = Vec::new();
    for kernel in kernels {
        kernel.for_each(|row| {
            let cells = row.attributes();
            let keys = cells.iter().find(|(column, _)| *column == attention_attribute::AVG_SEQ_LEN);
            rows.push((kernel.kernel, row.case.shapes(), or_empty(keys.map(|(_, keys)| keys))));
        });
    }
    Table::new(&rows)
        .text("kernel", rank(0).min(12), |(kernel, ..)| kernel)
        .text("inputs -> outputs", rank(0).min(24), |(_, shapes, _)| shapes)
        .text("keys", 1, |(.., keys)| keys)
        .print(width)
}

/// Shortens a message of the shape rule, which lists every form of a kernel; JSON has all of it.
fn shorten(text: &str) -> String {
    const MAX: usize = 240;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns notes about cases that cannot be read, all reasons of each pattern without a row, and an example of what the
/// shape rule rejected.
pub(crate) fn grid_notes(kernels: &[SelectedRows<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    for selected in kernels {
        let kernel = selected.kernel;
        if let (CandidateSource::Mutation { cases, .. }, RejectCount { count, example: Some(example) }) =
            (&selected.source, &selected.unread)
        {
            let (cases, example) = (cases.len(), shorten(example));
            notes.push(format!("{kernel}: {count} of {cases} cases cannot be read, for example: {example}"));
        }
        let empty = selected.empty_spaces();
        for (space, rejected) in &empty {
            let model = or_empty(space.model.as_ref().map(|model| format!(" of {model}")));
            notes.push(format!(
                "{kernel}: no candidate of {}: {}{model} becomes a row",
                space.grid, space.pattern
            ));
            notes.extend(rejected.iter().map(|(reason, RejectCount { count, example })| {
                let example = or_empty(example.as_ref().map(|example| format!(", for example: {example}")));
                format!("  {count}: {reason}{example}")
            }));
        }
        let is_noted = empty.iter().any(|(_, rejected)| rejected.contains_key(&RejectReason::ShapeRule));
        let example =
            selected.rejected().remove(&RejectReason::ShapeRule).and_then(|rejected| rejected.example);
        notes.extend(example.filter(|_| !is_noted).map(|example| {
            format!("{kernel}: rejected by the shape rule, for example: {}", shorten(&example))
        }));
    }
    notes
}
