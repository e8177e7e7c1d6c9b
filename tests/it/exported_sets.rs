//! Outputs of the vendor's exporter with known inputs: each set is read as its README states.

use crate::prelude::*;

/// The rows of a step of the kernels in the sets of the exporter's C++ part, as `kernel records average`.
const CPP: [&str; 4] = ["FusedInferAttentionScore 3 43.6", "MatMulV2 3 21", "Range 3 55", "SwiGlu 3 11"];
const PYTHON: [&str; 6] =
    ["Add 3 2", "MatMulV2 3 21", "QuantBatchMatmulV3 3 30", "Range 3 55", "SwiGlu 3 11", "Transpose 3 3.5"];

struct ExportedSet {
    path: &'static str,
    code: i32,
    rows: &'static [&'static str],
    /// Parts of the notes and errors; no others speak of something that is left out or lost.
    notes: &'static [&'static str],
}

const fn complete(path: &'static str, rows: &'static [&'static str]) -> ExportedSet {
    ExportedSet { path, code: 0, rows, notes: &[] }
}

/// What was put in, by the README of each set.
const SETS: &[ExportedSet] = &[
    complete("clock_moves", &PYTHON),
    complete("counters_lost", &PYTHON),
    ExportedSet {
        path: "names_lost",
        code: 3,
        rows: &[],
        notes: &["none of the 18 records has a kernel's name: their types are hashes"],
    },
    ExportedSet {
        path: "shapes_lost_half",
        code: 0,
        rows: &[
            "Add 1 2",
            "MatMulV2 2 20.5",
            "QuantBatchMatmulV3 1 30",
            "Range 2 55",
            "SwiGlu 2 10.5",
            "Transpose 1 3.5",
        ],
        notes: &["9 records without input shapes are left out"],
    },
    complete(
        "tasks_lost_half",
        &[
            "Add 1 2",
            "MatMulV2 2 20.5",
            "QuantBatchMatmulV3 1 30",
            "Range 1 55",
            "SwiGlu 2 10.5",
            "Transpose 1 3.5",
        ],
    ),
    complete(
        "odd_tensors",
        &[
            "A 1 10",
            "Adds 1 10",
            "ConcatD 1 10",
            "FusedInferAttentionScore 1 10",
            "GroupedMatmul 1 10",
            "My%2COp 1 10",
            "Op 1 10",
            "Opt 1 10",
            "Quant 1 10",
        ],
    ),
    complete("cpp_mix", &[CPP[0], CPP[1], "MoeDistributeDispatchV2 1 30", CPP[2], CPP[3]]),
    complete(
        "cpp_two_devices",
        &["FusedInferAttentionScore 4 45.6", "MatMulV2 4 23", "Range 4 55", "SwiGlu 4 13"],
    ),
    complete("cpp_zero_clock", &CPP),
    ExportedSet {
        path: "cpp_lost/half_tasks",
        code: 0,
        rows: &["FusedInferAttentionScore 1 42.6", "MatMulV2 2 20.5", "Range 1 55", "SwiGlu 1 10"],
        notes: &[
            "7 launches have no row in the op_summary",
            "which has 5 rows: api_statistic counts 12 launches, task_time 6 kernels",
        ],
    },
    ExportedSet {
        path: "cpp_lost/half_tasktrack",
        code: 0,
        rows: &["FusedInferAttentionScore 2 43.1", "MatMulV2 2 20.5", "Range 1 55", "SwiGlu 1 10"],
        notes: &["6 launches have no row in the op_summary"],
    },
    ExportedSet {
        path: "cpp_lost/half_nodes",
        code: 0,
        rows: &["FusedInferAttentionScore 2 43.1", "MatMulV2 2 20.5", "Range 1 55", "SwiGlu 1 10"],
        notes: &["6 launches have no row in the op_summary"],
    },
    ExportedSet {
        path: "cpp_lost/half_tensors",
        code: 0,
        rows: &["FusedInferAttentionScore 1 42.6", "MatMulV2 2 20.5", "Range 1 55", "SwiGlu 1 10"],
        notes: &[
            "6 records without input shapes are left out",
            "lost a part of their tensors, as other records of the kernel show: FusedInferAttentionScore 1",
        ],
    },
    ExportedSet {
        path: "cpp_lost/half_api",
        code: 0,
        rows: &["FusedInferAttentionScore 2 43.1", "MatMulV2 2 20.5", "Range 1 55", "SwiGlu 1 10"],
        notes: &["6 records without input shapes are left out"],
    },
    complete("cpp_lost/half_counters", &CPP),
    complete("cpp_metric_groups/ArithmeticUtilization", &CPP),
    complete("cpp_metric_groups/L2Cache", &CPP),
    complete("cpp_metric_groups/Memory", &CPP),
    complete("cpp_metric_groups/MemoryAccess", &CPP),
    complete("cpp_metric_groups/MemoryL0", &CPP),
    complete("cpp_metric_groups/MemoryUB", &CPP),
    complete("cpp_metric_groups/PipeUtilization", &CPP),
    complete("cpp_metric_groups/ResourceConflictRatio", &CPP),
    ExportedSet {
        path: "cpp_odd/comma",
        code: 0,
        rows: &[
            "A 1 10",
            "Adds 1 10",
            "ConcatD 1 10",
            "GroupedMatmul 1 10",
            "Op 1 10",
            "Opt 1 10",
            "Quant 1 10",
        ],
        notes: &["one row is left out: "],
    },
    complete(
        "cpp_odd/rest",
        &[
            "A 1 10",
            "Adds 1 10",
            "ConcatD 1 10",
            "Eight 1 10",
            "EmptyFirst 1 10",
            "EmptyLast 1 10",
            "EmptyMid 1 10",
            "Formats 1 10",
            "GroupedMatmul 1 10",
            "Long 1 2500000",
            "LongName 1 10",
            "Op 1 10",
            "Opt 1 10",
            "Quant 1 10",
            "Short 1 0.02",
            "Types2 1 10",
            "ZeroBlocks 1 10",
        ],
    ),
];

#[test]
fn each_set_of_the_exporter_is_read_as_its_readme_states() {
    let Some(root) = shared("real/exported") else { return };
    let context = Context::new();
    for set in SETS {
        let path = root.join(set.path).to_string_lossy().into_owned();
        let db = set.path.replace('/', "_");
        let device = "ATLAS_800_A3_752T_128G_DIE";
        let ran = context.run(&["ingest", &path, "--db", &db, "--device", device]);
        let place = format!("{}: {}{}", set.path, ran.stderr, ran.stdout);
        assert_eq!(ran.code, set.code, "{place}");
        let files = context.path(&db).read_dir().into_iter().flatten().flatten();
        let kernels =
            files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".csv").map(str::to_owned));
        let rows = kernels.flat_map(|kernel| {
            let row = |row: std::collections::BTreeMap<String, String>| {
                let average: f64 = row["Profiling Average Duration(us)"].parse().expect("a number");
                format!("{kernel} {} {average}", row["Profiling Records"])
            };
            context.rows(&db, &kernel).into_iter().map(row).collect::<Vec<_>>()
        });
        let mut rows: Vec<String> = rows.collect();
        rows.sort();
        assert_eq!(rows, set.rows, "{place}");
        set.notes.iter().for_each(|note| assert!(ran.stderr.contains(note), "no `{note}`: {place}"));
        let is_loss =
            |line: &&str| ["left out", "no row", "lost data"].iter().any(|word| line.contains(word));
        let losses = ran.stderr.lines().filter(is_loss).count();
        assert!(
            losses <= set.notes.len() && (losses > 0) == (!set.notes.is_empty() && set.code == 0),
            "{place}"
        );
    }
    // Cycles of all blocks, and times of the cores by the clock at the end of each task.
    let average = |db: &str, kernel: &str, counter: &str| -> f64 {
        context.rows(db, kernel)[0][&format!("Profiling Average {counter}")].parse().expect("a number")
    };
    for (db, kernel, counter, expected) in [
        ("cpp_mix", "MatMulV2", "aicore_time(us)", 18.889),
        ("cpp_mix", "FusedInferAttentionScore", "aic_total_cycles", 1_440_000.0),
        ("cpp_mix", "FusedInferAttentionScore", "aiv_time(us)", 38.889),
        ("cpp_mix", "MoeDistributeDispatchV2", "aic_total_cycles", 1_920_000.0),
        ("cpp_mix", "MoeDistributeDispatchV2", "aicore_time(us)", 53.333),
        ("cpp_metric_groups_MemoryUB", "SwiGlu", "aiv_total_cycles", 768_000.0),
        ("cpp_two_devices", "MatMulV2", "aicore_time(us)", (3.0 * 18.889 + 24.286) / 4.0),
    ] {
        let found = average(db, kernel, counter);
        assert!((found - expected).abs() < 0.001, "{db} {kernel} {counter}: {found}, {expected} was put in");
    }
    for (set, expected) in [("cpp_mix", &[421.8][..]), ("cpp_two_devices", &[258.2, 288.2])] {
        let path = root.join(set).to_string_lossy().into_owned();
        let steps = context.done(&["timeline", &path, "--format", "json"]).json();
        let of_step = |step: &serde_json::Value| {
            let others: u64 = step["streams"].list().iter().map(|stream| stream["other_ns"].whole()).sum();
            (step["computing_ns"].float() / 1e3, others)
        };
        let times: Vec<(f64, u64)> =
            steps.iter().filter(|line| line["item"] == "step").map(of_step).collect();
        let expected: Vec<(f64, u64)> = expected.iter().map(|computing| (*computing, 0)).collect();
        assert_eq!(times, expected, "{set}: {steps:?}");
    }
}
