//! Real profiles, where they stand beside the project.

use std::{fs, process::Command};

use npubench::measure::device::npu_smi::parse_info;

use crate::prelude::*;

/// Groups a `kernel_details.csv` with Python's own csv, fractions and statistics modules, and holds the
/// database against it.
const ORACLE: &str = r#"
import collections, csv, fractions, glob, os, statistics, sys
profile, database = sys.argv[1:]
signature = ["Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats"]
groups = collections.defaultdict(list)
for row in csv.DictReader(open(profile, newline="", encoding="utf-8-sig")):
    if row["Input Shapes"] not in ("", "N/A"):
        key = (row["Type"],) + tuple(row[name] for name in signature)
        groups[key].append(row)
found = {}
for path in glob.glob(os.path.join(database, "*.csv")):
    for row in csv.DictReader(open(path, newline="")):
        key = (os.path.basename(path)[:-4],) + tuple(row[name] for name in signature)
        assert key not in found, key
        found[key] = row
assert found.keys() == groups.keys(), sorted(found.keys() ^ groups.keys())
for key, rows in groups.items():
    times = [fractions.Fraction(row["Duration(us)"]) for row in rows]
    expected = {"Profiling Average Duration(us)": statistics.mean(times), "Profiling Median Duration(us)": statistics.median(times)}
    for counter in rows[0]:
        if counter.startswith(("aic", "aiv", "cube_")):
            values = [fractions.Fraction(row[counter]) for row in rows if row[counter] not in ("", "N/A")]
            if values:
                expected["Profiling Average " + counter] = statistics.mean(values)
    for column, value in expected.items():
        written = fractions.Fraction(found[key][column])
        assert abs(written - value) <= fractions.Fraction(1, 10**6), (key, column, written, float(value))
    deviation = found[key]["Profiling Std Duration(us)"]
    if len(times) == 1:
        assert deviation == "", key
    else:
        assert abs(float(deviation) - statistics.stdev(map(float, times))) < 2e-6, key
print(len(groups), len({key[0] for key in groups}))
"#;

#[test]
fn ingest_of_llm_training_step_agrees_with_independent_computation() {
    let Some(profile) = shared("real/llm_step_rank0") else { return };
    let context = Context::new();
    context.done(&["ingest", &profile.to_string_lossy(), "--db", "db", "--kind", "rehearsal"]);
    let oracle = Command::new("python3")
        .args(["-c", ORACLE])
        .arg(profile.join("ASCEND_PROFILER_OUTPUT/kernel_details.csv"))
        .arg(context.path("db"))
        .output()
        .expect("python3 runs");
    assert!(oracle.status.success(), "{}", String::from_utf8_lossy(&oracle.stderr));
    assert_eq!(String::from_utf8_lossy(&oracle.stdout).trim(), "108 34");
    let names: Vec<String> = fs::read_dir(context.path("db"))
        .expect("listed")
        .map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.ends_with(".csv"))
        .collect();
    assert!(names.iter().all(|name| name == "database.yaml" || name == ".npubench"), "{names:?}");
}

#[test]
fn real_tables_are_read_or_refused_with_reason() {
    let Some(real) = shared("real") else { return };
    let context = Context::new();
    for (name, code, expected) in [
        ("cnn_level1_rank0", 0, "records of 1 file"),
        ("excerpts/kernel_details_910b_fractal_nz.csv", 0, "19 records"),
        ("excerpts/op_summary_a2_dsa.csv", 0, "10 records"),
        ("excerpts/op_summary_minimal.csv", 3, "none of the 2 records has input shapes"),
        ("excerpts/task_time_minimal.csv", 3, "the header lacks `Type`, `Duration(us)`, `Input Shapes`"),
        ("excerpts/git_lfs_pointer_hcom_allReduce_.csv", 3, "is a Git LFS pointer"),
        ("cnn_level0_rank0", 3, "was taken at profiler level 0"),
        ("text", 3, "no kernel_details*.csv"),
    ] {
        let ran =
            context.run(&["ingest", &real.join(name).to_string_lossy(), "--db", &name.replace('/', "_")]);
        assert_eq!(ran.code, code, "{name}: {}{}", ran.stdout, ran.stderr);
        assert!(
            ran.stdout.contains(expected) || ran.stderr.contains(expected),
            "{name}: {}{}",
            ran.stdout,
            ran.stderr
        );
    }
}

