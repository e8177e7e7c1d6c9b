//! Counters: `TASK_PMU_INFO`, a row for each value.
//!
//! The names are internal ones of the profiler (`aic_total_time` for `aicore_time(us)`), times are in nanoseconds,
//! and a ratio has all its digits, of which the CSV keeps three.

use rusqlite::Rows;

use super::{
    database::ProfileDatabase,
    strings::{NameCell, StringTable},
};
use crate::profile::{kernel_record::CounterSums, prelude::*};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CounterUnit {
    counter: usize,
    scale: u32,
}

pub(super) struct PmuQuery {
    pub(super) sql: String,
    pub(super) units: HashMap<i64, CounterUnit>,
}

impl PmuQuery {
    /// Creates the query; `None` without counters that the database of kernels has columns for.
    pub(super) fn new(
        database: &ProfileDatabase<'_>,
        strings: &mut StringTable<'_>,
    ) -> Result<Option<Self>, ProfileError> {
        let Some(table) = database.table("TASK_PMU_INFO")? else { return Ok(None) };
        let (Some(task), Some(name), Some(value)) = (
            table.integer_column("", "globalTaskId"),
            table.quoted_column("name"),
            table.quoted_column("value"),
        ) else {
            return Ok(None);
        };
        let table = table.quoted_name();
        let mut units = HashMap::new();
        database.for_each_row(&format!("SELECT DISTINCT {name} FROM {table}"), &mut |row| {
            if let Some(id) = row.integer(0)
                && let Some(unit) = counter_unit(strings.name(&NameCell::Id(id))?)
            {
                units.insert(id, unit);
            }
            Ok(())
        })?;
        let mut ids: Vec<String> = units.keys().map(i64::to_string).collect();
        ids.sort();
        let ids = ids.join(",");
        let sql = format!("SELECT {task}, {name}, {value} FROM {table} WHERE {name} IN ({ids}) ORDER BY 1");
        Ok((!units.is_empty()).then_some(Self { sql, units }))
    }
}

/// Rows of the query. SQLite sorts unsorted tables in temporary files.
pub(super) struct CounterRows<'s> {
    rows: Rows<'s>,
    units: &'s HashMap<i64, CounterUnit>,
    pending: Option<(i64, i64, Option<f64>)>,
    /// Numbers of values by counter that are no number.
    pub(super) damaged: BTreeMap<&'static str, u64>,
}

impl<'s> CounterRows<'s> {
    pub(super) const fn new(rows: Rows<'s>, units: &'s HashMap<i64, CounterUnit>) -> Self {
        Self { rows, units, pending: None, damaged: BTreeMap::new() }
    }

    /// Returns the sums of all values of a task. Tasks must be given in ascending order. If a task ran several times under one
    /// id, the values of its runs are summed together; they belong to one group, so its means are correct.
    pub(super) fn sums_of_task(&mut self, task: i64) -> rusqlite::Result<CounterSums> {
        let mut sums = CounterSums::default();
        loop {
            match self.pending {
                Some((found, ..)) if found > task => return Ok(sums),
                Some((found, name, Some(value))) if found == task => {
                    if let Some(unit) = self.units.get(&name) {
                        match scale_to_millionths(value, unit.scale) {
                            Some(millionths) => sums.add_value(unit.counter, millionths),
                            None => *self.damaged.entry(COUNTERS[unit.counter]).or_default() += 1,
                        }
                    }
                }
                _ => {}
            }
            let Some(row) = self.rows.next()? else {
                self.pending = None;
                return Ok(sums);
            };
            // Text that is no number becomes NaN, which is damaged.
            let value = match row.get_ref(2)? {
                ValueRef::Null | ValueRef::Text(b"" | b"N/A" | b"NA") => None,
                ValueRef::Integer(value) => Some(value as f64),
                ValueRef::Real(value) => Some(value),
                ValueRef::Text(text) => {
                    let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
                    Some(number.unwrap_or(f64::NAN))
                }
                ValueRef::Blob(_) => Some(f64::NAN),
            };
            let number = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_i64().unwrap_or(i64::MIN));
            self.pending = Some((number(0)?, number(1)?, value));
        }
    }
}

fn counter_unit(name: &[u8]) -> Option<CounterUnit> {
    let name = match std::str::from_utf8(name).ok()? {
        "aic_total_time" | "total_time" => "aicore_time",
        "aiv_total_time" => "aiv_time",
        name => name,
    };
    COUNTERS.iter().enumerate().find_map(|(counter, column)| {
        let scale = match column.strip_suffix("(us)") {
            Some(bare) if bare == name => 1_000,
            _ if *column == name || column.strip_suffix("(%)") == Some(name) => 1_000_000,
            _ => return None,
        };
        Some(CounterUnit { counter, scale })
    })
}

fn scale_to_millionths(value: f64, scale: u32) -> Option<i64> {
    let scaled = (value * f64::from(scale)).round();
    (0.0..9e18).contains(&scaled).then_some(scaled as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiler_counter_names_map_to_columns_and_units() {
        let counter = |name: &str| COUNTERS.iter().position(|counter| *counter == name).expect("a counter");
        for (name, column, scale) in [
            ("aic_total_time", "aicore_time(us)", 1_000),
            ("aiv_total_time", "aiv_time(us)", 1_000),
            ("aic_mac_time", "aic_mac_time(us)", 1_000),
            ("aic_mac_time(us)", "aic_mac_time(us)", 1_000_000),
            ("aic_total_cycles", "aic_total_cycles", 1_000_000),
            ("aiv_icache_miss_rate", "aiv_icache_miss_rate", 1_000_000),
            ("cube_utilization", "cube_utilization(%)", 1_000_000),
        ] {
            assert_eq!(
                counter_unit(name.as_bytes()),
                Some(CounterUnit { counter: counter(column), scale }),
                "{name}"
            );
        }
        for name in ["aiv_mac_time", "aic_total", "N/A", "", "read_bw(GB/s)"] {
            assert_eq!(counter_unit(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn values_become_whole_millionths() {
        assert_eq!(scale_to_millionths(311_573.402_777_777_8, 1_000), Some(311_573_403));
        assert_eq!(scale_to_millionths(0.520_672_741_4, 1_000_000), Some(520_673));
        assert_eq!(scale_to_millionths(-0.0, 1_000), Some(0));
        for absent in [f64::NAN, f64::INFINITY, 1e300, -1.0] {
            assert_eq!(scale_to_millionths(absent, 1_000), None);
        }
    }
}
