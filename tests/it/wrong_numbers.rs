//! Rows with verdict `ok` and a wrong number, under faults of the device and of the profiler.

use crate::prelude::*;

/// Largest relative deviation of a median from the true one that is not wrong.
const TOLERANCE: f64 = 0.03;

/// Measures the decoder layer on four devices with a fault plan and all collections that the rules demand.
fn measured(plan: &str) -> Context {
    let context = Context::of_layer();
    context.write("faults.yaml", plan);
    let run = "run --db db --host rehearsal --devices 0-3 --seed 1";
    let mut command = context.command(&(run, "--rehearsal-faults faults.yaml"));
    command.env_remove("NPUBENCH_MAX_COLLECTIONS").env_remove("NPUBENCH_LAUNCHES");
    let ran = context.ran(&command.output().expect("it runs"));
    assert!(matches!(ran.code, 0 | 1 | 4), "{plan}: {}", ran.stderr);
    context
}

#[test]
fn wrong_medians_are_not_ok() {
    let context = measured("faults:\n- slow_kernels: {factor: 1.1}\n  where: {devices: 0}\n");
    let truth = context.true_medians_by_case();
    let rows = DECODER_KERNELS.into_iter().flat_map(|kernel| context.rows("db", kernel));
    for row in rows.filter(|row| row["MicroBench Verdict"] == "ok") {
        let median: f64 = row["MicroBench Median Duration(us)"].parse().expect("a median");
        let deviation = (median / truth[&row["MicroBench Case"]] - 1.0).abs();
        assert!(deviation <= TOLERANCE, "{deviation} of {row:?}");
    }
}

/// Launch noise of 0.2 to 5 % and offsets of collections as large accuse no healthy case: at most a few measurements are
/// caused by suspicion, and the run has the verdicts of the rows.
#[test]
fn healthy_cases_are_not_suspicious() {
    let context = measured("noise: {launch: [0.002, 0.05], offset: 1}\n");
    let ledger = rusqlite::Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
    for row in DECODER_KERNELS.into_iter().flat_map(|kernel| context.rows("db", kernel)) {
        let sql = "SELECT verdict FROM verdicts WHERE case_id = ?1";
        let verdict: String =
            ledger.query_row(sql, [&row["MicroBench Case"]], |row| row.get(0)).expect("a verdict");
        assert_eq!(verdict, row["MicroBench Verdict"]);
        assert!(["ok", "noisy"].contains(&verdict.as_str()), "{row:?}");
    }
    let number = |query: &str| -> u32 { ledger.query_row(query, [], |row| row.get(0)).expect("a number") };
    // Measurements that are repeated because of their records, and those of cases that have a pattern in a collection.
    let suspected = number("SELECT count(*) FROM attempts WHERE verdict NOT IN ('ok', 'noisy')")
        + number("SELECT count(*) FROM attempts WHERE cause ->> 'cause' IN ('trend', 'step', 'two_modes')");
    // Three standard deviations above 2 %.
    let expected = f64::from(number("SELECT count(*) FROM attempts")) * 0.02;
    assert!(f64::from(suspected) <= expected + 3.0 * expected.sqrt(), "{suspected}");
}
