//! `npubench selftest` on the rehearsal host: all experiments pass, and each defect fails exactly its experiment.
//!
//! A test of a defect runs its experiment and two short ones. If the variable
//! `NPUBENCH_SELFTEST_DEFECTS` is set (to `all`), it runs all of them.

use std::{
    collections::BTreeSet,
    env, fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    context::{ADD, Context, Ran, profile},
    gang::processes_of,
    rehearsal::{decoder_layer, signal},
};

/// Devices of the selftests, two gangs of two.
const DEVICES: &str = "0-3";
/// Experiments that take little time and detect no defect of another one.
const SHORT_EXPERIMENTS: [u64; 2] = [0, 3];

fn selftest(context: &Context, more: &[&str]) -> Ran {
    context.run(&[&["selftest", "--db", "db", "--host", "rehearsal"], more].concat())
}

/// Number, status and text of each experiment.
fn results(ran: &Ran) -> Vec<(u64, String, Value)> {
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        (value["number"].as_u64().expect("a number"), text("status"), value)
    };
    ran.stdout.lines().map(line).collect()
}

/// Runs the selftest on a host with a defect, and asserts that only this experiment fails.
fn assert_fails_only(faults: &str, number: u64, seen: &str) {
    let context = Context::new();
    decoder_layer(&context, "db");
    context.write("faults.yaml", faults);
    let mut options = vec!["--devices", DEVICES, "--format", "json", "--rehearsal-faults", "faults.yaml"];
    let selected: BTreeSet<u64> = SHORT_EXPERIMENTS.into_iter().chain([number]).collect();
    let selected = selected.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    if env::var("NPUBENCH_SELFTEST_DEFECTS").is_err() {
        options.extend(["--experiments", &selected]);
    }
    let ran = selftest(&context, &options);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    let results = results(&ran);
    assert!(results.iter().any(|(experiment, ..)| *experiment == number), "{}", ran.stdout);
    for (experiment, status, value) in results {
        let expected = if experiment == number { "fail" } else { "pass" };
        assert_eq!(status, expected, "{faults}: {value}");
        if experiment == number {
            assert!(value["seen"].as_str().expect("a text").contains(seen), "{faults}: {value}");
            assert!(!value["assumption"].as_str().expect("a text").is_empty(), "{value}");
        }
    }
}

