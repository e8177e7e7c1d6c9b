//! Kernels whose durations depend on when they are launched.

use std::collections::BTreeMap;

use crate::{
    context::Context,
    kill_resume::{ingested, ledger},
};

/// Measures the decoder layer with a fault of its matrix products, in as many collections as the rules demand.
fn measured_with_fault(fault: &str) -> Context {
    let context = ingested();
    context.write("faults.yaml", &format!("faults:\n- {fault}\n"));
    let arguments = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-1"];
    let mut command = context.command(&arguments);
    command.args(["--rehearsal-model", "lifelike", "--rehearsal-faults", "faults.yaml"]);
    command.env_remove("NPUBENCH_MAX_COLLECTIONS");
    let ran = context.ran(&command.output().expect("it runs"));
    assert!(ran.code <= 1, "{}", ran.stderr);
    context
}

/// Number of collections of each case.
fn collections(context: &Context) -> BTreeMap<String, u32> {
    let ledger = ledger(context).expect("a ledger");
    let sql = "SELECT case_id, count(*) FROM attempts GROUP BY case_id";
    let mut statement = ledger.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// A median that follows the number of the launch is not stated as `ok`, and further collections show that the pattern is the
/// kernel's own.
#[test]
fn durations_with_a_pattern_in_every_collection_are_noisy() {
    for (fault, reason) in [
        ("unsteady_kernel: {pattern: drift, factor: 1.08}", "the durations rose by "),
        ("unsteady_kernel: {pattern: two_modes, factor: 1.15}", "the durations have two modes: "),
        ("unsteady_kernel: {pattern: step, factor: 1.1}", "the durations have two modes: "),
    ] {
        let context = measured_with_fault(&format!("{fault}\n  where: {{kernel: MatMulV3}}"));
        let collections = collections(&context);
        for row in context.rows("db", "MatMulV3") {
            assert_eq!(row["MicroBench Verdict"], "noisy", "{fault}: {row:?}");
            assert!(row["MicroBench Reason"].starts_with(reason), "{fault}: {row:?}");
            assert!(collections[&row["MicroBench Case"]] >= 3, "{fault}: {row:?}");
        }
        for kernel in ["MatMulV2", "SwiGlu", "Add"] {
            for row in context.rows("db", kernel) {
                assert_eq!(row["MicroBench Verdict"], "ok", "{fault}: {row:?}");
            }
        }
    }
}

/// Disturbed in one of its collections, a case is measured in others, and the row names the disturbed one.
#[test]
fn pattern_of_one_collection_is_a_remark() {
    let fault =
        "unsteady_kernel: {pattern: drift, factor: 1.08}\n  where: {kernel: MatMulV3}\n  times_each: 1";
    let context = measured_with_fault(fault);
    let collections = collections(&context);
    for row in context.rows("db", "MatMulV3") {
        let count = collections[&row["MicroBench Case"]];
        assert!(count >= 3, "{row:?}");
        let is_wide = row["MicroBench Reason"].starts_with("median known to ");
        assert!(is_wide || row["MicroBench Verdict"] == "ok", "{row:?}");
        let remark = format!("over the launches, in 1 of {count} collections");
        assert!(row["MicroBench Reason"].contains(&remark), "{row:?}");
    }
    let checked = context.run(&["db", "check", "db"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}

/// Two devices need 6 % more cycles than two others, for all kernels. Further collections cannot show which are right: the rows are
/// noisy, with an interval that contains both, and the run names the devices.
#[test]
fn devices_that_differ_are_named_and_widen_the_intervals() {
    let context = ingested();
    context.write(
        "faults.yaml",
        "faults:\n- unsteady_kernel: {pattern: step, factor: 1.06, launch: 1}\n  where: {devices: [1, 2]}\n",
    );
    let mut command = context.command(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"]);
    command.args(["--rehearsal-model", "lifelike", "--rehearsal-faults", "faults.yaml"]);
    command.env_remove("NPUBENCH_MAX_COLLECTIONS");
    let ran = context.ran(&command.output().expect("it runs"));
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let line =
        ran.stderr.lines().find(|line| line.starts_with("devices differ in all cases")).expect("a line");
    let (slow, fast) =
        line.split_once(": ").and_then(|(_, list)| list.split_once(", 0 ")).unwrap_or_else(|| {
            line.split_once(": ")
                .and_then(|(_, list)| list.split_once(", 3 "))
                .expect("the fast devices are last")
        });
    for device in ["1 +", "2 +"] {
        assert!(slow.contains(device), "{line}");
    }
    assert!(fast.contains('-') && fast.ends_with("(`npubench noise`)"), "{line}");
    let truth = context.true_medians_by_case();
    let mut rows = 0;
    for row in ["MatMulV2", "MatMulV3", "SwiGlu", "RmsNorm"]
        .into_iter()
        .flat_map(|kernel| context.rows("db", kernel))
    {
        rows += 1;
        let cell = |column: &str| &row[column];
        assert_eq!(cell("MicroBench Verdict"), "noisy", "{row:?}");
        assert_eq!(cell("MicroBench CI95 Method"), "joint fit of unequal devices", "{row:?}");
        assert!(cell("MicroBench Reason").contains("target 3 % where devices differ"), "{row:?}");
        let number = |column: &str| -> f64 { row[column].parse().expect("a number") };
        let (low, high) = (number("MicroBench CI95 Low(us)"), number("MicroBench CI95 High(us)"));
        for level in [1.0, 1.06] {
            let median = level * truth[cell("MicroBench Case")];
            assert!((low..=high).contains(&median), "{level}: {row:?}");
        }
    }
    assert!(rows >= 10, "{rows} rows");
}
