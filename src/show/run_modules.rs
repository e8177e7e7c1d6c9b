//! Time by module of a recorded run: tables, CSV, JSON lines and a workbook.

use std::io;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    emit::csv_text,
    run_timeline::{missing_text, number_cell},
    table::{DETAIL, FittedColumn, FittedRow, FittedTable, fitted_text},
    workbook::{TableCell, workbook_bytes},
};
use crate::{
    answer::{
        coverage::{InModelKernel, InModelKernels},
        recorded_runs::{ModuleLine, RunModules},
    },
    base::count_text::format_count,
    kernel::Dims,
    profile::timeline::{LaunchedTask, MissingPart, RunTimeline, Utilisation, sum_lengths},
};

/// Module of rows outside of all modules.
const OUTSIDE: &str = "[outside modules]";

/// Modules of all runs.
#[derive(Debug)]
pub(crate) struct ModulesReport<'a> {
    pub(crate) runs: Vec<RunModules<'a>>,
    /// Kernels with their durations alone; `None` without a database.
    pub(crate) in_model: Option<&'a InModelKernels>,
    /// Number of operators and kernels to show.
    pub(crate) rows: usize,
}

#[expect(clippy::cast_precision_loss, reason = "times of runs have fewer than 53 bits")]
const fn float(value: i64) -> f64 {
    value as f64
}

fn millis_cell(nanos: i64) -> String {
    format!("{:.3}", float(nanos) / 1e6)
}

fn percent_cell(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2} %", 100.0 * ratio))
}

fn excess_cell(excess: Option<(f64, i64)>) -> String {
    excess.map_or_else(|| "-".to_owned(), |(excess, _)| format!("{:.3}", excess / 1e6))
}

impl ModuleLine<'_> {
    fn module(&self) -> &str {
        if self.is_outside { OUTSIDE } else { &self.row.module }
    }

    /// Returns modules from the outermost to the innermost.
    fn path(&self) -> String {
        match (self.is_outside, self.row.parent.is_empty()) {
            (true, _) => OUTSIDE.to_owned(),
            (false, true) => self.row.module.clone(),
            (false, false) => format!("{}/{}", self.row.parent, self.row.module),
        }
    }

    fn kernels(&self, run: &RunTimeline) -> String {
        self.row.kernels.iter().map(|kernel| run.names.text(*kernel)).collect::<Vec<_>>().join(", ")
    }

    fn mean(&self) -> f64 {
        float(self.row.total) / float(i64::try_from(self.row.calls.len().max(1)).unwrap_or(i64::MAX))
    }
}

/// Sum of the lines of one module.
#[derive(Clone, Copy, Debug, Default)]
struct ModuleSum {
    total: i64,
    operators: usize,
    utilisation: Utilisation,
    excess: Option<(f64, i64)>,
}

fn sums_by_module(run: &RunModules<'_>) -> IndexMap<String, ModuleSum> {
    let mut sums: IndexMap<String, ModuleSum> = IndexMap::new();
    for line in &run.lines {
        let sum = sums.entry(line.path()).or_default();
        sum.total = sum_lengths([sum.total, line.row.total]);
        sum.operators += line.row.calls.len();
        sum.utilisation.add(line.utilisation.unwrap_or_default());
        if let Some((excess, time)) = line.excess {
            let (all, all_time) = sum.excess.unwrap_or_default();
            sum.excess = Some((all + excess, sum_lengths([all_time, time])));
        }
    }
    sums.sort_by(|_, a, _, b| b.total.cmp(&a.total));
    sums
}

/// Returns a table of modules, one of operators, and with a database one of kernels that are slower than alone.
pub(crate) fn modules_text(report: &ModulesReport<'_>, width: Option<usize>) -> String {
    let mut text = String::new();
    let has_database = report.in_model.is_some();
    let mut columns = vec![
        FittedColumn::text("rank", 2),
        FittedColumn::text("module", 0).shortened_to(16).wanted(30),
        FittedColumn::number("time ms", 0),
        FittedColumn::number("share", 1),
        FittedColumn::number("operators", DETAIL),
        FittedColumn::number("MFU", 3),
    ];
    columns.extend(has_database.then(|| FittedColumn::number("excess ms", 1)));
    let mut modules = Vec::new();
    for run in &report.runs {
        let device_time = run.table.device_time();
        for (path, sum) in sums_by_module(run) {
            let mut row = vec![
                number_cell(run.run.rank),
                path,
                millis_cell(sum.total),
                percent_cell((device_time > 0).then(|| float(sum.total) / float(device_time))),
                sum.operators.to_string(),
                percent_cell(sum.utilisation.ratio()),
            ];
            row.extend(has_database.then(|| excess_cell(sum.excess)));
            modules.push(row);
        }
    }
    text.push_str(&fitted_text(columns, modules, width));
    text.push_str(&operators_table(report, width));
    for run in &report.runs {
        let (inside, outside) = (run.table.attributed(), run.table.outside_time());
        text.push_str(&format!(
            "\nrank {}: {} ms in modules + {} ms outside = {} ms of kernels and collectives; {} ranges\n",
            number_cell(run.run.rank),
            millis_cell(inside),
            millis_cell(outside),
            millis_cell(run.table.device_time()),
            run.table.ranges
        ));
        text.push_str(&format!("peak of the matrix units: {}\n", run.peak));
    }
    if let Some(in_model) = report.in_model {
        text.push_str(&in_model_table(in_model, report.rows, width));
    }
    text.push_str(&missing_text(report.runs.iter().map(|run| run.run), &matters));
    text
}

