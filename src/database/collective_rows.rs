//! Tables of collectives: their columns, rows as cases, and the cells of a case and of a result.
//!
//! Existing readers expect the first six columns; docs/collectives.md describes all columns.

use csv::ByteRecord;

use super::{
    DatabaseError, KernelCsv, MergeReport,
    columns::{self, format_decimals, format_micros},
};
use crate::kernel::{Case, CollectiveCase, CollectiveKind, Dtype, KernelName, Measurement, PartWeights};

pub(crate) const MESSAGE_BYTES: &str = "message_bytes";
pub(crate) const NUM_DEVICES: &str = "num_devices";
pub(crate) const DTYPE: &str = "dtype";
pub(crate) const TOPOLOGY_TIER: &str = "topology_tier";
/// The replay's measurement: median of the accepted samples.
pub(crate) const DURATION: &str = columns::OLD_DURATION;
pub(crate) const BANDWIDTH: &str = "bandwidth_gbps";
/// Columns that existing readers expect; the columns of the key come first.
pub(crate) const CONTRACT_COLUMNS: [&str; 6] =
    [MESSAGE_BYTES, NUM_DEVICES, DTYPE, TOPOLOGY_TIER, DURATION, BANDWIDTH];
pub(crate) const ENVIRONMENT: &str = "HCCL Environment";
/// Sizes of the parts of an `all_to_all_v`, which belong to the key; the other tables do not have the column.
pub(crate) const PART_WEIGHTS: &str = "Part Weights";
pub(crate) const KEY_COLUMNS: [&str; 6] =
    [MESSAGE_BYTES, NUM_DEVICES, DTYPE, TOPOLOGY_TIER, ENVIRONMENT, PART_WEIGHTS];

pub(crate) const SIZE_SEMANTICS: &str = "Size Semantics";
pub(crate) const SEND_BYTES: &str = "Send Bytes";
pub(crate) const RECEIVE_BYTES: &str = "Receive Bytes";
pub(crate) const BANDWIDTH_SIZE: &str = "Bandwidth Size(bytes)";
pub(crate) const ALGORITHM_BANDWIDTH: &str = "Algorithm Bandwidth(GB/s)";
pub(crate) const BUS_BANDWIDTH: &str = "Bus Bandwidth(GB/s)";
pub(crate) const ALGORITHM_TYPE: &str = "Algorithm Type";
/// Algorithm of the records of production profiles; [`ALGORITHM_TYPE`] is the algorithm of the measurement.
pub(crate) const PROFILING_ALGORITHM_TYPE: &str = "Profiling Algorithm Type";
/// Source of the group of these records: [`RECORDED_GROUP`] or [`STATED_GROUP`].
pub(crate) const PROFILING_GROUP_SOURCE: &str = "Profiling Group Source";
pub(crate) const RECORDED_GROUP: &str = "recorded";
pub(crate) const STATED_GROUP: &str = "--world-size";
pub(crate) const DURATION_METHOD: &str = "Duration Method";
pub(crate) const LATEST_RANK: &str = "Latest Rank";
pub(crate) const RESULT_CHECK: &str = "Result Check";
/// File of another benchmark that the duration is from; only tables with an import have the column.
pub(crate) const IMPORTED_FROM: &str = "Imported From";
/// Durations of the ranks, in the order of the counters of a collective's measurement.
const RANK_TIMES: [&str; 3] = ["Rank Min Duration(us)", "Rank Median Duration(us)", "Rank Max Duration(us)"];
const RANK_SKEW: &str = "Rank Skew(%)";

/// Columns of npubench, which stand between the columns of existing readers and the columns of production profiles.
const OWN_COLUMNS: [&str; 15] = [
    ENVIRONMENT,
    SIZE_SEMANTICS,
    SEND_BYTES,
    RECEIVE_BYTES,
    BANDWIDTH_SIZE,
    ALGORITHM_BANDWIDTH,
    BUS_BANDWIDTH,
    ALGORITHM_TYPE,
    DURATION_METHOD,
    RANK_TIMES[0],
    RANK_TIMES[1],
    RANK_TIMES[2],
    RANK_SKEW,
    LATEST_RANK,
    RESULT_CHECK,
];

/// Indices of the counters of a collective's measurement, in the order in which `verify` computes them.
const SKEW: usize = 3;
const LATEST: usize = 4;
const BY_CLOCKS: usize = 5;

/// Text of [`DURATION_METHOD`] for launches timed by the clocks of the ranks, for others, and for both in one row.
const METHODS: [&str; 3] = ["last end - last start", "shortest rank", "mixed"];

