//! Comparison of two recorded runs: tables, a page, CSV and JSON lines. Tables and page are made from the same sections.

mod calls;
mod data;
mod kernels;

use strum::IntoEnumIterator as _;

pub(crate) use data::{comparison_csv, comparison_records};

use super::{
    prelude::*,
    table::{Column, columns_text},
};
use crate::{
    answer::coverage::InModelKernels,
    base::shell_argument::quoted_path,
    profile::timeline::{AttributedTime, ComparedPart, ComparedRow, RunComparison, RunSums, TimeSum},
};

const TEMPLATE: &str = "comparison.html.hbs";

#[derive(Debug)]
pub(crate) struct ComparisonReport<'a> {
    pub(crate) base: &'a RunTimeline,
    pub(crate) other: &'a RunTimeline,
    pub(crate) base_sums: &'a RunSums,
    pub(crate) other_sums: &'a RunSums,
    pub(crate) comparison: &'a RunComparison,
    pub(crate) in_model: Option<&'a JoinedDatabase<'a>>,
    pub(crate) calls: Option<&'a [ComparedCall<'a>]>,
    pub(crate) rows: usize,
}

#[derive(Debug)]
pub(crate) struct JoinedDatabase<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) kind: DataKind,
    pub(crate) base: InModelKernels,
    pub(crate) other: InModelKernels,
}

struct Section {
    heading: &'static str,
    columns: Vec<Column>,
    more: usize,
}

impl Section {
    fn new<T>(heading: &'static str, table: Table<T>, more: usize) -> Option<Self> {
        let columns = table.columns;
        columns.iter().any(|column| column.rows() > 0).then_some(Self { heading, columns, more })
    }

    fn text(self, width: Option<usize>) -> String {
        let more = (self.more > 0).then(|| {
            format!("{}: `--rows N`, `--format csv` or `--html FILE`\n", format_count(self.more, "more row"))
        });
        format!("\n{}\n{}{}", self.heading, columns_text(&self.columns, width), or_empty(more))
    }
}

record! {
    PageSection(section: Section)
    with {
        let cells = |text: &dyn Fn(&Column) -> String| {
            section.columns.iter().map(|column| PageCell::new(column, text(column))).collect::<Vec<_>>()
        };
        let rows = section.columns.first().map_or(0, Column::rows);
    } {
        heading: &'static str = section.heading,
        columns: Vec<PageCell> = cells(&|column| column.header.clone()),
        rows: Vec<Vec<PageCell>> = (0..rows).map(|row| cells(&|column| column.cell(row).to_owned())).collect(),
        more: Option<usize> = (section.more > 0).then_some(section.more),
    }
}

record! {
    PageCell(column: &Column, text: String) {
        text: String = text,
        class: &'static str = if column.is_number { "n" } else { "s" },
    }
}

record! {
    ComparisonPage<'a>(report: &ComparisonReport<'a>)
    with {
        let comparison = report.comparison;
        let largest = comparison.attribution.iter().map(|part| part.difference.abs()).fold(0.0, f64::max);
        let bars = comparison.attribution.iter().map(|part| AttributionBar::new(part, largest));
        let parts = ComparedPart::iter().filter_map(|part| part_section(report, part, usize::MAX));
        let calls = calls::sections(report.calls.unwrap_or_default(), calls::MAX_PAGE_ROWS);
        let in_model = kernels::section(report, usize::MAX);
        let unknown = report.in_model.filter(|_| in_model.is_none());
    } {
        title: &'static str = "Comparison of two runs",
        base: String = run_text("base", report.base, report.base_sums),
        other: String = run_text("other", report.other, report.other_sums),
        span: String = with_sign(ms(comparison.span_difference)),
        not_compared: &'a [String] = &comparison.not_compared,
        attribution: Vec<AttributionBar<'a>> = bars.collect(),
        sections: Vec<PageSection> = parts.chain(calls).chain(in_model).map(PageSection::new).collect(),
        no_measured_row: Option<String> = unknown.map(|database| kernels::no_measured_row(report, database)),
    }
}

