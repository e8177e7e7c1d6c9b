//! Comparison of two recorded runs: tables, JSON lines, CSV and a page.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use serde_json::{Value, json};

use super::{
    call_tables::{CALL_COLUMNS, call_cells, call_json, call_sections, call_tables},
    comparison_cells::{more_rows, signed},
    module_tables::{in_model_json, input_shapes},
};
use crate::{
    config::AssetFiles,
    coverage::{InModelKernel, InModelKernels},
    domain::{DataKind, host_option, quoted_path},
    render::{RenderError, render_page},
    report::{
        fitted_table::{DETAIL, FittedColumn, fitted_text},
        format_count,
    },
    timeline::{ComparedCall, ComparedPart, ComparedRow, RunComparison, RunSums, RunTimeline, TimeSum},
};

const TEMPLATE: &str = "comparison.html.hbs";

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

impl ComparisonReport<'_> {
    /// Returns the command that lists the kernels of the other run by this database.
    fn modules_command(&self, database: &JoinedDatabase<'_>) -> String {
        let profile = match self.other.files.as_slice() {
            [file] => Some(file.as_path()),
            files => files.first().and_then(|file| file.parent()).filter(|path| *path != Path::new("")),
        };
        let profile = profile.unwrap_or(Path::new("."));
        format!("npubench modules {} --db {}", quoted_path(profile), quoted_path(database.folder))
    }

    /// Returns the note in place of the kernels with their durations alone.
    fn no_measured_row(&self, database: &JoinedDatabase<'_>) -> String {
        format!(
            "no kernel of base or other has a measured row in the database: `npubench run --db {}{}` measures its rows, `{} --missing \
             missing.csv` lists kernels without one",
            quoted_path(database.folder),
            host_option(database.kind),
            self.modules_command(database)
        )
    }
}

/// Returns the heading of a part and the columns of its numbers.
const fn heading(part: ComparedPart) -> &'static str {
    match part {
        ComparedPart::Overall => "overall, ms per step",
        ComparedPart::KernelClass => "kernels by class, ms per step",
        ComparedPart::KernelType => "kernels by type, ms per step",
        ComparedPart::Kernel => "kernels, ms per step",
        ComparedPart::Operator => "operators with the time of their kernels, ms per step",
        ComparedPart::HostCall => "calls of the host, ms per step",
        ComparedPart::Collective => "collectives, ms per step",
        ComparedPart::CollectiveTask => "tasks of collectives on all planes, ms per step",
        ComparedPart::Module => "modules, ms per step",
        ComparedPart::Memory => "memory, MiB",
    }
}

/// Returns the heading of the second column of a part.
const fn detail_heading(part: ComparedPart) -> &'static str {
    match part {
        ComparedPart::KernelClass => "unit",
        ComparedPart::KernelType => "core",
        ComparedPart::CollectiveTask => "task",
        _ => "shapes",
    }
}

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

/// Returns a total in the unit of its table.
fn amount(part: ComparedPart, total: f64) -> String {
    match part {
        ComparedPart::Memory => format!("{:.3}", total / 1_048_576.0),
        _ => format!("{:.3}", total / 1e6),
    }
}

fn amount_cell(part: ComparedPart, sum: Option<TimeSum>) -> String {
    sum.map_or_else(|| "-".to_owned(), |sum| amount(part, sum.total))
}

/// Additional columns of calls of the host: the time without the calls inside.
const SELF_COLUMNS: [&str; 2] = ["base self", "other self"];

fn self_cell(sum: Option<TimeSum>) -> String {
    let time = sum.and_then(|sum| sum.self_total);
    time.map_or_else(|| "-".to_owned(), |time| amount(ComparedPart::HostCall, time))
}

fn calls_cell(sum: Option<TimeSum>) -> String {
    match sum {
        Some(sum) if sum.calls > 0.0 => format!("{}", (sum.calls * 100.0).round() / 100.0),
        _ => "-".to_owned(),
    }
}

