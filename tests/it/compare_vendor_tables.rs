//! `npubench compare`: tables of collectives, of types of kernels and of calls of the host, against those of the vendor's tool.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::Value;

use crate::{
    compare::{ROUNDING, compare, reference, rows_of, sheet},
    requirements::shared,
};

/// Two real profiles and the name of the vendor's comparison of them.
type RealPair = (&'static str, &'static str, &'static str);

const TEXT: &str = "real/cnn_level1_rank0";
const DATABASE: &str = "real/cnn_db_level1_rank0";
const LEVEL_0: &str = "real/cnn_level0_rank0";
const GPU: &str = "real/model_analysis/gpu_alexnet_a100.pt.trace.json";
const PAIRS: [RealPair; 5] = [
    (TEXT, DATABASE, "cmp_l1_db.json"),
    (TEXT, DATABASE, "cmp_l1_db_nomod.json"),
    (TEXT, LEVEL_0, "cmp_l1_l0.json"),
    (TEXT, LEVEL_0, "cmp_l1_l0_nomod.json"),
    (GPU, TEXT, "cmp_gpu_npu.json"),
];

/// Returns the two profiles and the vendor's comparison; `None` without the shared folder.
fn read_pair((base, other, name): RealPair) -> Option<([PathBuf; 2], Value)> {
    Some(([shared(base)?, shared(other)?], reference(name)?))
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
fn overall(found: &[Value], name: &str) -> Option<[f64; 2]> {
    let row = rows_of(found, "overall").into_iter().find(|row| row["name"] == name)?;
    Some(["base", "other"].map(|side| row[side]["total"].as_f64().expect("a total")))
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
                rows.map(|row| row[4].as_f64().expect("a number") * 1e6).sum()
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
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut by_key: BTreeMap<(String, String), &Value> =
        rows.iter().map(|row| ((text(&row["name"]), text(&row["shapes"])), *row)).collect();
    for row in sheet(&expected, "KernelTypeCompare") {
        let key = (text(&row[1]), text(&row[2]));
        let mine = by_key.remove(&key).unwrap_or_else(|| panic!("no row of {key:?}"));
        let number = |cell: usize| row[cell].as_f64().expect("a number");
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

/// GPUs have no types of cores: both sides are compared by the type of the kernel alone.
#[test]
fn types_of_kernels_without_cores_are_compared_by_type_alone() {
    let Some(([gpu, npu], _)) = read_pair((GPU, TEXT, "cmp_gpu_npu.json")) else { return };
    let found = compare(&gpu, &npu);
    let rows = rows_of(&found, "kernel_type");
    assert!(rows.iter().all(|row| row["shapes"] == ""));
    let product = rows.iter().find(|row| row["name"] == "MatMulV2").expect("a row");
    assert_eq!(product["other"]["calls"], 8.0);
    let missing = found[0]["not_compared"].to_string();
    assert!(missing.contains("types of cores: not recorded in base"), "{missing}");
}
