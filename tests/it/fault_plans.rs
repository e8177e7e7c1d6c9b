//! Fault plans of whole runs. Every fault of the rehearsal host, alone and mixed: each case has one verdict, only faulty
//! cases are quarantined, the others are measured, and no process is left running. Errors of fault plans.

use std::{fs, path::Path, process::Command};

use npubench::{
    base::assets::AssetFiles,
    kernel::catalogue::{Catalogue, CatalogueEntry},
    rehearsal::fault_plan::{FaultPlan, ValidNames},
};

use crate::prelude::*;
use crate::rehearsal::{assert_same, ledger, tables};

/// A fault plan, and the kernels that do not end `ok` with their verdicts.
type ExpectedFailures = &'static [(&'static str, &'static str)];

/// Repeated and single faults, with the expected verdicts.
const FAULTS: [(&str, ExpectedFailures); 22] = [
    ("- crash: {exit: 7}\n  where: {kernel: SwiGlu}", &[("SwiGlu", "quarantined")]),
    ("- crash: {signal: SIGKILL, records: none}\n  where: {kernel: Sort}", &[("Sort", "quarantined")]),
    ("- crash: {signal: SIGSEGV, at: exit}\n  times: 1", &[]),
    ("- crash: {signal: SIGSEGV}\n  where: {kernel: MatMulV3}\n  times: 1", &[]),
    (
        "- hang: {ignores_sigterm: true, grandchild: own_session}\n  where: {kernel: Sort}",
        &[("Sort", "quarantined")],
    ),
    ("- device_error: {code: 507015}\n  where: {kernel: GatherV2}", &[("GatherV2", "quarantined")]),
    ("- out_of_memory: {at: arguments}\n  where: {kernel: Sort}", &[("Sort", "oom")]),
    ("- out_of_memory: {at: arguments}\n  where: {kernel: RmsNorm}\n  times_each: 1", &[]),
    ("- lost_records: {head: 300, tail: 0}\n  times: 2", &[]),
    ("- lost_records: {head: 0, tail: 40}\n  times: 2", &[]),
    ("- truncated_csv: {keeps: 0.5}\n  times: 2", &[]),
    ("- ragged_csv: {rows: 2}\n  times: 2", &[]),
    ("- lost_raw_data:\n  times: 2", &[]),
    ("- missing_output: {folder: true, second_export: true}", &[]),
    ("- missing_output: {folder: true, second_export: false}\n  times: 2", &[]),
    ("- wrong_device_id: {shows: 9}\n  where: {devices: 1}", &[]),
    ("- no_device_id: {column: true}\n  times: 2", &[]),
    ("- no_device_id: {column: false}", &[]),
    ("- disk_full: {keeps: 0.2, second_export: false}\n  times: 2", &[]),
    ("- slow_device: {factor: 4}\n  where: {devices: 1}", &[]),
    ("- device_lost:\n  where: {devices: 1}\n  when: {from: 0.8}", &[]),
    ("- leftover_process: {seconds: 2}\n  where: {devices: [1]}", &[]),
];

/// Each run has every fifth fault; each case has one verdict, and only faulty cases do not end `ok`.
#[test]
fn faults_affect_only_their_cases() {
    for first in 0..5 {
        let chosen: Vec<_> = FAULTS.iter().skip(first).step_by(5).collect();
        let faults: String =
            chosen.iter().flat_map(|fault| fault.0.lines()).map(|line| format!("  {line}\n")).collect();
        let context = Context::of_layer();
        context.write("plan.yaml", &format!("faults:\n{faults}"));
        let ran = context.run(&(LIFELIKE_RUN, "--rehearsal-faults plan.yaml"));
        let output = format!("{faults}\n{}{}", ran.stdout, ran.stderr);
        assert!(matches!(ran.code, 0 | 1), "{}: {output}", ran.code);
        assert_eq!(processes_in(&context.path("db")), Vec::<String>::new(), "{output}");
        let processes = context.path("db/.npubench/processes");
        assert_eq!(fs::read_dir(processes).map_or(0, Iterator::count), 0, "{output}");
        let verdicts = "SELECT c.kernel || ' ' || v.verdict FROM planned p JOIN cases c USING (case_id)
                        LEFT JOIN verdicts v USING (run, case_id)";
        let verdicts = ledger(&context, "db", verdicts);
        assert_eq!(verdicts.split("; ").count(), 20, "{output}");
        for case in verdicts.split("; ") {
            let (kernel, verdict) = case.split_once(' ').expect("two words");
            // A case with two faults gets the verdict of one; noise of the lifelike model is no fault.
            let faulty: Vec<&str> = chosen
                .iter()
                .flat_map(|fault| fault.1)
                .filter(|end| end.0 == kernel)
                .map(|end| end.1)
                .collect();
            let fits = if faulty.is_empty() {
                ["ok", "noisy"].contains(&verdict)
            } else {
                faulty.contains(&verdict)
            };
            assert!(fits, "{case}, expected {faulty:?}: {output}");
        }
    }
}

