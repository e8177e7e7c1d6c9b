//! Measured sweeps of a database: the rows of the tables of collectives, grouped by all parts of the key but the size.

use std::collections::BTreeMap;

use crate::{
    base::{
        command_error::CommandError, count_text::format_count, shell_argument::quoted_path,
        suggest::nearest_name,
    },
    database::{
        Database, KernelCsv,
        collective_rows::{ALGORITHM_TYPE, CollectiveKey, CollectiveKeyColumns, DURATION},
        columns,
    },
    kernel::{CollectiveKind, Dtype, KernelName, PartWeights, Verdict, parse_kernel_micros},
};

/// Everything but the size in the key of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SweepKey {
    pub(crate) tier: Option<u64>,
    pub(crate) ranks: u64,
    pub(crate) dtype: Option<Dtype>,
    pub(crate) environment: String,
    pub(crate) parts: PartWeights,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SweepPoint {
    /// Size in the sense of the table.
    pub(crate) message: u64,
    /// S in bytes.
    pub(crate) bandwidth_bytes: u64,
    pub(crate) micros: f64,
    /// 95 % interval of the duration, where the row has one.
    pub(crate) interval: Option<(f64, f64)>,
    /// Algorithm that the profiler shows; empty without one.
    pub(crate) algorithm: String,
    pub(crate) rows: usize,
    /// True for a row without a verdict, which another tool wrote.
    pub(crate) is_foreign: bool,
}

/// Durations of one collective over ascending sizes in one kind of group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sweep {
    pub(crate) kind: CollectiveKind,
    pub(crate) key: SweepKey,
    pub(crate) points: Vec<SweepPoint>,
}

impl Sweep {
    pub(crate) fn name(&self) -> String {
        let SweepKey { tier, ranks, dtype, environment, parts } = &self.key;
        let tier = tier.map_or_else(|| "tier unknown".to_owned(), |tier| format!("tier {tier}"));
        let dtype = dtype.as_ref().map_or("type unknown", |dtype| dtype.as_str());
        let mut name = format!("{} {ranks} ranks {tier} {dtype}", self.kind);
        if *parts != PartWeights::Equal {
            name += &format!(" parts {parts}");
        }
        if !environment.is_empty() {
            name += &format!(" {environment}");
        }
        name
    }

    pub(crate) fn bus_factor(&self) -> f64 {
        self.kind.bus_factor(self.key.ranks, &self.key.parts)
    }

