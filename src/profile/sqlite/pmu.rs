//! Counters: `TASK_PMU_INFO`, a row for each value.
//!
//! The names are those of the profiler's inside (`aic_total_time` for `aicore_time(us)`), times are in
//! nanoseconds, and a ratio has all its digits, of which the CSV keeps three.

use std::collections::HashMap;

use rusqlite::{Connection, Row, Statement, types::ValueRef};

use super::{
    ordered_cursor::OrderedCursor,
    schema::TableSchema,
    strings::{NameCell, StringTable, TextError},
};
use crate::profile::{COUNTERS, kernel_record::CounterSums};

/// A value of one counter.
type PmuValue = (i64, f64);

/// What a name in the table stands for: a counter, and how many millionths one of its unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterUnit {
    counter: usize,
    scale: u32,
}

/// The values of tasks, in the order of their ids.
pub(super) struct PmuValues<'s> {
    values: OrderedCursor<'s, PmuValue>,
    meanings: &'s HashMap<i64, CounterUnit>,
}

/// The names in the table that are counters, and the query for their values.
pub(super) struct PmuQuery<'c> {
    statement: Statement<'c>,
    meanings: HashMap<i64, CounterUnit>,
}

impl<'c> PmuQuery<'c> {
    /// `None` where there are no counters, or none that the database of kernels has columns for.
    pub(super) fn new(
        connection: &'c Connection,
        strings: &mut StringTable<'_>,
    ) -> rusqlite::Result<Option<Self>> {
        let Some(table) = TableSchema::read_schema(connection, "TASK_PMU_INFO")? else {
            return Ok(None);
        };
        let (Some(task), Some(name), Some(value)) =
            (table.integer("globalTaskId"), table.column("name"), table.column("value"))
        else {
            return Ok(None);
        };
        let meanings = meanings(connection, &table, &name, strings)?;
        if meanings.is_empty() {
            return Ok(None);
        }
        let mut ids: Vec<String> = meanings.keys().map(i64::to_string).collect();
        ids.sort();
        let statement = connection.prepare(&format!(
            "SELECT {task}, {name}, {value} FROM {} WHERE {name} IN ({}) ORDER BY 1",
            table.table(),
            ids.join(",")
        ))?;
        Ok(Some(Self { statement, meanings }))
    }

    pub(super) fn run(&mut self) -> rusqlite::Result<PmuValues<'_>> {
        let rows = self.statement.query([])?;
        Ok(PmuValues { values: OrderedCursor::new(rows, parse), meanings: &self.meanings })
    }
}

fn meanings(
    connection: &Connection,
    table: &TableSchema,
    name: &str,
    strings: &mut StringTable<'_>,
) -> rusqlite::Result<HashMap<i64, CounterUnit>> {
    let mut meanings = HashMap::new();
    let mut names = connection.prepare(&format!("SELECT DISTINCT {name} FROM {}", table.table()))?;
    let mut rows = names.query([])?;
    while let Some(row) = rows.next()? {
        let ValueRef::Integer(id) = row.get_ref(0)? else { continue };
        let text = NameCell::Id(id);
        strings.make_room();
        match strings.load(&text) {
            // Nothing that long is a counter.
            Ok(()) | Err(TextError::TooLong { .. }) => {}
            Err(TextError::Sqlite(error)) => return Err(error),
        }
        if let Some(meaning) = meaning(strings.get(&text)) {
            meanings.insert(id, meaning);
        }
    }
    Ok(meanings)
}

/// A row is a task, a name and a value; what is no number is passed over like `N/A` in a CSV.
fn parse(row: &Row<'_>) -> rusqlite::Result<PmuValue> {
    let name = match row.get_ref(1)? {
        ValueRef::Integer(name) => name,
        _ => i64::MIN,
    };
    #[expect(clippy::cast_precision_loss, reason = "counters have far fewer than 53 bits")]
    let value = match row.get_ref(2)? {
        ValueRef::Integer(value) => value as f64,
        ValueRef::Real(value) => value,
        ValueRef::Text(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(f64::NAN)
        }
        _ => f64::NAN,
    };
    Ok((name, value))
}

impl PmuValues<'_> {
    /// All values of a task. Where a task ran several times under one id, its runs' values are together
    /// here; they belong to one group, so its means are right all the same.
    pub(super) fn sums_of_task(&mut self, task: i64) -> rusqlite::Result<CounterSums> {
        let mut sums = CounterSums::default();
        while let Some((name, value)) = self.values.next_of(task)? {
            if let Some(meaning) = self.meanings.get(&name)
                && let Some(millionths) = millionths(value, meaning.scale)
            {
                sums.add(meaning.counter, millionths);
            }
        }
        Ok(sums)
    }
}

fn meaning(name: &[u8]) -> Option<CounterUnit> {
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

/// `None` where the value is no number that a counter can have.
fn millionths(value: f64, scale: u32) -> Option<i64> {
    let scaled = (value * f64::from(scale)).round();
    #[expect(clippy::cast_possible_truncation, reason = "it was compared with what fits")]
    (0.0..9e18).contains(&scaled).then_some(scaled as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_profiler_are_counters_with_their_units() {
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
                meaning(name.as_bytes()),
                Some(CounterUnit { counter: counter(column), scale }),
                "{name}"
            );
        }
        for name in ["aiv_mac_time", "aic_total", "N/A", "", "read_bw(GB/s)"] {
            assert_eq!(meaning(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn values_become_whole_millionths() {
        assert_eq!(millionths(311_573.402_777_777_8, 1_000), Some(311_573_403));
        assert_eq!(millionths(0.520_672_741_4, 1_000_000), Some(520_673));
        assert_eq!(millionths(-0.0, 1_000), Some(0));
        for absent in [f64::NAN, f64::INFINITY, 1e300, -1.0] {
            assert_eq!(millionths(absent, 1_000), None);
        }
    }
}
