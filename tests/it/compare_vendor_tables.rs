//! `npubench compare`: tables of collectives, of types of kernels and of calls of the host, against those of the vendor's tool.

use std::{collections::BTreeMap, path::PathBuf, sync::OnceLock};

use serde_json::{Value, json};

use crate::prelude::*;
use crate::{
    compare::{ROUNDING, compare, reference, rows_of, sheet},
    timeline_vendor::raw_database,
};

/// Two real profiles and the name of the vendor's comparison of them.
pub(crate) type RealPair = (&'static str, &'static str, &'static str);

const TEXT: &str = "real/cnn_level1_rank0";
pub(crate) const DATABASE: &str = "real/cnn_db_level1_rank0";
const LEVEL_0: &str = "real/cnn_level0_rank0";
pub(crate) const GPU: &str = "real/model_analysis/gpu_alexnet_a100.pt.trace.json";
pub(crate) const PAIRS: [RealPair; 5] = [
    (TEXT, DATABASE, "cmp_l1_db.json"),
    (TEXT, DATABASE, "cmp_l1_db_nomod.json"),
    (TEXT, LEVEL_0, "cmp_l1_l0.json"),
    (TEXT, LEVEL_0, "cmp_l1_l0_nomod.json"),
    (GPU, TEXT, "cmp_gpu_npu.json"),
];

/// Returns the two profiles and the vendor's comparison; `None` without the shared folder.
pub(crate) fn read_pair((base, other, name): RealPair) -> Option<([PathBuf; 2], Value)> {
    Some(([shared(base)?, shared(other)?], reference(name)?))
}

/// Returns our comparison of two profiles, which runs once, and the vendor's; `None` without the shared folder.
pub(crate) fn compare_pair(pair: RealPair) -> Option<(Vec<Value>, Value)> {
    static FOUND: [OnceLock<Vec<Value>>; PAIRS.len()] = [const { OnceLock::new() }; PAIRS.len()];
    let ([base, other], expected) = read_pair(pair)?;
    let at = PAIRS.iter().position(|known| known.0 == pair.0 && known.1 == pair.1).expect("a known pair");
    Some((FOUND[at].get_or_init(|| compare(&base, &other)).clone(), expected))
}

/// Cells of the vendor for one side of a row, in microseconds.
struct VendorSide {
    total: f64,
    longest: f64,
    shortest: f64,
    calls: f64,
}

/// Asserts that a side has the vendor's numbers; an empty side of the vendor is `null`.
fn assert_side(found: &Value, expected: Option<VendorSide>, error: f64, what: &str) {
    let Some(expected) = expected else {
        assert!(found.is_null(), "{what}: {found}");
        return;
    };
    let number = |key: &str| found[key].as_f64().unwrap_or_else(|| panic!("{what}: {key} of {found}"));
    assert_eq!(number("calls"), expected.calls, "{what}");
    for (key, value, error) in [
        ("total", expected.total, error),
        ("longest", expected.longest, error.min(1.5)),
        ("shortest", expected.shortest, error.min(1.5)),
    ] {
        let (found, expected) = (number(key), value * 1e3);
        assert!(
            (found - expected).abs() <= error,
            "{what}: {key} {found} ns, the reference has {expected} ns"
        );
    }
}

/// Error of a total of a profile in nanoseconds: the text is rounded.
fn error_of(profile: &str) -> f64 {
    if profile == DATABASE { 0.5 } else { ROUNDING }
}

#[test]
fn collectives_and_their_tasks_equal_all_references() {
    for pair @ (base, other, name) in PAIRS {
        let Some(([base_path, other_path], expected)) = read_pair(pair) else { return };
        let found = compare(&base_path, &other_path);
        let (collectives, tasks) = (rows_of(&found, "collective"), rows_of(&found, "collective_task"));
        let mut compared = 0;
        for row in sheet(&expected, "CommunicationCompare") {
            let side = |from: usize| {
                let number = |cell: usize| row[from + cell].as_f64();
                let calls = number(2).filter(|calls| *calls > 0.0)?;
                Some(VendorSide { total: number(3)?, longest: number(5)?, shortest: number(6)?, calls })
            };
            let task = row[2].as_str().or(row[9].as_str());
            if let (Some(task), LEVEL_0) = (task, other) {
                // Level 0 has no tasks. The reference leaves its side empty, as if there were none.
                assert!(side(8).is_none() && tasks.is_empty(), "{name} {task}");
                let missing = found[0]["not_compared"].to_string();
                assert!(missing.contains("tasks of collectives: not recorded in other"), "{missing}");
                continue;
            }
            let mine = match task {
                None => collectives.iter().find(|row| row["name"] == "hcom_allReduce_"),
                Some(task) => tasks.iter().find(|row| row["shapes"] == task),
            };
            let mine = mine.unwrap_or_else(|| panic!("{name}: no row of {task:?}"));
            assert_eq!(mine["name"], "hcom_allReduce_", "{name}");
            assert_side(&mine["base"], side(1), error_of(base), &format!("{name} base {task:?}"));
            assert_side(&mine["other"], side(8), error_of(other), &format!("{name} other {task:?}"));
            compared += 1;
        }
        assert_eq!(compared, if other == LEVEL_0 { 1 } else { 5 }, "{name}");
        assert_eq!(collectives.len(), 1, "{name}");
        assert_eq!(tasks.len(), if other == LEVEL_0 { 0 } else { 4 }, "{name}");
    }
}

/// Returns total in nanoseconds of both sides of an overall time; `None` without the row.
pub(crate) fn overall(found: &[Value], name: &str) -> Option<[f64; 2]> {
    let row = rows_of(found, "overall").into_iter().find(|row| row["name"] == name)?;
    Some(["base", "other"].map(|side| row[side]["total"].float()))
}

/// The reference finds no wait in text profiles: the first plane, which only copies, counts as the one that waits least.
#[test]
fn waits_and_transmission_are_divided_alike_in_both_forms() {
    for pair @ (_, other, name) in PAIRS {
        let Some(([base_path, other_path], expected)) = read_pair(pair) else { return };
        let found = compare(&base_path, &other_path);
        let divided =
            overall(&found, "of it waits for other ranks").zip(overall(&found, "of it transmission"));
        if other == LEVEL_0 {
            assert_eq!(divided, None, "{name}");
            continue;
        }
        let (waiting, transmitting) = divided.expect("both times");
        let uncovered = overall(&found, "communication, not overlapped").expect("a time");
        for side in 0..2 {
            assert_eq!(waiting[side] + transmitting[side], uncovered[side], "{name}");
        }
        if other == DATABASE {
            let rows = sheet(&expected, "OverallMetrics");
            let of_vendor = |name: &str| -> f64 {
                let rows = rows.iter().filter(|row| row[0].as_str().is_some_and(|own| own.trim() == name));
                rows.map(|row| row[4].float() * 1e6).sum()
            };
            assert!((waiting[1] - of_vendor("Wait")).abs() < 0.5, "{waiting:?}");
            assert!((transmitting[1] - of_vendor("Transmit")).abs() < 0.5, "{transmitting:?}");
        }
        // Plane 7 waits least in the trace: 14.700 us, computed apart from this code.
        let of_text = waiting[usize::from(name == "cmp_gpu_npu.json")];
        assert!((of_text - 14_700.0).abs() <= ROUNDING, "{name}: {of_text}");
    }
}

#[test]
fn types_of_kernels_by_core_equal_the_reference() {
    let Some(([base, other], expected)) = read_pair((TEXT, DATABASE, "cmp_l1_db_ktype.json")) else { return };
    let found = compare(&base, &other);
    let rows = rows_of(&found, "kernel_type");
    let text = |value: &Value| value.text().to_owned();
    let mut by_key: BTreeMap<(String, String), &Value> =
        rows.iter().map(|row| ((text(&row["name"]), text(&row["shapes"])), *row)).collect();
    for row in sheet(&expected, "KernelTypeCompare") {
        let key = (text(&row[1]), text(&row[2]));
        let mine = by_key.remove(&key).unwrap_or_else(|| panic!("no row of {key:?}"));
        let number = |cell: usize| row[cell].float();
        let side = |from: usize| VendorSide {
            total: number(from),
            longest: number(from + 2),
            shortest: number(from + 3),
            calls: number(from + 4),
        };
        assert_side(&mine["base"], Some(side(3)), ROUNDING, &format!("base {key:?}"));
        assert_side(&mine["other"], Some(side(8)), 0.5, &format!("other {key:?}"));
    }
    assert!(by_key.is_empty(), "{by_key:?}");
}

/// Operators of the database that the reference counts once for each of their kernels.
const COUNTED_BY_KERNEL: [&str; 12] = [
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "aclnnAdaptiveAvgPool2d",
    "aclnnAdaptiveAvgPool2dBackward",
    "aclnnEqTensor",
    "aclnnMaxPool2dWithMask",
    "aclnnMaxPool2dWithMaskBackward",
    "aclnnMm",
    "aclnnNLLLoss",
    "aclnnNLLLossBackward",
    "aclnnTopk",
];

/// Total, self time and calls of all references. Cells of the sheet are rounded to 0.01 ms.
#[test]
fn calls_of_the_host_equal_all_references() {
    for pair @ (base_name, other_name, name) in PAIRS {
        let Some(([base, other], expected)) = read_pair(pair) else { return };
        let found = compare(&base, &other);
        let mine = rows_of(&found, "host_call");
        let by_name: BTreeMap<&str, &Value> = mine.iter().map(|row| (row["name"].text(), *row)).collect();
        let sheet = sheet(&expected, "ApiCompare");
        assert_eq!(by_name.len(), sheet.len(), "{name}: as many names as the reference has");
        let (mut counted_by_kernel, mut other_self) = (Vec::new(), 0);
        for row in sheet {
            let call = row[1].text();
            let mine = by_name.get(call).unwrap_or_else(|| panic!("{name}: no row of `{call}`"));
            for (side, profile, from) in [("base", base_name, 2), ("other", other_name, 6)] {
                let number = |cell: usize| row[from + cell].float();
                if number(3) == 0.0 {
                    assert!(mine[side].is_null(), "{name}: {side} has no `{call}`");
                    continue;
                }
                let found = |key: &str| mine[side][key].float();
                let is_equal = |found: f64, cell: f64| (found / 1e6 - cell).abs() <= 0.005_001;
                let what = format!("{name} {side} {call}: {} {row:?}", mine[side]);
                if found("calls") != number(3) {
                    assert_eq!(profile, DATABASE, "{what}");
                    assert!(number(3) > found("calls") && number(0) > found("total") / 1e6, "{what}");
                    assert!(is_equal(found("self"), number(1)), "{what}");
                    counted_by_kernel.push(call);
                    continue;
                }
                assert!(is_equal(found("total"), number(0)), "{what}");
                // The reference divides the rounded total.
                assert!(
                    (found("mean") / 1e6 - number(2)).abs() <= 0.005_001 * (1.0 + 1.0 / number(3)),
                    "{what}"
                );
                if profile == GPU {
                    other_self += usize::from(!is_equal(found("self"), number(1)));
                } else {
                    assert!(is_equal(found("self"), number(1)), "{what}");
                }
            }
        }
        counted_by_kernel.sort_unstable();
        let expected = if other_name == DATABASE { &COUNTED_BY_KERNEL[..] } else { &[] };
        assert_eq!(counted_by_kernel, expected, "{name}");
        // Of 63 names of the GPU: calls that touch in whole microseconds are inside each other in the reference, so that
        // it has a self time of -7.36 ms.
        assert_eq!(other_self, if base_name == GPU { 14 } else { 0 }, "{name}");
    }
}

/// Allocations of the device count, those of the host and releases do not.
#[test]
fn memory_in_the_trace_of_a_gpu_is_compared() {
    let context = Context::new();
    let trace = |reserved: u64| {
        let memory = |at: u32, bytes: i64, device: u32, allocated: i64| {
            json!({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "s": "t",
                   "args": {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": bytes, "Addr": 1,
                            "Device Id": 0, "Device Type": device}})
        };
        let events = [
            json!({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100, "dur": 10}),
            json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 105,
                   "dur": 2, "args": {"correlation": 1}}),
            json!({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 120, "dur": 30,
                   "args": {"correlation": 1, "device": 0, "stream": 7}}),
            memory(101, 512, 1, 2048),
            memory(102, 4096, 0, -1),
            memory(103, 1024, 1, 3072),
            memory(104, -512, 1, 2560),
            memory(200, 256, 1, 2816),
        ];
        json!({"traceEvents": events}).to_string()
    };
    context.write("base.pt.trace.json", &trace(8192));
    context.write("other.pt.trace.json", &trace(16384));
    // Tables of another run beside the trace are not of it.
    context.write("memory_record.csv", "Component,Total Allocated(MB),Total Reserved(MB)\nPTA,900,900\n");
    let found = compare(&context.path("base.pt.trace.json"), &context.path("other.pt.trace.json"));
    let cells = |side: &Value| {
        let number = |key: &str| side[key].float();
        (number("total"), number("calls"))
    };
    let rows: BTreeMap<String, [(f64, f64); 2]> = rows_of(&found, "memory")
        .into_iter()
        .map(|row| (row["name"].text().to_owned(), [cells(&row["base"]), cells(&row["other"])]))
        .collect();
    let expected = [
        ("allocated by [outside operators]", [(256.0, 1.0); 2]),
        ("allocated by aten::mm", [(1536.0, 2.0); 2]),
        ("peak allocated", [(3072.0, 0.0); 2]),
        ("peak reserved", [(8192.0, 0.0), (16384.0, 0.0)]),
    ];
    assert_eq!(rows, expected.map(|(name, sides)| (name.to_owned(), sides)).into());
    assert!(!found[0]["not_compared"].to_string().contains("memory"), "{}", found[0]);
}