/// A crash loses the records of the cases before it, which are measured again; the rows are those of a night without it.
#[test]
fn crash_costs_the_collection_and_no_row() {
    let context = Context::of_layer();
    let run = "run --db db --host rehearsal --rehearsal-model steady --seed 1 --devices 0";
    context.write("plan.yaml", "faults:\n  - crash: {launch: 3}\n    where: {ordinal: 5, collections: 1}\n");
    context.exits(0, &(run, "--rehearsal-faults plan.yaml"));
    let first = "SELECT a.verdict || ' ' || count(*) FROM attempts a JOIN collections c USING (collection)
                 WHERE c.number = 1 GROUP BY a.verdict ORDER BY 1";
    assert_eq!(ledger(&context, "db", first), "crashed 1; lost_records 5; not_run 14");
    // Not exported a second time: the process has left nothing.
    assert!(!context.snapshot("db").keys().any(|path| path.ends_with("00001/export.log")));
    let rows = tables(&context, "db");
    context.decoder_layer("undisturbed");
    context.done(run.replace("--db db", "--db undisturbed").as_str());
    assert_same(&rows, &tables(&context, "undisturbed"));
}

/// Whole units of 2 MiB, or 4 MiB, of each device are on the disk, and nothing below.
#[test]
fn killed_process_leaves_whole_units_of_records() {
    let script = "import sys; sys.path.insert(0, sys.argv[1]); from rehearsal.corrupt import written_before_end as left
for counts in ({0: 16383}, {0: 16384}, {0: 40000, 1: 100}, {0: 33000, 3: 20000}):
    launches = [(device, number) for device, count in counts.items() for number in range(count)]
    for driver in ('idle_driver', 'busy_driver'):
        kept = left(launches, driver)
        assert all(kept[place][1] == kept[place - 1][1] + 1 for place in range(1, len(kept)) if kept[place][0] == kept[place - 1][0])
        print(len(kept), end=' ')";
    let stand_ins = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rehearsal/python");
    let output =
        Command::new("python3").args(["-B", "-c", script, stand_ins]).output().expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "0 0 16384 0 32768 32768 49152 32768 ", "{}", String::from_utf8_lossy(&output.stderr));
}

/// The reason of a row names the table and its fault, not the consequence.
#[test]
fn unreadable_table_is_the_reason_of_its_rows() {
    let context = Context::of_layer();
    context.write("plan.yaml", "faults:\n  - truncated_csv: {keeps: 0}\n");
    let run = "run --db db --host rehearsal --devices 0 --kernels Add";
    let ran = context.exits(4, &(run, "--rehearsal-faults plan.yaml"));
    ran.err_has("this host cannot measure: ");
    for row in context.rows("db", "Add") {
        assert_eq!(row["MicroBench Verdict"], "lost_records");
        let reason = &row["MicroBench Reason"];
        assert!(
            reason.starts_with("the profile cannot be read: ") && reason.contains("op_summary"),
            "{reason}"
        );
    }
}

/// Its tables look complete, but the exporter states that it dropped data.
#[test]
fn collection_with_lost_data_in_the_log_of_its_export_gives_no_result() {
    let context = Context::of_layer();
    context.write("plan.yaml", "faults:\n  - lost_raw_data:\n");
    let run = "run --db db --host rehearsal --devices 0 --kernels Add";
    context.exits(1, &(run, "--rehearsal-faults plan.yaml"));
    for row in context.rows("db", "Add") {
        assert_eq!(row["MicroBench Verdict"], "lost_records");
        let reason = &row["MicroBench Reason"];
        assert!(
            reason.starts_with("the exporter reports lost data: ") && reason.contains("may be lost"),
            "{reason}"
        );
    }
}

/// The number of records is right, and one launch of each case has none.
#[test]
fn launches_without_a_record_of_their_own_are_not_accepted() {
    let context = Context::of_layer();
    context.write("plan.yaml", "faults:\n  - repeated_records:\n");
    let arguments = "run --db db --host rehearsal --kernels SwiGlu,MatMulV3";
    context.exits(1, &(arguments, "--devices 0-1 --rehearsal-faults plan.yaml"));
    for row in ["SwiGlu", "MatMulV3"].map(|kernel| context.rows("db", kernel)).concat() {
        assert_eq!(row["MicroBench Verdict"], "lost_records", "{row:?}");
        assert!(row["MicroBench Reason"].starts_with("one launch is recorded twice"), "{row:?}");
    }
}