pub(crate) fn collective_columns(kernel: &KernelName) -> Vec<String> {
    let has_parts = CollectiveKind::of_kernel(kernel) == Some(CollectiveKind::AllToAllV);
    let parts = has_parts.then_some(PART_WEIGHTS);
    let columns = CONTRACT_COLUMNS.into_iter().chain(parts).chain(OWN_COLUMNS).chain(columns::PROFILING);
    let columns = columns.chain([PROFILING_ALGORITHM_TYPE, PROFILING_GROUP_SOURCE]);
    let columns = columns.chain(columns::EVIDENCE_COLUMNS).chain(columns::MICROBENCH_COLUMNS);
    columns.map(str::to_owned).collect()
}

pub(crate) fn is_own_column(column: &str) -> bool {
    OWN_COLUMNS.contains(&column)
        || matches!(column, IMPORTED_FROM | PART_WEIGHTS | PROFILING_ALGORITHM_TYPE | PROFILING_GROUP_SOURCE)
        || columns::PROFILING.contains(&column)
        || columns::EVIDENCE_COLUMNS.contains(&column)
        || columns::MICROBENCH_COLUMNS.contains(&column)
}

/// Key of a row; `None` for a part that the row does not state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectiveKey {
    pub(crate) message: u64,
    pub(crate) ranks: Option<u64>,
    pub(crate) dtype: Option<Dtype>,
    pub(crate) tier: Option<u64>,
    pub(crate) environment: String,
    pub(crate) parts: PartWeights,
}

