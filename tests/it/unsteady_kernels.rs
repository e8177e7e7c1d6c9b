//! Kernels whose durations depend on when they are launched.

use std::collections::BTreeMap;

use crate::prelude::*;

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
    let context = Context::of_layer();
    let faults = [
        ("MatMulV3", "{pattern: drift, factor: 1.08}", "the durations rose by "),
        ("SwiGlu", "{pattern: two_modes, factor: 1.15}", "the durations have two modes: "),
        ("RmsNorm", "{pattern: step, factor: 1.1}", "the durations have two modes: "),
    ];
    let plan = faults
        .map(|(kernel, fault, _)| format!("- unsteady_kernel: {fault}\n  where: {{kernel: {kernel}}}\n"));
    context.write("faults.yaml", &format!("faults:\n{}", plan.concat()));
    context.run_all_rounds(&(LIFELIKE_RUN, "--rehearsal-faults faults.yaml")).ended(1);
    let collections = collections(&context);
    for (kernel, fault, reason) in faults {
        for row in context.rows("db", kernel) {
            assert_eq!(row["MicroBench Verdict"], "noisy", "{fault}: {row:?}");
            assert!(row["MicroBench Reason"].starts_with(reason), "{fault}: {row:?}");
            assert!(collections[&row["MicroBench Case"]] >= 3, "{fault}: {row:?}");
        }
    }
    for row in ["MatMulV2", "Add"].iter().flat_map(|kernel| context.rows("db", kernel)) {
        assert_eq!(row["MicroBench Verdict"], "ok", "{row:?}");
    }
}

/// Two devices need 6 % more cycles than two others, for all kernels. Further collections cannot show which are right: the rows are
/// noisy, with an interval that contains both, and the run names the devices.
#[test]
fn devices_that_differ_are_named_and_widen_the_intervals() {
    let context = Context::of_layer();
    context.write(
        "faults.yaml",
        "faults:\n- unsteady_kernel: {pattern: step, factor: 1.06, launch: 1}\n  where: {devices: [1, 2]}\n",
    );
    let run = "run --db db --host rehearsal --devices 0-3 --rehearsal-model lifelike";
    let ran = context.run_all_rounds(&(run, "--rehearsal-faults faults.yaml")).ended(1);
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