/// Allocated bytes by operator, of the only profile that has them.
#[test]
fn memory_by_operator_equals_the_references() {
    for (base, other, name) in PAIRS {
        let Some(expected) = reference(name) else { return };
        let is_recorded = other == DATABASE;
        for row in sheet(&expected, "MemoryCompareStatistic") {
            let number = |cell: usize| row[cell].float();
            // The reference has 0 for a profile without memory.
            assert_eq!(number(3), 0.0, "{base} {row:?}");
            assert!(is_recorded || number(6) == 0.0, "{name} {row:?}");
        }
        if !is_recorded {
            continue;
        }
        let Some(database) = shared(DATABASE) else { return };
        let found = compare(&database, &database);
        let mut by_operator: BTreeMap<String, f64> = rows_of(&found, "memory")
            .into_iter()
            .filter_map(|row| {
                let operator = row["name"].as_str()?.strip_prefix("allocated by ")?;
                Some((operator.to_owned(), row["other"]["total"].as_f64()?))
            })
            .collect();
        let whole: f64 = by_operator.values().sum();
        let mut single: BTreeMap<String, f64> = BTreeMap::new();
        for row in sheet(&expected, "MemoryCompare") {
            if let Some(operator) = row[6].as_str() {
                *single.entry(operator.to_owned()).or_default() +=
                    row[10].as_f64().unwrap_or_default() * 1024.0;
            }
        }
        for row in sheet(&expected, "MemoryCompareStatistic") {
            let operator = row[1].text();
            let bytes = row[6].float() * 1_048_576.0;
            assert_eq!(by_operator.remove(operator).unwrap_or_default(), bytes, "{name} {operator}");
            assert_eq!(single.get(operator).copied().unwrap_or_default(), bytes, "{name} {operator}");
        }
        // The reference drops what no operator allocated.
        let rest: Vec<&str> = by_operator.keys().map(String::as_str).collect();
        assert_eq!(rest, ["[outside operators]"]);
        let sql = "SELECT sum(size) FROM OP_MEMORY";
        let sum: i64 = raw_database(&database).query_row(sql, [], |row| row.get(0)).expect("a sum");
        assert_eq!(whole, sum as f64);
    }
}
