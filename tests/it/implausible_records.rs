//! Records that are complete, but cannot be right.

use crate::{
    context::{ADD, Context, SWIGLU, profile},
    kill_resume::ingested,
    rehearsal::{ledger, rehearse},
};

fn run_with_faults(context: &Context, faults: &str) -> String {
    let faults = context.write("faults.yaml", faults).display().to_string();
    let ran = rehearse(context, "db", &["--devices", "0", "--rehearsal-faults", &faults]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
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

/// Durations of short kernels, which follow each other with gaps, do not show a small factor: those of the control kernels do.
#[test]
fn small_factor_of_durations_rejects_the_whole_collection() {
    let context = Context::new();
    context.small_database("db");
    let found = run_with_faults(&context, "faults: [{wrong_unit: {factor: 1.3}}]");
    assert!(found.starts_with(r#"implausible {"cause":"control_overlap","#), "{found}");
    let verdicts = "SELECT DISTINCT verdict FROM verdicts";
    assert_eq!(ledger(&context, "db", verdicts), "implausible");
}

#[test]
fn kernels_without_binary_for_the_ai_cores_are_wrong_kernels() {
    let context = Context::new();
    context.small_database("db");
    let found = run_with_faults(&context, "faults: [{ai_cpu_fallback: {}, where: {kernel: Add}}]");
    assert_eq!(found, r#"ok {"cause":"every_launch_recorded"}; wrong_kernel {"cause":"ai_cpu"}"#);
}

/// Two of four devices lack all binaries: the cases are measured on the others, and these two are named.
#[test]
fn devices_without_binaries_are_named_and_their_cases_measured_elsewhere() {
    let context = ingested();
    let faults = "faults: [{ai_cpu_fallback: {}, where: {devices: [0, 1]}}]";
    let faults = context.write("faults.yaml", faults).display().to_string();
    let ran = rehearse(&context, "db", &["--devices", "0-3", "--rehearsal-faults", &faults]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
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

/// A row that was recorded on an AI CPU is measured there.
#[test]
fn kernels_recorded_on_an_ai_cpu_may_run_there() {
    let context = Context::new();
    let text = profile(&[ADD, SWIGLU]).replacen("AI_VECTOR_CORE", "AI_CPU", 1);
    context.write("p.csv", &text);
    let ran = context.run(&["ingest", "p.csv", "--db", "db", "--kind", "rehearsal"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let found = run_with_faults(&context, "faults: [{ai_cpu_fallback: {}}]");
    assert!(found.starts_with("ok ") && found.contains(r#"wrong_kernel {"cause":"ai_cpu"}"#), "{found}");
    assert_eq!(context.rows("db", "Add")[0]["MicroBench Verdict"], "ok");
}