record! {
    AttributionBar<'a>(part: &'a AttributedTime, largest: f64)
    with { let width = if largest > 0.0 { 100.0 * part.difference.abs() / largest } else { 0.0 }; } {
        difference: String = with_sign(ms(part.difference)),
        class: &'static str = if part.difference < 0.0 { "shorter" } else { "longer" },
        width: String = decimals3(width),
        kind: &'static str = part.kind,
        name: String = part_name(part),
        shapes: &'a str = &part.shapes,
    }
}

fn part_name(part: &AttributedTime) -> String {
    if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() }
}

pub(crate) fn comparison_page(
    assets: &AssetFiles,
    report: &ComparisonReport<'_>,
) -> Result<String, RenderError> {
    render_template(assets, TEMPLATE, &ComparisonPage::new(report))
}

pub(crate) fn comparison_text(report: &ComparisonReport<'_>, width: Option<usize>) -> String {
    let mut text = run_text("base ", report.base, report.base_sums);
    text.push_str(&run_text("other", report.other, report.other_sums));
    text.push_str(&attribution_text(report, width));
    for part in ComparedPart::iter() {
        let most = match part {
            ComparedPart::Overall | ComparedPart::KernelClass => usize::MAX,
            _ => report.rows,
        };
        text.extend(part_section(report, part, most).map(|section| section.text(width)));
    }
    let calls = calls::sections(report.calls.unwrap_or_default(), report.rows);
    text.extend(calls.map(|section| section.text(width)));
    if let Some(database) = report.in_model {
        match kernels::section(report, report.rows) {
            Some(section) => {
                text.push_str(&section.text(width));
                text.push_str(&kernels::without_duration(report, database));
            }
            None => text.push_str(&format!("\n{}\n", kernels::no_measured_row(report, database))),
        }
    }
    if !report.comparison.not_compared.is_empty() {
        text.push('\n');
    }
    for what in &report.comparison.not_compared {
        text.push_str(&format!("not compared: {what}\n"));
    }
    text
}

fn attribution_text(report: &ComparisonReport<'_>, width: Option<usize>) -> String {
    let attribution = &report.comparison.attribution;
    let whole = report.comparison.span_difference;
    let start = match whole {
        0.0 => "the steps of base and other take the same time".to_owned(),
        _ => {
            let word = if whole < 0.0 { "shorter" } else { "longer" };
            format!("the step of other is {} ms {word} than that of base", ms(whole.abs()))
        }
    };
    let end = match attribution.is_empty() {
        true => ", and so does each part",
        false => "; parts of the difference, ms:",
    };
    let more = attribution.len().saturating_sub(report.rows);
    let rest: f64 = attribution.iter().skip(report.rows).map(|part| part.difference).sum();
    let share = |part: &AttributedTime| {
        or_dash((whole != 0.0).then(|| format!("{:.1} %", 100.0 * part.difference / whole)))
    };
    let table = Table::new(attribution.iter().take(report.rows).map(Some).chain((more > 0).then_some(None)))
        .number("difference", 0, |part| with_sign(ms(part.map_or(rest, |part| part.difference))))
        .number("share", 1, |part| or_empty(part.map(share)))
        .text("part", 2, |part| or_empty(part.map(|part| part.kind)))
        .text("name", rank(0).min(16).wanted(30), |part| {
            part.map_or_else(|| format!("[{more} more]"), part_name)
        })
        .text("shapes", rank(3).min(16), |part| or_empty(part.map(|part| &part.shapes)));
    format!("\n{start}{end}\n{}", table.print(width))
}

