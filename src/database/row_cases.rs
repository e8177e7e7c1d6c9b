//! Rows of a kernel's CSV as cases.

use std::collections::HashSet;

use csv::ByteRecord;

use super::{
    DatabaseError, KernelCsv,
    collective_rows::{self, CollectiveKeyColumns},
    columns,
};
use crate::kernel::{
    CacheState, Case, CaseAttributes, CaseSet, CollectiveCase, Dims, IntervalMethod, KernelName, Nanos,
    RecordedTask, ShownResult, SignatureCells, Slot, Verdict, parse_kernel_micros,
};

#[derive(Clone, Debug)]
pub(crate) struct RowCase {
    pub row: usize,
    pub line: u64,
    pub case: Result<Case, String>,
    hot: RowCells,
    cold: RowCells,
    pub is_on_ai_cpu: bool,
    pub(crate) production: Option<Nanos>,
    /// Number of these production records; 1 in tables that do not state it.
    pub(crate) production_records: u64,
}

impl RowCase {
    /// Returns the seconds of all production records, if each took as long as the median; 0 without one.
    pub(crate) fn recorded_seconds(&self) -> f64 {
        let records = self.production_records as f64;
        self.production.map_or(0.0, Nanos::seconds) * records
    }

    pub(crate) const fn cells(&self, cache: CacheState) -> &RowCells {
        match cache {
            CacheState::Hot => &self.hot,
            CacheState::Cold => &self.cold,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RowCells {
    /// The measurement; `None` without one. A number without a verdict, as older tools write it, counts as `ok`.
    pub(crate) shown: Option<ShownResult>,
    /// Mean of the accepted samples in microseconds.
    pub(crate) average: Option<f64>,
    /// Median in microseconds; `None` also in rows of older tools.
    pub(crate) median: Option<f64>,
    pub(crate) run: Option<String>,
    /// Method of the interval; `None` also for a text that is no method.
    pub(crate) method: Option<IntervalMethod>,
    pub(crate) collections: Option<usize>,
    pub(crate) ran_as_other: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RowProblem {
    #[error("the row has no input shapes")]
    NoShapes,
    #[error("{0}")]
    Invalid(String),
}

#[derive(Debug)]
pub(crate) struct RowColumns {
    signature: [usize; 6],
    attributes: Vec<(String, usize)>,
    shape_labels: Vec<(String, usize)>,
}

#[derive(Debug)]
struct ResultColumns([Option<usize>; 8]);

impl ResultColumns {
    const COLUMNS: [&str; 8] = [
        columns::AVERAGE,
        columns::MEDIAN,
        columns::VERDICT,
        columns::RUN,
        columns::SAMPLES,
        columns::SOFTWARE,
        columns::CI95_METHOD,
        columns::COLLECTIONS,
    ];

    fn find(table: &KernelCsv, cache: CacheState) -> Self {
        Self(Self::COLUMNS.map(|name| table.column_index(columns::result_column(cache, name)?)))
    }

    fn read(&self, cells: &ByteRecord) -> RowCells {
        let [average, median, verdict, run, samples, software, method, collections] =
            self.0.map(|index| cell_text(cells, index));
        let count = |cell: Option<&str>| cell.and_then(|cell| cell.parse().ok());
        let average = duration(average);
        let run = run.filter(|run| !run.is_empty()).map(str::to_owned);
        // The digest is at the end, as in `CANN 8.3.RC1 (0123456789abcdef)`.
        let digest = |cell: &str| Some(cell.strip_suffix(')')?.rsplit_once('(')?.1.to_owned());
        let shown = || ShownResult {
            run: run.clone(),
            verdict: verdict.and_then(|cell| cell.parse().ok()).unwrap_or(Verdict::Ok),
            samples: count(samples),
            software: software.and_then(digest),
        };
        RowCells {
            shown: average.map(|_| shown()),
            average,
            median: duration(median),
            method: method.and_then(|cell| cell.parse().ok()),
            collections: count(collections),
            ran_as_other: verdict == Some(Verdict::RanAsOther.as_str()),
            run,
        }
    }
}

impl RowColumns {
    pub(crate) fn from_table(table: &KernelCsv) -> Result<Self, DatabaseError> {
        Self::find_columns(table.column_names())
            .map_err(|column| DatabaseError::MissingColumn { path: table.path().to_owned(), column })
    }

    /// Finds the columns by name; the error is the first missing column of the signature.
    pub(crate) fn find_columns(header: &[String]) -> Result<Self, &'static str> {
        let mut signature = [0; 6];
        for (index, name) in signature.iter_mut().zip(columns::SIGNATURE) {
            *index = header.iter().position(|column| column == name).ok_or(name)?;
        }
        let attribute =
            |(index, name): (usize, &String)| Some((CaseAttributes::name_of(name)?.into_owned(), index));
        let labels = header.iter().enumerate().filter(|(_, name)| CaseAttributes::is_shape_label(name));
        Ok(Self {
            signature,
            attributes: header.iter().enumerate().filter_map(attribute).collect(),
            shape_labels: labels.map(|(index, name)| (name.clone(), index)).collect(),
        })
    }

    pub(crate) fn case_columns(&self) -> Vec<usize> {
        let others = self.attributes.iter().chain(&self.shape_labels).map(|(_, index)| *index);
        self.signature.into_iter().chain(others).collect()
    }

    pub(crate) fn parse_case(&self, kernel: &KernelName, cells: &ByteRecord) -> Result<Case, RowProblem> {
        let text = |index: usize| {
            std::str::from_utf8(cells.get(index).unwrap_or_default())
                .map_err(|_| RowProblem::Invalid("is not UTF-8".to_owned()))
        };
        let side = |at: usize| {
            let [shapes, dtypes, formats] = [0, 1, 2].map(|offset| text(self.signature[at + offset]));
            SignatureCells { shapes: shapes?, dtypes: dtypes?, formats: formats? }
                .parse()
                .map_err(RowProblem::Invalid)
        };
        let inputs = side(0)?;
        if inputs.is_empty() {
            return Err(RowProblem::NoShapes);
        }
        let mut attributes = CaseAttributes::default();
        for (name, index) in &self.attributes {
            attributes.set_from_row(name, text(*index)?);
        }
        for (label, index) in &self.shape_labels {
            attributes.set_contradicting_shape(label, text(*index)?, kernel, &inputs);
        }
        Ok(Case { kernel: kernel.clone(), inputs, outputs: side(3)?, attributes })
    }
}

/// Returns the duration of a cell; a cell that is none is as one without a measurement, and `db check` names it.
fn duration(cell: Option<&str>) -> Option<f64> {
    parse_kernel_micros(cell?.as_bytes()).ok().flatten()
}

fn cell_text(cells: &ByteRecord, column: Option<usize>) -> Option<&str> {
    std::str::from_utf8(cells.get(column?)?).ok().map(str::trim)
}

pub(crate) fn row_cases(kernel: &KernelName, table: &KernelCsv) -> Result<Vec<RowCase>, DatabaseError> {
    let mut cases = Vec::with_capacity(table.len());
    for_each_row_case(kernel, table, |case| cases.push(case))?;
    Ok(cases)
}

/// Visits the rows of a table. Fails if a column of the signature is missing, or the sizes of a collective.
pub(crate) fn for_each_row_case(
    kernel: &KernelName,
    table: &KernelCsv,
    mut visit: impl FnMut(RowCase),
) -> Result<(), DatabaseError> {
    let [mut hot, mut cold] =
        [CacheState::Hot, CacheState::Cold].map(|cache| ResultColumns::find(table, cache));
    let parse_case: Box<dyn Fn(&ByteRecord) -> Result<Case, String>> = if kernel.is_collective() {
        let column = collective_rows::MESSAGE_BYTES;
        if table.column_index(column).is_none() {
            return Err(DatabaseError::MissingColumn { path: table.path().to_owned(), column });
        }
        // Collectives have another column for the duration, and no results with a cold cache.
        hot.0[0] = table.column_index(collective_rows::DURATION);
        cold = ResultColumns([None; 8]);
        let columns = CollectiveKeyColumns::find(table.column_names());
        Box::new(move |cells| columns.parse_case(kernel, cells))
    } else {
        let columns = RowColumns::from_table(table)?;
        Box::new(move |cells| columns.parse_case(kernel, cells).map_err(|problem| problem.to_string()))
    };
    let core = table.column_index(columns::CORE).filter(|_| !kernel.is_collective());
    let [production, records] =
        [columns::PROFILING[1], columns::PROFILING_RECORDS].map(|name| table.column_index(name));
    table.for_each_row(|row, cells| {
        let production = cell_text(cells, production);
        let production = production.and_then(|cell| Nanos::parse_micros(cell.as_bytes()).ok());
        let records = cell_text(cells, records).and_then(|cell| cell.parse().ok());
        visit(RowCase {
            row,
            line: table.row_line(row),
            case: parse_case(cells),
            hot: hot.read(cells),
            cold: cold.read(cells),
            production: production.filter(|median| median.is_kernel_duration()),
            production_records: records.unwrap_or(1),
            is_on_ai_cpu: cell_text(cells, core) == Some(RecordedTask::AI_CPU),
        });
    });
    Ok(())
}

/// Visits the case of each row, with true if it has a latency: a positive number in one of the columns that readers of
/// such databases use. Returns the number of rows that are not cases.
pub(crate) fn for_each_measured_case(
    kernel: &KernelName,
    table: &KernelCsv,
    mut visit: impl FnMut(&Case, bool),
) -> Result<usize, DatabaseError> {
    let columns = RowColumns::from_table(table)?;
    let latencies = [columns::AVERAGE, columns::PROFILING[0], columns::OLD_AVERAGE, columns::OLD_DURATION];
    let latencies: Vec<usize> = latencies.iter().filter_map(|name| table.column_index(name)).collect();
    let mut unread = 0;
    table.for_each_row(|_, cells| {
        let is_latency = |column: &usize| duration(cell_text(cells, Some(*column))).is_some();
        match columns.parse_case(kernel, cells) {
            Ok(case) => visit(&case, latencies.iter().any(is_latency)),
            Err(_) => unread += 1,
        }
    });
    Ok(unread)
}

/// Returns the cells of a new row, without measurements, with at least this number of input slots.
pub(super) fn new_row_cells(case: &Case, recorded_inputs: usize) -> Vec<(&str, String)> {
    if let Some(collective) = CollectiveCase::of_case(case) {
        return collective_rows::new_row_cells(&collective);
    }
    let signature = columns::SIGNATURE.into_iter().zip(signature_cells(case, recorded_inputs));
    signature.chain(case.attributes.iter().map(|(column, cell)| (column, cell.to_owned()))).collect()
}

pub(crate) fn signature_cells(case: &Case, recorded_inputs: usize) -> [String; 6] {
    let empty = recorded_inputs.saturating_sub(case.inputs.len());
    let [shapes, dtypes, formats] = format_slots(case.inputs.iter().chain(std::iter::repeat_n(&None, empty)));
    let [output_shapes, output_dtypes, output_formats] = format_slots(case.outputs.iter());
    [shapes, dtypes, formats, output_shapes, output_dtypes, output_formats]
}

/// Formats cells as the profiler does: quoted shapes, `DT_UNDEFINED` and `NULL` for empty slots.
fn format_slots<'a>(slots: impl Iterator<Item = &'a Slot>) -> [String; 3] {
    let cells = slots.map(|slot| match slot {
        Some(tensor) => [Dims(&tensor.dims).to_string(), tensor.dtype.to_string(), tensor.format.to_string()],
        None => ["", "DT_UNDEFINED", "NULL"].map(str::to_owned),
    });
    let cells: Vec<[String; 3]> = cells.collect();
    let [shapes, dtypes, formats] =
        [0, 1, 2].map(|at| cells.iter().map(|slot| slot[at].as_str()).collect::<Vec<_>>().join(";"));
    [format!("\"{shapes}\""), dtypes, formats]
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TableCases {
    pub(crate) ids: CaseSet,
    /// The first row of each number of inputs with these ranks and formats.
    pub(crate) examples: Vec<Case>,
}

impl TableCases {
    /// Reads the cases of a table; rows that are no case are left out.
    pub(crate) fn read(kernel: &KernelName, table: &KernelCsv) -> Result<Self, DatabaseError> {
        let mut found = Self::default();
        if table.is_empty() {
            return Ok(found);
        }
        let columns = RowColumns::from_table(table)?;
        let mut known = HashSet::new();
        table.for_each_row(|_, cells| {
            let Ok(case) = columns.parse_case(kernel, cells) else { return };
            found.ids.insert(case.id());
            let slots = case
                .inputs
                .iter()
                .map(|slot| Some((slot.as_ref()?.dims.len(), slot.as_ref()?.format.clone())));
            if known.insert(slots.collect::<Vec<_>>()) {
                found.examples.push(case);
            }
        });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_positive_finite_numbers_are_latencies() {
        let text =
            "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                    Average Duration(us),Profiling Average Duration(us)\n"
                .to_owned()
                + &[("1.5", ""), ("", "2"), ("0", "0"), ("inf", ""), ("nan", "-1"), ("", ""), ("n/a", "3")]
                    .map(|(average, profiled)| format!("8,DT_BF16,ND,8,DT_BF16,ND,{average},{profiled}\n"))
                    .concat()
                + ",,,,,,1,1\n";
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("Neg.csv");
        std::fs::write(&path, text).expect("written");
        let table = KernelCsv::load(Path::new(&path)).expect("a table");
        let mut seen = Vec::new();
        let kernel = KernelName::new("Neg").expect("a name");
        let unread =
            for_each_measured_case(&kernel, &table, |_, measured| seen.push(measured)).expect("rows");
        assert_eq!(seen, [true, true, false, false, false, false, true]);
        assert_eq!(unread, 1);
    }
}
