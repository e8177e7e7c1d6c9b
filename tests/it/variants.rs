//! Collections of one case that ran as different binaries of its kernel.

use crate::prelude::*;

/// Measures the small database on one device; `plan` is that of the host.
fn measure(context: &Context, device: &str, plan: &str, more: &[&str]) -> Ran {
    context.write("host.yaml", plan);
    let command = "run --db db --host rehearsal --rehearsal-faults host.yaml";
    context.run(&(command, &["--rehearsal-model", "steady", "--devices", device], more))
}

/// Verdict, reason and number of collections of the row of a kernel.
fn row(context: &Context, kernel: &str) -> [String; 3] {
    let row = context.rows("db", kernel).remove(0);
    ["MicroBench Verdict", "MicroBench Reason", "MicroBench Collections"].map(|column| row[column].clone())
}

/// Verdicts, causes with remarks, and operators of all attempts.
fn attempts(context: &Context) -> Vec<[String; 3]> {
    let ledger = ledger(context).expect("a ledger");
    let sql = "SELECT verdict, cause || remarks, operator FROM attempts ORDER BY attempt";
    let mut statement = ledger.prepare(sql).expect(sql);
    let rows = statement.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
    rows.expect(sql).map(|row| row.expect(sql)).collect()
}

/// The second night, one kernel runs as another binary in all of its launches, which no rule on one collection finds.
#[test]
fn collections_with_different_operators_have_no_common_median() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(measure(&context, "0", "speed: 10\n", &[]).code, 0);
    let plan = "speed: 10\nfaults:\n- renamed_kernel: {name: OtherBinary, operator_only: true}\n  \
                where: {kernel: SwiGlu}\n";
    let ran = measure(&context, "1", plan, &["--update", "all"]).ended(1);
    ran.err_has("1 suspicious result, `npubench why` explains each");
    let [verdict, reason, collections] = row(&context, "SwiGlu");
    assert_eq!((verdict.as_str(), collections.as_str()), ("suspicious", "2"), "{reason}");
    assert!(
        reason.starts_with("its collections ran as different operators: rehearsal_OtherBinary in 1, "),
        "{reason}"
    );
    context.done("db check db");
    let why = context.run("why SwiGlu.csv:2 --db db").stdout;
    let rule = why.lines().find(|line| line.trim_start().starts_with("row_variant ")).expect("the rule");
    assert!(rule.contains(" broken ") && rule.contains("OtherBinary in 1"), "{rule}");

    // Measuring again cannot show which binary is right.
    let before = context.csv_files();
    let ran = measure(&context, "0", "speed: 10\n", &[]);
    ran.err_has(": 0 cases on device 0; ");
    assert!(context.csv_files() == before, "the rows are unchanged");

    // The evidence has the operators.
    context.done("reparse --db db");
    let recorded = attempts(&context);
    assert!(recorded.iter().all(|[.., operator]| !operator.is_empty()), "{recorded:?}");
    let lost = "UPDATE attempts SET operator = ''";
    ledger(&context).expect("a ledger").execute_batch(lost).expect("changed");
    let compared = context.exits(1, "reparse --db db --format json");
    let report: serde_json::Value = serde_json::from_str(&compared.stdout).expect("JSON");
    let differences = report["differences"].list();
    assert_eq!(differences.len(), recorded.len());
    assert!(differences.iter().all(|found| found["differs"] == serde_json::json!(["operator"])), "{report}");
    context.done("reparse --db db --write");
    assert_eq!(attempts(&context), recorded);
    assert!(context.csv_files() == before, "the rows follow from the operators again");
}
