//! Records that are complete, but cannot be right.

use crate::prelude::*;
use crate::rehearsal::ledger;

fn run_with_faults(context: &Context, faults: &str) -> String {
    let faults = context.write("faults.yaml", faults).display().to_string();
    rehearse(context, "db", &["--devices", "0", "--rehearsal-faults", &faults]).ended(1);
    ledger(context, "db", "SELECT DISTINCT verdict || ' ' || cause FROM verdicts ORDER BY 1")
}

/// Every attempt gives the same, so the verdict is that of the last one.
#[test]
fn durations_in_another_unit_are_not_accepted() {
    let context = Context::new();
    context.small_database("db");
    let found = run_with_faults(&context, "faults: [{wrong_unit: {factor: 1000}}]");
    assert!(found.starts_with(r#"implausible {"cause":"overlap","launch":0,"#), "{found}");
}

#[test]
fn kernels_without_binary_for_the_ai_cores_are_wrong_kernels() {
    let context = Context::new();
    context.small_database("db");
    let found = run_with_faults(&context, "faults: [{ai_cpu_fallback: {}, where: {kernel: Add}}]");
    assert_eq!(found, r#"ok {"cause":"every_launch_recorded"}; wrong_kernel {"cause":"ai_cpu"}"#);
}

#[test]
fn devices_without_binaries_are_named_and_their_cases_measured_elsewhere() {
    let context = Context::of_layer();
    let faults = "faults: [{ai_cpu_fallback: {}, where: {devices: [0, 1]}}]";
    let faults = context.write("faults.yaml", faults).display().to_string();
    let ran = rehearse(&context, "db", &["--devices", "0-3", "--rehearsal-faults", &faults]).ended(0);
    assert_eq!(ledger(&context, "db", "SELECT DISTINCT verdict FROM verdicts"), "ok");
    let tried = "SELECT CASE WHEN max(n) <= 3 THEN 'few' ELSE max(n) || ' attempts' END FROM (SELECT count(*) n FROM attempts GROUP BY case_id)";
    assert_eq!(ledger(&context, "db", tried), "few");
    for device in 0..4 {
        let line = format!("device {device}: ");
        let named =
            ran.stderr.lines().find(|found| found.starts_with(&line) && found.contains("on an AI CPU"));
        assert_eq!(named.is_some(), device < 2, "{device}: {}", ran.stderr);
    }
}
