//! Settings of collections that do not depend on the user's environment, and the choice of counters.

use std::collections::BTreeMap;

use crate::prelude::*;
use crate::rehearsal::ledger;

/// Settings with which torch_npu reports errors without codes and late, and fuses the sentinels.
const HARMFUL: [(&str, &str); 5] = [
    ("TASK_QUEUE_ENABLE", "2"),
    ("TORCH_NPU_COMPACT_ERROR_OUTPUT", "1"),
    ("TORCH_NPU_LAZY_FUSION", "True"),
    ("ASCEND_LAUNCH_BLOCKING", "1"),
    ("HCCL_BUFFSIZE", "1"),
];

/// A fault of the device and a call without memory; both are tried again.
const FAULTS: &str = "faults:\n\
    - {device_error: {code: 507015}, where: {kernel: SwiGlu}, times: 1}\n\
    - {out_of_memory: {at: launch}, where: {kernel: Add}, times: 1}\n";

fn run_with(context: &Context, database: &str, environment: &[(&str, &str)]) -> Ran {
    let faults = context.write("faults.yaml", FAULTS).display().to_string();
    let mut command = context.command(&[
        "run",
        "--db",
        database,
        "--host",
        "rehearsal",
        "--rehearsal-model",
        "steady",
        "--devices",
        "0",
        "--rehearsal-faults",
        &faults,
    ]);
    context.ran(&command.envs(environment.iter().copied()).output().expect("npubench runs"))
}

#[test]
fn variables_of_the_shell_change_no_result() {
    let context = Context::new();
    context.small_database("plain");
    context.small_database("harmful");
    let plain = run_with(&context, "plain", &[]);
    let harmful = run_with(&context, "harmful", &HARMFUL);
    assert_eq!((plain.code, harmful.code), (0, 0), "{}\n{}", plain.stderr, harmful.stderr);
    let attempts = "SELECT group_concat(verdict || ' ' || cause || remarks, char(10)) FROM \
        (SELECT verdict, cause, remarks FROM attempts ORDER BY collection, case_id)";
    assert_eq!(ledger(&context, "harmful", attempts), ledger(&context, "plain", attempts));
    let notes = |ran: &Ran| ran.stderr.lines().filter(|line| line.contains("of your environment")).count();
    assert_eq!((notes(&plain), notes(&harmful)), (0, 5), "{}", harmful.stderr);
    harmful.err_has("TASK_QUEUE_ENABLE=2 of your environment is not used, it is 1");
}

#[test]
fn pinned_settings_are_in_the_manifest_and_in_the_options_of_the_run() {
    let context = Context::new();
    context.small_database("db");
    rehearse(&context, "db", "--devices 0").ended(0);
    let options = ledger(&context, "db", "SELECT options FROM runs");
    let options: serde_json::Value = serde_json::from_str(&options).expect("JSON");
    assert_eq!(options["environment"]["variables"]["TASK_QUEUE_ENABLE"], "1");
    assert_eq!(options["environment"]["variables"]["ASCEND_LAUNCH_BLOCKING"], serde_json::Value::Null);
    assert_eq!(options["environment"]["switches"]["matmul.allow_hf32"], false);
    assert_eq!(options["profiler"], serde_json::json!({"task_time": "l1", "aic_metrics": "PipeUtilization"}));
    let files = context.snapshot("db/.npubench/runs");
    let file = |name: &str| {
        let (_, bytes) = files.iter().find(|(path, _)| path.ends_with(name)).expect("is there");
        String::from_utf8(bytes.clone()).expect("UTF-8")
    };
    let manifest: serde_json::Value = serde_json::from_str(&file("manifest.json")).expect("JSON");
    assert_eq!(manifest["environment"], options["environment"]);
    assert_eq!(manifest["profiler"], options["profiler"]);
    let script = file("collect.sh");
    assert!(
        script.contains("export HCCL_BUFFSIZE='200'\n") && script.contains("unset TORCH_NPU_LAZY_FUSION\n")
    );
}

