//! Comparison of two recorded runs: tables, a page, CSV and JSON lines. Tables and page are made from the same sections.

mod calls;
mod data;
mod kernels;

use std::path::Path;

use serde::Serialize;

pub(crate) use data::comparison_csv;

use super::table::{DETAIL, FittedColumn, fitted_text};
use crate::{
    answer::coverage::InModelKernels,
    base::{assets::AssetFiles, count_text::format_count, shell_argument::quoted_path},
    kernel::{
        DataKind,
        render::{RenderError, render_page},
    },
    profile::timeline::{
        ComparedCall, ComparedPart, ComparedRow, RunComparison, RunSums, RunTimeline, TimeSum,
    },
};

const TEMPLATE: &str = "comparison.html.hbs";

const PARTS: [ComparedPart; 10] = [
    ComparedPart::Overall,
    ComparedPart::KernelClass,
    ComparedPart::KernelType,
    ComparedPart::Kernel,
    ComparedPart::Operator,
    ComparedPart::HostCall,
    ComparedPart::Collective,
    ComparedPart::CollectiveTask,
    ComparedPart::Module,
    ComparedPart::Memory,
];

/// Two runs, compared.
#[derive(Debug)]
pub(crate) struct ComparisonReport<'a> {
    pub(crate) base: &'a RunTimeline,
    pub(crate) other: &'a RunTimeline,
    pub(crate) base_sums: &'a RunSums,
    pub(crate) other_sums: &'a RunSums,
    pub(crate) comparison: &'a RunComparison,
    /// Kernels of base and other with their durations alone; `None` without a database.
    pub(crate) in_model: Option<JoinedDatabase<'a>>,
    /// Single calls of operators and modules; `None` if they are not listed.
    pub(crate) calls: Option<&'a [ComparedCall<'a>]>,
    /// Number of rows of a table.
    pub(crate) rows: usize,
}

/// A database with the kernels of both runs that were looked up in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinedDatabase<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) kind: DataKind,
    pub(crate) base: &'a InModelKernels,
    pub(crate) other: &'a InModelKernels,
}

/// Table with its heading.
struct Section {
    heading: &'static str,
    columns: Vec<FittedColumn<'static>>,
    rows: Vec<Vec<String>>,
    /// Number of rows that are left out.
    more: usize,
}

impl Section {
    fn text(self, width: Option<usize>) -> String {
        let more = match self.more {
            0 => String::new(),
            more => {
                format!("{}: `--rows N`, `--format csv` or `--html FILE`\n", format_count(more, "more row"))
            }
        };
        format!("\n{}\n{}{more}", self.heading, fitted_text(self.columns, self.rows, width))
    }

    fn page(self) -> PageSection {
        let class = |column: &FittedColumn<'_>| if column.is_number { "n" } else { "s" };
        let classes: Vec<&str> = self.columns.iter().map(class).collect();
        let heads = self.columns.iter().map(|column| column.header.to_owned()).collect();
        let cells = |texts: Vec<String>| {
            let cells = texts.into_iter().zip(&classes);
            cells.map(|(text, class)| PageCell { text, class }).collect()
        };
        PageSection {
            heading: self.heading,
            columns: cells(heads),
            rows: self.rows.into_iter().map(cells).collect(),
            more: (self.more > 0).then_some(self.more),
        }
    }
}

#[derive(Serialize)]
struct PageSection {
    heading: &'static str,
    columns: Vec<PageCell>,
    rows: Vec<Vec<PageCell>>,
    more: Option<usize>,
}

#[derive(Serialize)]
struct PageCell {
    text: String,
    /// `n` for numbers, `s` for texts.
    class: &'static str,
}

/// Data of the page's template.
#[derive(Serialize)]
struct ComparisonPage<'a> {
    title: &'static str,
    base: String,
    other: String,
    span: String,
    not_compared: &'a [String],
    attribution: Vec<AttributionBar<'a>>,
    sections: Vec<PageSection>,
    no_measured_row: Option<String>,
}

