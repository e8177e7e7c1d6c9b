//! Columns that are read from the profiler's tables (kernel_details, op_summary), with their names in other versions.
//! The list of counters also determines columns of the database.

use std::{iter, path::Path};

use csv::ByteRecord;

use super::{ProfileError, error::ShapelessKind};

/// The counters of metric group `PipeUtilization` on A2 and A3, in the order of the database.
pub const COUNTERS: [&str; 25] = [
    "aicore_time(us)",
    "aic_total_cycles",
    "aic_mac_time(us)",
    "aic_mac_ratio",
    "aic_scalar_time(us)",
    "aic_scalar_ratio",
    "aic_mte1_time(us)",
    "aic_mte1_ratio",
    "aic_mte2_time(us)",
    "aic_mte2_ratio",
    "aic_fixpipe_time(us)",
    "aic_fixpipe_ratio",
    "aic_icache_miss_rate",
    "aiv_time(us)",
    "aiv_total_cycles",
    "aiv_vec_time(us)",
    "aiv_vec_ratio",
    "aiv_scalar_time(us)",
    "aiv_scalar_ratio",
    "aiv_mte2_time(us)",
    "aiv_mte2_ratio",
    "aiv_mte3_time(us)",
    "aiv_mte3_ratio",
    "aiv_icache_miss_rate",
    "cube_utilization(%)",
];

/// Indices of the columns of one file. Messages use the first name of each list.
#[derive(Clone, Debug)]
pub(super) struct RecordColumns {
    pub(super) kernel: usize,
    pub(super) duration: usize,
    /// Shapes, types, formats of the inputs, then of the outputs.
    pub(super) cells: [usize; 6],
    pub(super) name: Option<usize>,
    pub(super) state: Option<usize>,
    pub(super) core: Option<usize>,
    pub(super) start: Option<usize>,
    pub(super) device: Option<usize>,
    pub(super) blocks: Option<usize>,
    pub(super) stream: Option<usize>,
    pub(super) counters: [Option<usize>; COUNTERS.len()],
}

pub(super) const KERNEL: [&str; 2] = ["Type", "OP Type"];
pub(super) const DURATION: [&str; 2] = ["Duration(us)", "Task Duration(us)"];
/// The cells of the signature.
pub(crate) const CELLS: [&str; 6] = [
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
];

pub(super) const NAME: [&str; 2] = ["Name", "Op Name"];
const STATE: [&str; 1] = ["OP State"];
pub(super) const CORE: [&str; 2] = ["Accelerator Core", "Task Type"];
pub(super) const START: [&str; 2] = ["Start Time(us)", "Task Start Time(us)"];
pub(super) const DEVICE: [&str; 1] = ["Device_id"];
const BLOCKS: [&str; 2] = ["Block Dim", "Block Num"];
pub(super) const STREAM: [&str; 1] = ["Stream ID"];

/// Names of all columns that are read, in any version.
fn read_columns() -> impl Iterator<Item = &'static str> {
    let lists: [&[&'static str]; 11] =
        [&KERNEL, &DURATION, &CELLS, &NAME, &STATE, &CORE, &START, &DEVICE, &BLOCKS, &STREAM, &COUNTERS];
    lists.into_iter().flatten().copied()
}

impl RecordColumns {
    /// Resolves the header of a kernel table. `row` returns the next row, which shows the reason of missing shapes.
    pub(super) fn resolve_header(
        header: &ByteRecord,
        file: &Path,
        mut row: impl FnMut() -> Option<ByteRecord>,
    ) -> Result<Self, ProfileError> {
        let find = |names: &[&str]| {
            names.iter().find_map(|name| header.iter().position(|cell| cell.trim_ascii() == name.as_bytes()))
        };
        for name in read_columns() {
            if header.iter().filter(|cell| cell.trim_ascii() == name.as_bytes()).count() > 1 {
                return Err(ProfileError::DuplicateColumn { file: file.to_owned(), column: name });
            }
        }
        let mut missing: Vec<&'static str> = Vec::new();
        let mut require = |names: &[&'static str]| {
            find(names).unwrap_or_else(|| {
                missing.push(names[0]);
                usize::MAX
            })
        };
        let kernel = require(&KERNEL);
        let duration = require(&DURATION);
        let cells = CELLS.map(|name| require(&[name]));
        if missing.len() == CELLS.len() && kernel != usize::MAX {
            // At level 0 no kernel has a type.
            let mut types = iter::from_fn(&mut row).map(|row| row.get(kernel).unwrap_or_default().to_owned());
            let is_typed = types.any(|kernel| !matches!(kernel.trim_ascii(), b"" | b"N/A" | b"NA"));
            let why = if is_typed { ShapelessKind::OnlyCollectives } else { ShapelessKind::Level0 };
            return Err(ProfileError::NoShapes { file: file.to_owned(), why });
        }
        if !missing.is_empty() {
            let is = UnsupportedTable::from_header(header);
            return Err(ProfileError::MissingColumns { file: file.to_owned(), missing, is });
        }
        Ok(Self {
            kernel,
            duration,
            cells,
            name: find(&NAME),
            state: find(&STATE),
            core: find(&CORE),
            start: find(&START),
            device: find(&DEVICE),
            blocks: find(&BLOCKS),
            stream: find(&STREAM),
            counters: COUNTERS.map(|name| find(&[name])),
        })
    }
}

/// Description of a table beside kernel tables, written by profilers or by tools like npubench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedTable(pub(super) &'static str);

/// Columns that identify an unsupported table.
const OTHERS: [(&[&str], UnsupportedTable); 9] = [
    (&["Input Shapes", "Output Shapes", "Average Duration(us)"], UnsupportedTable::OF_DATABASE),
    (&["Input Shapes", "Output Shapes", "MicroBench Duration(us)"], UnsupportedTable::OF_DATABASE),
    (&["OP Type", "Count", "Total Time(us)"], UnsupportedTable("sums per kernel, as an op_statistic does")),
    (
        &["Name", "Host Self Duration(us)"],
        UnsupportedTable("operators of the framework, as an operator_details.csv does"),
    ),
    (
        &["kernel_name", "task_time(us)"],
        UnsupportedTable("times of tasks without types and shapes, as a task_time does"),
    ),
    (&["API Name", "Count"], UnsupportedTable("calls on the host, as an api_statistic does")),
    (&["Computing", "Free"], UnsupportedTable("times of steps, as a step_trace_time.csv does")),
    (&["Component", "Timestamp(us)"], UnsupportedTable::MEMORY),
    (&["Name", "Size(KB)"], UnsupportedTable::MEMORY),
];

impl UnsupportedTable {
    pub(super) const OF_DATABASE: Self =
        Self("a kernel's rows as a database has them, not the records of a profile");
    const MEMORY: Self = Self("uses of memory");

    pub(super) fn from_header(header: &ByteRecord) -> Option<Self> {
        let has = |name: &&str| header.iter().any(|cell| cell.trim_ascii() == name.as_bytes());
        OTHERS.iter().find(|(names, _)| names.iter().all(has)).map(|(_, table)| *table)
    }
}
