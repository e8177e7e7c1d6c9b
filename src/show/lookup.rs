//! Answer of a lookup, as text or JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::lookup::{AnswerSource, LookupAnswer, NearestRow, OpQuery, PartAnswer, UsedRow},
    database::{InterpolationErrors, KernelInterpolationError},
    kernel::DataKind,
    show::{
        coverage::number,
        interpolation_error::{ErrorRecord, error_text},
        table::{FittedColumn, cut_in_middle, fitted_text},
    },
};

#[derive(Debug)]
pub(crate) struct LookupReport<'a> {
    pub(crate) query: &'a OpQuery,
    pub(crate) answer: &'a LookupAnswer,
    pub(crate) nearest: &'a [NearestRow],
    pub(crate) kind: DataKind,
    pub(crate) is_compat: bool,
    pub(crate) errors: &'a InterpolationErrors,
}

/// Returns the published error of the kernel whose rows an interpolated answer is from, with the kernel's name.
fn published_error<'a>(
    answer: &'a LookupAnswer,
    errors: &'a InterpolationErrors,
) -> Option<(&'a str, &'a KernelInterpolationError)> {
    let kernel = answer.rows.first().filter(|_| answer.source == AnswerSource::Interpolated)?.kernel.as_str();
    errors.kernels.get(kernel).map(|error| (kernel, error))
}

/// Returns an answer as a table of two columns; for a miss the reason and the nearest rows.
pub(crate) fn lookup_text(report: &LookupReport<'_>, width: Option<usize>) -> String {
    let answer = report.answer;
    let Some(latency) = answer.latency else {
        let reason = answer.miss.as_ref().map(ToString::to_string).unwrap_or_default();
        return format!("no answer: {reason}\n{}", nearest_table(report.nearest, width));
    };
    let mut text = format!("latency     {} us\n", number(latency.0));
    text.push_str(&format!("source      {}, confidence {}\n", answer.source, number(answer.confidence)));
    if let Some(rule) = answer.rule {
        text.push_str(&format!("rule        {rule}\n"));
    }
    if let Some(reason) = &answer.miss {
        text.push_str(&format!("missing     {reason}\n"));
    }
    if let Some((kernel, error)) = published_error(answer, report.errors) {
        text.push_str(&format!("error       {}\n", error_text(kernel, error)));
    }
    if let Some(overhead) = &answer.overhead {
        let (time, source) = (number(overhead.latency.0), &overhead.source);
        text.push_str(&format!("overhead    {time} us of these for the dispatch, a model: {source}\n"));
    }
    text.push_str(&row_lines(answer, width));
    for part in &answer.parts {
        text.push_str(&part_lines(part, "", width));
    }
    text
}

fn row_lines(answer: &LookupAnswer, width: Option<usize>) -> String {
    let mut text = String::new();
    for (at, row) in answer.rows.iter().enumerate() {
        let title = if at == 0 { "rows" } else { "" };
        text.push_str(&row_line(&format!("{title:<12}"), answer, row, width));
    }
    if answer.equal_rows > 1 {
        text.push_str(&format!("            median of {} rows that fit equally well\n", answer.equal_rows));
    }
    text
}

/// Returns the line of a row: its place and its latency, which are whole, and between them its coordinates and column as far as
/// `width` allows.
fn row_line(start: &str, answer: &LookupAnswer, row: &UsedRow, width: Option<usize>) -> String {
    let start = format!("{start}{}.csv:{}", row.kernel.file_stem(), row.line);
    let end = format!(" {}", number(row.latency.0));
    let middle = format!("  {}{}", coordinates_text(answer, row), row.column.names()[0]);
    let used = start.chars().count() + end.chars().count();
    let middle =
        width.map_or_else(|| middle.clone(), |width| cut_in_middle(&middle, width.saturating_sub(used)));
    format!("{start}{middle}{end}\n")
}

/// Returns the coordinates of a row of an interpolation: `M 128, K 512  `.
fn coordinates_text(answer: &LookupAnswer, row: &UsedRow) -> String {
    let Some(named) = answer.coordinates_of(row) else { return String::new() };
    let named = named.map(|(axis, at)| format!("{axis} {}", number(at)));
    format!("{}  ", named.collect::<Vec<_>>().join(", "))
}