#[derive(Serialize)]
struct AttributionBar<'a> {
    difference: String,
    class: &'static str,
    /// Percent of the widest bar.
    width: String,
    kind: &'static str,
    name: String,
    shapes: &'a str,
}

/// Renders the page. Fails with [`RenderError`] if the template of the user is wrong.
pub(crate) fn comparison_page(
    assets: &AssetFiles,
    report: &ComparisonReport<'_>,
) -> Result<String, RenderError> {
    let attribution = &report.comparison.attribution;
    let largest = attribution.iter().map(|part| part.difference.abs()).fold(0.0, f64::max);
    let bars = attribution.iter().map(|part| AttributionBar {
        difference: signed(millis(part.difference)),
        class: if part.difference < 0.0 { "shorter" } else { "longer" },
        width: format!("{:.3}", if largest > 0.0 { 100.0 * part.difference.abs() / largest } else { 0.0 }),
        kind: part.kind,
        name: if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() },
        shapes: &part.shapes,
    });
    let parts = PARTS.into_iter().filter_map(|part| part_section(report, part, usize::MAX));
    let calls = calls::sections(report.calls.unwrap_or_default(), calls::PAGE_ROWS);
    let in_model = kernels::section(report, usize::MAX);
    let page = ComparisonPage {
        title: "Comparison of two runs",
        base: run_text("base", report.base, report.base_sums),
        other: run_text("other", report.other, report.other_sums),
        span: signed(millis(report.comparison.span_difference)),
        not_compared: &report.comparison.not_compared,
        attribution: bars.collect(),
        no_measured_row: match &in_model {
            Some(_) => None,
            None => report.in_model.map(|database| kernels::no_measured_row(report, &database)),
        },
        sections: parts.chain(calls).chain(in_model).map(Section::page).collect(),
    };
    render_page(assets, TEMPLATE, &page)
}

/// Returns the difference of the steps by cause, then a table of each part.
pub(crate) fn comparison_text(report: &ComparisonReport<'_>, width: Option<usize>) -> String {
    let mut text = run_text("base ", report.base, report.base_sums);
    text.push_str(&run_text("other", report.other, report.other_sums));
    text.push_str(&attribution_text(report, width));
    for part in PARTS {
        let most = match part {
            ComparedPart::Overall | ComparedPart::KernelClass => usize::MAX,
            _ => report.rows,
        };
        text.extend(part_section(report, part, most).map(|section| section.text(width)));
    }
    let calls = calls::sections(report.calls.unwrap_or_default(), report.rows);
    text.extend(calls.map(|section| section.text(width)));
    if let Some(database) = &report.in_model {
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
    let mut text = if whole == 0.0 {
        "\nthe steps of base and other take the same time".to_owned()
    } else {
        let word = if whole < 0.0 { "shorter" } else { "longer" };
        format!("\nthe step of other is {} ms {word} than that of base", millis(whole.abs()))
    };
    text.push_str(match attribution.is_empty() {
        true => ", and so does each part\n",
        false => "; parts of the difference, ms:\n",
    });
    let columns = vec![
        FittedColumn::number("difference", 0),
        FittedColumn::number("share", 1),
        FittedColumn::text("part", 2),
        FittedColumn::text("name", 0).shortened_to(16).wanted(30),
        FittedColumn::text("shapes", 3).shortened_to(16),
    ];
    let row = |difference: f64, share: String, [part, name, shapes]: [String; 3]| {
        vec![signed(millis(difference)), share, part, name, shapes]
    };
    let mut rows: Vec<Vec<String>> = attribution
        .iter()
        .take(report.rows)
        .map(|part| {
            let share = match whole == 0.0 {
                true => "-".to_owned(),
                false => format!("{:.1} %", 100.0 * part.difference / whole),
            };
            let name = if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() };
            row(part.difference, share, [part.kind.to_owned(), name, part.shapes.clone()])
        })
        .collect();
    let more = attribution.len().saturating_sub(report.rows);
    if more > 0 {
        let rest = attribution.iter().skip(report.rows).map(|part| part.difference).sum();
        rows.push(row(rest, String::new(), [String::new(), format!("[{more} more]"), String::new()]));
    }
    text + &fitted_text(columns, rows, width)
}

