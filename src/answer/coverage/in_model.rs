//! Durations of kernels in a recorded model compared with durations in a database: how much slower they are in the
//! model than alone.

use std::collections::{BTreeMap, HashMap};

use super::{AnswerClass, CoverageAnalyzer, GapClosing};
use crate::{
    answer::{
        lookup::{AnswerSource, LatencyColumn, LookupEngine, UsedRow},
        lookup_database::LookupDatabase,
        workload::{DurationKind, Workload, WorkloadQuestion},
    },
    base::{command_error::CommandError, printable::spreadsheet_cell},
    database::{Database, KernelCsv, columns},
    kernel::{Case, KernelName, Nanos, catalogue::Catalogue, parse_kernel_micros},
    profile::{
        CELLS,
        timeline::{DeviceTask, NameId, RunTimeline, SignatureId, sum_lengths},
    },
};

const NOT_MEASURED: &str = "row without a measurement; `npubench fill` or `run` measures it";
const INTERVAL: [&str; 2] = [columns::CI95_LOW, columns::CI95_HIGH];
const KERNEL_TABLE: [&str; 9] =
    ["Name", "Type", "Duration(us)", CELLS[0], CELLS[1], CELLS[2], CELLS[3], CELLS[4], CELLS[5]];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AloneDuration {
    pub(crate) duration: f64,
    /// Interval of the median in nanoseconds; `None` if the row has none.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) source: AnswerSource,
}

#[derive(Clone, Debug)]
pub(crate) struct InModelKernel {
    pub(crate) case: Case,
    name: String,
    cells: [String; 6],
    pub(crate) calls: u64,
    /// Sum of the durations in the model, in nanoseconds.
    pub(crate) total: i64,
    pub(crate) alone: Option<AloneDuration>,
    pub(crate) reason: String,
    /// What would close the gap, as `coverage` states it; `None` with a duration alone.
    pub(crate) closing: Option<GapClosing>,
    pub(crate) question: WorkloadQuestion,
}

impl InModelKernel {
    pub(crate) fn mean(&self) -> f64 {
        self.total as f64 / self.calls.max(1) as f64
    }

    pub(crate) fn slowdown(&self) -> Option<f64> {
        self.alone.map(|alone| self.mean() / alone.duration)
    }

    /// Returns the time that the calls took more than alone, in nanoseconds; negative if they were faster.
    pub(crate) fn excess(&self) -> Option<f64> {
        self.alone.map(|alone| self.total as f64 - alone.duration * self.calls as f64)
    }
}

#[derive(Debug, Default)]
pub(crate) struct InModelKernels {
    pub(crate) kernels: Vec<InModelKernel>,
    /// Indices into the kernels, by run, type and signature.
    by_signature: HashMap<(usize, NameId, SignatureId), usize>,
    /// Time of kernels without readable shapes, in nanoseconds.
    pub(crate) without_shapes: i64,
}

impl InModelKernels {
    /// Returns what a task of a run took more than alone, in nanoseconds; `None` without a duration alone.
    pub(crate) fn excess_of_task(&self, run: usize, task: &DeviceTask) -> Option<f64> {
        let kernel = self.kernels.get(*self.by_signature.get(&(run, task.kind, task.signature?))?)?;
        kernel.alone.map(|alone| task.span.length() as f64 - alone.duration)
    }

    /// Returns the kernels without a duration alone, those with the most time first.
    pub(crate) fn missing(&self) -> Vec<&InModelKernel> {
        let mut missing: Vec<&InModelKernel> =
            self.kernels.iter().filter(|kernel| kernel.alone.is_none()).collect();
        missing.sort_by_key(|kernel| std::cmp::Reverse(kernel.total));
        missing
    }