fn ratio_cell(row: &ComparedRow) -> String {
    row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}"))
}

fn run_text(name: &str, run: &RunTimeline, sums: &RunSums) -> String {
    let files: Vec<String> = run.files.iter().map(|file| format!("`{}`", file.display())).collect();
    let form = run.form.map_or_else(String::new, |form| form.to_string());
    let steps = sums.steps;
    format!("{name}: {} ({form}, {steps} {})\n", files.join(", "), if steps == 1 { "step" } else { "steps" })
}

impl ComparisonReport<'_> {
    fn part_rows(&self, part: ComparedPart) -> Vec<&ComparedRow> {
        self.comparison.rows.iter().filter(|row| row.part == part).collect()
    }
}

/// Returns the difference of the steps by cause, then a table of each part.
pub(crate) fn comparison_text(report: &ComparisonReport<'_>, width: Option<usize>) -> String {
    let mut text = run_text("base ", report.base, report.base_sums);
    text.push_str(&run_text("other", report.other, report.other_sums));
    if report.comparison.span_difference == 0.0 {
        text.push_str("\nthe steps of base and other take the same time");
    } else {
        text.push_str(&format!(
            "\nthe step of other is {} ms {} than that of base",
            amount(ComparedPart::Overall, report.comparison.span_difference.abs()),
            if report.comparison.span_difference < 0.0 { "shorter" } else { "longer" }
        ));
    }
    text.push_str(if report.comparison.attribution.is_empty() {
        ", and so does each part\n"
    } else {
        "; parts of the difference, ms:\n"
    });
    let columns = vec![
        FittedColumn::number("difference", 0),
        FittedColumn::number("share", 1),
        FittedColumn::text("part", 2),
        FittedColumn::text("name", 0).shortened_to(16).wanted(30),
        FittedColumn::text("shapes", 3).shortened_to(16),
    ];
    let mut rows = Vec::new();
    let whole = report.comparison.span_difference;
    for part in report.comparison.attribution.iter().take(report.rows) {
        let share =
            if whole == 0.0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part.difference / whole) };
        rows.push(vec![
            signed(amount(ComparedPart::Overall, part.difference)),
            share,
            part.kind.to_owned(),
            if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() },
            part.shapes.clone(),
        ]);
    }
    let rest: f64 = report.comparison.attribution.iter().skip(report.rows).map(|part| part.difference).sum();
    let more = report.comparison.attribution.len().saturating_sub(report.rows);
    if more > 0 {
        let rest = signed(amount(ComparedPart::Overall, rest));
        rows.push(vec![rest, String::new(), String::new(), format!("[{more} more]"), String::new()]);
    }
    if !rows.is_empty() {
        text.push_str(&fitted_text(columns, rows, width));
    }
    for part in PARTS {
        text.push_str(&part_table(report, part, width));
    }
    if let Some(calls) = report.calls {
        text.push_str(&call_tables(calls, report.rows, width));
    }
    if let Some(database) = &report.in_model {
        text.push_str(&in_model_comparison(report, database, width));
    }
    if !report.comparison.not_compared.is_empty() {
        text.push('\n');
    }
    for what in &report.comparison.not_compared {
        text.push_str(&format!("not compared: {what}\n"));
    }
    text
}

