//! Columns of kernel tables by name, with the names that other versions gave them.

use std::{fmt, iter, path::Path};

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

/// Where each column stands in one file. The first name of each list is the one messages use.
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
    pub(super) counters: [Option<usize>; COUNTERS.len()],
}

const KERNEL: [&str; 2] = ["Type", "OP Type"];
const DURATION: [&str; 2] = ["Duration(us)", "Task Duration(us)"];
/// The cells of the signature.
pub(super) const CELLS: [&str; 6] = [
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
];

/// A table that profilers, or tools like this one, leave beside those of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherTable {
    /// A kernel's table in a database folder, of any age.
    OfDatabase,
    /// `op_statistic`, `communication_statistic`.
    OpStatistic,
    /// `operator_details`.
    OperatorDetails,
    /// `task_time`.
    TaskTime,
    /// `api_statistic`.
    ApiStatistic,
    /// `step_trace_time`.
    StepTrace,
    /// `memory_record`, `operator_memory`, `npu_module_mem`.
    Memory,
}

/// What a header must have to be one of the others.
const OTHERS: [(&[&str], OtherTable); 9] = [
    (&["Input Shapes", "Output Shapes", "Average Duration(us)"], OtherTable::OfDatabase),
    (&["Input Shapes", "Output Shapes", "MicroBench Duration(us)"], OtherTable::OfDatabase),
    (&["OP Type", "Count", "Total Time(us)"], OtherTable::OpStatistic),
    (&["Name", "Host Self Duration(us)"], OtherTable::OperatorDetails),
    (&["kernel_name", "task_time(us)"], OtherTable::TaskTime),
    (&["API Name", "Count"], OtherTable::ApiStatistic),
    (&["Computing", "Free"], OtherTable::StepTrace),
    (&["Component", "Timestamp(us)"], OtherTable::Memory),
    (&["Name", "Size(KB)"], OtherTable::Memory),
];

impl OtherTable {
    fn recognise(header: &ByteRecord) -> Option<Self> {
        let has = |name: &&str| header.iter().any(|cell| cell.trim_ascii() == name.as_bytes());
        OTHERS.iter().find(|(names, _)| names.iter().all(has)).map(|(_, table)| *table)
    }
}

impl fmt::Display for OtherTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfDatabase => "a kernel's rows as a database has them, not the records of a profile",
            Self::OpStatistic => "sums per kernel, as an op_statistic does",
            Self::OperatorDetails => "operators of the framework, as an operator_details.csv does",
            Self::TaskTime => "times of tasks without types and shapes, as a task_time does",
            Self::ApiStatistic => "calls on the host, as an api_statistic does",
            Self::StepTrace => "times of steps, as a step_trace_time.csv does",
            Self::Memory => "uses of memory",
        })
    }
}

impl RecordColumns {
    /// Resolves the header of a kernel table. `row` gives the next row, where there is one: what stands in
    /// it tells why the shapes are missing.
    pub(super) fn resolve(
        header: &ByteRecord,
        file: &Path,
        mut row: impl FnMut() -> Option<ByteRecord>,
    ) -> Result<Self, ProfileError> {
        let find = |names: &[&str]| {
            names.iter().find_map(|name| header.iter().position(|cell| cell.trim_ascii() == name.as_bytes()))
        };
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
            let is = OtherTable::recognise(header);
            return Err(ProfileError::MissingColumns { file: file.to_owned(), missing, is });
        }
        Ok(Self {
            kernel,
            duration,
            cells,
            name: find(&["Name", "Op Name"]),
            state: find(&["OP State"]),
            core: find(&["Accelerator Core", "Task Type"]),
            start: find(&["Start Time(us)", "Task Start Time(us)"]),
            device: find(&["Device_id"]),
            counters: COUNTERS.map(|name| find(&[name])),
        })
    }
}
