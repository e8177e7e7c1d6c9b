//! Tasks of `kernel_details.csv` or `op_summary_*.csv` in the order of the table, with the columns that exist.
//!
//! Analyses of time need neither types nor shapes, so tables of profiler level 0 are read, too.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
};

use csv::{ByteRecord, ReaderBuilder};

use super::{
    ProfileError, RecordPosition,
    columns::{CELLS, CORE, DEVICE, DURATION, KERNEL, NAME, START, STREAM},
    records::{BUFFER, LONGEST_ROW, RowLimitReader, check_start, csv_error, ends_in_carriage_return},
    unsupported_table::UnsupportedTable,
};
use crate::{
    base::{files::open_regular, table::raw_records::missing_field_text},
    kernel::{Nanos, NanosError},
};

const STEP: [&str; 1] = ["Step Id"];
const MAC_TIME: [&str; 1] = ["aic_mac_time(us)"];

/// Indices of the columns of a table; those without an index are missing.
#[derive(Clone, Debug)]
struct TaskColumns {
    name: usize,
    start: usize,
    duration: usize,
    kernel: Option<usize>,
    core: Option<usize>,
    step: Option<usize>,
    device: Option<usize>,
    stream: Option<usize>,
    mac_time: Option<usize>,
    cells: Option<[usize; 6]>,
}

/// Row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRow<'a> {
    file: &'a Path,
    row: &'a ByteRecord,
    columns: &'a TaskColumns,
    line: u64,
}

impl TaskColumns {
    fn resolve_header(header: &ByteRecord, file: &Path) -> Result<Self, ProfileError> {
        let find = |names: &[&str]| {
            names.iter().find_map(|name| header.iter().position(|cell| cell.trim_ascii() == name.as_bytes()))
        };
        let mut missing = Vec::new();
        let mut require = |names: &[&'static str]| {
            find(names).unwrap_or_else(|| {
                missing.push(names[0]);
                usize::MAX
            })
        };
        let (name, start, duration) = (require(&NAME), require(&START), require(&DURATION));
        if !missing.is_empty() {
            let is = UnsupportedTable::from_header(header);
            return Err(ProfileError::MissingColumns { file: file.to_owned(), missing, is });
        }
        let cells = CELLS.map(|name| find(&[name]));
        Ok(Self {
            name,
            start,
            duration,
            kernel: find(&KERNEL),
            core: find(&CORE),
            step: find(&STEP),
            device: find(&DEVICE),
            stream: find(&STREAM),
            mac_time: find(&MAC_TIME),
            cells: cells.iter().all(Option::is_some).then(|| cells.map(Option::unwrap_or_default)),
        })
    }
}