    fn look_up(&mut self, analyzer: &CoverageAnalyzer<'_>, database: &Database) -> Result<(), CommandError> {
        for kernel in &mut self.kernels {
            kernel.question.count = kernel.calls;
            kernel.question.time = Some(Nanos(kernel.total));
        }
        let questions = self.kernels.iter().map(|kernel| kernel.question.clone()).collect();
        let mut workload = Workload::new(String::new(), DurationKind::Measured, questions);
        super::add_equal_calls(&mut workload, analyzer.catalogue);
        let mut intervals: BTreeMap<KernelName, HashMap<u64, (f64, f64)>> = BTreeMap::new();
        for (kernel, answered) in self.kernels.iter_mut().zip(analyzer.answer_workload(&workload)?.answers) {
            kernel.reason = answered.reason();
            if answered.class == AnswerClass::Missing {
                kernel.closing = Some(analyzer.assess_gap(&answered).0);
                continue;
            }
            let Some(answer) = answered.answer else { continue };
            let Some(latency) = answer.latency.filter(|latency| latency.0 > 0.0) else { continue };
            // The duration in another model is not the duration of the kernel alone.
            if answer.rows.iter().any(|row| row.column != LatencyColumn::Replay) {
                let name = kernel.case.kernel.as_str().to_owned();
                kernel.closing = Some(match answered.has_entry {
                    Some(false) => analyzer.closing_by_entry(name),
                    _ => GapClosing::ExistingRow { kernel: name },
                });
                kernel.reason = NOT_MEASURED.to_owned();
                continue;
            }
            let interval = match &*answer.rows {
                [UsedRow { kernel, line, .. }] if answer.source == AnswerSource::Measured => {
                    if !intervals.contains_key(kernel) {
                        intervals.insert(kernel.clone(), intervals_of_table(&database.kernel_csv(kernel)?));
                    }
                    intervals[kernel].get(&u64::from(*line)).copied()
                }
                _ => None,
            };
            kernel.alone = Some(AloneDuration { duration: latency.0 * 1e3, interval, source: answer.source });
        }
        let mut order: Vec<usize> = (0..self.kernels.len()).collect();
        let key = |at: &usize| {
            let kernel = &self.kernels[*at];
            (kernel.excess().unwrap_or(f64::NEG_INFINITY), kernel.total)
        };
        order.sort_by(|a, b| {
            let ((excess, total), (other, other_total)) = (key(b), key(a));
            excess.total_cmp(&other).then(total.cmp(&other_total))
        });
        let places: HashMap<usize, usize> =
            order.iter().enumerate().map(|(place, at)| (*at, place)).collect();
        self.by_signature.values_mut().for_each(|at| *at = places[at]);
        self.kernels = order.into_iter().map(|at| self.kernels[at].clone()).collect();
        Ok(())
    }
}

/// Returns the kernels without a duration alone as a table of kernels, one row for each call with the mean duration in
/// the model: a workload for `coverage` and `fill`.
pub(crate) fn missing_kernels_csv(joined: &InModelKernels) -> Result<String, csv::Error> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(KERNEL_TABLE)?;
    for kernel in joined.missing() {
        let duration = format!("{:.3}", kernel.mean() / 1e3);
        let head = [kernel.name.as_str(), kernel.case.kernel.as_str(), &duration];
        for _ in 0..kernel.calls {
            let cells = head.into_iter().chain(kernel.cells.iter().map(String::as_str));
            csv.write_record(cells.map(|cell| spreadsheet_cell(cell).into_owned()))?;
        }
    }
    let bytes = csv.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Looks up the kernels of all runs for which `is_counted` returns true in a database, whose tables have the intervals of its rows.
/// Fails if a table cannot be read.
pub(crate) fn join_kernels(
    runs: &[RunTimeline],
    is_counted: &dyn Fn(&DeviceTask) -> bool,
    database: &LookupDatabase,
    catalogue: &Catalogue,
) -> Result<InModelKernels, CommandError> {
    let mut joined = InModelKernels::default();
    let mut by_case: HashMap<String, usize> = HashMap::new();
    for (number, run) in runs.iter().enumerate() {
        for task in run.kernels().filter(|task| is_counted(task)) {
            let place = task.signature.and_then(|signature| {
                let key = (number, task.kind, signature);
                if let Some(at) = joined.by_signature.get(&key) {
                    return Some(*at);
                }
                let case = run.case_of_kernel(task)?;
                let text = format!("{} {}", case.kernel, case.signature());
                let at = *by_case.entry(text).or_insert(joined.kernels.len());
                if at == joined.kernels.len() {
                    joined.kernels.push(InModelKernel {
                        question: WorkloadQuestion {
                            case: Some(case.clone()),
                            ..WorkloadQuestion::new(LookupEngine::query_of_case(&case), 0)
                        },
                        case,
                        name: run.names.text(task.name).to_owned(),
                        cells: run.signature_cells(signature).map(str::to_owned),
                        calls: 0,
                        total: 0,
                        alone: None,
                        reason: String::new(),
                        closing: None,
                    });
                }
                joined.by_signature.insert(key, at);
                Some(at)
            });
            let Some(at) = place else {
                joined.without_shapes = sum_lengths([joined.without_shapes, task.span.length()]);
                continue;
            };
            joined.kernels[at].calls += 1;
            joined.kernels[at].total = sum_lengths([joined.kernels[at].total, task.span.length()]);
        }
    }
    joined.look_up(&CoverageAnalyzer { engine: &database.engine, catalogue }, &database.database()?)?;
    Ok(joined)
}

/// Returns the intervals of a table in nanoseconds by line; none if it has no such columns.
fn intervals_of_table(table: &KernelCsv) -> HashMap<u64, (f64, f64)> {
    let mut intervals = HashMap::new();
    let Some(columns) = INTERVAL.iter().map(|name| table.column_index(name)).collect::<Option<Vec<_>>>()
    else {
        return intervals;
    };
    table.for_each_cells(&columns, |row, cells| {
        let number = |cell: &[u8]| parse_kernel_micros(cell).ok().flatten();
        if let (Some(low), Some(high)) = (number(cells[0]), number(cells[1])) {
            intervals.insert(table.row_line(row), (low * 1e3, high * 1e3));
        }
    });
    intervals
}