/// Returns the table of a part, which is `None` without rows.
fn part_section(report: &ComparisonReport<'_>, part: ComparedPart, most: usize) -> Option<Section> {
    // Operators without kernels have only calls.
    let has_amount = |row: &&ComparedRow| {
        row.base.into_iter().chain(row.other).any(|sum| sum.total != 0.0) && row.part == part
    };
    let rows: Vec<&ComparedRow> = report.comparison.rows.iter().filter(has_amount).collect();
    let (heading, detail) = headings(part);
    let mut columns = vec![
        FittedColumn::text("name", 0).shortened_to(16).wanted(30),
        FittedColumn::text(detail, 2).shortened_to(16),
        FittedColumn::number("base", 0),
        FittedColumn::number("other", 0),
        FittedColumn::number("difference", 0),
        FittedColumn::number("ratio", 1),
        FittedColumn::number("base calls", DETAIL),
        FittedColumn::number("other calls", DETAIL),
    ];
    if part == ComparedPart::HostCall {
        columns.extend(["base self", "other self"].map(|name| FittedColumn::number(name, DETAIL + 1)));
    }
    let amount = |total: f64| match part {
        ComparedPart::Memory => format!("{:.3}", total / 1_048_576.0),
        _ => millis(total),
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let calls = |sum: Option<TimeSum>| {
        let calls = sum.map(|sum| sum.calls).filter(|calls| *calls > 0.0);
        or_dash(calls.map(|calls| format!("{}", (calls * 100.0).round() / 100.0)))
    };
    let cells = |row: &&ComparedRow| {
        let mut cells = vec![
            row.name.clone(),
            row.shapes.clone(),
            or_dash(row.base.map(|sum| amount(sum.total))),
            or_dash(row.other.map(|sum| amount(sum.total))),
            signed(amount(row.difference())),
            or_dash(row.ratio().map(|ratio| format!("{ratio:.4}"))),
            calls(row.base),
            calls(row.other),
        ];
        if part == ComparedPart::HostCall {
            let own = |sum: Option<TimeSum>| or_dash(sum.and_then(|sum| sum.self_total).map(amount));
            cells.extend([row.base, row.other].map(own));
        }
        cells
    };
    let shown = rows.iter().take(most).map(cells).collect();
    let more = rows.len().saturating_sub(most);
    (!rows.is_empty()).then_some(Section { heading, columns, rows: shown, more })
}

/// Returns the heading of a part, and that of its second column.
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
    let files: Vec<String> = run.files.iter().map(|file| format!("`{}`", file.display())).collect();
    let form = run.form.map_or_else(String::new, |form| form.to_string());
    let steps = format_count(sums.steps, "step");
    format!("{name}: {} ({form}, {steps})\n", files.join(", "))
}

/// Returns the command that lists the kernels of the other run by this database.
fn modules_command(report: &ComparisonReport<'_>, database: &JoinedDatabase<'_>) -> String {
    let profile = match report.other.files.as_slice() {
        [file] => Some(file.as_path()),
        files => files.first().and_then(|file| file.parent()).filter(|path| *path != Path::new("")),
    };
    let profile = profile.unwrap_or(Path::new("."));
    format!("npubench modules {} --db {}", quoted_path(profile), quoted_path(database.folder))
}

fn millis(nanos: f64) -> String {
    format!("{:.3}", nanos / 1e6)
}

/// Returns a difference with its sign; one that is rounded to 0 has none.
fn signed(value: String) -> String {
    let digits = value.trim_start_matches('-');
    if digits.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return digits.to_owned();
    }
    if value.starts_with('-') { value } else { format!("+{value}") }
}
