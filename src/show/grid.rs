//! Selected rows of grids and mutations: a table, JSON lines and notes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    cases::grid::{AxisRange, CandidateSource, MutationCount, RejectCount, RejectReason, SelectedRows},
    kernel::attention_attribute,
    show::table::{DETAIL, FittedColumn, FittedRow, FittedTable},
};

#[derive(Default)]
struct GridLine {
    kernel: String,
    candidates: u64,
    /// Rejected candidates by [`RejectReason::label`].
    rejected: BTreeMap<&'static str, u64>,
    rows: u64,
    fastest: Option<f64>,
    detail: String,
}

impl GridLine {
    fn new(kernel: &SelectedRows<'_>) -> Self {
        let mut rejected = BTreeMap::new();
        for (reason, RejectCount { count, .. }) in kernel.rejected() {
            *rejected.entry(reason.label()).or_default() += count;
        }
        let detail: Vec<String> = match kernel.source {
            CandidateSource::Grid(_) => kernel.ranges().into_iter().map(format_range).collect(),
            CandidateSource::Listed(_) => Vec::new(),
            CandidateSource::Mutation { .. } => {
                let mutations = kernel.mutations().filter(|(_, count)| count.rows > 0);
                mutations.map(|(name, count)| format!("{name} {}", count.rows)).collect()
            }
        };
        Self {
            kernel: kernel.kernel.to_string(),
            candidates: kernel.candidates,
            rejected,
            rows: kernel.rows() as u64,
            fastest: kernel.fastest,
            detail: detail.join(", "),
        }
    }

    fn add(&mut self, other: &Self) {
        self.candidates += other.candidates;
        self.rows += other.rows;
        for (label, count) in &other.rejected {
            *self.rejected.entry(label).or_default() += count;
        }
        if let Some(seconds) = other.fastest {
            *self.fastest.get_or_insert_default() += seconds;
        }
    }
}

