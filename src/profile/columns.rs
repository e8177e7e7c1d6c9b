//! Columns that are read from the profiler's tables (kernel_details, op_summary), with their names in other versions.
//! The list of counters also determines columns of the database.

use std::path::Path;

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
/// Places in [`COUNTERS`] of the time of a core and the cycles of all its blocks, for matrix and for vector cores.
pub(super) const CYCLE_COUNTERS: [[usize; 2]; 2] = [[0, 1], [13, 14]];
/// Place in [`COUNTERS`] of the time in which the matrix units compute.
pub(super) const MAC_TIME: usize = 2;

/// The cells of the signature.
pub(crate) const CELLS: [&str; 6] = [
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
];

const KERNEL: &[&str] = &["Type", "OP Type"];
const DURATION: &[&str] = &["Duration(us)", "Task Duration(us)"];
const NAME: &[&str] = &["Name", "Op Name"];
const STATE: &[&str] = &["OP State"];
const CORE: &[&str] = &["Accelerator Core", "Task Type"];
const START: &[&str] = &["Start Time(us)", "Task Start Time(us)"];
const DEVICE: &[&str] = &["Device_id"];
const BLOCKS: &[&str] = &["Block Dim", "Block Num"];
const STREAM: &[&str] = &["Stream ID"];
const STEP: &[&str] = &["Step Id"];

/// Columns without which a reader cannot use a table. Messages use the first name of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeededColumns {
    Signatures,
    /// Name or type, start, and duration: analyses of time also read tables of profiler level 0.
    Times,
    None,
}

/// Places of the columns of a table; `None` for one that the table lacks.
#[derive(Clone, Debug)]
pub(super) struct TableColumns {
    pub(super) kernel: Option<usize>,
    pub(super) duration: Option<usize>,
    /// Shapes, types, formats of the inputs, then of the outputs.
    pub(super) cells: [Option<usize>; 6],
    pub(super) name: Option<usize>,
    pub(super) state: Option<usize>,
    pub(super) core: Option<usize>,
    pub(super) start: Option<usize>,
    pub(super) device: Option<usize>,
    pub(super) blocks: Option<usize>,
    pub(super) stream: Option<usize>,
    pub(super) step: Option<usize>,
    pub(super) counters: [Option<usize>; COUNTERS.len()],
}

impl TableColumns {
    /// Resolves the header of a table. The next `rows` show the reason of missing shapes.
    pub(super) fn resolve_header(
        header: &ByteRecord,
        file: &Path,
        needed: NeededColumns,
        mut rows: impl Iterator<Item = ByteRecord>,
    ) -> Result<Self, ProfileError> {
        let places = |name: &str| {
            let is_named = move |(_, cell): &(usize, &[u8])| cell.trim_ascii() == name.as_bytes();
            header.iter().enumerate().filter(is_named).map(|(place, _)| place).collect::<Vec<_>>()
        };
        let columns = [KERNEL, DURATION, NAME, STATE, CORE, START, DEVICE, BLOCKS, STREAM, STEP];
        for column in columns.into_iter().chain([&CELLS[..], &COUNTERS]).flatten() {
            if places(column).len() > 1 {
                return Err(ProfileError::DuplicateColumn { file: file.to_owned(), column });
            }
        }
        let find = |names: &[&str]| names.iter().find_map(|name| places(name).first().copied());
        let found = Self {
            kernel: find(KERNEL),
            duration: find(DURATION),
            cells: CELLS.map(|name| find(&[name])),
            name: find(NAME),
            state: find(STATE),
            core: find(CORE),
            start: find(START),
            device: find(DEVICE),
            blocks: find(BLOCKS),
            stream: find(STREAM),
            step: find(STEP),
            counters: COUNTERS.map(|name| find(&[name])),
        };
        let required: Vec<(&'static str, Option<usize>)> = match needed {
            NeededColumns::Signatures => [(KERNEL[0], found.kernel), (DURATION[0], found.duration)]
                .into_iter()
                .chain(CELLS.into_iter().zip(found.cells))
                .collect(),
            NeededColumns::Times => vec![
                (NAME[0], found.name.or(found.kernel)),
                (START[0], found.start),
                (DURATION[0], found.duration),
            ],
            NeededColumns::None => Vec::new(),
        };
        let missing: Vec<&str> =
            required.into_iter().filter(|(_, place)| place.is_none()).map(|(name, _)| name).collect();
        if missing == CELLS
            && let Some(kernel) = found.kernel
        {
            // At level 0 no kernel has a type.
            let why = match rows.any(|row| row.get(kernel).is_some_and(is_recorded)) {
                true => ShapelessKind::OnlyCollectives,
                false => ShapelessKind::Level0,
            };
            return Err(ProfileError::NoShapes { file: file.to_owned(), why });
        }
        if !missing.is_empty() {
            let is = UnsupportedTable::from_header(header);
            return Err(ProfileError::MissingColumns { file: file.to_owned(), missing, is });
        }
        Ok(found)
    }
}

/// Returns true for a cell with a value; profilers write `N/A` for a missing one.
pub(crate) fn is_recorded(cell: &[u8]) -> bool {
    !matches!(cell.trim_ascii(), b"" | b"N/A" | b"NA")
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

    fn from_header(header: &ByteRecord) -> Option<Self> {
        let has = |name: &&str| header.iter().any(|cell| cell.trim_ascii() == name.as_bytes());
        OTHERS.iter().find(|(names, _)| names.iter().all(has)).map(|(_, table)| *table)
    }
}
