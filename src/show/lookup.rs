//! Answer of a lookup, as text or JSON.

use std::collections::BTreeMap;

use super::{coverage::number, prelude::*, table::cut_in_middle};
use crate::{
    answer::lookup::{AnswerSource, LookupAnswer, NearestRow, OpQuery, PartAnswer, UsedRow},
    database::{InterpolationErrors, KernelInterpolationError},
    kernel::{DataKind, KernelName},
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

/// Describes the published error of a kernel: `90 % of the interpolations of MatMulV2 within 4.9 % (60 hold-outs, ...)`.
pub(super) fn error_text(kernel: &str, error: &KernelInterpolationError) -> String {
    let within = error.p90.map_or_else(
        || format!("no estimate for {kernel}: too few hold-outs, or hold-outs without an answer"),
        |p90| format!("90 % of the interpolations of {kernel} within {:.1} %", p90 * 100.0),
    );
    format!("{within} ({} hold-outs, npubench adapt, {})", error.hold_outs.len(), error.date)
}

/// Published error of a kernel in JSON; errors are relative, null without an estimate.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorRecord<'a> {
    kernel: &'a str,
    p50: Option<f64>,
    p90: Option<f64>,
    max: Option<f64>,
    hold_outs: usize,
    date: &'a str,
}

impl<'a> ErrorRecord<'a> {
    pub(super) fn new(kernel: &'a str, error: &'a KernelInterpolationError) -> Self {
        let &KernelInterpolationError { p50, p90, max, .. } = error;
        Self { kernel, p50, p90, max, hold_outs: error.hold_outs.len(), date: &error.date }
    }
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
        return format!(
            "no answer: {}\n{}",
            or_empty(answer.miss.as_ref()),
            nearest_table(report.nearest, width)
        );
    };
    let line = |label: &str, text: Option<String>| or_empty(text.map(|text| format!("{label:<12}{text}\n")));
    let overhead = answer.overhead.as_ref().map(|overhead| {
        format!("{} us of these for the dispatch, a model: {}", number(overhead.latency.0), overhead.source)
    });
    let error = published_error(answer, report.errors).map(|(kernel, error)| error_text(kernel, error));
    let parts = answer.parts.iter().map(|part| part_lines(part, "", width));
    [
        line("latency", Some(format!("{} us", number(latency.0)))),
        line("source", Some(format!("{}, confidence {}", answer.source, number(answer.confidence)))),
        line("rule", answer.rule.map(|rule| rule.to_string())),
        line("missing", answer.miss.as_ref().map(ToString::to_string)),
        line("error", error),
        line("overhead", overhead),
        row_lines(answer, width),
    ]
    .into_iter()
    .chain(parts)
    .collect()
}

fn row_lines(answer: &LookupAnswer, width: Option<usize>) -> String {
    let lines = answer.rows.iter().enumerate().map(|(at, row)| {
        let title = if at == 0 { "rows" } else { "" };
        row_line(&format!("{title:<12}"), answer, row, width)
    });
    let mut text: String = lines.collect();
    if answer.equal_rows > 1 {
        text += &format!("            median of {} rows that fit equally well\n", answer.equal_rows);
    }
    text
}

/// Returns the line of a row: its place and its latency, which are whole, and between them its coordinates and column as far as
/// `width` allows.
fn row_line(start: &str, answer: &LookupAnswer, row: &UsedRow, width: Option<usize>) -> String {
    let start = format!("{start}{}:{}", file_name(&row.kernel), row.line);
    let end = format!(" {}", number(row.latency.0));
    // The coordinates of a row of an interpolation: `M 128, K 512  `.
    let named = answer.coordinates_of(row);
    let coordinates =
        named.map(|named| joined(named.map(|(axis, at)| format!("{axis} {}", number(at))), ", ") + "  ");
    let middle = format!("  {}{}", or_empty(coordinates), row.column.names()[0]);
    let used = start.chars().count() + end.chars().count();
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(used));
    format!("{start}{}{end}\n", cut_in_middle(&middle, room))
}

fn part_lines(part: &PartAnswer, indent: &str, width: Option<usize>) -> String {
    let PartAnswer { name, answer } = part;
    let source = match answer.latency {
        Some(latency) => {
            let rule = or_empty(answer.rule.map(|rule| format!(", {rule}")));
            format!("{} us, {}{rule}", number(latency.0), answer.source)
        }
        None => answer.source.to_string(),
    };
    let start = format!("{indent}{:12}", "");
    let rows = answer.rows.iter().map(|row| row_line(&start, answer, row, width));
    let inner = answer.parts.iter().map(|inner| part_lines(inner, &format!("{indent}  "), width));
    let first = format!("{indent}part        {name} {source}\n");
    [first].into_iter().chain(rows).chain(inner).collect()
}

fn file_name(kernel: &KernelName) -> String {
    format!("{}.csv", kernel.file_stem())
}

fn nearest_table(nearest: &[NearestRow], width: Option<usize>) -> String {
    let latency =
        |row: &NearestRow| row.latency.map_or("not measured".to_owned(), |latency| number(latency.0));
    Table::new(nearest)
        .text("nearest row", rank(0).min(16), |row| format!("{}:{}", file_name(&row.kernel), row.line))
        .text("inputs", rank(0).min(12), |row| joined(&row.inputs, " "))
        .number("latency us", 0, latency)
        .print(width)
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
            file: file_name(&row.kernel),
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
            file: file_name(&row.kernel),
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
