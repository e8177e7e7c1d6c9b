//! Control kernels at the ends of collections, on the rehearsal host.

use std::fs;

use serde_json::Value;

use crate::{
    context::Context,
    gang,
    kill_resume::{ingested, ledger},
};

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/replay.py.hbs");

const RUN: [&str; 7] = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"];

fn count(context: &Context, sql: &str) -> i64 {
    ledger(context).expect("a ledger").query_row(sql, [], |row| row.get(0)).expect("a count")
}

/// Each collection has the three kernels at both ends, and the same are assessed again from its evidence.
#[test]
fn every_collection_has_controls_at_both_ends() {
    let context = ingested();
    let ran = context.run(&RUN);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let collections = count(&context, "SELECT count(*) FROM collections");
    assert_eq!(count(&context, "SELECT count(*) FROM controls"), 6 * collections, "{}", ran.stderr);
    assert_eq!(
        count(&context, "SELECT count(*) FROM controls WHERE json_array_length(durations_ns) <> 8"),
        0
    );
    let names =
        "SELECT count(DISTINCT kernel) FROM controls WHERE kernel IN ('MatMulV2', 'TensorMove', 'Abs')";
    assert_eq!(count(&context, names), 3);
    assert_eq!(count(&context, "SELECT count(*) FROM cases WHERE kernel = 'Abs'"), 0, "no case of a control");
    let same = context.run(&["reparse", "--db", "db"]);
    assert_eq!(same.code, 0, "{}{}", same.stdout, same.stderr);
    let changed = "UPDATE controls SET durations_ns = '[1]' WHERE position = 'end' AND control = 'copy'";
    ledger(&context).expect("a ledger").execute_batch(changed).expect("changed");
    let found = context.run(&["reparse", "--db", "db"]);
    assert_eq!(found.code, 1, "{}", found.stderr);
    assert!(found.stdout.contains("have other readings than the ledger"), "{}{}", found.stdout, found.stderr);
    assert_eq!(context.run(&["reparse", "--db", "db", "--write"]).code, 0);
    assert_eq!(context.run(&["reparse", "--db", "db"]).code, 0);
}

/// In the first round of a plan no case has been measured elsewhere: the controls are what the devices have in common.
#[test]
fn slow_device_is_found_by_controls_before_a_case_is_measured_twice() {
    let context = ingested();
    context.write("plan.yaml", "faults:\n  - slow_kernels: {factor: 1.04}\n    where: {devices: 1}\n");
    let once = ["--max-collections", "1", "--rehearsal-faults", "plan.yaml"];
    let ran = context.run(&[&RUN[..], &once].concat());
    assert!(ran.code <= 1, "{}", ran.stderr);
    let attempts = |condition: &str| {
        count(
            &context,
            &format!(
                "SELECT count(*) FROM attempts a JOIN collections c USING (collection) WHERE {condition}"
            ),
        )
    };
    assert!(attempts("c.device = 1 AND a.verdict = 'throttled'") > 0, "{}", ran.stderr);
    assert_eq!(attempts("c.device = 1 AND a.verdict IN ('ok', 'noisy')"), 0, "{}", ran.stderr);
    assert_eq!(attempts("c.device <> 1 AND a.verdict = 'throttled'"), 0, "{}", ran.stderr);
    let page = context.command(&["why", "SwiGlu.csv:2", "--db", "db", "--format", "json"]).output();
    let page: Value = serde_json::from_slice(&page.expect("it runs").stdout).expect("JSON");
    for collection in page["collections"].as_array().expect("collections") {
        let is_slow = collection["devices"][0] == 1;
        let matmul = collection["controls"].as_array().expect("controls").iter();
        let matmul = matmul.clone().find(|control| control["control"] == "matmul").expect("a product");
        let off = matmul["off_percent"].as_f64().expect("other collections");
        assert_eq!(off > 2.0, is_slow, "{matmul}");
    }
}

