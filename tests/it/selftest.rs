//! `npubench selftest` on the rehearsal host: all experiments pass, and each defect fails its experiment.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::gang::processes_of;
use crate::prelude::*;

/// Devices of the selftests, two gangs of two.
const DEVICES: &str = "0-3";

fn selftest(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    context.run(&("selftest --db db --host rehearsal", more))
}

/// Number, status and text of each experiment.
fn results(ran: &Ran) -> Vec<(u64, String, Value)> {
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        (value["number"].whole(), text("status"), value)
    };
    ran.stdout.lines().map(line).collect()
}

#[test]
fn all_experiments_pass_and_keep_their_evidence() {
    let context = Context::of_layer();
    let ran = selftest(&context, &["--devices", DEVICES]).ended(0);
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
    let report = context.done("selftest --db db --report");
    report.out_has("pass (rehearsal)");
    assert!(report.stdout.starts_with("| assumption | experiment | last result | host and date |\n"));
}

#[test]
fn defects_of_the_host_fail_their_experiments() {
    let together: [&[(&str, u64, &str)]; 3] = [
        &[
            ("other_chip", 0, "cube cores"),
            ("swapped_devices", 1, "torch device 0 is busy on device 1 of npu-smi"),
            ("msprof_exit_code", 2, "exit_3"),
            ("unknown_error_text", 10, "index_out_of_range is rejected, not crashed"),
            ("shared_rendezvous_port", 11, "did not finish: "),
        ],
        &[
            ("other_kernel_name", 4, "LayerNormV3: wrong_kernel: the call ran as LayerNormV4"),
            ("unsettled_clock", 5, "MHz are set"),
            ("small_cache", 6, "falls at 0.33 times the 192 MiB"),
            ("unequal_devices", 7, "devices differ by"),
        ],
        &[
            ("lost_head", 3, "marks are recorded"),
            ("profiler_overhead", 8, "without counters (-"),
            ("slower_than_production", 9, "of the production median of"),
            ("slow_while_queried", 12, "% longer with npu-smi beside it than alone"),
        ],
    ];
    for defects in together {
        let context = Context::of_layer();
        let names: Vec<&str> = defects.iter().map(|(name, ..)| *name).collect();
        context.write("faults.yaml", &format!("defects: [{}]", names.join(", ")));
        let numbers: Vec<String> = defects.iter().map(|(_, number, _)| number.to_string()).collect();
        let options = ["--devices", DEVICES, "--format", "json", "--rehearsal-faults", "faults.yaml"];
        let ran = selftest(&context, &(&options[..], &["--experiments", &numbers.join(",")])).ended(1);
        let results = results(&ran);
        assert_eq!(results.len(), defects.len(), "{}", ran.stdout);
        for ((name, number, seen), (experiment, status, value)) in defects.iter().zip(results) {
            assert_eq!((experiment, status.as_str()), (*number, "fail"), "{name}: {value}");
            assert!(value["seen"].text().contains(seen), "{name}: {value}");
            assert!(!value["assumption"].text().is_empty(), "{value}");
        }
    }
}

/// A mismatch leaves out the cases of its kernel, and no others.
#[test]
fn runs_leave_out_kernels_whose_entry_does_not_fit_the_host() {
    let context = Context::new();
    let norm = "LayerNormV3,6.000,\"\"\"16,128;128;128\"\"\",DT_BF16;DT_BF16;DT_BF16,ND;ND;ND,\
                \"\"\"16,128;16,1;16,1\"\"\",DT_BF16;FLOAT;FLOAT,ND;ND;ND";
    context.write("k.csv", &profile(&[ADD, ADD, norm]));
    context.done("ingest k.csv --db db --kind rehearsal");
    context.write("faults.yaml", "defects: [other_kernel_name]");
    let options = "--devices 0-1 --experiments 4 --rehearsal-faults faults.yaml";
    let ran = selftest(&context, options).ended(1);
    ran.out_has("a run leaves out as unsupported, 59.29 % of its recorded time:\n 59.29 %  LayerNormV3 ");
    let run = "run --db db --host rehearsal --devices 0-1";
    context.exits(1, run);
    let verdicts = "SELECT kernel || ' ' || verdict || ' ' || cause FROM verdicts JOIN cases USING (case_id)";
    let verdicts = crate::rehearsal::ledger(&context, "db", verdicts);
    assert!(verdicts.contains("Add ok "), "{verdicts}");
    assert!(verdicts.contains("LayerNormV3 unsupported {\"cause\":\"entry_mismatch\""), "{verdicts}");
    assert!(verdicts.contains("the call ran as LayerNormV4"), "{verdicts}");
    selftest(&context, "--devices 0-1 --experiments 4").ended(0);
    context.done(run);
}

