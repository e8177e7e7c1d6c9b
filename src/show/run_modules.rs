//! Time by module of a recorded run: tables, CSV, JSON lines and a workbook.

use indexmap::IndexMap;
use rust_xlsxwriter::{Workbook, XlsxError};
use serde_json::Number;

use super::{prelude::*, run_timeline::missing_text, table::cut_in_middle};
use crate::{
    answer::{
        coverage::InModelKernels,
        recorded_runs::{ModuleLine, RunModules},
    },
    kernel::Dims,
    profile::timeline::{LaunchedTask, MissingPart, Utilisation, sum_lengths},
};

/// Longest text of a cell of a workbook in characters (specifications and limits of Excel).
const MAX_CELL: usize = 32_767;

const OUTSIDE: &str = "[outside modules]";

enum TableCell {
    Text(String),
    Number(f64),
    Empty,
}

#[derive(Debug)]
pub(crate) struct ModulesReport<'a> {
    pub(crate) runs: Vec<RunModules<'a>>,
    pub(crate) in_model: Option<&'a InModelKernels>,
    pub(crate) rows: usize,
}

fn excess_cell(excess: Option<f64>) -> String {
    or_dash(excess.map(|excess| decimals3(excess / 1e6)))
}

impl ModuleLine<'_> {
    fn module(&self) -> &str {
        if self.is_outside { OUTSIDE } else { &self.row.module }
    }

    fn path(&self) -> String {
        if self.is_outside { OUTSIDE.to_owned() } else { self.row.path() }
    }

    fn kernels(&self, run: &RunTimeline) -> String {
        joined(self.row.kernels.iter().map(|kernel| run.names.text(*kernel)), ", ")
    }

    fn mean(&self) -> f64 {
        float(self.row.total) / float(i64::try_from(self.row.calls.len().max(1)).unwrap_or(i64::MAX))
    }
}

fn total_time(lines: &[&ModuleLine<'_>]) -> i64 {
    sum_lengths(lines.iter().map(|line| line.row.total))
}

fn lines_by_module<'r>(run: &'r RunModules<'_>) -> IndexMap<String, Vec<&'r ModuleLine<'r>>> {
    let mut modules: IndexMap<String, Vec<&ModuleLine<'_>>> = IndexMap::new();
    run.lines.iter().for_each(|line| modules.entry(line.path()).or_default().push(line));
    modules.sort_by(|_, a, _, b| total_time(b).cmp(&total_time(a)));
    modules
}