impl CollectiveKey {
    pub(super) fn of_case(case: &CollectiveCase) -> Self {
        let CollectiveCase { kind: _, message, ranks, tier, dtype, environment, parts } = case;
        Self {
            message: *message,
            ranks: Some(*ranks),
            dtype: Some(dtype.clone()),
            tier: Some(*tier),
            environment: environment.clone(),
            parts: parts.clone(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct CollectiveKeyColumns([Option<usize>; 6]);

impl CollectiveKeyColumns {
    pub(crate) fn find(header: &[String]) -> Self {
        Self(KEY_COLUMNS.map(|name| header.iter().position(|column| column == name)))
    }

    pub(crate) fn key(&self, cells: &ByteRecord) -> Result<CollectiveKey, String> {
        let text = |place: usize| {
            let cell = self.0[place].and_then(|index| cells.get(index)).unwrap_or_default();
            std::str::from_utf8(cell)
                .map(str::trim)
                .map_err(|_| format!("`{}` is not UTF-8", KEY_COLUMNS[place]))
        };
        let number = |place: usize| -> Result<Option<u64>, String> {
            let cell = text(place)?;
            if matches!(cell, "" | "N/A" | "NA") {
                return Ok(None);
            }
            let whole = cell.strip_suffix(".0").unwrap_or(cell).parse();
            whole
                .map(Some)
                .map_err(|_| format!("`{}` is `{cell}`, which is not a whole number", KEY_COLUMNS[place]))
        };
        let ranks = number(1)?;
        let parts: PartWeights =
            text(5)?.parse().map_err(|problem| format!("`{PART_WEIGHTS}`: {problem}"))?;
        if let Some(ranks) = ranks {
            parts.check_ranks(ranks)?;
        }
        Ok(CollectiveKey {
            message: number(0)?.ok_or_else(|| format!("the row has no `{MESSAGE_BYTES}`"))?,
            ranks,
            dtype: Dtype::parse(text(2)?),
            tier: number(3)?,
            environment: text(4)?.to_owned(),
            parts,
        })
    }

    pub(crate) fn parse_case(&self, kernel: &KernelName, cells: &ByteRecord) -> Result<Case, String> {
        let kind = CollectiveKind::of_kernel(kernel);
        let kind = kind.ok_or_else(|| format!("npubench measures no collective `{kernel}`"))?;
        let CollectiveKey { message, ranks, dtype, tier, environment, parts } = self.key(cells)?;
        let missing = |column: &str| format!("the row has no `{column}`");
        let ranks = ranks.ok_or_else(|| missing(NUM_DEVICES))?;
        let dtype = dtype.ok_or_else(|| missing(DTYPE))?;
        let tier = tier.ok_or_else(|| missing(TOPOLOGY_TIER))?;
        CollectiveCase { kind, message, ranks, tier, dtype, environment, parts }.case()
    }
}

pub(super) fn keyed_rows(table: &KernelCsv) -> Vec<(CollectiveKey, usize)> {
    let keys = CollectiveKeyColumns::find(table.column_names());
    let mut rows = Vec::new();
    table.for_each_row(|row, cells| rows.extend(keys.key(cells).ok().map(|key| (key, row))));
    rows
}

pub(super) fn new_row_cells(collective: &CollectiveCase) -> Vec<(&'static str, String)> {
    let CollectiveCase { kind, message, ranks, tier, dtype, environment, parts } = collective;
    let mut cells = vec![
        (MESSAGE_BYTES, message.to_string()),
        (NUM_DEVICES, ranks.to_string()),
        (DTYPE, dtype.as_str().to_owned()),
        (TOPOLOGY_TIER, tier.to_string()),
        (ENVIRONMENT, environment.clone()),
    ];
    if *kind == CollectiveKind::AllToAllV {
        cells.push((PART_WEIGHTS, parts.to_string()));
    }
    cells.extend(size_cells(collective));
    cells
}

fn size_cells(collective: &CollectiveCase) -> [(&'static str, String); 4] {
    let CollectiveCase { kind, message, ranks, parts, .. } = collective;
    let bytes = |bytes: Option<u64>| bytes.map_or_else(String::new, |bytes| bytes.to_string());
    [
        (SIZE_SEMANTICS, kind.size_semantics().to_owned()),
        (SEND_BYTES, bytes(kind.send_bytes(*message, *ranks))),
        (RECEIVE_BYTES, bytes(kind.receive_bytes(*message, *ranks, parts))),
        (BANDWIDTH_SIZE, bytes(kind.bandwidth_bytes(*message, *ranks))),
    ]
}

/// Returns the cells of duration and bandwidths for a median in nanoseconds; a byte per nanosecond is 1 GB/s.
pub(super) fn duration_cells(collective: &CollectiveCase, nanos: f64) -> [(&'static str, String); 4] {
    let CollectiveCase { kind, message, ranks, parts, .. } = collective;
    let algorithm = kind.bandwidth_bytes(*message, *ranks).map(|bytes| bytes as f64 / nanos);
    let gigabytes = |value: Option<f64>| value.map_or_else(String::new, format_decimals);
    [
        (DURATION, format_micros(nanos)),
        (BANDWIDTH, format_decimals(*message as f64 / nanos)),
        (ALGORITHM_BANDWIDTH, gigabytes(algorithm)),
        (BUS_BANDWIDTH, gigabytes(algorithm.map(|value| value * kind.bus_factor(*ranks, parts)))),
    ]
}

pub(super) fn measured_cells(
    collective: &CollectiveCase,
    table: &KernelCsv,
    measurement: &Measurement,
) -> Vec<(&'static str, String)> {
    let mut cells = size_cells(collective).to_vec();
    cells.extend(duration_cells(collective, measurement.summary.median));
    let counter = |index: usize| measurement.counters.get(index).copied().flatten();
    let text = |value: Option<f64>, format: fn(f64) -> String| value.map_or_else(String::new, format);
    cells.extend((0..).zip(RANK_TIMES).map(|(index, name)| (name, text(counter(index), format_micros))));
    let method = counter(BY_CLOCKS).map(|share| match share {
        share if share >= 1.0 => METHODS[0],
        share if share <= 0.0 => METHODS[1],
        _ => METHODS[2],
    });
    // Counters are means over collections, of which none may have had this rank as its latest.
    let latest = counter(LATEST).filter(|_| measurement.collections == 1);
    cells.extend([
        (RANK_SKEW, text(counter(SKEW), format_decimals)),
        (LATEST_RANK, text(latest, |rank| format!("{rank:.0}"))),
        (DURATION_METHOD, method.unwrap_or_default().to_owned()),
        // The script checks each result before it launches samples; a wrong one has no measurement.
        (RESULT_CHECK, "ok".to_owned()),
    ]);
    if table.column_index(IMPORTED_FROM).is_some() {
        cells.push((IMPORTED_FROM, String::new()));
    }
    cells
}

pub(super) const NUMBER_COLUMNS: [&str; 11] = [
    DURATION,
    BANDWIDTH,
    ALGORITHM_BANDWIDTH,
    BUS_BANDWIDTH,
    DURATION_METHOD,
    RANK_SKEW,
    LATEST_RANK,
    RESULT_CHECK,
    RANK_TIMES[0],
    RANK_TIMES[1],
    RANK_TIMES[2],
];

#[derive(Clone, Debug)]
pub(crate) struct ImportedDuration {
    pub(crate) collective: CollectiveCase,
    pub(crate) micros: f64,
    /// What the duration is, such as `hccl_test average`.
    pub(crate) method: String,
    pub(crate) check: String,
    pub(crate) source: String,
}

/// Writes durations into the rows of their keys. A row with a duration that is no import keeps it; rows of an earlier import,
/// or without a duration, are updated.
pub(crate) fn import_durations(
    table: &mut KernelCsv,
    durations: &[ImportedDuration],
) -> Result<MergeReport, DatabaseError> {
    let mut report = MergeReport::default();
    let mut rows = keyed_rows(table);
    for imported in durations {
        let key = CollectiveKey::of_case(&imported.collective);
        let mut cells = new_row_cells(&imported.collective);
        cells.extend(duration_cells(&imported.collective, imported.micros * 1e3));
        cells.extend([
            (DURATION_METHOD, imported.method.clone()),
            (RESULT_CHECK, imported.check.clone()),
            (IMPORTED_FROM, imported.source.clone()),
        ]);
        let present: Vec<usize> =
            rows.iter().filter(|(present, _)| *present == key).map(|(_, row)| *row).collect();
        let is_filled = |row: usize, column: &str| {
            table.cell_text(row, column).is_some_and(|cell| !matches!(cell.trim(), "" | "N/A"))
        };
        // A verdict without a duration belongs to a failed measurement, which later runs repeat.
        let is_own = |row: usize| {
            is_filled(row, columns::VERDICT) || (is_filled(row, DURATION) && !is_filled(row, IMPORTED_FROM))
        };
        match present.as_slice() {
            [] => {
                rows.push((key, table.len()));
                table.append_row(&cells);
                report.added += 1;
            }
            rows if rows.iter().any(|row| is_own(*row)) => report.kept += 1,
            [row, ..] => report.count_row(table.update_row(*row, &cells)?, false),
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, path::Path};

    use super::*;
    use crate::{
        base::stats::SampleSummary,
        database::{row_cases, write_back::write_back},
        kernel::{CacheState, CaseOutcome, IdentifiedCase, RecordedTask, RowResult, Verdict},
    };

    fn imported(message: u64, micros: f64) -> ImportedDuration {
        ImportedDuration {
            collective: CollectiveCase {
                kind: CollectiveKind::AllReduce,
                message,
                ranks: 8,
                tier: 1,
                dtype: Dtype::Float16,
                parts: PartWeights::Equal,
                environment: String::new(),
            },
            micros,
            method: "hccl_test average".to_owned(),
            check: "success".to_owned(),
            source: "out.txt".to_owned(),
        }
    }

    #[test]
    fn an_import_never_replaces_a_measurement() {
        let text = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,MicroBench Verdict\n\
                    1024,8,FLOAT16,1,5,0.2,ok\n2048,8,DT_FP16,1,6,0.3,\n4096,8,FLOAT16,1,,,hung\n8192,8,FLOAT16,1,,,\n";
        let path = Path::new("hcom_allReduce_.csv");
        let mut table = KernelCsv::from_bytes(path, text.as_bytes().to_vec()).expect("a table");
        let all: Vec<ImportedDuration> =
            [1024, 2048, 4096, 8192, 16384].into_iter().map(|message| imported(message, 9.0)).collect();
        let report = import_durations(&mut table, &all).expect("imported");
        assert_eq!(report, MergeReport { added: 1, updated: 1, same: 0, kept: 3 });
        let cell = |table: &KernelCsv, row, column| table.cell_text(row, column).unwrap_or_default();
        let durations: Vec<String> = (0..5).map(|row| cell(&table, row, DURATION)).collect();
        assert_eq!(durations, ["5", "6", "", "9.000000", "9.000000"]);
        assert_eq!(cell(&table, 4, IMPORTED_FROM), "out.txt");
        assert_eq!(cell(&table, 4, DURATION_METHOD), "hccl_test average");
        assert_eq!(cell(&table, 4, columns::VERDICT), "");
        let again =
            import_durations(&mut table, &[imported(16384, 9.0), imported(8192, 8.0)]).expect("imported");
        assert_eq!(again, MergeReport { added: 0, updated: 1, same: 1, kept: 0 });
        // Two files with the same size have one row.
        let twice =
            import_durations(&mut table, &[imported(65536, 7.0), imported(65536, 8.0)]).expect("imported");
        assert_eq!((twice, table.len()), (MergeReport { added: 1, updated: 1, same: 0, kept: 0 }, 6));
    }

    fn collective(message: u64) -> CollectiveCase {
        let kind = CollectiveKind::AllGather;
        CollectiveCase {
            kind,
            message,
            ranks: 4,
            tier: 1,
            dtype: Dtype::Float16,
            environment: String::new(),
            parts: PartWeights::Equal,
        }
    }

    fn result(case: &IdentifiedCase, samples: &[i64]) -> RowResult {
        let summary = SampleSummary::from_samples(&mut samples.to_vec()).expect("samples");
        let counters = [2_000.0, 2_500.0, 9_000.0, 12.5, 3.0, 1.0].map(Some).to_vec();
        RowResult {
            case: case.id().clone(),
            cache: CacheState::Hot,
            run: "r".to_owned(),
            outcome: CaseOutcome::new(Verdict::Ok, "every launch recorded"),
            measurement: Some(Measurement {
                summary,
                interval: None,
                samples: samples.len(),
                collections: 1,
                counters,
                task: RecordedTask::default(),
            }),
            software: None,
            withdrawn_runs: std::collections::BTreeSet::new(),
        }
    }

    fn write(table: &mut KernelCsv, case: &IdentifiedCase, samples: &[i64]) {
        let results = HashMap::from([(case.id().clone(), result(case, samples))]);
        let insertable = [(case.id().clone(), case.clone())].into();
        write_back(&case.kernel, table, &results, &insertable, false).expect("written");
    }

    fn identified(message: u64) -> IdentifiedCase {
        IdentifiedCase::new(collective(message).case().expect("a call"))
    }

    #[test]
    fn a_result_gets_one_row_by_its_key_and_replaces_it_later() {
        let mut table =
            KernelCsv::new(Path::new("hcom_allGather_.csv"), &collective_columns(&identified(1024).kernel));
        write(&mut table, &identified(2048), &[4000, 4000, 4000]);
        write(&mut table, &identified(1024), &[2000, 2000, 2000]);
        write(&mut table, &identified(1024), &[2048, 2048, 2048, 2048]);
        assert_eq!(table.len(), 2);
        let cell = |row: usize, column: &str| table.cell_text(row, column).expect("a column");
        assert_eq!((cell(0, MESSAGE_BYTES), cell(1, MESSAGE_BYTES)), ("1024".to_owned(), "2048".to_owned()));
        assert_eq!(cell(0, DURATION), "2.048000");
        // 1024 bytes in 2.048 us; S is 4096 bytes, of which three quarters pass a link.
        assert_eq!(cell(0, BANDWIDTH), "0.500000");
        assert_eq!(
            (cell(0, ALGORITHM_BANDWIDTH), cell(0, BUS_BANDWIDTH)),
            ("2.000000".to_owned(), "1.500000".to_owned())
        );
        assert_eq!((cell(0, DTYPE), cell(0, RECEIVE_BYTES)), ("FLOAT16".to_owned(), "4096".to_owned()));
        assert_eq!(
            (cell(0, "Rank Max Duration(us)"), cell(0, LATEST_RANK)),
            ("9.000000".to_owned(), "3".to_owned())
        );
        assert_eq!(cell(0, DURATION_METHOD), METHODS[0]);
        let cases = row_cases(&identified(1024).kernel, &table).expect("readable");
        assert_eq!(cases[0].case.as_ref().ok(), Some(&*identified(1024)));
    }

    #[test]
    fn rows_and_columns_of_older_tools_survive() {
        let text = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,note\n\
                    1024,4,DT_FP16,1,5.5,0.19,mine\n1024,8,DT_FP16,,5.5,0.19,no tier\n";
        let path = Path::new("hcom_allGather_.csv");
        let mut table = KernelCsv::from_bytes(path, text.as_bytes().to_vec()).expect("a table");
        let problems = row_cases(&identified(1024).kernel, &table).expect("readable");
        assert_eq!(problems[1].case.as_ref().expect_err("no case"), "the row has no `topology_tier`");
        write(&mut table, &identified(1024), &[2000, 2000, 2000]);
        assert_eq!(table.len(), 2);
        assert_eq!(table.column_names()[..7].join(","), text.lines().next().expect("a header"));
        assert_eq!(table.cell_text(0, DURATION).as_deref(), Some("2.000000"));
        assert_eq!(table.cell_text(0, "note").as_deref(), Some("mine"));
        assert_eq!(table.cell_text(1, DURATION).as_deref(), Some("5.5"));
    }
}