/// Returns true for a part without which times of modules or utilisation are incomplete.
fn matters(part: &MissingPart) -> bool {
    matches!(
        part,
        MissingPart::Kernels
            | MissingPart::KernelTypes
            | MissingPart::Shapes
            | MissingPart::ShapesOfGpu
            | MissingPart::Operators
    )
}

fn operators_table(report: &ModulesReport<'_>, width: Option<usize>) -> String {
    let has_database = report.in_model.is_some();
    let mut columns = vec![
        FittedColumn::text("rank", DETAIL),
        FittedColumn::text("module", 1).shortened_to(12),
        FittedColumn::text("operator", 0).shortened_to(12).wanted(24),
        FittedColumn::text("kernels", 3).shortened_to(12).wanted(20),
        FittedColumn::number("time ms", 0),
        FittedColumn::number("calls", 2),
        FittedColumn::number("mean us", DETAIL),
        FittedColumn::number("MFU", DETAIL),
    ];
    columns.extend(has_database.then(|| FittedColumn::number("excess ms", 1)));
    let mut rows = Vec::new();
    let mut lines: Vec<(&RunModules<'_>, &ModuleLine<'_>)> =
        report.runs.iter().flat_map(|run| run.lines.iter().map(move |line| (run, line))).collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.row.total));
    let count = lines.len();
    for (run, line) in lines.into_iter().take(report.rows) {
        let mut row = vec![
            number_cell(run.run.rank),
            line.module().to_owned(),
            run.run.names.text(line.row.operator).to_owned(),
            line.kernels(run.run),
            millis_cell(line.row.total),
            line.row.calls.len().to_string(),
            format!("{:.3}", line.mean() / 1e3),
            percent_cell(line.utilisation.and_then(Utilisation::ratio)),
        ];
        row.extend(has_database.then(|| excess_cell(line.excess)));
        rows.push(row);
    }
    let more = count.saturating_sub(report.rows);
    let rest = if more == 0 {
        String::new()
    } else {
        format!("{}: `--rows N`, `--format csv` or `--xlsx FILE`\n", format_count(more, "more row"))
    };
    format!("\n{}{rest}", fitted_text(columns, rows, width))
}

