//! The host and the device of a database: calls of attention, the name and the clocks of the device, and the cores that its
//! kernels used.

use super::{database::ProfileDatabase, strings::StringTable};
use crate::profile::{core_usage::CoreUsage, prelude::*};

/// Reads the name in `NPU_INFO`, such as `Ascend910B`; `None` without one, or if devices have different names.
pub(in crate::profile) fn device_name(file: &Path) -> Option<String> {
    let names: Vec<String> =
        query(file, "SELECT DISTINCT name FROM NPU_INFO WHERE name <> ''", |row| row.get(0))?;
    let [name] = names.as_slice() else { return None };
    Some(name.trim().to_owned())
}

/// Reads the highest clock in `AICORE_FREQ`, in MHz; clocks fall while a device is idle.
pub(in crate::profile) fn highest_clock(file: &Path) -> Option<u32> {
    let clocks: Vec<Option<f64>> = query(file, "SELECT max(freq) FROM AICORE_FREQ", |row| row.get(0))?;
    let clock = clocks.first().copied().flatten().filter(|clock| (100.0..10_000.0).contains(clock))?;
    let clock = clock.round() as u32;
    Some(clock)
}

pub(in crate::profile) fn core_usage(file: &Path) -> Option<CoreUsage> {
    let kernels = ProfileDatabase::open(file).ok()?.table("COMPUTE_TASK_INFO").ok()??;
    // Where both exist, `blockDim` is a text of kernels with SIMT (Ascend/msprof 9ba1ac7,
    // analysis/csrc/application/database/msprof_db.cpp); before, it was the number of blocks.
    let blocks = ["blockNum", "blockDim"].into_iter().find_map(|name| kernels.quoted_column(name))?;
    let sql = format!(
        "SELECT s.value, k.{blocks}, count(*) FROM COMPUTE_TASK_INFO k
         JOIN STRING_IDS s ON s.id = k.taskType GROUP BY s.value, k.{blocks}"
    );
    let rows: Vec<(String, i64, i64)> = query(file, &sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut usage = CoreUsage::default();
    for (core, blocks, records) in rows {
        let number = |number: i64| u32::try_from(number).unwrap_or_default();
        usage.count_blocks(&core, number(blocks), number(records));
    }
    Some(usage)
}

fn query<T>(
    file: &Path,
    sql: &str,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Option<Vec<T>> {
    let database = ProfileDatabase::open(file).ok()?;
    let mut statement = database.connection.prepare(sql).ok()?;
    let rows = statement.query_map([], read).ok()?;
    rows.collect::<rusqlite::Result<_>>().ok()
}

/// Visits name and input shapes of every distinct call of fused attention by the host, which are in `PYTORCH_API`. Without a
/// record of the host there are no calls.
pub(in crate::profile) fn for_each_operator(
    file: &Path,
    mut visit: impl FnMut(&str, &str),
) -> Result<(), ProfileError> {
    let database = ProfileDatabase::open(file)?;
    let (Some(calls), Some(names)) = (database.table("PYTORCH_API")?, database.table("STRING_IDS")?) else {
        return Ok(());
    };
    let (Some(name), Some(shapes), Some(id), Some(value)) = (
        calls.quoted_column("name"),
        calls.quoted_column("inputShapes"),
        names.quoted_column("id"),
        names.quoted_column("value"),
    ) else {
        return Ok(());
    };
    // One pass over the names and one over the calls, because neither may be indexed; then the few distinct shapes.
    // Call stacks are most of the strings and contain such names too, but are long.
    let pairs = format!(
        "SELECT DISTINCT {name}, {shapes} FROM {} WHERE {name} IN (SELECT {id} FROM {} \
         WHERE length({value}) < 200 AND {value} LIKE '%npu\\_fused\\_infer\\_attention\\_score%' ESCAPE '\\')",
        calls.quoted_name(),
        names.quoted_name()
    );
    let mut strings = StringTable::open(&database)?;
    database.for_each_row(&pairs, &mut |row| {
        visit(&strings.text(&row.name(0))?, &strings.text(&row.name(1))?);
        Ok(())
    })
}