/// The clock falls while the host prepares a case: without launches until it has risen, those of a short kernel are 20 % slower.
/// For longer than the launches before the controls of a collection last, the lower clock looks settled. A host that needs
/// much longer than the device for each launch changes nothing.
#[test]
fn cases_are_launched_at_the_clock_of_a_busy_device() {
    let reading = "end.synchronize()";
    let template = fs::read_to_string(TEMPLATE).expect("it ships");
    assert!(template.contains(reading));
    let slow_host = template.replace(reading, &format!("{reading}; time.sleep(0.01)"));
    let durations = |faults: &str, script: &str, kernels: &[&str]| {
        let context = ingested();
        context.write("plan.yaml", faults);
        context.write("assets/templates/replay.py.hbs", script);
        let more = ["--rehearsal-model", "steady", "--rehearsal-faults", "plan.yaml"];
        let limits = ["--max-collections", "1", "--assets", "assets"];
        let ran = context.run(&[&RUN[..], &more, &limits, kernels].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let samples = "SELECT group_concat(case_id || ' ' || total) FROM
             (SELECT a.case_id, sum(s.duration_ns) AS total FROM attempts a JOIN samples s USING (attempt)
              GROUP BY a.case_id ORDER BY a.case_id)";
        let controls = "SELECT group_concat(read) FROM
             (SELECT DISTINCT control || durations_ns AS read FROM controls ORDER BY read)";
        let ledger = ledger(&context).expect("a ledger");
        [samples, controls]
            .map(|sql| -> String { ledger.query_row(sql, [], |row| row.get(0)).expect("text") })
    };
    let idle_clock =
        |milliseconds| format!("faults:\n  - idle_clock: {{factor: 1.2, milliseconds: {milliseconds}}}\n");
    let none = "faults: []\n";
    let without = durations(none, &template, &[]);
    for milliseconds in [3, 30] {
        assert_eq!(durations(&idle_clock(milliseconds), &template, &[]), without, "{milliseconds} ms");
    }
    let without = durations(none, &slow_host, &["--kernels", "Mul"]);
    assert_eq!(durations(&idle_clock(30), &slow_host, &["--kernels", "Mul"]), without, "slow host");
}

/// The clock rises later than the launches before a case may last, but not later than those before the control kernels.
#[test]
fn case_before_which_the_clock_did_not_rise_has_a_remark() {
    let context = ingested();
    context.write("plan.yaml", "faults:\n  - idle_clock: {factor: 1.2, milliseconds: 80}\n");
    let more = ["--rehearsal-model", "steady", "--rehearsal-faults", "plan.yaml", "--max-collections", "1"];
    let ran = context.run(&[&RUN[..6], &["0", "--kernels", "Mul"], &more].concat());
    assert!(ran.code <= 1, "{}", ran.stderr);
    let remark = r#"{"cause":"clock_not_risen","percent":20."#;
    let attempts = |condition: &str| {
        count(&context, &format!("SELECT count(*) FROM attempts WHERE launched > 0 AND {condition}"))
    };
    let collections = count(&context, "SELECT count(*) FROM collections");
    // The first case of a collection is launched after its control kernels.
    assert_eq!(attempts(&format!("instr(remarks, '{remark}') = 0")), collections, "{}", ran.stderr);
    assert!(attempts(&format!("instr(remarks, '{remark}') > 0")) > 0, "{}", ran.stderr);
    assert_eq!(attempts("verdict = 'ok'"), 0, "the control kernels at the end show the lower clock");
    let same = context.run(&["reparse", "--db", "db"]);
    assert_eq!(same.code, 0, "{}{}", same.stdout, same.stderr);
}

/// The launches that settle the clock are no launches of a case, whose verdict and whose gang do not depend on them.
#[test]
fn exception_of_the_settling_or_of_a_control_is_none_of_a_case() {
    let template = fs::read_to_string(TEMPLATE).expect("it ships");
    let reading = "return begin.elapsed_time(end)";
    assert!(template.contains(reading));
    let raising = |condition: &str| {
        let raised = format!(
            "if {condition}:\n            raise RuntimeError('NPU out of memory; no event')\n        {reading}"
        );
        template.replace(reading, &raised)
    };
    let run =
        ["run", "--db", "db", "--host", "rehearsal", "--rehearsal-model", "steady", "--assets", "assets"];
    let reasons = |context: &Context, script: &str| {
        context.write("assets/templates/replay.py.hbs", script);
        let ran = context.run(&[&run[..], &["--devices", "0-1"]].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(count(context, "SELECT count(*) FROM attempts WHERE verdict <> 'ok'"), 0);
        let text = "SELECT group_concat(DISTINCT cause || remarks) FROM attempts";
        let reasons: String =
            ledger(context).expect("a ledger").query_row(text, [], |row| row.get(0)).expect("text");
        reasons
    };
    let settling = r#""cause":"not_settled","class":"RuntimeError","message":"NPU out of memory"#;
    let context = ingested();
    // The third settling is that of the last control kernel, the fourth that of the first case.
    let found = reasons(&context, &raising("len(self.settled) == 3"));
    assert!(found.contains(settling) && !found.contains("no_controls"), "{found}");
    let journal =
        fs::read_to_string(gang::collections(&context)[0].join("launched.jsonl")).expect("a journal");
    assert_eq!(journal.matches("settling_error").count(), 1, "{journal}");
    let control = r#""torch.abs": lambda tensors: torch.abs(*tensors)"#;
    assert!(template.contains(control));
    let context = ingested();
    let found =
        reasons(&context, &template.replace(control, r#""torch.abs": lambda tensors: torch.mm(*tensors)"#));
    assert!(found.contains("no_controls") && !found.contains(settling), "{found}");
    let row = &context.rows("db", "SwiGlu")[0];
    assert!(row["MicroBench Reason"].contains("without control kernels: "), "{row:?}");
    let gang = gang::database(&[64], &["2"]);
    let found = reasons(&gang, &raising("os.environ.get('RANK') == '1' and len(self.settled) == 3"));
    assert!(found.contains(settling), "{found}");
}