pub(crate) fn modules_text(report: &ModulesReport<'_>, width: Option<usize>) -> String {
    let has_database = report.in_model.is_some();
    let modules: Vec<_> = report.runs.iter().map(|run| (run, lines_by_module(run))).collect();
    let share = |run: &RunModules<'_>, lines: &[&ModuleLine<'_>]| {
        let device_time = run.table.device_time();
        percent((device_time > 0).then(|| float(total_time(lines)) / float(device_time)))
    };
    let operators = |lines: &[&ModuleLine<'_>]| lines.iter().map(|line| line.row.calls.len()).sum::<usize>();
    let utilisation = |lines: &[&ModuleLine<'_>]| {
        let mut sum = Utilisation::default();
        lines.iter().for_each(|line| sum.add(line.utilisation.unwrap_or_default()));
        percent(sum.ratio())
    };
    let excess = |lines: &[&ModuleLine<'_>]| {
        let excess = lines.iter().filter_map(|line| Some(line.excess?.0)).reduce(|one, other| one + other);
        or_empty(has_database.then(|| excess_cell(excess)))
    };
    let rows = modules.iter().flat_map(|(run, modules)| modules.iter().map(move |module| (*run, module)));
    let mut text = Table::new(rows)
        .text("rank", 2, |(run, _)| or_dash(run.run.rank))
        .text("module", rank(0).min(16).wanted(30), |(_, (path, _))| path)
        .number("time ms", 0, |(_, (_, lines))| millis(total_time(lines)))
        .number("share", 1, |(run, (_, lines))| share(run, lines))
        .number("operators", DETAIL, |(_, (_, lines))| operators(lines))
        .number("MFU", 3, |(_, (_, lines))| utilisation(lines))
        .number("excess ms", 1, |(_, (_, lines))| excess(lines))
        .print(width);
    text += &operators_table(report, width);
    for run in &report.runs {
        let (inside, outside) = (run.table.attributed(), run.table.outside_time());
        text += &format!(
            "\nrank {}: {} ms in modules + {} ms outside = {} ms of kernels and collectives; {} ranges\n",
            or_dash(run.run.rank),
            millis(inside),
            millis(outside),
            millis(run.table.device_time()),
            run.table.ranges
        );
        text += &format!("peak of the matrix units: {}\n", run.peak);
    }
    if let Some(in_model) = report.in_model {
        text += &in_model_table(in_model, report.rows, width);
    }
    text + &missing_text(report.runs.iter().map(|run| run.run), &matters)
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
    let mut lines: Vec<(&RunModules<'_>, &ModuleLine<'_>)> = report.lines().collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.row.total));
    let more = lines.len().saturating_sub(report.rows);
    let more = (more > 0).then(|| {
        format!("{}: `--rows N`, `--format csv` or `--xlsx FILE`\n", format_count(more, "more row"))
    });
    let table = Table::new(lines.into_iter().take(report.rows))
        .text("rank", DETAIL, |(run, _)| or_dash(run.run.rank))
        .text("module", rank(1).min(12), |(_, line)| line.module())
        .text("operator", rank(0).min(12).wanted(24), |(run, line)| run.run.names.text(line.row.operator))
        .text("kernels", rank(3).min(12).wanted(20), |(run, line)| line.kernels(run.run))
        .number("time ms", 0, |(_, line)| millis(line.row.total))
        .number("calls", 2, |(_, line)| line.row.calls.len())
        .number("mean us", DETAIL, |(_, line)| decimals3(line.mean() / 1e3))
        .number("MFU", DETAIL, |(_, line)| percent(line.utilisation.and_then(Utilisation::ratio)))
        .number("excess ms", 1, |(_, line)| {
            or_empty(has_database.then(|| excess_cell(line.excess.map(|(excess, _)| excess))))
        });
    format!("\n{}{}", table.print(width), or_empty(more))
}

fn in_model_table(in_model: &InModelKernels, rows: usize, width: Option<usize>) -> String {
    let mut text = String::new();
    let known: Vec<_> =
        in_model.kernels.iter().filter_map(|kernel| Some((kernel, kernel.alone?))).take(rows).collect();
    if !known.is_empty() {
        let us = |nanos: f64| decimals3(nanos / 1e3);
        let interval = |(low, high): (f64, f64)| format!("{} to {}", us(low), us(high));
        let table = Table::new(known)
            .text("kernel", rank(0).min(12), |(kernel, _)| &kernel.case.kernel)
            .text("inputs", rank(1).min(12).wanted(24), |(kernel, _)| input_shapes(kernel))
            .number("calls", 4, |(kernel, _)| kernel.calls)
            .number("in model us", 0, |(kernel, _)| us(kernel.mean()))
            .number("alone us", 0, |(_, alone)| us(alone.duration))
            .number("95 % interval us", DETAIL, |(_, alone)| or_dash(alone.interval.map(interval)))
            .text("source", DETAIL, |(_, alone)| alone.source)
            .number("slowdown", 3, |(kernel, _)| or_empty(kernel.slowdown().map(decimals3)))
            .number("excess ms", 2, |(kernel, _)| {
                or_empty(kernel.excess().map(|time| decimals3(time / 1e6)))
            });
        text += &format!("\nslower in the model than alone\n{}", table.print(width));
    }
    let missing = in_model.missing();
    if !missing.is_empty() {
        let table = Table::new(missing.iter().take(rows))
            .text("kernel", rank(0).min(12), |kernel| &kernel.case.kernel)
            .text("inputs", rank(0).min(12).wanted(24), |kernel| input_shapes(kernel))
            .number("calls", 2, |kernel| kernel.calls)
            .number("time ms", 0, |kernel| millis(kernel.total))
            .text("reason", rank(2).min(40), |kernel| &kernel.reason)
            .text("closed by", rank(1).min(40), |kernel| or_empty(kernel.closing.as_ref()))
            .below(|_| true);
        text += &format!(
            "\nwithout a duration alone: {}, {} ms\n{}",
            format_count(missing.len(), "kernel"),
            millis(sum_lengths(missing.iter().map(|kernel| kernel.total))),
            table.print(width)
        );
    }
    if in_model.without_shapes > 0 {
        let time = millis(in_model.without_shapes);
        text += &format!("\n{time} ms are of kernels without shapes, which have no row\n");
    }
    text
}

