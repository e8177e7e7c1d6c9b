//! Kernel records from `ascend_pytorch_profiler*.db` and `msprof_*.db`.
//!
//! A record is a row of `COMPUTE_TASK_INFO` with the times of its `TASK`; names are ids into `STRING_IDS`, counters
//! are in `TASK_PMU_INFO`. Collectives in `COMMUNICATION_OP` are counted. Other tables and columns are ignored.

mod collectives;
mod database;
mod device;
mod open;
mod pmu;
mod strings;
#[cfg(test)]
mod tests;

pub(super) use collectives::{metadata, read_collectives};
pub(super) use device::{core_usage, device_name, for_each_operator, highest_clock};
pub(crate) use {
    database::{DatabaseRow, ProfileDatabase},
    open::is_database,
    strings::{NameCell, StringTable},
};

use self::{
    database::TableSchema,
    pmu::{CounterRows, PmuQuery},
};
use super::{error::ShapelessKind, kernel_record::RecordNames, prelude::*};

/// Columns of `COMPUTE_TASK_INFO` with names; the first seven are the signature and required.
const NAMES: [&str; 11] = [
    "opType",
    "inputShapes",
    "inputDataTypes",
    "inputFormats",
    "outputShapes",
    "outputDataTypes",
    "outputFormats",
    "name",
    "taskType",
    "opState",
    "hf32Eligible",
];
const SIGNATURE: usize = 7;
/// Columns for messages.
const RECORD_NAMES: RecordNames =
    [NAMES[0], NAMES[1], NAMES[2], NAMES[3], NAMES[4], NAMES[5], NAMES[6], "endNs - startNs"];

/// Tables of an `analysis.db` or `cluster_analysis.db`.
const ANALYSIS: [&str; 3] = ["StepTraceTime", "CommAnalyzerTime", "ModuleStatistic"];

const NO_TASK: &str = "nothing that ran on a device is recorded";
const NO_TASK_BUT_ANALYSIS: &str = "it holds an analysis of steps and communication, no kernels";
const NO_KERNEL: &str = "it was taken at profiler level 0, or no kernel ran";
const NO_KERNEL_BUT_COLLECTIVES: &str = "it holds collectives and no other kernel";

