//! Tables beside kernel tables, recognized by their columns.

use std::fmt;

use csv::ByteRecord;

/// Table beside kernel tables, written by profilers or by tools like npubench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedTable {
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

/// Columns that identify an unsupported table.
const OTHERS: [(&[&str], UnsupportedTable); 9] = [
    (&["Input Shapes", "Output Shapes", "Average Duration(us)"], UnsupportedTable::OfDatabase),
    (&["Input Shapes", "Output Shapes", "MicroBench Duration(us)"], UnsupportedTable::OfDatabase),
    (&["OP Type", "Count", "Total Time(us)"], UnsupportedTable::OpStatistic),
    (&["Name", "Host Self Duration(us)"], UnsupportedTable::OperatorDetails),
    (&["kernel_name", "task_time(us)"], UnsupportedTable::TaskTime),
    (&["API Name", "Count"], UnsupportedTable::ApiStatistic),
    (&["Computing", "Free"], UnsupportedTable::StepTrace),
    (&["Component", "Timestamp(us)"], UnsupportedTable::Memory),
    (&["Name", "Size(KB)"], UnsupportedTable::Memory),
];

impl UnsupportedTable {
    pub(super) fn from_header(header: &ByteRecord) -> Option<Self> {
        let has = |name: &&str| header.iter().any(|cell| cell.trim_ascii() == name.as_bytes());
        OTHERS.iter().find(|(names, _)| names.iter().all(has)).map(|(_, table)| *table)
    }
}

impl fmt::Display for UnsupportedTable {
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