fn part_section(report: &ComparisonReport<'_>, part: ComparedPart, max: usize) -> Option<Section> {
    // Operators without kernels have only calls.
    let has_amount = |row: &&ComparedRow| {
        row.base.into_iter().chain(row.other).any(|sum| sum.total != 0.0) && row.part == part
    };
    let rows: Vec<&ComparedRow> = report.comparison.rows.iter().filter(has_amount).collect();
    let more = rows.len().saturating_sub(max);
    let (heading, detail) = headings(part);
    let amount = |total: f64| match part {
        ComparedPart::Memory => decimals3(total / 1_048_576.0),
        _ => ms(total),
    };
    let total = |sum: Option<TimeSum>| or_dash(sum.map(|sum| amount(sum.total)));
    let calls = |sum: Option<TimeSum>| {
        let calls = sum.map(|sum| sum.calls).filter(|calls| *calls > 0.0);
        or_dash(calls.map(|calls| (calls * 100.0).round() / 100.0))
    };
    let own = |sum: Option<TimeSum>| or_dash(sum.and_then(|sum| sum.self_total).map(amount));
    let table = Table::new(rows.into_iter().take(max))
        .text("name", rank(0).min(16).wanted(30), |row| &row.name)
        .text(detail, rank(2).min(16), |row| &row.shapes)
        .number("base", 0, |row| total(row.base))
        .number("other", 0, |row| total(row.other))
        .number("difference", 0, |row| with_sign(amount(row.difference())))
        .number("ratio", 1, |row| or_dash(row.ratio().map(|ratio| format!("{ratio:.4}"))))
        .number("base calls", DETAIL, |row| calls(row.base))
        .number("other calls", DETAIL, |row| calls(row.other));
    let table = match part {
        ComparedPart::HostCall => table.number("base self", DETAIL + 1, |row| own(row.base)).number(
            "other self",
            DETAIL + 1,
            |row| own(row.other),
        ),
        _ => table,
    };
    Section::new(heading, table, more)
}

const fn headings(part: ComparedPart) -> (&'static str, &'static str) {
    match part {
        ComparedPart::Overall => ("overall, ms per step", "shapes"),
        ComparedPart::KernelClass => ("kernels by class, ms per step", "unit"),
        ComparedPart::KernelType => ("kernels by type, ms per step", "core"),
        ComparedPart::Kernel => ("kernels, ms per step", "shapes"),
        ComparedPart::Operator => ("operators with the time of their kernels, ms per step", "shapes"),
        ComparedPart::HostCall => ("calls of the host, ms per step", "shapes"),
        ComparedPart::Collective => ("collectives, ms per step", "shapes"),
        ComparedPart::CollectiveTask => ("tasks of collectives on all planes, ms per step", "task"),
        ComparedPart::Module => ("modules, ms per step", "shapes"),
        ComparedPart::Memory => ("memory, MiB", "shapes"),
    }
}

fn run_text(name: &str, run: &RunTimeline, sums: &RunSums) -> String {
    let files = joined(run.files.iter().map(|file| format!("`{}`", file.display())), ", ");
    format!("{name}: {files} ({}, {})\n", or_empty(run.form), format_count(sums.steps, "step"))
}

fn modules_command(report: &ComparisonReport<'_>, database: &JoinedDatabase<'_>) -> String {
    let profile = match report.other.files.as_slice() {
        [file] => Some(file.as_path()),
        files => files.first().and_then(|file| file.parent()).filter(|path| *path != Path::new("")),
    };
    let profile = profile.unwrap_or(Path::new("."));
    format!("npubench modules {} --db {}", quoted_path(profile), quoted_path(database.folder))
}

fn ms(nanos: f64) -> String {
    decimals3(nanos / 1e6)
}

/// Returns a difference with its sign; one that is rounded to 0 has none.
fn with_sign(value: String) -> String {
    let digits = value.trim_start_matches('-');
    if digits.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return digits.to_owned();
    }
    if value.starts_with('-') { value } else { format!("+{value}") }
}