fn part_lines(part: &PartAnswer, indent: &str, width: Option<usize>) -> String {
    let answer = &part.answer;
    let rule = answer.rule.map(|rule| format!(", {rule}")).unwrap_or_default();
    let mut text = match answer.latency {
        Some(latency) => {
            let latency = number(latency.0);
            format!("{indent}part        {} {latency} us, {}{rule}\n", part.name, answer.source)
        }
        None => format!("{indent}part        {} {}\n", part.name, answer.source),
    };
    for row in &answer.rows {
        text.push_str(&row_line(&format!("{indent}{:12}", ""), answer, row, width));
    }
    for inner in &answer.parts {
        text.push_str(&part_lines(inner, &format!("{indent}  "), width));
    }
    text
}

fn nearest_table(nearest: &[NearestRow], width: Option<usize>) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    let columns = vec![
        FittedColumn::text("nearest row", 0).shortened_to(16),
        FittedColumn::text("inputs", 0).shortened_to(12),
        FittedColumn::number("latency us", 0),
    ];
    let rows = nearest.iter().map(|row| {
        let inputs: Vec<String> = row.inputs.iter().map(ToString::to_string).collect();
        vec![
            format!("{}.csv:{}", row.kernel.file_stem(), row.line),
            inputs.join(" "),
            row.latency.map_or("not measured".to_owned(), |latency| number(latency.0)),
        ]
    });
    fitted_text(columns, rows, width)
}

/// An answer in JSON, or the answer for a part of a composite.
#[derive(Serialize, JsonSchema)]
struct AnswerRecord<'a> {
    /// Operator or kernel of the query, or of the part.
    op: &'a str,
    /// Null for a miss.
    latency_us: Option<f64>,
    source: &'static str,
    confidence: f64,
    rule: Option<String>,
    rows: Vec<RowRecord<'a>>,
    equal_rows: usize,
    /// Reason for a miss, or of the first part that has no answer.
    reason: Option<String>,
    parts: Vec<Self>,
    overhead: Option<OverheadRecord<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct RowRecord<'a> {
    kernel: &'a str,
    file: String,
    line: u32,
    column: &'static str,
    latency_us: f64,
    /// By the names of the axes; null unless the answer is an interpolation.
    coordinates: Option<BTreeMap<&'static str, f64>>,
}

#[derive(Serialize, JsonSchema)]
struct OverheadRecord<'a> {
    latency_us: f64,
    source: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct NearestRecord<'a> {
    kernel: &'a str,
    file: String,
    line: u32,
    inputs: Vec<String>,
    latency_us: Option<f64>,
    distance: f64,
}

/// A query with its answer in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LookupRecord<'a> {
    #[serde(flatten)]
    answer: AnswerRecord<'a>,
    kind: &'static str,
    /// True for an answer of the superseded tool.
    compat: bool,
    /// The rows that are nearest to a query that has no answer.
    nearest: Vec<NearestRecord<'a>>,
    published_error: Option<ErrorRecord<'a>>,
}

impl<'a> LookupRecord<'a> {
    pub(crate) fn new(report: &LookupReport<'a>) -> Self {
        let nearest = report.nearest.iter().map(|row| NearestRecord {
            kernel: row.kernel.as_str(),
            file: format!("{}.csv", row.kernel.file_stem()),
            line: row.line,
            inputs: row.inputs.iter().map(ToString::to_string).collect(),
            latency_us: row.latency.map(|latency| latency.0),
            distance: row.distance,
        });
        let error = published_error(report.answer, report.errors);
        Self {
            answer: AnswerRecord::new(&report.query.op, report.answer),
            kind: report.kind.as_str(),
            compat: report.is_compat,
            nearest: nearest.collect(),
            published_error: error.map(|(kernel, error)| ErrorRecord::new(kernel, error)),
        }
    }
}

impl<'a> AnswerRecord<'a> {
    fn new(op: &'a str, answer: &'a LookupAnswer) -> Self {
        let rows = answer.rows.iter().map(|row| RowRecord {
            kernel: row.kernel.as_str(),
            file: format!("{}.csv", row.kernel.file_stem()),
            line: row.line,
            column: row.column.names()[0],
            latency_us: row.latency.0,
            coordinates: answer.coordinates_of(row).map(Iterator::collect),
        });
        Self {
            op,
            latency_us: answer.latency.map(|latency| latency.0),
            source: answer.source.into(),
            confidence: answer.confidence,
            rule: answer.rule.map(|rule| rule.to_string()),
            rows: rows.collect(),
            equal_rows: answer.equal_rows,
            reason: answer.miss.as_ref().map(ToString::to_string),
            parts: answer.parts.iter().map(|part| Self::new(&part.name, &part.answer)).collect(),
            overhead: answer
                .overhead
                .as_ref()
                .map(|overhead| OverheadRecord { latency_us: overhead.latency.0, source: &overhead.source }),
        }
    }
}