pub(super) fn input_shapes(kernel: &InModelKernel) -> String {
    joined(
        kernel.case.inputs.iter().map(|slot| or_empty(slot.as_ref().map(|tensor| Dims(&tensor.dims)))),
        ";",
    )
}

/// Names of the columns of CSV and workbook: those of the vendor's module statistic, then with a database ours.
const COLUMNS: &str = "parentModule,module,opName,kernelList,totalKernelDuration(ns),avgKernelDuration(ns),opCount,avgMFU,\
    rankID,excessKernelDuration(ns)";

impl<'a> ModulesReport<'a> {
    fn lines(&self) -> impl Iterator<Item = (&RunModules<'a>, &ModuleLine<'a>)> {
        self.runs.iter().flat_map(|run| run.lines.iter().map(move |line| (run, line)))
    }

    fn columns(&self) -> Vec<String> {
        let count = if self.in_model.is_some() { 10 } else { 9 };
        COLUMNS.split(',').take(count).map(str::to_owned).collect()
    }

    fn cells(&self) -> impl Iterator<Item = impl Iterator<Item = TableCell>> {
        let count_of_columns = self.columns().len();
        let count = |count: usize| float(i64::try_from(count).unwrap_or(i64::MAX));
        let number = |value: Option<f64>| value.map_or(TableCell::Empty, TableCell::Number);
        let cells = move |(run, line): (&RunModules<'_>, &ModuleLine<'_>)| {
            [
                TableCell::Text(line.row.parent.clone()),
                TableCell::Text(line.module().to_owned()),
                TableCell::Text(run.run.names.text(line.row.operator).to_owned()),
                TableCell::Text(line.kernels(run.run)),
                TableCell::Number(float(line.row.total)),
                TableCell::Number(line.mean()),
                TableCell::Number(count(line.row.calls.len())),
                number(line.utilisation.and_then(Utilisation::ratio)),
                number(run.run.rank.map(f64::from)),
                number(line.excess.map(|(excess, _)| excess)),
            ]
        };
        self.lines().map(move |line| cells(line).into_iter().take(count_of_columns))
    }
}

pub(crate) fn modules_csv(report: &ModulesReport<'_>) -> String {
    let text = |cell: TableCell| match cell {
        TableCell::Text(text) => text,
        TableCell::Number(number) => number.to_string(),
        TableCell::Empty => String::new(),
    };
    let rows = report.cells().map(|cells| cells.map(text).collect::<Vec<_>>());
    csv_text([report.columns()].into_iter().chain(rows))
}

pub(crate) fn modules_workbook(report: &ModulesReport<'_>) -> Result<Vec<u8>, XlsxError> {
    let mut workbook = Workbook::new();
    let sheet = workbook.add_worksheet();
    sheet.set_name("module_statistic")?;
    for (column, name) in (0..).zip(report.columns()) {
        sheet.write_string(0, column, name)?;
    }
    for (row, cells) in (1..).zip(report.cells()) {
        for (column, cell) in (0..).zip(cells) {
            match cell {
                TableCell::Text(text) => {
                    sheet.write_string(row, column, cut_in_middle(&printable(&text), MAX_CELL))?
                }
                TableCell::Number(number) => sheet.write_number(row, column, number)?,
                TableCell::Empty => continue,
            };
        }
    }
    sheet.set_freeze_panes(1, 0)?;
    sheet.autofit();
    workbook.save_to_buffer()
}