#[test]
fn all_experiments_pass_and_keep_their_evidence() {
    let context = Context::new();
    decoder_layer(&context, "db");
    let ran = selftest(&context, &["--devices", DEVICES]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let statuses = ran.stdout.lines().map(|line| line.split_whitespace().nth(1).unwrap_or_default());
    assert!(
        statuses.clone().count() > 0 && statuses.clone().all(|status| status == "pass"),
        "{}",
        ran.stdout
    );
    let folders = fs::read_dir(context.path("db/.npubench/selftest")).expect("a folder of selftests");
    let folder = folders.flatten().next().expect("a selftest").path();
    let stored = fs::read_to_string(folder.join("results.jsonl")).expect("results");
    assert_eq!(stored.lines().count(), statuses.count());
    assert!(folder.join("02-exit-codes/SIGSEGV/collect.log").is_file());
    let entries = fs::read_to_string(folder.join("04-catalogue-entries/entries.csv")).expect("a table");
    for line in [
        "RmsNorm,as expected,example,",
        "LayerNormV3,as expected,example,",
        "DispatchFFNCombine,not tested,example,",
    ] {
        assert!(entries.contains(line), "{line}: {entries}");
    }
    let report = context.run(&["selftest", "--db", "db", "--report"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    assert!(report.stdout.contains("pass (rehearsal)"), "{}", report.stdout);
    assert!(report.stdout.starts_with("| assumption | experiment | last result | host and date |\n"));
}

#[test]
fn another_chip_fails_experiment_0() {
    assert_fails_only("defects: [other_chip]", 0, "cube cores");
}

#[test]
fn other_exit_codes_of_msprof_fail_experiment_2() {
    assert_fails_only("defects: [msprof_exit_code]", 2, "exit_3");
}

#[test]
fn lost_first_records_fail_experiment_3() {
    assert_fails_only("defects: [lost_head]", 3, "marks are recorded");
}

#[test]
fn processes_on_other_rows_of_npu_smi_fail_experiment_1() {
    assert_fails_only("defects: [swapped_devices]", 1, "torch device 0 is busy on device 1 of npu-smi");
}

#[test]
fn clock_below_its_rating_fails_experiment_5() {
    assert_fails_only("defects: [unsettled_clock]", 5, "MHz are set");
}

#[test]
fn cache_of_another_size_fails_experiment_6() {
    assert_fails_only("defects: [small_cache]", 6, "falls at 0.33 times the 192 MiB");
}

#[test]
fn device_with_slower_kernels_fails_experiment_7() {
    assert_fails_only("defects: [unequal_devices]", 7, "devices differ by");
}

#[test]
fn durations_that_depend_on_counters_fail_experiment_8() {
    assert_fails_only("defects: [profiler_overhead]", 8, "without counters (-");
}

#[test]
fn error_with_an_unknown_text_fails_experiment_10() {
    assert_fails_only("defects: [unknown_error_text]", 10, "index_out_of_range is rejected, not crashed");
}

#[test]
fn other_name_of_a_kernel_fails_experiment_4() {
    assert_fails_only(
        "defects: [other_kernel_name]",
        4,
        "LayerNormV3: wrong_kernel: the call ran as LayerNormV4",
    );
}

#[test]
fn replays_slower_than_production_fail_experiment_9() {
    assert_fails_only("defects: [slower_than_production]", 9, "of the production median of");
}

#[test]
fn rows_without_production_durations_are_no_evidence() {
    let context = Context::new();
    let made = context.run(&["grid", "--db", "db", "--kind", "rehearsal", "--rows", "2", "Add"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let ran = selftest(&context, &["--devices", "0", "--experiments", "9", "--format", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let (number, status, value) = results(&ran).remove(0);
    assert_eq!((number, status.as_str()), (9, "unknown"));
    assert!(
        value["seen"].as_str().expect("a text").contains("ingest a profile of a production run"),
        "{value}"
    );
}

#[test]
fn gangs_with_one_port_fail_experiment_11() {
    assert_fails_only("defects: [shared_rendezvous_port]", 11, "did not finish: ");
}

#[test]
fn one_device_is_compared_with_itself_and_too_few_for_gangs() {
    let context = Context::new();
    decoder_layer(&context, "db");
    let ran = selftest(&context, &["--devices", "5", "--experiments", "7,11", "--format", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let results = results(&ran);
    let [(7, repeated, value), (11, gangs, reason)] = results.as_slice() else { panic!("{results:?}") };
    assert_eq!((repeated.as_str(), gangs.as_str()), ("pass", "unknown"));
    assert!(value["seen"].as_str().expect("a text").ends_with("; one device only"), "{value}");
    assert_eq!(reason["seen"], "a gang needs two devices, this selftest has [5]");
}

#[test]
fn interrupted_selftest_keeps_its_results_and_leaves_no_process() {
    let context = Context::new();
    decoder_layer(&context, "db");
    let options =
        ["selftest", "--db", "db", "--host", "rehearsal", "--devices", DEVICES, "--experiments", "0,11"];
    let mut command = context.command(&options);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    // Processes of gangs have sessions of their own.
    let has_gang =
        || context.snapshot("db").keys().any(|path| path.ends_with("devices-2-3/launched.1.jsonl"));
    while !has_gang() {
        assert!(Instant::now() < deadline, "the gangs do not start");
        thread::sleep(Duration::from_millis(5));
    }
    signal(&child, nix::sys::signal::Signal::SIGINT);
    let ran = context.ran(&child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 5, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("interrupted: no result of experiments 11; `--experiments 11`"),
        "{}",
        ran.stderr
    );
    assert_eq!(processes_of(&context.path("db")), Vec::<i32>::new());
    let report = context.run(&["selftest", "--db", "db", "--report"]);
    let results: Vec<&str> = report.stdout.lines().filter(|line| line.contains("(rehearsal): ")).collect();
    assert!(matches!(results.as_slice(), [one] if one.contains("0 host-software")), "{}", report.stdout);
    let again = context.run(&options);
    assert_eq!(again.code, 0, "{}{}", again.stdout, again.stderr);
}

#[test]
fn paused_devices_are_left_out() {
    let context = Context::new();
    decoder_layer(&context, "db");
    assert_eq!(context.run(&["pause", "--db", "db", "--devices", "0"]).code, 0);
    let options = ["--devices", "0-1", "--experiments", "1", "--format", "json"];
    let ran = selftest(&context, &options);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("left out: device 0 is paused"), "{}", ran.stderr);
    let seen = results(&ran)[0].2["seen"].as_str().expect("a text").to_owned();
    assert!(seen.ends_with(" 1=1"), "{seen}");
}

#[test]
fn host_without_msprof_has_no_evidence() {
    let context = Context::new();
    context.write("k.csv", &profile(&[ADD]));
    assert_eq!(context.run_on_host("910B3", &["ingest", "k.csv", "--db", "db"]).code, 0);
    // Not the leases of this host's devices.
    fs::create_dir(context.path("leases")).expect("created");
    let options = ["selftest", "--db", "db", "--leases", "leases", "--format", "json"];
    let ran = context.run_on_host("910B3", &options);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    let results = results(&ran);
    assert_eq!(results.len(), 12, "{}", ran.stdout);
    for (number, status, value) in results {
        assert!(["unknown", "fail"].contains(&status.as_str()), "{value}");
        let seen = value["seen"].as_str().expect("a text");
        assert!(seen.contains("msprof") || [0, 1].contains(&number), "{value}");
        assert!(!seen.is_empty() && !seen.contains("panicked"), "{value}");
    }
}

#[test]
fn devices_of_a_container_are_one_to_one() {
    let context = Context::new();
    decoder_layer(&context, "db");
    context.write("faults.yaml", "container: {visible: [4, 5, 7]}");
    let options = ["--experiments", "1", "--format", "json", "--rehearsal-faults", "faults.yaml"];
    let ran = selftest(&context, &options);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let seen = results(&ran)[0].2["seen"].as_str().expect("a text").to_owned();
    assert!(seen.ends_with("0=4 1=5 2=7"), "{seen}");
}

#[test]
fn rehearsed_selftest_does_not_allow_measurements() {
    let context = Context::new();
    context.write("k.csv", &profile(&[ADD]));
    assert_eq!(context.run(&["ingest", "k.csv", "--db", "db"]).code, 0);
    let ran = selftest(&context, &["--experiments", "0"]);
    assert_eq!(ran.code, 3, "a folder of kind npu: {}", ran.stderr);
    let unknown = context.run(&["selftest", "--db", "db", "--experiments", "77"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("there is no experiment 77"), "{}", unknown.stderr);
}