/// Returns the kernels that took the most time more than alone, and those that the database does not have.
fn in_model_table(in_model: &InModelKernels, rows: usize, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(12),
        FittedColumn::text("inputs", 1).shortened_to(12).wanted(24),
        FittedColumn::number("calls", 4),
        FittedColumn::number("in model us", 0),
        FittedColumn::number("alone us", 0),
        FittedColumn::number("95 % interval us", DETAIL),
        FittedColumn::text("source", DETAIL),
        FittedColumn::number("slowdown", 3),
        FittedColumn::number("excess ms", 2),
    ];
    let known: Vec<&InModelKernel> =
        in_model.kernels.iter().filter(|kernel| kernel.alone.is_some()).collect();
    let known_rows = known.iter().take(rows).filter_map(|kernel| {
        let alone = kernel.alone?;
        let interval = alone
            .interval
            .map_or_else(|| "-".to_owned(), |(low, high)| format!("{:.3} to {:.3}", low / 1e3, high / 1e3));
        Some(vec![
            kernel.case.kernel.to_string(),
            input_shapes(kernel),
            kernel.calls.to_string(),
            format!("{:.3}", kernel.mean() / 1e3),
            format!("{:.3}", alone.duration / 1e3),
            interval,
            alone.source.to_string(),
            kernel.slowdown().map_or_else(String::new, |slowdown| format!("{slowdown:.3}")),
            kernel.excess().map_or_else(String::new, |excess| format!("{:.3}", excess / 1e6)),
        ])
    });
    let mut text = String::new();
    if !known.is_empty() {
        let table = fitted_text(columns, known_rows, width);
        text.push_str(&format!("\nslower in the model than alone\n{table}"));
    }
    let missing = in_model.missing();
    let time = sum_lengths(missing.iter().map(|kernel| kernel.total));
    if !missing.is_empty() {
        let columns = vec![
            FittedColumn::text("kernel", 0).shortened_to(12),
            FittedColumn::text("inputs", 0).shortened_to(12).wanted(24),
            FittedColumn::number("calls", 2),
            FittedColumn::number("time ms", 0),
            FittedColumn::text("reason", 2).shortened_to(40),
            FittedColumn::text("closed by", 1).shortened_to(40),
        ];
        let row = |kernel: &&InModelKernel| {
            let cells = [
                kernel.case.kernel.to_string(),
                input_shapes(kernel),
                kernel.calls.to_string(),
                millis_cell(kernel.total),
                kernel.reason.clone(),
                kernel.closing.as_ref().map_or_else(String::new, ToString::to_string),
            ];
            FittedRow { has_line_below: true, ..FittedRow::from_cells(&cells) }
        };
        let below = columns.len() - 1;
        let shown = missing.iter().take(rows).map(row).collect();
        let table = FittedTable { columns, rows: shown, below: Some(below), ..FittedTable::default() };
        text.push_str(&format!(
            "\nwithout a duration alone: {}, {} ms\n{}",
            format_count(missing.len(), "kernel"),
            millis_cell(time),
            table.print(width, false)
        ));
    }
    if in_model.without_shapes > 0 {
        let time = millis_cell(in_model.without_shapes);
        text.push_str(&format!("\n{time} ms are of kernels without shapes, which have no row\n"));
    }
    text
}

pub(super) fn input_shapes(kernel: &InModelKernel) -> String {
    let slots = kernel.case.inputs.iter();
    let shapes =
        slots.map(|slot| slot.as_ref().map_or_else(String::new, |tensor| Dims(&tensor.dims).to_string()));
    shapes.collect::<Vec<_>>().join(";")
}

/// Names of the columns of CSV and workbook: those of the vendor's module statistic, then ours.
fn column_names(has_database: bool) -> Vec<&'static str> {
    let mut names = vec![
        "parentModule",
        "module",
        "opName",
        "kernelList",
        "totalKernelDuration(ns)",
        "avgKernelDuration(ns)",
        "opCount",
        "avgMFU",
        "rankID",
    ];
    names.extend(has_database.then_some("excessKernelDuration(ns)"));
    names
}

fn cells_of_line(run: &RunModules<'_>, line: &ModuleLine<'_>, has_database: bool) -> Vec<TableCell> {
    let number = |value: Option<f64>| value.map_or(TableCell::Empty, TableCell::Number);
    let mut cells = vec![
        TableCell::Text(line.row.parent.clone()),
        TableCell::Text(line.module().to_owned()),
        TableCell::Text(run.run.names.text(line.row.operator).to_owned()),
        TableCell::Text(line.kernels(run.run)),
        TableCell::Number(float(line.row.total)),
        TableCell::Number(line.mean()),
        TableCell::Number(float(i64::try_from(line.row.calls.len()).unwrap_or(i64::MAX))),
        number(line.utilisation.and_then(Utilisation::ratio)),
        number(run.run.rank.map(f64::from)),
    ];
    if has_database {
        cells.push(number(line.excess.map(|(excess, _)| excess)));
    }
    cells
}

/// Returns all rows as CSV.
pub(crate) fn modules_csv(report: &ModulesReport<'_>) -> String {
    let has_database = report.in_model.is_some();
    let text = |cell: TableCell| match cell {
        TableCell::Text(text) => text,
        TableCell::Number(number) => number.to_string(),
        TableCell::Empty => String::new(),
    };
    let lines = report.runs.iter().flat_map(|run| run.lines.iter().map(move |line| (run, line)));
    let rows = lines
        .map(|(run, line)| cells_of_line(run, line, has_database).into_iter().map(text).collect::<Vec<_>>());
    let header = column_names(has_database).into_iter().map(str::to_owned).collect();
    csv_text([header].into_iter().chain(rows))
}

/// Returns all rows as a workbook with one sheet.
pub(crate) fn modules_workbook(report: &ModulesReport<'_>) -> io::Result<Vec<u8>> {
    let has_database = report.in_model.is_some();
    let names = column_names(has_database).into_iter().map(|name| TableCell::Text(name.to_owned()));
    let mut rows: Vec<Vec<TableCell>> = vec![names.collect()];
    for run in &report.runs {
        rows.extend(run.lines.iter().map(|line| cells_of_line(run, line, has_database)));
    }
    workbook_bytes("module_statistic", &rows)
}

