//! Settings of collections that do not depend on the user's environment, and the choice of counters.

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
        let counter = |row: &std::collections::BTreeMap<String, String>, name: &str| {
            row[&format!("MicroBench {name}")].clone()
        };
        assert_eq!(counter(&found, "aiv_vec_ratio"), "", "{metrics}");
        let expected = if metrics == "none" { String::new() } else { counter(&usual, "aiv_time(us)") };
        assert_eq!(counter(&found, "aiv_time(us)"), expected, "{metrics}");
    }
}