/// Visits the rows of a table.
pub(crate) fn for_each_task_row(
    file: &Path,
    visit: &mut dyn FnMut(TaskRow<'_>) -> Result<(), ProfileError>,
) -> Result<(), ProfileError> {
    let io = |source| ProfileError::Io { file: file.to_owned(), source };
    let mut input = BufReader::with_capacity(BUFFER, open_regular(file).map_err(io)?);
    let start = input.fill_buf().map_err(io)?;
    check_start(start, file)?;
    let mut csv = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .buffer_capacity(BUFFER)
        .from_reader(RowLimitReader::new(input));
    let mut header = ByteRecord::new();
    csv.read_byte_record(&mut header).map_err(|error| csv_error(error, file))?;
    let columns = TaskColumns::resolve_header(&header, file)?;
    let is_crlf = ends_in_carriage_return(file, csv.position().byte()).map_err(io)?;
    let mut row = ByteRecord::new();
    let mut next = |row: &mut ByteRecord| {
        csv.get_mut().left = LONGEST_ROW;
        let line = csv.position().line() + u64::from(is_crlf);
        match csv.read_byte_record(row) {
            Ok(more) => Ok(more.then_some(line)),
            Err(_) if csv.get_ref().left == 0 => {
                let mebibytes = (LONGEST_ROW >> 20) as u64;
                Err(ProfileError::Endless { file: file.to_owned(), line, mebibytes })
            }
            Err(error) => Err(csv_error(error, file)),
        }
    };
    while let Some(line) = next(&mut row)? {
        if row.len() != header.len() {
            let (fields, columns) = (row.len(), header.len());
            let column = header.get(fields).map(String::from_utf8_lossy);
            let place = missing_field_text(fields, columns, column);
            return Err(ProfileError::Ragged { file: file.to_owned(), line, fields, columns, place });
        }
        visit(TaskRow { file, row: &row, columns: &columns, line })?;
    }
    Ok(())
}

impl<'a> TaskRow<'a> {
    fn cell(&self, column: Option<usize>) -> &'a [u8] {
        match column.and_then(|column| self.row.get(column)).unwrap_or_default().trim_ascii() {
            b"N/A" | b"NA" => b"",
            cell => cell,
        }
    }

    fn time(&self, column: usize, name: &'static str) -> Result<Option<Nanos>, ProfileError> {
        let cell = self.row.get(column).unwrap_or_default();
        match Nanos::parse_micros(cell) {
            Ok(time) => Ok(Some(time)),
            Err(NanosError::Absent) => Ok(None),
            Err(error) => {
                let position = RecordPosition::Line(self.line);
                Err(ProfileError::bad_cell(self.file, position, name, cell, error.to_string()))
            }
        }
    }

    /// Returns start and duration; `None` for a task without them.
    pub(crate) fn start_and_duration(&self) -> Result<Option<(Nanos, Nanos)>, ProfileError> {
        let start = self.time(self.columns.start, START[0])?;
        let duration = self.time(self.columns.duration, DURATION[0])?;
        let times = start.zip(duration);
        match times {
            Some((_, duration)) if !(0..=Nanos::LONGEST_KERNEL.0).contains(&duration.0) => {
                let cell = self.row.get(self.columns.duration).unwrap_or_default();
                let problem = "is not between 0 and an hour".to_owned();
                let position = RecordPosition::Line(self.line);
                Err(ProfileError::bad_cell(self.file, position, DURATION[0], cell, problem))
            }
            times => Ok(times),
        }
    }

    /// Returns the name of the operator.
    pub(crate) fn name(&self) -> &'a [u8] {
        self.cell(Some(self.columns.name))
    }

    /// Returns the type of the kernel; empty if it is not recorded.
    pub(crate) fn kernel(&self) -> &'a [u8] {
        self.cell(self.columns.kernel)
    }

    /// Returns the unit that ran the task; empty if it is not recorded.
    pub(crate) fn core(&self) -> &'a [u8] {
        self.cell(self.columns.core)
    }

    /// Returns the step; `None` if it is not recorded.
    pub(crate) fn step(&self) -> Option<u64> {
        std::str::from_utf8(self.cell(self.columns.step)).ok()?.parse().ok()
    }

    /// Returns the device; `None` if it is not recorded.
    pub(crate) fn device(&self) -> Option<u32> {
        std::str::from_utf8(self.cell(self.columns.device)).ok()?.parse().ok()
    }

    /// Returns the stream; `None` if it is not recorded.
    pub(crate) fn stream(&self) -> Option<u32> {
        std::str::from_utf8(self.cell(self.columns.stream)).ok()?.parse().ok()
    }

    /// Returns shapes, types and formats of inputs, then of outputs; `None` without these columns.
    pub(crate) fn signature_cells(&self) -> Option<[&'a [u8]; 6]> {
        self.columns.cells.map(|cells| cells.map(|column| self.row.get(column).unwrap_or_default()))
    }

    /// Returns true if the cube unit was busy; `None` if it is not recorded.
    pub(crate) fn uses_cube(&self) -> Option<bool> {
        let time = Nanos::parse_micros(self.cell(self.columns.mac_time)).ok()?;
        Some(time.0 > 0)
    }
}
