//! Control kernels at the ends of collections, on the rehearsal host.

use std::fs;

use serde_json::Value;

use crate::gang;
use crate::prelude::*;

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/replay.py.hbs");

const RUN: [&str; 7] = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"];

fn count(context: &Context, sql: &str) -> i64 {
    ledger(context).expect("a ledger").query_row(sql, [], |row| row.get(0)).expect("a count")
}

/// Each collection has the three kernels at both ends, and the same are assessed again from its evidence.
#[test]
fn every_collection_has_controls_at_both_ends() {
    let context = Context::of_layer();
    let ran = context.done(&RUN);
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
    context.done("reparse --db db");
    let changed = "UPDATE controls SET durations_ns = '[1]' WHERE position = 'end' AND control = 'copy'";
    ledger(&context).expect("a ledger").execute_batch(changed).expect("changed");
    let found = context.exits(1, "reparse --db db");
    found.out_has("have other readings than the ledger");
    context.done("reparse --db db --write");
    context.done("reparse --db db");
}

/// In the first round of a plan no case has been measured elsewhere: the controls are what the devices have in common.
#[test]
fn slow_device_is_found_by_controls_before_a_case_is_measured_twice() {
    let context = Context::of_layer();
    context.write("plan.yaml", "faults:\n  - slow_kernels: {factor: 1.04}\n    where: {devices: 1}\n");
    let once = "--max-collections 1 --rehearsal-faults plan.yaml";
    let ran = context.run(&(RUN, once)).measured();
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
    let page = context.command("why SwiGlu.csv:2 --db db --format json").output();
    let page: Value = serde_json::from_slice(&page.expect("it runs").stdout).expect("JSON");
    for collection in page["collections"].list() {
        let is_slow = collection["devices"][0] == 1;
        let matmul = collection["controls"].list().iter();
        let matmul = matmul.clone().find(|control| control["control"] == "matmul").expect("a product");
        let off = matmul["off_percent"].float();
        assert_eq!(off > 2.0, is_slow, "{matmul}");
    }
}

/// The clock falls before each case of two devices. On the first it rises within the launches that settle it.
#[test]
fn clock_that_does_not_rise_before_the_launches_is_a_remark_of_the_row() {
    let context = Context::of_layer();
    context.write(
        "plan.yaml",
        "faults:\n  - idle_clock: {milliseconds: 3}\n    where: {devices: 0}\n  \
         - idle_clock: {milliseconds: 80}\n    where: {devices: 1}\n",
    );
    let run = "run --db db --host rehearsal --rehearsal-model steady --max-collections 1";
    context.run(&(run, "--devices 0-1 --rehearsal-faults plan.yaml")).measured();
    let attempts = |device: u32, remark: &str| {
        let sql = format!(
            "SELECT count(*) FROM attempts a JOIN collections c USING (collection) \
             WHERE c.device = {device} AND a.remarks {remark} '%clock_not_risen%'"
        );
        count(&context, &sql)
    };
    let collections = count(&context, "SELECT count(*) FROM collections WHERE device = 1");
    assert!(attempts(0, "NOT LIKE") > 1 && attempts(1, "LIKE") > collections);
    // Before the first case of a collection the clock has not fallen yet.
    assert_eq!((attempts(0, "LIKE"), attempts(1, "NOT LIKE")), (0, collections));
}

/// The launches that settle the clock are no launches of a case, whose verdict and whose gang do not depend on them.
#[test]
fn exception_of_the_settling_or_of_a_control_is_none_of_a_case() {
    let template = fs::read_to_string(TEMPLATE).expect("it ships");
    let reading = "events[-1].synchronize()";
    assert!(template.contains(reading));
    let raising = |condition: &str| {
        let raised = format!(
            "if {condition}:\n            raise RuntimeError('NPU out of memory; no event')\n        {reading}"
        );
        template.replace(reading, &raised)
    };
    let run = "run --db db --host rehearsal --rehearsal-model steady --assets assets";
    let reasons = |context: &Context, script: &str| {
        context.write("assets/templates/replay.py.hbs", script);
        context.done(&(run, "--devices 0-1"));
        assert_eq!(count(context, "SELECT count(*) FROM attempts WHERE verdict <> 'ok'"), 0);
        let text = "SELECT group_concat(DISTINCT cause || remarks) FROM attempts";
        let reasons: String =
            ledger(context).expect("a ledger").query_row(text, [], |row| row.get(0)).expect("text");
        reasons
    };
    let settling = r#""cause":"not_settled","class":"RuntimeError","message":"NPU out of memory"#;
    let context = Context::of_layer();
    // The third settling is that of the last control kernel, the fourth that of the first case.
    let found = reasons(&context, &raising("len(self.settled) == 3"));
    assert!(found.contains(settling) && !found.contains("no_controls"), "{found}");
    let journal =
        fs::read_to_string(gang::collections(&context)[0].join("launched.jsonl")).expect("a journal");
    assert_eq!(journal.matches("settling_error").count(), 1, "{journal}");
    let control = r#""torch.abs": lambda tensors: torch.abs(*tensors)"#;
    assert!(template.contains(control));
    let context = Context::of_layer();
    let found =
        reasons(&context, &template.replace(control, r#""torch.abs": lambda tensors: torch.mm(*tensors)"#));
    assert!(found.contains("no_controls") && !found.contains(settling), "{found}");
    let row = &context.rows("db", "SwiGlu")[0];
    assert!(row["MicroBench Reason"].contains("without control kernels: "), "{row:?}");
    let gang = gang::database(&[64], &["2"]);
    let found = reasons(&gang, &raising("os.environ.get('RANK') == '1' and len(self.settled) == 3"));
    assert!(found.contains(settling), "{found}");
}
