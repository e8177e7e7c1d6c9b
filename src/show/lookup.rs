//! Answer of a lookup, as text or JSON.

use super::{coverage::number, prelude::*, table::cut_in_middle};
use crate::{
    answer::{
        lookup::{AnswerSource, DispatchOverhead, LookupAnswer, NearestRow, OpQuery, PartAnswer, UsedRow},
        lookup_database::LookupDatabase,
    },
    database::{InterpolationErrors, KernelInterpolationError},
};

/// Describes the published error of a kernel: `90 % of the interpolations of MatMulV2 within 4.9 % (60 hold-outs, ...)`.
pub(super) fn error_text(kernel: &str, error: &KernelInterpolationError) -> String {
    let within = error.p90.map_or_else(
        || format!("no estimate for {kernel}: too few hold-outs, or hold-outs without an answer"),
        |p90| format!("90 % of the interpolations of {kernel} within {:.1} %", p90 * 100.0),
    );
    format!("{within} ({} hold-outs, npubench adapt, {})", error.hold_outs.len(), error.date)
}

record! {
    /// Published error of a kernel in JSON; errors are relative, null without an estimate.
    pub(crate) ErrorRecord<'a>(kernel: &'a str, error: &'a KernelInterpolationError) {
        kernel: &'a str = kernel,
        p50: Option<f64> = error.p50,
        p90: Option<f64> = error.p90,
        max: Option<f64> = error.max,
        hold_outs: usize = error.hold_outs.len(),
        date: &'a str = &error.date,
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

pub(crate) fn lookup_text(
    answer: &LookupAnswer,
    nearest: &[NearestRow],
    errors: &InterpolationErrors,
    width: Option<usize>,
) -> String {
    let Some(latency) = answer.latency else {
        return format!("no answer: {}\n{}", or_empty(answer.miss.as_ref()), nearest_table(nearest, width));
    };
    let line = |label: &str, text: Option<String>| or_empty(text.map(|text| format!("{label:<12}{text}\n")));
    let overhead = answer.overhead.as_ref().map(|overhead| {
        format!("{} us of these for the dispatch, a model: {}", number(overhead.latency.0), overhead.source)
    });
    let error = published_error(answer, errors).map(|(kernel, error)| error_text(kernel, error));
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

record! {
    /// An answer in JSON, or the answer for a part of a composite.
    AnswerRecord<'a>(op: &'a str, answer: &'a LookupAnswer) {
        op: &'a str = op,
        latency_us: Option<f64> = answer.latency.map(|latency| latency.0),
        source: &'static str = answer.source.into(),
        confidence: f64 = answer.confidence,
        rule: Option<String> = answer.rule.map(|rule| rule.to_string()),
        rows: Vec<RowRecord<'a>> = answer.rows.iter().map(|row| RowRecord::new(row, answer)).collect(),
        equal_rows: usize = answer.equal_rows,
        reason: Option<String> = answer.miss.as_ref().map(ToString::to_string),
        parts: Vec<Self> = answer.parts.iter().map(|part| Self::new(&part.name, &part.answer)).collect(),
        overhead: Option<OverheadRecord<'a>> = answer.overhead.as_ref().map(OverheadRecord::new),
    }
}

record! {
    RowRecord<'a>(row: &'a UsedRow, answer: &LookupAnswer) {
        kernel: &'a str = row.kernel.as_str(),
        file: String = file_name(&row.kernel),
        line: u32 = row.line,
        column: &'static str = row.column.names()[0],
        latency_us: f64 = row.latency.0,
        /// By the names of the axes; null unless the answer is an interpolation.
        coordinates: Option<BTreeMap<&'static str, f64>> = answer.coordinates_of(row).map(Iterator::collect),
    }
}

record! {
    OverheadRecord<'a>(overhead: &'a DispatchOverhead) {
        latency_us: f64 = overhead.latency.0,
        source: &'a str = &overhead.source,
    }
}

record! {
    NearestRecord<'a>(row: &'a NearestRow) {
        kernel: &'a str = row.kernel.as_str(),
        file: String = file_name(&row.kernel),
        line: u32 = row.line,
        inputs: Vec<String> = row.inputs.iter().map(ToString::to_string).collect(),
        latency_us: Option<f64> = row.latency.map(|latency| latency.0),
        distance: f64 = row.distance,
    }
}

record! {
    pub(crate) LookupRecord<'a>(
        query: &'a OpQuery, answer: &'a LookupAnswer, nearest: &'a [NearestRow], database: &'a LookupDatabase, is_compat: bool
    ) {
        #[serde(flatten)]
        answer: AnswerRecord<'a> = AnswerRecord::new(&query.op, answer),
        kind: &'static str = database.kind.as_str(),
        compat: bool = is_compat,
        nearest: Vec<NearestRecord<'a>> = nearest.iter().map(NearestRecord::new).collect(),
        published_error: Option<ErrorRecord<'a>> = published_error(answer, &database.errors)
            .map(|(kernel, error)| ErrorRecord::new(kernel, error)),
    }
}
