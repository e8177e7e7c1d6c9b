//! Columns that are read from the profiler's tables (kernel_details, op_summary), with their names in other versions.
//! The list of counters also determines columns of the database.
//! Databases of profilers have the same columns under other names: `NAMES` in `sqlite/mod.rs`, counters in `sqlite/pmu.rs`. The
//! time line reads its columns in `timeline/read/kernel_table.rs` and `timeline/read/database.rs`. Values of production get into
//! rows by `kernel_record.rs`, `records.rs`, `groups.rs`, `database/merge.rs` and `database/columns.rs`, values of a replay by
//! `kernel/results.rs`. The stand-in of msprof
//! writes the tables in `rehearsal/python/rehearsal/tables.py`.

use csv::ByteRecord;

use super::{error::ShapelessKind, prelude::*};

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
pub(super) const MAC_TIME: usize = 2;

pub(crate) const CELLS: [&str; 6] = [
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    Kernel,
    Duration,
    Name,
    State,
    Core,
    Start,
    Device,
    Blocks,
    Stream,
    Step,
    Hf32,
}

const NAMES: [&[&str]; 11] = [
    &["Type", "OP Type"],
    &["Duration(us)", "Task Duration(us)"],
    &["Name", "Op Name"],
    &["OP State"],
    &["Accelerator Core", "Task Type"],
    &["Start Time(us)", "Task Start Time(us)"],
    &["Device_id"],
    &["Block Dim", "Block Num"],
    &["Stream ID"],
    &["Step Id"],
    &["HF32 Eligible"],
];

/// Columns without which a reader cannot use a table. Messages use the first name of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeededColumns {
    Signatures,
    /// Name or type, start, and duration: analyses of time also read tables of profiler level 0.
    Times,
    None,
}

#[derive(Clone, Debug)]
pub(super) struct TableColumns {
    places: [Option<usize>; NAMES.len()],
    pub(super) cells: [Option<usize>; 6],
    pub(super) counters: [Option<usize>; COUNTERS.len()],
}

impl TableColumns {
    pub(super) const fn place(&self, column: Column) -> Option<usize> {
        self.places[column as usize]
    }

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
        for column in NAMES.into_iter().chain([&CELLS[..], &COUNTERS]).flatten() {
            if places(column).len() > 1 {
                return Err(ProfileError::DuplicateColumn { file: file.to_owned(), column });
            }
        }
        let find = |names: &[&str]| names.iter().find_map(|name| places(name).first().copied());
        let found = Self {
            places: NAMES.map(find),
            cells: CELLS.map(|name| find(&[name])),
            counters: COUNTERS.map(|name| find(&[name])),
        };
        let of = |column: Column| (NAMES[column as usize][0], found.place(column));
        let required: Vec<(&'static str, Option<usize>)> = match needed {
            NeededColumns::Signatures => [Column::Kernel, Column::Duration]
                .map(of)
                .into_iter()
                .chain(CELLS.into_iter().zip(found.cells))
                .collect(),
            NeededColumns::Times => {
                let (name, place) = of(Column::Name);
                let name = (name, place.or(found.place(Column::Kernel)));
                vec![name, of(Column::Start), of(Column::Duration)]
            }
            NeededColumns::None => Vec::new(),
        };
        let missing: Vec<&str> =
            required.into_iter().filter(|(_, place)| place.is_none()).map(|(name, _)| name).collect();
        if missing == CELLS
            && let Some(kernel) = found.place(Column::Kernel)
        {
            // At level 0 no kernel has a type.
            let why = match rows.any(|row| row.get(kernel).is_some_and(is_recorded)) {
                true => ShapelessKind::OnlyCollectives,
                false => ShapelessKind::Level0,
            };
            return Err(ProfileError::NoShapes { file: file.to_owned(), why });
        }
        if !missing.is_empty() {
            let has = |name: &&str| !places(name).is_empty();
            let is = OTHERS.iter().find(|(names, _)| names.iter().all(has)).map(|(_, table)| *table);
            return Err(ProfileError::MissingColumns { file: file.to_owned(), missing, is });
        }
        Ok(found)
    }
}

/// Returns true for a cell with a value; profilers write `N/A` for a missing one.
pub(crate) fn is_recorded(cell: &[u8]) -> bool {
    !matches!(cell.trim_ascii(), b"" | b"N/A" | b"NA")
}

pub(super) const OF_DATABASE: &str = "a kernel's rows as a database has them, not the records of a profile";

/// Columns that identify a table beside kernel tables, written by profilers or by tools like npubench, with its description.
const OTHERS: [(&[&str], &str); 9] = [
    (&["Input Shapes", "Output Shapes", "Average Duration(us)"], OF_DATABASE),
    (&["Input Shapes", "Output Shapes", "MicroBench Duration(us)"], OF_DATABASE),
    (&["OP Type", "Count", "Total Time(us)"], "sums per kernel, as an op_statistic does"),
    (&["Name", "Host Self Duration(us)"], "operators of the framework, as an operator_details.csv does"),
    (&["kernel_name", "task_time(us)"], "times of tasks without types and shapes, as a task_time does"),
    (&["API Name", "Count"], "calls on the host, as an api_statistic does"),
    (&["Computing", "Free"], "times of steps, as a step_trace_time.csv does"),
    (&["Component", "Timestamp(us)"], "uses of memory"),
    (&["Name", "Size(KB)"], "uses of memory"),
];