/// Formats a row for each kernel and a row of sums; reasons that did not occur have no column.
pub(crate) fn grid_table(kernels: &[SelectedRows<'_>], width: Option<usize>) -> String {
    let mut lines: Vec<GridLine> = kernels.iter().map(GridLine::new).collect();
    let mut sum = GridLine { kernel: "all".to_owned(), ..GridLine::default() };
    lines.iter().for_each(|line| sum.add(line));
    lines.push(sum);
    // In the order of the reasons; expressions of one kind share a column.
    let reasons: BTreeSet<&RejectReason> =
        kernels.iter().flat_map(|kernel| &kernel.rejected_by_part).flat_map(BTreeMap::keys).collect();
    let mut labels: Vec<&str> = reasons.into_iter().map(RejectReason::label).collect();
    labels.dedup();
    let headers: Vec<String> = labels.iter().map(|label| label.replace('_', " ")).collect();
    let is_mutation = kernels.iter().any(|kernel| matches!(kernel.source, CandidateSource::Mutation { .. }));
    let detail = if is_mutation { "rows by mutation" } else { "ranges of the rows" };
    let mut columns =
        vec![FittedColumn::text("kernel", 0).shortened_to(12), FittedColumn::number("candidates", 3)];
    columns.extend(headers.iter().map(|header| FittedColumn::number(header, DETAIL)));
    columns.extend([FittedColumn::number("rows", 0), FittedColumn::number("at least", 2)]);
    columns.push(FittedColumn::text(detail, 1).shortened_to(24).wanted(40));
    let row = |line: GridLine| {
        let number = |count: u64| if count == 0 { String::new() } else { count.to_string() };
        let time = line.fastest.filter(|_| line.rows > 0).map_or_else(String::new, format_seconds);
        let rejected =
            labels.iter().map(|label| number(line.rejected.get(label).copied().unwrap_or_default()));
        let cells = [line.kernel, number(line.candidates)].into_iter().chain(rejected);
        let cells: Vec<String> = cells.chain([number(line.rows), time, line.detail]).collect();
        FittedRow::from_cells(&cells)
    };
    let rows = lines.into_iter().map(row).collect();
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
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

/// Options of `npubench grid` that its JSON output repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridRequest<'a> {
    pub models: &'a [String],
    pub seed: u64,
    /// True if rows were only counted.
    pub dry_run: bool,
    /// True if the shapes of the rows are listed.
    pub has_shapes: bool,
}

/// Formats a line of JSON for each kernel (JSON Lines).
pub(crate) fn grid_json(kernels: &[SelectedRows<'_>], request: &GridRequest<'_>) -> String {
    let lines = kernels.iter().map(|kernel| {
        let rejected: Vec<Value> = kernel.rejected().into_iter().map(reject_json).collect();
        // Whole nanoseconds, so that rounding errors of the sum are not printed.
        let fastest = kernel.fastest.map(|seconds| (seconds * 1e9).round() / 1e9);
        let mut object = json!({
            "kernel": kernel.kernel.as_str(), "candidates": kernel.candidates, "rows": kernel.rows(),
            "rejected": rejected, "fastest_s": fastest, "seed": request.seed, "dry_run": request.dry_run,
        });
        match &kernel.source {
            CandidateSource::Grid(_) => {
                let range = |(name, AxisRange { least, greatest, values })| {
                    (name, json!({"least": least, "greatest": greatest, "values": values}))
                };
                object["ranges"] =
                    kernel.ranges().into_iter().map(range).collect::<BTreeMap<_, _>>().into_iter().collect();
                object["models"] = json!(request.models);
            }
            CandidateSource::Listed(_) => object["models"] = json!(request.models),
            CandidateSource::Mutation { cases, .. } => {
                object["cases"] = cases.len().into();
                object["cases_unread"] = kernel.unread.count.into();
                let count = |(name, MutationCount { candidates, rows }): (&str, _)| {
                    (name.to_owned(), json!({"candidates": candidates, "rows": rows}))
                };
                object["mutations"] = kernel.mutations().map(count).collect();
            }
        }
        if request.has_shapes {
            let mut shapes: Vec<Value> = Vec::new();
            kernel.for_each(|row| {
                shapes.push(json!({"shapes": row.case.shapes(), "provenance": row.provenance()}));
            });
            object["shapes"] = shapes.into();
        }
        format!("{object}\n")
    });
    lines.collect()
}

/// Formats the shapes of all rows, with the mean length of the keys of attention.
pub(crate) fn grid_shapes(kernels: &[SelectedRows<'_>], width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(12),
        FittedColumn::text("inputs -> outputs", 0).shortened_to(24),
        FittedColumn::text("keys", 1),
    ];
    let mut rows = Vec::new();
    for kernel in kernels {
        kernel.for_each(|row| {
            let keys =
                row.attributes().into_iter().find(|(column, _)| *column == attention_attribute::AVG_SEQ_LEN);
            let keys = keys.map(|(_, keys)| keys).unwrap_or_default();
            rows.push(FittedRow::from_cells(&[kernel.kernel.to_string(), row.case.shapes(), keys]));
        });
    }
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

fn reject_json((reason, rejected): (&RejectReason, RejectCount)) -> Value {
    let mut object = json!({"reason": reason.label(), "count": rejected.count});
    for (key, text) in [("expression", reason.expression()), ("example", rejected.example.as_deref())] {
        if let Some(text) = text {
            object[key] = text.into();
        }
    }
    object
}

/// Shortens a message of the shape rule, which lists every form of a kernel; JSON has all of it.
fn shorten(text: &str) -> String {
    const MOST: usize = 240;
    match text.char_indices().nth(MOST) {
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
            let model = space.model.as_ref().map_or_else(String::new, |model| format!(" of {model}"));
            notes.push(format!(
                "{kernel}: no candidate of {}: {}{model} becomes a row",
                space.grid, space.pattern
            ));
            notes.extend(rejected.iter().map(|(reason, RejectCount { count, example })| {
                let example =
                    example.as_ref().map_or_else(String::new, |example| format!(", for example: {example}"));
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