/// A product of FLOAT in HF32 is a case of its own: replayed in HF32, compared with production in HF32 only.
#[test]
fn products_are_compared_with_those_of_their_float_mode() {
    let context = Context::new();
    let types = "ND;ND,\"\"\"4096,4096\"\"\",";
    let product = |duration: u32, dtype: &str| {
        let shapes = "\"\"\"4096,4096;4096,4096\"\"\"";
        format!("MatMulV2,{duration},{shapes},{dtype};{dtype},{types}{dtype},ND")
    };
    let ingest = |records: &[String], mode: &str| {
        let text = profile(&records.iter().map(String::as_str).collect::<Vec<_>>());
        context.write("k.csv", &text.replace(",0,NO,", &format!(",0,{mode},")));
        context.done("ingest k.csv --db db --kind rehearsal");
    };
    // An older profile does not state the mode, so that its records were taken for products without HF32, and measured.
    ingest(&[product(1300, "FLOAT")], "N/A");
    rehearse(&context, "db", "--devices 0").ended(0);
    ingest(&[product(1300, "FLOAT"), product(700, "FLOAT16")], "YES");
    let of_mode = |mode: &str| {
        let row = |row: &BTreeMap<String, String>| row["Input Data Types"].starts_with("FLOAT;");
        let rows = context.rows("db", "MatMulV2").into_iter().filter(row);
        rows.filter(|row| row["Runtime allow_hf32"] == mode).collect::<Vec<_>>()
    };
    assert_eq!(of_mode("")[0]["Profiling Median Duration(us)"], "", "no records of the measured row");
    assert_eq!(of_mode("True")[0]["Profiling Median Duration(us)"], "1300.000000");
    ingest(&[product(2600, "FLOAT")], "NO");
    let question = "--db db --op MatMulV2 --inputs 4096,4096;4096,4096 --dtypes FLOAT,FLOAT --output-dtypes FLOAT \
                    --outputs 4096,4096 --format json";
    rehearse(&context, "db", "--devices 0").ended(0);
    let means = ["", "True"].map(|mode| -> f64 {
        let rows = of_mode(mode);
        assert_eq!((rows.len(), &*rows[0]["MicroBench Verdict"]), (1, "ok"), "{rows:?}");
        rows[0]["Average Duration(us)"].parse().expect("a number")
    });
    assert!((1.9..2.1).contains(&(means[0] / means[1])), "{means:?}");
    for (mode, mean) in [(&[][..], means[0]), (&["--hf32"], means[1])] {
        let answer = context.done(&(["query"], (mode, question)));
        answer.out_has(&format!("\"latency_us\":{mean},"));
    }
    // A workload of production asks for the mode in which it ran.
    let only = Context::new();
    only.write("k.csv", &profile(&[&product(1300, "FLOAT")]));
    only.done("ingest k.csv --db db --kind rehearsal");
    only.write("hf32.csv", &profile(&[&product(1300, "FLOAT")]).replace(",0,NO,", ",0,YES,"));
    only.run("coverage --db db --workload hf32.csv --format json").out_has("hf32_mismatch");
    // A host that does not set the mode gives no result.
    let template = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/replay.py.hbs"));
    let template = template
        .expect("it ships")
        .replace("        apply_switches(switches)\n        call,", "        call,");
    only.write("assets/templates/replay.py.hbs", &template);
    only.done("ingest hf32.csv --db db --kind rehearsal");
    let ran = rehearse(&only, "db", "--devices 0 --assets assets").ended(1);
    ran.err_has("its launches ran without HF32, unlike the row");
}

/// Durations are equal with every group; only PipeUtilization has columns in the database.
#[test]
fn other_counters_leave_durations_and_empty_the_cells_that_they_lack() {
    let context = Context::new();
    context.small_database("PipeUtilization");
    let row = |database: &str| context.rows(database, "SwiGlu").remove(0);
    rehearse(&context, "PipeUtilization", "--devices 0").ended(0);
    for metrics in ["MemoryUB", "MemoryAccess", "none"] {
        context.small_database(metrics);
        rehearse(&context, metrics, &["--devices", "0", "--aic-metrics", metrics]).ended(0);
        let (found, usual) = (row(metrics), row("PipeUtilization"));
        let median = "MicroBench Median Duration(us)";
        assert_eq!(found[median], usual[median], "{metrics}");
        let counter = |row: &BTreeMap<String, String>, name: &str| row[&format!("MicroBench {name}")].clone();
        assert_eq!(counter(&found, "aiv_vec_ratio"), "", "{metrics}");
        let expected = if metrics == "none" { String::new() } else { counter(&usual, "aiv_time(us)") };
        assert_eq!(counter(&found, "aiv_time(us)"), expected, "{metrics}");
    }
}