    /// Returns the message of which equal parts are as large a transfer of one rank with others as the parts of this sweep, in
    /// bytes: the analytic model has equal parts.
    pub(crate) fn equal_message(&self, message: u64) -> u64 {
        if self.key.parts == PartWeights::Equal {
            return message;
        }
        let others = self.key.parts.busiest_sizes(message, self.key.ranks).with_others;
        let scaled = u128::from(others) * u128::from(self.key.ranks) / u128::from(self.key.ranks - 1);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Returns the algorithm and the bus bandwidth of a duration in 10⁹ bytes per second.
    pub(crate) fn bandwidths(&self, bytes: u64, micros: f64) -> (f64, f64) {
        let algorithm = bytes as f64 / micros * 1e-3;
        (algorithm, algorithm * self.bus_factor())
    }
}

/// Returns a size with the greatest binary unit that divides it, such as `32K`.
pub(crate) fn size_text(bytes: u64) -> String {
    let units = [(1_u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let unit = units.into_iter().find(|(size, _)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(size, name)| format!("{}{name}", bytes / size))
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SweepTable {
    pub(crate) sweeps: Vec<Sweep>,
    /// Rows without a duration, or whose measurement is refuted.
    pub(crate) unmeasured: usize,
    /// Rows without a complete key, by reason.
    pub(crate) unusable: BTreeMap<String, usize>,
    pub(crate) foreign: usize,
}

impl SweepTable {
    pub(crate) fn from_table(kind: CollectiveKind, table: &KernelCsv) -> Self {
        let keys = CollectiveKeyColumns::find(table.column_names());
        let column = |name: &str| table.column_index(name);
        let duration = column(DURATION);
        let [low, high] = [columns::CI95_LOW, columns::CI95_HIGH].map(column);
        let (verdict, algorithm) = (column(columns::VERDICT), column(ALGORITHM_TYPE));
        let mut read = Self::default();
        let mut found: BTreeMap<SweepKey, BTreeMap<u64, Vec<SweepPoint>>> = BTreeMap::new();
        table.for_each_row(|_, cells| {
            let text = |index: Option<usize>| {
                let cell = index.and_then(|index| cells.get(index)).unwrap_or_default();
                std::str::from_utf8(cell).unwrap_or_default().trim()
            };
            let micros = |index: Option<usize>| parse_kernel_micros(text(index).as_bytes()).ok().flatten();
            let verdict = text(verdict).parse::<Verdict>().ok();
            let Some(duration) = micros(duration).filter(|_| !verdict.is_some_and(Verdict::refutes_replay))
            else {
                read.unmeasured += 1;
                return;
            };
            let key = keys.key(cells).and_then(|key| {
                let ranks = key.ranks.ok_or("the row has no `num_devices`")?;
                if ranks < 2 {
                    return Err("`num_devices` is below 2, expected a group of ranks".to_owned());
                }
                let bytes = kind.bandwidth_bytes(key.message, ranks).filter(|bytes| *bytes > 0);
                Ok((bytes.ok_or("`message_bytes` is 0 or too large")?, ranks, key))
            });
            match key {
                Err(reason) => *read.unusable.entry(reason).or_default() += 1,
                Ok((bandwidth_bytes, ranks, key)) => {
                    let point = SweepPoint {
                        message: key.message,
                        bandwidth_bytes,
                        micros: duration,
                        interval: micros(low).zip(micros(high)),
                        algorithm: text(algorithm).to_owned(),
                        rows: 1,
                        is_foreign: verdict.is_none(),
                    };
                    let CollectiveKey { tier, dtype, environment, parts, .. } = key;
                    let sweep = SweepKey { tier, ranks, dtype, environment, parts };
                    found.entry(sweep).or_default().entry(point.message).or_default().push(point);
                }
            }
        });
        for (key, sizes) in found {
            let mut points: Vec<SweepPoint> = sizes.into_values().filter_map(median_point).collect();
            // Durations of other tools contain the dispatch or the time between launches: no line fits both.
            if points.iter().any(|point| !point.is_foreign) {
                read.foreign +=
                    points.iter().filter(|point| point.is_foreign).map(|point| point.rows).sum::<usize>();
                points.retain(|point| !point.is_foreign);
            }
            read.sweeps.push(Sweep { kind, key, points });
        }
        read
    }
}

/// Returns the point of a size. Other tools append a row with each run: such rows stand for their median, behind those that
/// npubench measured.
fn median_point(mut points: Vec<SweepPoint>) -> Option<SweepPoint> {
    if points.iter().any(|point| !point.is_foreign) {
        points.retain(|point| !point.is_foreign);
    }
    points.sort_by(|one, other| one.micros.total_cmp(&other.micros));
    let rows = points.len();
    let low = points.get(rows.checked_sub(1)? / 2)?.micros;
    let point = points.swap_remove(rows / 2);
    let interval = point.interval.filter(|_| rows == 1);
    Some(SweepPoint { micros: f64::midpoint(low, point.micros), interval, rows, ..point })
}

/// Reads the tables of the collectives that are named, by their own names or by the names of their tables; without a name,
/// all tables. Returns the sweeps, and notes on rows that are not among them. Fails if no row is measured.
pub(crate) fn read_sweeps(
    database: &Database,
    names: &[String],
) -> Result<(Vec<Sweep>, Vec<String>), CommandError> {
    let wanted = names.iter().map(|name| parse_collective(name)).collect::<Result<Vec<_>, _>>()?;
    let (mut sweeps, mut notes) = (Vec::new(), Vec::new());
    for kernel in database.collectives()? {
        let Some(kind) = CollectiveKind::of_kernel(&kernel) else { continue };
        if !wanted.is_empty() && !wanted.contains(&kind) {
            continue;
        }
        let table = SweepTable::from_table(kind, &database.kernel_csv(&kernel)?);
        notes.extend(notes_on_rows(&kernel, &table));
        sweeps.extend(table.sweeps);
    }
    if sweeps.is_empty() {
        let of = if names.is_empty() { "collective".to_owned() } else { names.join(", ") };
        let folder = database.folder().display();
        return Err(CommandError::bad_input(
            format!("`{folder}` has no measured row of {of}"),
            format!(
                "measure with `npubench comm run`, or import results with `npubench comm import FILE --db {}`",
                quoted_path(database.folder())
            ),
        ));
    }
    Ok((sweeps, notes))
}

fn notes_on_rows(kernel: &KernelName, table: &SweepTable) -> Vec<String> {
    let mut notes = Vec::new();
    let mut add = |rows: usize, what: &str| {
        if rows > 0 {
            notes.push(format!("{kernel}: {} {what}", format_count(rows, "row")));
        }
    };
    add(table.unmeasured, "without a valid measurement left out");
    for (reason, rows) in &table.unusable {
        add(*rows, &format!("left out: {reason}"));
    }
    let points = || table.sweeps.iter().flat_map(|sweep| &sweep.points);
    add(
        points().filter(|point| point.rows > 1).map(|point| point.rows).sum(),
        "of other tools share their keys, and stand for their medians",
    );
    add(
        points().filter(|point| point.is_foreign).count(),
        "without a verdict: other tools wrote them, whose durations may contain the dispatch or the time between launches",
    );
    add(table.foreign, "of other tools left out beside measured ones of the same sweep");
    notes
}

pub(crate) fn parse_collective(name: &str) -> Result<CollectiveKind, CommandError> {
    let mut kinds = CollectiveKind::ALL.iter().copied();
    kinds.find(|kind| kind.to_string() == name || kind.kernel_name() == name).ok_or_else(|| {
        let mut names: Vec<String> = CollectiveKind::ALL.iter().map(ToString::to_string).collect();
        names.sort();
        let near = nearest_name(name, names.iter().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("collectives: {}", names.join(", ")),
        };
        CommandError::bad_input(format!("`{name}` is no collective"), hint)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn table(text: &str) -> SweepTable {
        let table = KernelCsv::from_bytes(Path::new("hcom_allGather_.csv"), text.as_bytes().to_vec());
        SweepTable::from_table(CollectiveKind::AllGather, &table.expect("a table"))
    }

    #[test]
    fn sizes_have_binary_units() {
        let sizes = [0, 128, 1024, 1536, 32 << 10, 3 << 20, 4 << 30].map(size_text);
        assert_eq!(sizes, ["0", "128", "1K", "1536", "32K", "3M", "4G"]);
    }

    /// Another tool appends a row with each run (row 34 of its known defects), and its name of half precision differs from
    /// that of other tables (row 41).
    #[test]
    fn rows_of_one_key_are_one_point_of_a_sweep() {
        let read = table(
            "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n\
             2048,4,DT_FP16,1,9,1\n1024,4,DT_FP16,1,5,1\n1024,4,DT_FLOAT16,1,8,1\n1024,4,FLOAT16,1,6,1\n\
             1024,4,DT_BF16,1,7,1\n1024,8,FLOAT16,1,7,1\n1024,,FLOAT16,1,7,1\n1024,4,FLOAT16,1,,\n0,4,FLOAT16,1,3,\n",
        );
        assert_eq!((read.unmeasured, read.unusable.len()), (1, 2), "{read:?}");
        let half = read.sweeps.iter().find(|sweep| sweep.key.dtype == Some(Dtype::Float16)).expect("a sweep");
        assert_eq!(
            half.points.iter().map(|point| (point.message, point.micros, point.rows)).collect::<Vec<_>>(),
            [(1024, 6.0, 3), (2048, 9.0, 1)]
        );
        assert_eq!(half.points[0].bandwidth_bytes, 4096);
        assert_eq!(read.sweeps.len(), 3);
    }

    #[test]
    fn measured_rows_precede_those_of_other_tools_and_refuted_ones_do_not_count() {
        let read = table(
            "message_bytes,num_devices,dtype,topology_tier,Duration(us),HCCL Environment,MicroBench CI95 Low(us),\
             MicroBench CI95 High(us),MicroBench Verdict\n\
             1024,4,FLOAT16,1,5,,4.9,5.1,ok\n1024,4,FLOAT16,1,50,,,,\n2048,4,FLOAT16,1,6,,,,wrong_kernel\n\
             1024,4,FLOAT16,1,7,HCCL_ALGO=x,,,noisy\n",
        );
        assert_eq!(read.unmeasured, 1);
        let points: Vec<&SweepPoint> = read.sweeps.iter().flat_map(|sweep| &sweep.points).collect();
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].micros, points[0].interval), (5.0, Some((4.9, 5.1))));
        assert_eq!(read.sweeps[1].key.environment, "HCCL_ALGO=x");
    }

    #[test]
    fn rows_of_other_tools_are_not_on_the_line_of_measured_ones() {
        let header = "message_bytes,num_devices,dtype,topology_tier,Duration(us),MicroBench Verdict\n";
        let mixed = table(&format!(
            "{header}1024,4,FLOAT16,1,5,ok\n2048,4,FLOAT16,1,50,\n4096,4,FLOAT16,1,7,noisy\n"
        ));
        let sizes: Vec<u64> = mixed.sweeps[0].points.iter().map(|point| point.message).collect();
        assert_eq!((sizes, mixed.foreign), (vec![1024, 4096], 1));
        let foreign = table(&format!("{header}1024,4,FLOAT16,1,5,\n2048,4,FLOAT16,1,50,\n"));
        assert_eq!((foreign.sweeps[0].points.len(), foreign.foreign), (2, 0));
    }
}