fn part_table(report: &ComparisonReport<'_>, part: ComparedPart, width: Option<usize>) -> String {
    let rows: Vec<&ComparedRow> = report.part_rows(part).into_iter().filter(|row| has_amount(row)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let most = if part == ComparedPart::Overall || part == ComparedPart::KernelClass {
        usize::MAX
    } else {
        report.rows
    };
    let mut columns = vec![
        FittedColumn::text("name", 0).shortened_to(16).wanted(30),
        FittedColumn::text(detail_heading(part), 2).shortened_to(16),
        FittedColumn::number("base", 0),
        FittedColumn::number("other", 0),
        FittedColumn::number("difference", 0),
        FittedColumn::number("ratio", 1),
        FittedColumn::number("base calls", DETAIL),
        FittedColumn::number("other calls", DETAIL),
    ];
    if part == ComparedPart::HostCall {
        columns.extend(SELF_COLUMNS.map(|name| FittedColumn::number(name, DETAIL + 1)));
    }
    let cells = |row: &&ComparedRow| {
        let mut cells = vec![
            row.name.clone(),
            row.shapes.clone(),
            amount_cell(part, row.base),
            amount_cell(part, row.other),
            signed(amount(part, row.difference())),
            ratio_cell(row),
            calls_cell(row.base),
            calls_cell(row.other),
        ];
        if part == ComparedPart::HostCall {
            cells.extend([row.base, row.other].map(self_cell));
        }
        cells
    };
    let table = fitted_text(columns, rows.iter().take(most).map(cells), width);
    let more = rows.len().saturating_sub(most);
    let rest = if more == 0 { String::new() } else { more_rows(more) };
    format!("\n{}\n{table}{rest}", heading(part))
}

/// Returns true for a row in which something was recorded: operators without kernels have only calls.
fn has_amount(row: &ComparedRow) -> bool {
    let total = |sum: Option<TimeSum>| sum.is_some_and(|sum| sum.total != 0.0);
    total(row.base) || total(row.other)
}

/// Columns of the table of kernels with their durations alone.
const IN_MODEL_COLUMNS: [&str; 7] =
    ["kernel", "alone us", "base us", "slowdown", "other us", "slowdown", "difference ms"];

/// Kernel of both runs with its duration alone.
struct ComparedKernel<'a> {
    base: Option<&'a InModelKernel>,
    other: Option<&'a InModelKernel>,
    /// Time per step in nanoseconds.
    times: [Option<f64>; 2],
    /// Calls per step.
    calls: [Option<f64>; 2],
}

impl ComparedKernel<'_> {
    fn difference(&self) -> f64 {
        let [base, other] = self.times.map(Option::unwrap_or_default);
        other - base
    }

    fn base_or_other(&self) -> Option<&InModelKernel> {
        self.base.or(self.other)
    }
}

/// Returns the kernels of both runs by the difference of their time per step.
#[expect(clippy::cast_precision_loss, reason = "sums of durations have fewer than 53 bits")]
fn compared_kernels<'a>(report: &ComparisonReport<'a>) -> Vec<ComparedKernel<'a>> {
    let Some(JoinedDatabase { base, other, .. }) = report.in_model else { return Vec::new() };
    let steps = [report.base_sums, report.other_sums].map(|sums| sums.steps as f64);
    let pair = |base: Option<&'a InModelKernel>, other: Option<&'a InModelKernel>| {
        let [base_steps, other_steps] = steps;
        let sides = [(base, base_steps), (other, other_steps)];
        ComparedKernel {
            base,
            other,
            times: sides.map(|(kernel, steps)| kernel.map(|kernel| kernel.total as f64 / steps)),
            calls: sides.map(|(kernel, steps)| kernel.map(|kernel| kernel.calls as f64 / steps)),
        }
    };
    let by_case: HashMap<String, &InModelKernel> =
        other.kernels.iter().map(|kernel| (kernel.case.id().to_string(), kernel)).collect();
    let mut is_in_base: HashSet<String> = HashSet::new();
    let mut pairs: Vec<ComparedKernel<'a>> = Vec::new();
    for kernel in &base.kernels {
        let case = kernel.case.id().to_string();
        let same = by_case.get(&case).copied();
        is_in_base.insert(case);
        pairs.push(pair(Some(kernel), same));
    }
    for kernel in &other.kernels {
        if !is_in_base.contains(&kernel.case.id().to_string()) {
            pairs.push(pair(None, Some(kernel)));
        }
    }
    pairs.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    pairs
}