#[test]
fn device_in_use_is_waited_for_or_left_out() {
    let context = Context::of_layer();
    let used = "faults:\n  - leftover_process: {seconds: 600}\n    where: {devices: [1]}\n";
    context.write("plan.yaml", used);
    let run = |devices: &str, busy: &str| {
        let arguments = "run --db db --host rehearsal --rehearsal-faults plan.yaml";
        context.run(&(arguments, &["--update", "all", "--devices", devices, "--busy", busy]))
    };
    let waits = run("0-1", "wait").ended(0);
    waits.err_has("no new collection is started on device 1: process ");
    let skips = run("0-1", "skip").ended(0);
    skips.err_has("left out: device 1 is used by process ");
    skips.err_has(" on device 0;");
    let none = run("1", "skip").ended(4);
    none.err_has("no device is free: device 1 is used by process ");
}

fn out_of_memory(context: &Context, database: &str) -> String {
    let of = "SELECT case_id FROM verdicts WHERE verdict = 'oom' ORDER BY 1";
    ledger(context, database, of)
}

#[test]
fn same_seed_injects_the_same_faults_on_any_number_of_devices() {
    let context = Context::new();
    let plan = |seed: u32| {
        let target = "{probability: 0.4, drawn_by: case}";
        context
            .write("faults.yaml", &format!("seed: {seed}\nfaults:\n- out_of_memory:\n  where: {target}\n"));
    };
    let mut affected = Vec::new();
    for (database, devices, seed) in [("one", "5", 3), ("six", "0-5", 3), ("other", "5", 4)] {
        plan(seed);
        context.decoder_layer(database);
        rehearse(&context, database, &["--devices", devices, "--rehearsal-faults", "faults.yaml"]).ended(1);
        affected.push(out_of_memory(&context, database));
    }
    assert_eq!(affected[0], affected[1]);
    assert_ne!(affected[0], affected[2]);
    assert!(affected[0].matches("; ").count() >= 3, "{}", affected[0]);
}

#[test]
fn invalid_plans_are_refused_before_the_run() {
    let context = Context::new();
    context.small_database("db");
    context.write("faults.yaml", "faults:\n- crash: {signal: SIGSEGV}\n  where: {kernel: SwiGlo}\n");
    let ran = rehearse(&context, "db", "--rehearsal-faults faults.yaml").ended(3);
    insta::assert_snapshot!(ran.stderr, @r"
    error: faults.yaml:3:19: the catalogue has no kernel `SwiGlo`
    hint: did you mean `SwiGlu`?
    ");
    let ran = rehearse(&context, "db", "--rehearsal-faults none.yaml").ended(3);
    insta::assert_snapshot!(ran.stderr, @"
    error: none.yaml: cannot be read: No such file or directory (os error 2)
    hint: give the path of a fault plan; docs/rehearsal.md contains an example
    ");
    let ran = context.exits(2, "run --db db --host npu --rehearsal-faults faults.yaml");
    insta::assert_snapshot!(ran.stderr, @"
    error: `faults.yaml` is a fault plan, which only the rehearsal host supports
    hint: add `--host rehearsal`, or remove `--rehearsal-faults`
    ");
    assert!(!context.path("db/.npubench/runs").exists(), "nothing was begun");
}

#[test]
fn documented_plan_is_valid() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/rehearsal.md")).expect("there");
    let (_, after) = text.split_once("```yaml\nseed:").expect("an example");
    let (example, _) = after.split_once("```").expect("its end");
    let example = &format!("seed:{example}");
    let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("built in");
    let kernels: Vec<&str> = catalogue.entries().flat_map(CatalogueEntry::names).collect();
    let plan = FaultPlan::parse(
        Path::new("docs/rehearsal.md"),
        example,
        &ValidNames { kernels: &kernels, devices: 16 },
    );
    let plan = serde_json::to_value(plan.expect("a plan")).expect("JSON");
    let mut kinds: Vec<String> = Vec::new();
    for fault in plan["faults"].list() {
        let mut keys = fault.as_object().expect("a fault").keys();
        let criteria = ["where", "times", "times_each", "when"];
        let kind = keys.find(|key| !criteria.contains(&key.as_str())).expect("a kind");
        assert!(!kinds.contains(kind), "one of each: {kind}");
        kinds.push(kind.clone());
    }
    assert_eq!(kinds.len(), 15, "every fault is shown");
}