/// Adds every kernel record of a database to the groups: one for each run of a kernel; a kernel without a run is a record
/// without a duration.
pub(super) fn add_database(
    groups: &mut RecordGroups,
    file: &Path,
    file_number: u64,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    let database = ProfileDatabase::open(file)?;
    let sql = |source| database.error(source);
    let mut is_analysis = false;
    for name in ANALYSIS {
        is_analysis |= database.table(name)?.is_some();
    }
    let runs = database.required_table("TASK", if is_analysis { NO_TASK_BUT_ANALYSIS } else { NO_TASK })?;
    let prepare = |query: &str| database.connection.prepare(query).map_err(sql);
    let has_collectives = match database.table(collectives::TABLE)? {
        Some(table) => {
            let mut first = prepare(&format!("SELECT 1 FROM {} LIMIT 1", table.quoted_name()))?;
            first.exists([]).map_err(sql)?
        }
        None => false,
    };
    let without = if has_collectives { NO_KERNEL_BUT_COLLECTIVES } else { NO_KERNEL };
    let kernels = database.required_table("COMPUTE_TASK_INFO", without)?;
    let mut strings = StringTable::open(&database)?;
    check_columns(file, &runs, &kernels)?;
    collectives::add_collectives(groups, &database, accept_rehearsed)?;
    let pmu = PmuQuery::new(&database, &mut strings)?;
    let mut of_counters = pmu.as_ref().map(|pmu| prepare(&pmu.sql)).transpose()?;
    let mut counters = match (&mut of_counters, &pmu) {
        (Some(statement), Some(pmu)) => Some(CounterRows::new(statement.query([]).map_err(sql)?, &pmu.units)),
        _ => None,
    };
    let [start, end] = ["startNs", "endNs"].map(|name| runs.column_or_null("", name));
    let id_of = |table: &TableSchema| table.integer_column("", "globalTaskId").unwrap_or_default();
    let names = NAMES.map(|name| kernels.column_or_null("", name)).join(", ");
    let has_column = NAMES.map(|name| kernels.quoted_column(name).is_some());
    // A join with the table itself would depend on an index, which the profilers do not create. `globalTaskId` is the primary key
    // of COMPUTE_TASK_INFO (schemas written by torch_npu and by the exporter of CANN).
    let query = format!(
        "WITH run AS MATERIALIZED (SELECT {} AS run_id, {start} AS run_start, {end} AS run_end FROM {}), \
         kernel AS (SELECT {} AS kernel_id, {names} FROM {}) \
         SELECT kernel.*, run_start, run_end FROM kernel LEFT JOIN run ON run_id = kernel_id ORDER BY 1",
        id_of(&runs),
        runs.quoted_name(),
        id_of(&kernels),
        kernels.quoted_name()
    );
    let (mut last_id, mut sums) = (None, None);
    database.for_each_row(&query, &mut |row| {
        let id = row.integer(0);
        let place = RecordPosition::Task(id.unwrap_or_default());
        let mut cells = NAMES.map(|_| NameCell::NoColumn);
        strings.limit_memory();
        for (index, cell) in cells.iter_mut().enumerate().filter(|(index, _)| has_column[*index]) {
            *cell = row.name(index + 1);
            strings.load_name(cell)?;
        }
        let mut texts: [&[u8]; NAMES.len()] = [b""; NAMES.len()];
        for ((text, cell), name) in texts.iter_mut().zip(&cells).zip(NAMES) {
            *text = strings.loaded_name(cell).map_err(|(id, bytes)| {
                let problem = format!("stands for a text of {bytes} bytes, longer than any profiler writes");
                ProfileError::bad_cell(file, place, name, id.to_string().as_bytes(), problem)
            })?;
        }
        let [kernel, inputs @ .., name, core, state, hf32] = texts;
        let kernel = kernel.trim_ascii();
        let names = &RECORD_NAMES;
        let record = KernelRecord { file, place, names, name, kernel, cells: inputs, state, core, hf32 };
        if last_id != Some(id) {
            last_id = Some(id);
            sums = match (&mut counters, id) {
                (Some(counters), Some(id)) => Some(counters.sums_of_task(id).map_err(sql)?),
                _ => None,
            };
        }
        let start = row.time(NAMES.len() + 1, "startNs", place)?;
        let end = row.time(NAMES.len() + 2, "endNs", place)?;
        let duration = match (start, end) {
            (Some(start), Some(end)) => Some(Nanos(end.checked_sub(start).ok_or_else(|| {
                let problem = format!("is out of range of startNs {start}");
                ProfileError::bad_cell(file, place, "endNs", end.to_string().as_bytes(), problem)
            })?)),
            _ => None,
        };
        // The counters are added to the first run with a duration; the choice does not change the group's means.
        let sums = if duration.is_some_and(|time| time.0 > 0) { sums.take() } else { None };
        let position = start.and_then(|start| u64::try_from(start).ok()).unwrap_or_default();
        groups.add_record(&record, Ok(duration), (file_number, position), accept_rehearsed, |all, damaged| {
            sums.iter().for_each(|sums| all.merge_sums(sums));
            let lost = counters.iter_mut().flat_map(|counters| std::mem::take(&mut counters.damaged));
            lost.for_each(|(counter, count)| *damaged.entry(counter).or_default() += count);
        })
    })
}

fn check_columns(file: &Path, runs: &TableSchema, kernels: &TableSchema) -> Result<(), ProfileError> {
    let shapes = &NAMES[1..SIGNATURE];
    if kernels.quoted_column(NAMES[0]).is_some() && kernels.missing_columns(shapes).len() == shapes.len() {
        return Err(ProfileError::NoShapes { file: file.to_owned(), why: ShapelessKind::Level0 });
    }
    let mut missing = kernels.missing_columns(&["globalTaskId"]);
    missing.extend(kernels.missing_columns(&NAMES[..SIGNATURE]));
    let of_runs = runs.missing_columns(&["globalTaskId", "startNs", "endNs"]);
    for (table, missing) in [("COMPUTE_TASK_INFO", missing), ("TASK", of_runs)] {
        if !missing.is_empty() {
            return Err(ProfileError::MissingTableColumns { file: file.to_owned(), table, missing });
        }
    }
    Ok(())
}