/// Returns the kernels with their durations alone as cells; none if no kernel has one.
fn in_model_rows(report: &ComparisonReport<'_>) -> Vec<[String; 7]> {
    let kernels = compared_kernels(report);
    let has_alone =
        |pair: &ComparedKernel<'_>| pair.base_or_other().is_some_and(|kernel| kernel.alone.is_some());
    if !kernels.iter().any(has_alone) {
        return Vec::new();
    }
    let mean = |kernel: Option<&InModelKernel>| {
        kernel.map_or_else(|| "-".to_owned(), |kernel| format!("{:.3}", kernel.mean() / 1e3))
    };
    let slowdown = |kernel: Option<&InModelKernel>| {
        kernel.and_then(InModelKernel::slowdown).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
    };
    let rows = kernels.into_iter().filter_map(|pair| {
        let kernel = pair.base_or_other()?;
        Some([
            format!("{} {}", kernel.case.kernel, input_shapes(kernel)),
            kernel.alone.map_or_else(|| "-".to_owned(), |alone| format!("{:.3}", alone.duration / 1e3)),
            mean(pair.base),
            slowdown(pair.base),
            mean(pair.other),
            slowdown(pair.other),
            signed(format!("{:.3}", pair.difference() / 1e6)),
        ])
    });
    rows.collect()
}

fn in_model_comparison(
    report: &ComparisonReport<'_>,
    database: &JoinedDatabase<'_>,
    width: Option<usize>,
) -> String {
    let rows = in_model_rows(report);
    if rows.is_empty() {
        return format!("\n{}\n", report.no_measured_row(database));
    }
    let [kernel, numbers @ ..] = IN_MODEL_COLUMNS;
    let mut columns = vec![FittedColumn::text(kernel, 0).shortened_to(16).wanted(30)];
    let ranks = [2, 0, DETAIL, 0, DETAIL, 0];
    columns.extend(numbers.into_iter().zip(ranks).map(|(name, rank)| FittedColumn::number(name, rank)));
    let more = rows.len().saturating_sub(report.rows);
    let table = fitted_text(columns, rows.into_iter().take(report.rows).map(Vec::from), width);
    let rest = if more == 0 { String::new() } else { more_rows(more) };
    let without = compared_kernels(report)
        .iter()
        .filter(|pair| pair.base_or_other().is_some_and(|kernel| kernel.alone.is_none()))
        .count();
    let without = match without {
        0 => String::new(),
        count => format!(
            "{} without a duration alone: `{}` has the reasons\n",
            format_count(count, "kernel"),
            report.modules_command(database)
        ),
    };
    format!("\nkernels against their durations alone\n{table}{rest}{without}")
}

/// Returns a JSON object for each part of the difference, then for each row, each call, and each kernel with its duration
/// alone.
#[expect(clippy::cast_precision_loss, reason = "sums of durations have fewer than 53 bits")]
pub(crate) fn comparison_json(report: &ComparisonReport<'_>) -> String {
    let mut lines = String::new();
    let object = json!({
        "item": "comparison",
        "base_files": report.base.files,
        "other_files": report.other.files,
        "base_steps": report.base_sums.steps,
        "other_steps": report.other_sums.steps,
        "span_difference_ns": report.comparison.span_difference,
        "by_kernel_name": report.comparison.by_kernel_name,
        "not_compared": report.comparison.not_compared,
    });
    lines.push_str(&format!("{object}\n"));
    for part in &report.comparison.attribution {
        let object = json!({
            "item": "difference",
            "part": part.kind,
            "name": part.name,
            "shapes": part.shapes,
            "difference_ns": part.difference,
            "remainder": part.is_remainder,
        });
        lines.push_str(&format!("{object}\n"));
    }
    for row in &report.comparison.rows {
        let unit = if row.part == ComparedPart::Memory { "bytes" } else { "ns" };
        let side = |sum: Option<TimeSum>| {
            sum.map(|sum| {
                let mean = (sum.calls > 0.0).then(|| sum.total / sum.calls);
                let mut side = json!({"total": row.has_total().then_some(sum.total), "calls": sum.calls,
                                      "mean": mean.filter(|_| row.has_total()),
                                      "shortest": sum.shortest, "longest": sum.longest});
                if let Some(time) = sum.self_total {
                    side["self"] = time.into();
                }
                side
            })
        };
        let object = json!({
            "item": "row",
            "part": <&str>::from(row.part),
            "name": row.name,
            "shapes": row.shapes,
            "unit": unit,
            "base": side(row.base),
            "other": side(row.other),
            "difference": row.has_total().then(|| row.difference()),
            "ratio": row.ratio(),
        });
        lines.push_str(&format!("{object}\n"));
    }
    lines.extend(report.calls.unwrap_or_default().iter().map(|call| format!("{}\n", call_json(call))));
    let runs = [("base", report.base_sums), ("other", report.other_sums)];
    for ((run, sums), kernels) in
        runs.into_iter().zip(report.in_model.into_iter().flat_map(|found| [found.base, found.other]))
    {
        let steps = sums.steps as f64;
        for kernel in &kernels.kernels {
            let mut object = in_model_json(kernel);
            object["run"] = run.into();
            object["calls"] = (kernel.calls as f64 / steps).into();
            object["total_ns"] = (kernel.total as f64 / steps).into();
            object["excess_ns"] = kernel.excess().map(|excess| excess / steps).into();
            lines.push_str(&format!("{object}\n"));
        }
    }
    lines
}

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