/// What `modules --format json` prints: a record for each operator, each rank, and each kernel in the database. Times are
/// nanoseconds.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "item", rename_all = "snake_case")]
pub(crate) enum ModulesRecord<'a> {
    Operator {
        rank: Option<u32>,
        parent_module: &'a str,
        /// Null outside of all modules.
        module: Option<&'a str>,
        operator: &'a str,
        kernels: Vec<&'a str>,
        total_ns: i64,
        mean_ns: f64,
        calls: usize,
        collectives: usize,
        mfu: Option<f64>,
        flops: Option<f64>,
        excess_ns: Option<f64>,
    },
    Rank {
        rank: Option<u32>,
        ranges: usize,
        modules_ns: i64,
        outside_ns: i64,
        device_ns: i64,
        peak: &'a str,
        not_recorded: Vec<String>,
    },
    Kernel(Box<InModelRecord<'a, u64, i64>>),
}

impl<'a> ModulesReport<'a> {
    pub(crate) fn records(&'a self) -> Vec<ModulesRecord<'a>> {
        let mut records = Vec::new();
        for run in &self.runs {
            records.extend(run.lines.iter().map(|line| operator_record(run, line)));
            let missing = run.run.missing.iter().filter(|part| matters(part));
            records.push(ModulesRecord::Rank {
                rank: run.run.rank,
                ranges: run.table.ranges,
                modules_ns: run.table.attributed(),
                outside_ns: run.table.outside_time(),
                device_ns: run.table.device_time(),
                peak: &run.peak,
                not_recorded: missing.map(ToString::to_string).collect(),
            });
        }
        let kernels = self.in_model.iter().flat_map(|in_model| &in_model.kernels);
        records.extend(kernels.map(|kernel| {
            let record = InModelRecord::new(kernel, kernel.calls, kernel.total, kernel.excess());
            ModulesRecord::Kernel(Box::new(record))
        }));
        records
    }
}

fn operator_record<'a>(run: &'a RunModules<'a>, line: &'a ModuleLine<'a>) -> ModulesRecord<'a> {
    let (row, names) = (line.row, &run.run.names);
    let tasks = row.calls.iter().flat_map(|call| &call.tasks);
    ModulesRecord::Operator {
        rank: run.run.rank,
        parent_module: &row.parent,
        module: (!line.is_outside).then_some(&*row.module),
        operator: names.text(row.operator),
        kernels: row.kernels.iter().map(|kernel| names.text(*kernel)).collect(),
        total_ns: row.total,
        mean_ns: line.mean(),
        calls: row.calls.len(),
        collectives: tasks.filter(|task| matches!(task, LaunchedTask::Collective(_))).count(),
        mfu: line.utilisation.and_then(Utilisation::ratio),
        flops: line.utilisation.map(|utilisation| utilisation.flops),
        excess_ns: line.excess.map(|(excess, _)| excess),
    }
}

/// A kernel of a run against its duration alone. Times are nanoseconds.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InModelRecord<'a, C, T> {
    kernel: &'a str,
    case: String,
    signature: String,
    calls: C,
    total_ns: T,
    mean_ns: f64,
    alone_ns: Option<f64>,
    alone_low_ns: Option<f64>,
    alone_high_ns: Option<f64>,
    source: Option<String>,
    slowdown: Option<f64>,
    excess_ns: Option<f64>,
    /// Reason of a missing duration alone.
    reason: Option<&'a str>,
    closed_by: Option<String>,
}

impl<'a, C, T> InModelRecord<'a, C, T> {
    pub(super) fn new(kernel: &'a InModelKernel, calls: C, total_ns: T, excess_ns: Option<f64>) -> Self {
        let interval = kernel.alone.and_then(|alone| alone.interval);
        Self {
            kernel: kernel.case.kernel.as_str(),
            case: kernel.case.id().to_string(),
            signature: kernel.case.signature(),
            calls,
            total_ns,
            mean_ns: kernel.mean(),
            alone_ns: kernel.alone.map(|alone| alone.duration),
            alone_low_ns: interval.map(|(low, _)| low),
            alone_high_ns: interval.map(|(_, high)| high),
            source: kernel.alone.map(|alone| alone.source.to_string()),
            slowdown: kernel.slowdown(),
            excess_ns,
            reason: Some(&*kernel.reason).filter(|reason| !reason.is_empty()),
            closed_by: kernel.closing.as_ref().map(ToString::to_string),
        }
    }
}
