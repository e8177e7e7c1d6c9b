//! Fault plans of whole runs. Every fault of the rehearsal host, alone and mixed: each case has one verdict, only faulty
//! cases are quarantined, the others are measured, and no process is left running. Errors of fault plans.

use std::{collections::BTreeMap, fs, path::Path, thread};

use npubench::{
    base::{assets::AssetFiles, stats::SplitMix64},
    kernel::catalogue::{Catalogue, CatalogueEntry},
    rehearsal::fault_plan::{FaultPlan, ValidNames},
};
use rusqlite::Connection;

use crate::{
    context::Context,
    kill_resume::{ingested, processes_in},
    rehearsal::{decoder_layer, ledger, rehearse},
};

/// A fault plan, and the kernels that do not end `ok` with their verdicts.
type ExpectedFailures = &'static [(&'static str, &'static str)];

/// Repeated and single faults, with the expected verdicts.
const ALONE: [(&str, &str, ExpectedFailures); 21] = [
    ("exit code", "- crash: {exit: 7}\n  where: {kernel: SwiGlu}", &[("SwiGlu", "quarantined")]),
    (
        "killed",
        "- crash: {signal: SIGKILL, records: none}\n  where: {kernel: Sort}",
        &[("Sort", "quarantined")],
    ),
    ("crash at exit", "- crash: {signal: SIGSEGV, at: exit}", &[]),
    ("crash once", "- crash: {signal: SIGSEGV}\n  where: {kernel: MatMulV3}\n  times: 1", &[]),
    (
        "hang",
        "- hang: {ignores_sigterm: true, grandchild: own_session}\n  where: {kernel: Sort}",
        &[("Sort", "quarantined")],
    ),
    (
        "device error",
        "- device_error: {code: 507015}\n  where: {kernel: GatherV2}",
        &[("GatherV2", "quarantined")],
    ),
    ("no memory", "- out_of_memory: {at: arguments}\n  where: {kernel: Sort}", &[("Sort", "oom")]),
    ("no memory once", "- out_of_memory: {at: arguments}\n  where: {kernel: RmsNorm}\n  times_each: 1", &[]),
    ("lost head", "- lost_records: {head: 300, tail: 0}\n  times: 2", &[]),
    ("lost tail", "- lost_records: {head: 0, tail: 40}\n  times: 2", &[]),
    ("cut table", "- truncated_csv: {keeps: 0.5}\n  times: 2", &[]),
    ("ragged table", "- ragged_csv: {rows: 2}\n  times: 2", &[]),
    ("no output, exported again", "- missing_output: {folder: true, second_export: true}", &[]),
    ("no output", "- missing_output: {folder: true, second_export: false}\n  times: 2", &[]),
    ("wrong device", "- wrong_device_id: {shows: 9}\n  where: {devices: 1}", &[]),
    ("no device", "- no_device_id: {column: true}\n  times: 2", &[]),
    ("no device column", "- no_device_id: {column: false}", &[]),
    ("full disk", "- disk_full: {keeps: 0.2, second_export: false}\n  times: 2", &[]),
    ("slow device", "- slow_device: {factor: 4}\n  where: {devices: 1}", &[]),
    ("lost device", "- device_lost:\n  where: {devices: 1}\n  when: {from: 0.8}", &[]),
    ("leftover", "- leftover_process: {seconds: 2}\n  where: {devices: [1]}", &[]),
];

/// Runs with a fault plan; returns the verdicts by kernel, and standard error.
fn verdicts(devices: &str, plan: &str, model: &str) -> (BTreeMap<String, Vec<String>>, String) {
    let context = ingested();
    context.write("plan.yaml", plan);
    let ran = context.run(&[
        "run",
        "--db",
        "db",
        "--host",
        "rehearsal",
        "--devices",
        devices,
        "--rehearsal-model",
        model,
        "--rehearsal-faults",
        "plan.yaml",
    ]);
    let output = format!("{plan}\n{}{}", ran.stdout, ran.stderr);
    assert!(matches!(ran.code, 0 | 1), "{}: {output}", ran.code);
    assert_eq!(processes_in(&context.path("db")), Vec::<String>::new(), "{output}");
    assert_eq!(
        fs::read_dir(context.path("db/.npubench/processes")).map_or(0, Iterator::count),
        0,
        "{output}"
    );
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
    let mut query = ledger
        .prepare(
            "SELECT c.kernel, v.verdict FROM planned p JOIN cases c USING (case_id)
             LEFT JOIN verdicts v USING (run, case_id) ORDER BY c.kernel, p.ordinal",
        )
        .expect("a query");
    let rows = query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let mut verdicts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows.expect("rows") {
        let (kernel, verdict) = row.expect("every case has a verdict");
        verdicts.entry(kernel).or_default().push(verdict);
    }
    assert_eq!(verdicts.values().map(Vec::len).sum::<usize>(), 20, "{output}");
    (verdicts, output)
}