/// Renders the page. Fails with [`RenderError`] if the template of the user is wrong.
pub(crate) fn comparison_page(
    assets: &AssetFiles,
    report: &ComparisonReport<'_>,
) -> Result<String, RenderError> {
    render_page(assets, TEMPLATE, &page_data(report))
}

fn page_data(report: &ComparisonReport<'_>) -> Value {
    let comparison = report.comparison;
    let largest = comparison.attribution.iter().map(|part| part.difference.abs()).fold(0.0, f64::max);
    let attribution = comparison.attribution.iter().map(|part| {
        let width = if largest > 0.0 { 100.0 * part.difference.abs() / largest } else { 0.0 };
        json!({
            "difference": signed(amount(ComparedPart::Overall, part.difference)),
            "class": if part.difference < 0.0 { "shorter" } else { "longer" },
            "width": format!("{width:.3}"), "kind": part.kind, "shapes": part.shapes,
            "name": if part.is_remainder { format!("[{}]", part.name) } else { part.name.clone() },
        })
    });
    let parts = PARTS.into_iter().map(|part| {
        let rows = report.part_rows(part).into_iter().filter(|row| has_amount(row));
        let rows = rows.map(|row| {
            json!({
                "name": row.name, "shapes": row.shapes,
                "base": amount_cell(part, row.base), "other": amount_cell(part, row.other),
                "difference": signed(amount(part, row.difference())), "ratio": ratio_cell(row),
                "base_calls": calls_cell(row.base), "other_calls": calls_cell(row.other),
                "self_times": match part {
                    ComparedPart::HostCall => vec![self_cell(row.base), self_cell(row.other)],
                    _ => Vec::new(),
                },
            })
        });
        let self_columns = if part == ComparedPart::HostCall { &SELF_COLUMNS[..] } else { &[] };
        json!({"heading": heading(part), "detail": detail_heading(part), "self_columns": self_columns, "rows": rows.collect::<Vec<_>>()})
    });
    json!({
        "base": run_text("base", report.base, report.base_sums),
        "other": run_text("other", report.other, report.other_sums),
        "span": signed(amount(ComparedPart::Overall, comparison.span_difference)),
        "attribution": attribution.collect::<Vec<_>>(),
        "parts": parts.collect::<Vec<_>>(),
        "not_compared": comparison.not_compared,
        "calls": call_sections(report.calls.unwrap_or_default()),
        "has_database": report.in_model.is_some(),
        "no_measured_row": report.in_model.map(|database| report.no_measured_row(&database)),
        "in_model_columns": IN_MODEL_COLUMNS,
        "in_model": in_model_rows(report),
    })
}