#[test]
fn one_device_is_compared_with_itself_and_too_few_for_gangs() {
    let context = Context::of_layer();
    let ran = selftest(&context, "--devices 5 --experiments 7,11 --format json").ended(1);
    let results = results(&ran);
    let [(7, repeated, value), (11, gangs, reason)] = results.as_slice() else { panic!("{results:?}") };
    assert_eq!((repeated.as_str(), gangs.as_str()), ("pass", "unknown"));
    assert!(value["seen"].text().ends_with("; one device only"), "{value}");
    assert_eq!(reason["seen"], "a gang needs two devices, this selftest has [5]");
}

#[test]
fn interrupted_selftest_keeps_its_results_and_leaves_no_process() {
    let context = Context::of_layer();
    let options =
        ["selftest", "--db", "db", "--host", "rehearsal", "--devices", DEVICES, "--experiments", "0,11"];
    let child = context.start(&options);
    let deadline = Instant::now() + Duration::from_secs(60);
    // Processes of gangs have sessions of their own.
    let has_gang =
        || context.snapshot("db").keys().any(|path| path.ends_with("devices-2-3/launched.1.jsonl"));
    while !has_gang() {
        assert!(Instant::now() < deadline, "the gangs do not start");
        thread::sleep(Duration::from_millis(5));
    }
    signal(&child, nix::sys::signal::Signal::SIGINT);
    let ran = context.finish(child).ended(5);
    ran.err_has("interrupted: no result of experiments 11; `--experiments 11`");
    assert_eq!(processes_of(&context.path("db")), Vec::<i32>::new());
    let report = context.run("selftest --db db --report");
    let results: Vec<&str> = report.stdout.lines().filter(|line| line.contains("(rehearsal): ")).collect();
    assert!(matches!(results.as_slice(), [one] if one.contains("0 host-software")), "{}", report.stdout);
    context.done(&options);
}

#[test]
fn host_without_msprof_has_no_evidence() {
    let context = Context::new();
    context.write("k.csv", &profile(&[ADD]));
    assert_eq!(context.run_on_host("910B3", "ingest k.csv --db db").code, 0);
    // Not the leases of this host's devices.
    fs::create_dir(context.path("leases")).expect("created");
    let options = "selftest --db db --leases leases --format json";
    let ran = context.run_on_host("910B3", options).ended(1);
    let results = results(&ran);
    assert_eq!(results.len(), 13, "{}", ran.stdout);
    for (number, status, value) in results {
        assert!(["unknown", "fail"].contains(&status.as_str()), "{value}");
        let seen = value["seen"].text();
        assert!(seen.contains("msprof") || [0, 1].contains(&number), "{value}");
        assert!(!seen.is_empty() && !seen.contains("panicked"), "{value}");
    }
}

#[test]
fn devices_of_a_container_are_one_to_one() {
    let context = Context::of_layer();
    context.write("faults.yaml", "container: {visible: [4, 5, 7]}");
    let options = "--experiments 1 --format json --rehearsal-faults faults.yaml";
    let ran = selftest(&context, options).ended(0);
    let seen = results(&ran)[0].2["seen"].text().to_owned();
    assert!(seen.ends_with("0=4 1=5 2=7"), "{seen}");
}

#[test]
fn rehearsed_selftest_does_not_allow_measurements() {
    let context = Context::new();
    context.write("k.csv", &profile(&[ADD]));
    context.done("ingest k.csv --db db");
    selftest(&context, "--experiments 0").ended(3);
    let unknown = context.exits(2, "selftest --db db --experiments 77");
    unknown.err_has("there is no experiment 77");
}