/// Asserts the verdicts of a run on these devices.
fn check(devices: &str, plan: &str, expected: &[(&str, &str)]) {
    let (verdicts, output) = verdicts(devices, plan, "lifelike");
    for (kernel, found) in verdicts {
        // A case that crashes and runs out of memory gets one of both verdicts.
        let ends = expected.iter().filter(|(expected, _)| *expected == kernel).map(|(_, verdict)| *verdict);
        let mut ends: Vec<&str> = ends.collect();
        if ends.is_empty() {
            // Noise of the lifelike model is not a fault.
            ends = vec!["ok", "noisy"];
        }
        let fits = |verdict: &String| ends.contains(&verdict.as_str());
        assert!(found.iter().all(fits), "{kernel} is {found:?}, expected {ends:?}: {output}");
    }
}

#[test]
fn each_fault_alone_affects_only_its_cases() {
    // Some runs wait most of the time.
    thread::scope(|scope| {
        for some in ALONE.chunks(ALONE.len().div_ceil(3)) {
            scope.spawn(move || {
                for (name, fault, expected) in some {
                    check("0-1", &format!("# {name}\nfaults:\n{}", indented(fault)), expected);
                }
            });
        }
    });
}

/// Rows of a table that are no records cost the cases that lack them, which are measured again; the remark names table and row.
#[test]
fn damaged_records_cost_their_cases_alone() {
    let context = ingested();
    context.write("plan.yaml", "faults:\n  - ragged_csv: {rows: 3}\n    times: 1\n");
    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0"];
    let ran = context.run(&[&run[..], &["--rehearsal-faults", "plan.yaml"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ledger = crate::kill_resume::ledger(&context).expect("a ledger");
    let sql = "SELECT verdict, remarks FROM attempts WHERE verdict <> 'ok'";
    let mut statement = ledger.prepare(sql).expect("a query");
    let lost = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    let lost: Vec<(String, String)> = lost.map(|row| row.expect("a row")).collect();
    assert!((1..=3).contains(&lost.len()), "{lost:?}");
    for (verdict, remarks) in lost {
        assert_eq!(verdict, "lost_records");
        let remarks: serde_json::Value = serde_json::from_str(&remarks).expect("JSON");
        let remark = &remarks[0];
        assert_eq!((&remark["cause"], &remark["rows"]), (&"unreadable_rows".into(), &3.into()));
        let message = remark["message"].as_str().expect("a text");
        assert!(
            message.contains("op_summary") && message.contains("45 fields, the header has 46"),
            "{message}"
        );
    }
    let all: u32 = ledger.query_row("SELECT count(*) FROM attempts", [], |row| row.get(0)).expect("a count");
    assert!(all <= 23, "{all} attempts at 20 cases");
}

/// The reason of a row names the table and its fault, not the consequence.
#[test]
fn unreadable_table_is_the_reason_of_its_rows() {
    let context = ingested();
    context.write("plan.yaml", "faults:\n  - truncated_csv: {keeps: 0}\n");
    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--kernels", "Add"];
    let ran = context.run(&[&run[..], &["--rehearsal-faults", "plan.yaml"]].concat());
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("this host cannot measure: "), "{}", ran.stderr);
    for row in context.rows("db", "Add") {
        assert_eq!(row["MicroBench Verdict"], "lost_records");
        let reason = &row["MicroBench Reason"];
        assert!(
            reason.starts_with("the profile cannot be read: ") && reason.contains("op_summary"),
            "{reason}"
        );
    }
}

/// A hot device lowers its clock; kernels take longer than they would on a cool one.
#[test]
fn durations_at_a_lower_clock_are_not_accepted() {
    let run = |faults: &str| {
        let context = ingested();
        context.write("plan.yaml", faults);
        let arguments = ["run", "--db", "db", "--host", "rehearsal", "--kernels", "SwiGlu,MatMulV3"];
        let options = ["--devices", "0-1", "--rehearsal-faults", "plan.yaml"];
        let ran = context.run(&[&arguments[..], &options].concat());
        let rows = ["SwiGlu", "MatMulV3"].map(|kernel| context.rows("db", kernel)).concat();
        assert!(!rows.is_empty());
        (ran, rows)
    };
    let (ran, rows) = run("faults:\n  - throttling: {factor: 1.4, temperature: 98}\n");
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    // Nothing was measured, so that no collection would make it precise.
    assert!(!ran.stderr.contains(" within "), "{}", ran.stderr);
    for row in rows {
        assert_eq!(row["MicroBench Verdict"], "throttled", "{row:?}");
        let reason = &row["MicroBench Reason"];
        assert!(reason.contains("a lower clock than the 1850 MHz for which the device is set"), "{reason}");
        assert_eq!(row["MicroBench Median Duration(us)"], "", "{row:?}");
    }
    let (ran, rows) =
        run("faults:\n  - throttling: {factor: 1.4, temperature: 98}\n    where: {devices: 1}\n");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(rows.iter().all(|row| row["MicroBench Verdict"] == "ok"), "{rows:?}");
}

/// The number of records is right, and one launch of each case has none.
#[test]
fn launches_without_a_record_of_their_own_are_not_accepted() {
    let context = ingested();
    context.write("plan.yaml", "faults:\n  - repeated_records:\n");
    let arguments = ["run", "--db", "db", "--host", "rehearsal", "--kernels", "SwiGlu,MatMulV3"];
    let ran =
        context.run(&[&arguments[..], &["--devices", "0-1", "--rehearsal-faults", "plan.yaml"]].concat());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    for row in ["SwiGlu", "MatMulV3"].map(|kernel| context.rows("db", kernel)).concat() {
        assert_eq!(row["MicroBench Verdict"], "lost_records", "{row:?}");
        assert!(row["MicroBench Reason"].starts_with("one launch is recorded twice"), "{row:?}");
    }
}

fn indented(fault: &str) -> String {
    fault.lines().map(|line| format!("  {line}\n")).collect()
}

#[test]
fn mixed_faults_affect_only_their_cases() {
    let mixes = std::env::var("NPUBENCH_MIXES").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for seed in 0..mixes {
        let mut random = SplitMix64::new(seed);
        // Without the slow faults: a hang lasts until its limit, and is tested alone above.
        let mut chosen: Vec<usize> = (0..ALONE.len()).filter(|index| ALONE[*index].0 != "hang").collect();
        while chosen.len() > 4 {
            let drop = usize::try_from(random.next_below(chosen.len() as u64)).expect("an index");
            chosen.remove(drop);
        }
        let faults: String = chosen.iter().map(|index| indented(ALONE[*index].1)).collect();
        let expected: Vec<_> = chosen.iter().flat_map(|index| ALONE[*index].2).copied().collect();
        check("0-3", &format!("# mix {seed}\nseed: {seed}\nfaults:\n{faults}"), &expected);
    }
}

#[test]
fn device_in_use_is_waited_for_or_left_out() {
    let context = ingested();
    let used = "faults:\n  - leftover_process: {seconds: 600}\n    where: {devices: [1]}\n";
    context.write("plan.yaml", used);
    let run = |devices: &str, busy: &str| {
        let arguments = ["run", "--db", "db", "--host", "rehearsal", "--rehearsal-faults", "plan.yaml"];
        context.run(&[&arguments[..], &["--update", "all", "--devices", devices, "--busy", busy]].concat())
    };
    let waits = run("0-1", "wait");
    assert_eq!(waits.code, 0, "{}", waits.stderr);
    assert!(waits.stderr.contains("no new collection is started on device 1: process "), "{}", waits.stderr);
    let skips = run("0-1", "skip");
    assert_eq!(skips.code, 0, "{}", skips.stderr);
    assert!(skips.stderr.contains("left out: device 1 is used by process "), "{}", skips.stderr);
    assert!(skips.stderr.contains(" on device 0;"), "{}", skips.stderr);
    let none = run("1", "skip");
    assert_eq!(none.code, 4);
    assert!(none.stderr.contains("no device is free: device 1 is used by process "), "{}", none.stderr);
}

/// Ids of the cases that ran out of memory.
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
        decoder_layer(&context, database);
        let ran = rehearse(&context, database, &["--devices", devices, "--rehearsal-faults", "faults.yaml"]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
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
    let ran = rehearse(&context, "db", &["--rehearsal-faults", "faults.yaml"]);
    assert_eq!(ran.code, 3);
    insta::assert_snapshot!(ran.stderr, @r"
    error: faults.yaml:3:19: the catalogue has no kernel `SwiGlo`
    hint: did you mean `SwiGlu`?
    ");
    let ran = rehearse(&context, "db", &["--rehearsal-faults", "none.yaml"]);
    assert_eq!(ran.code, 3);
    insta::assert_snapshot!(ran.stderr, @"
    error: none.yaml: cannot be read: No such file or directory (os error 2)
    hint: give the path of a fault plan; docs/rehearsal.md contains an example
    ");
    let ran = context.run(&["run", "--db", "db", "--host", "npu", "--rehearsal-faults", "faults.yaml"]);
    assert_eq!(ran.code, 2);
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
    for fault in plan["faults"].as_array().expect("a list") {
        let mut keys = fault.as_object().expect("a fault").keys();
        let criteria = ["where", "times", "times_each", "when"];
        let kind = keys.find(|key| !criteria.contains(&key.as_str())).expect("a kind");
        assert!(!kinds.contains(kind), "one of each: {kind}");
        kinds.push(kind.clone());
    }
    assert_eq!(kinds.len(), 15, "every fault is shown");
}