#[test]
fn ten_kernels_of_llm_training_step_end_ok() {
    const TEN: [&str; 10] = [
        "MatMulV2",
        "MatMulV3",
        "RmsNorm",
        "SwiGlu",
        "Slice",
        "Add",
        "Mul",
        "TensorMove",
        "GatherV2",
        "Sort",
    ];
    let Some(profile) = shared("real/llm_step_rank0") else { return };
    let context = Context::new();
    context.run(&["ingest", &profile.to_string_lossy(), "--db", "db", "--kind", "rehearsal"]);
    let before = context.snapshot("db");
    context.done("run --db db --host rehearsal --devices 0-3");
    let catalogue =
        npubench::kernel::catalogue::Catalogue::load(&npubench::base::assets::AssetFiles::embedded())
            .expect("it loads");
    let known: Vec<&str> = catalogue.entries().map(|entry| entry.kernel.as_str()).collect();
    for kernel in TEN {
        for row in context.rows("db", kernel) {
            assert_eq!(
                row["MicroBench Verdict"], "ok",
                "{kernel} {}: {}",
                row["Input Shapes"], row["MicroBench Reason"]
            );
            let samples: u32 = row["MicroBench Samples"].parse().expect("a count");
            assert!((18..=20).contains(&samples), "{kernel}: {samples} samples");
        }
    }
    let after = context.snapshot("db");
    for (path, bytes) in before.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "csv")) {
        let kernel = path.file_stem().expect("a name").to_string_lossy();
        let is_same = after.get(path) == Some(bytes);
        assert!(is_same || known.contains(&&*kernel), "{kernel} is not in the catalogue");
        assert!(!is_same || !TEN.contains(&&*kernel), "{kernel} is in the catalogue");
    }
    // A square operand leaves the transposition open, and the row says what it was taken for.
    let square = &context.rows("db", "MatMulV2")[0];
    assert_eq!(
        square["MicroBench Reason"],
        "every launch recorded; read as A x B; the shapes also fit A^T x B"
    );
}

const NPU_SMI_INFO: &str = "real/text/npu-smi_info_A3_16die_25.0.rc1.txt";

#[test]
fn npu_smi_of_a_host_with_sixteen_dies_is_read() {
    let Some(path) = shared(NPU_SMI_INFO) else { return };
    let info = parse_info(&fs::read_to_string(path).expect("UTF-8")).expect("the table");
    assert_eq!(info.version, "25.0.rc1");
    assert!(info.chips.iter().map(|chip| chip.physical_id).eq(0..16));
    assert!(info.chips.iter().all(|chip| chip.name == "Ascend910" && chip.health == "OK"));
    assert!(info.chips.iter().all(|chip| chip.power_w.is_some() == (chip.chip == 0)));
    assert_eq!((info.chips[15].memory_used_mb, info.chips[15].memory_total_mb), (Some(2883), Some(65536)));
    assert_eq!(info.chips[15].bus_id.as_deref(), Some("0000:83:00.0"));
    assert!(info.processes.is_empty());
}

#[test]
fn the_rehearsal_host_prints_npu_smi_byte_for_byte() {
    let Some(path) = shared(NPU_SMI_INFO) else { return };
    let real = fs::read_to_string(path).expect("UTF-8");
    let info = parse_info(&real).expect("the table");
    let readings = info.chips.iter().map(|chip| {
        serde_json::json!({
            "temperature": chip.temperature_c,
            "power": chip.power_w,
            "memory": chip.memory_used_mb,
            "percent": 0,
            "processes": [],
            "is_lost": false,
        })
    });
    let print = "import json, sys; from rehearsal.npu_smi import info_table; \
                 print(info_table(json.loads(sys.argv[1])), end='')";
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rehearsal/python");
    let readings = serde_json::Value::from_iter(readings).to_string();
    let mut python = Command::new("python3");
    let printed = python.args(["-B", "-c", print, &readings]).env("PYTHONPATH", packages).output();
    let printed = printed.expect("Python runs");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), real);
}
