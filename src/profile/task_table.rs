//! Tasks of `kernel_details.csv` or `op_summary_*.csv` in the order of the table, with the columns that exist.
//!
//! Analyses of time need neither types nor shapes, so tables of profiler level 0 are read, too.

use std::path::Path;

use csv::ByteRecord;

use super::{
    ProfileError, RecordPosition,
    columns::{CELLS, CORE, DEVICE, DURATION, KERNEL, NAME, START, STREAM, UnsupportedTable},
    records::{RecordRows, open_table},
};
use crate::kernel::{Nanos, NanosError};

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
    let mut rows = RecordRows::new(open_table(file)?, 0);
    let header = rows.read_header(file)?;
    let columns = TaskColumns::resolve_header(&header, file)?;
    let is_crlf = rows.is_crlf(file)?;
    while let Some((row, line)) = rows.next_cells(file, &header, is_crlf)? {
        visit(TaskRow { file, row, columns: &columns, line })?;
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