/// What `modules --format json` prints: a record for each operator, each rank, and each kernel in the database. Times are
/// nanoseconds.
pub(crate) fn modules_records(report: &ModulesReport<'_>) -> Vec<Box<RawValue>> {
    let mut records = Vec::new();
    for run in &report.runs {
        records.extend(run.lines.iter().map(|line| json_record(&OperatorRecord::new(run, line))));
        records.push(json_record(&RankRecord::new(run)));
    }
    let kernels = report.in_model.iter().flat_map(|in_model| &in_model.kernels);
    records.extend(kernels.map(|kernel| json_record(&KernelRecord::new(kernel))));
    records
}

record! {
    OperatorRecord<'a>(run: &'a RunModules<'a>, line: &'a ModuleLine<'a>)
    with {
        let (row, names) = (line.row, &run.run.names);
        let tasks = row.calls.iter().flat_map(|call| &call.tasks);
    } {
        item: &'static str = "operator",
        rank: Option<u32> = run.run.rank,
        parent_module: &'a str = &row.parent,
        module: Option<&'a str> = (!line.is_outside).then_some(&*row.module),
        operator: &'a str = names.text(row.operator),
        kernels: Vec<&'a str> = row.kernels.iter().map(|kernel| names.text(*kernel)).collect(),
        total_ns: i64 = row.total,
        mean_ns: f64 = line.mean(),
        calls: usize = row.calls.len(),
        collectives: usize = tasks.filter(|task| matches!(task, LaunchedTask::Collective(_))).count(),
        mfu: Option<f64> = line.utilisation.and_then(Utilisation::ratio),
        flops: Option<f64> = line.utilisation.map(|utilisation| utilisation.flops),
        excess_ns: Option<f64> = line.excess.map(|(excess, _)| excess),
    }
}

record! {
    RankRecord<'a>(run: &'a RunModules<'a>)
    with { let missing = run.run.missing.iter().filter(|part| matters(part)); } {
        item: &'static str = "rank",
        rank: Option<u32> = run.run.rank,
        ranges: usize = run.table.ranges,
        modules_ns: i64 = run.table.attributed(),
        outside_ns: i64 = run.table.outside_time(),
        device_ns: i64 = run.table.device_time(),
        peak: &'a str = &run.peak,
        not_recorded: Vec<String> = missing.map(ToString::to_string).collect(),
    }
}

record! {
    KernelRecord<'a>(kernel: &'a InModelKernel) {
        item: &'static str = "kernel",
        #[serde(flatten)]
        kernel: InModelRecord<'a> = InModelRecord::new(
            kernel, kernel.calls.into(), kernel.total.into(), kernel.excess()
        ),
    }
}

record! {
    /// A kernel of a run against its duration alone. Times are nanoseconds.
    pub(super) InModelRecord<'a>(
        kernel: &'a InModelKernel, calls: Number, total_ns: Number, excess_ns: Option<f64>
    ) with { let interval = kernel.alone.and_then(|alone| alone.interval); } {
        kernel: &'a str = kernel.case.kernel.as_str(),
        case: String = kernel.case.id().to_string(),
        signature: String = kernel.case.signature(),
        calls: Number = calls,
        total_ns: Number = total_ns,
        mean_ns: f64 = kernel.mean(),
        alone_ns: Option<f64> = kernel.alone.map(|alone| alone.duration),
        alone_low_ns: Option<f64> = interval.map(|(low, _)| low),
        alone_high_ns: Option<f64> = interval.map(|(_, high)| high),
        source: Option<String> = kernel.alone.map(|alone| alone.source.to_string()),
        slowdown: Option<f64> = kernel.slowdown(),
        excess_ns: Option<f64> = excess_ns,
        reason: Option<&'a str> = Some(&*kernel.reason).filter(|reason| !reason.is_empty()),
        closed_by: Option<String> = kernel.closing.as_ref().map(ToString::to_string),
    }
}
