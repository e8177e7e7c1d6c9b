//! Tables beside kernel tables, recognized by their columns.

use csv::ByteRecord;

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
