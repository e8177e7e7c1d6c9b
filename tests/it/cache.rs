//! Measurements with a hot and with a cold cache, which are never pooled.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::prelude::*;

const COLD: [&str; 2] = ["--cache", "cold"];
const COLD_MEDIAN: &str = "MicroBench Cold Median Duration(us)";
const MEDIAN: &str = "MicroBench Median Duration(us)";
/// A kernel whose traffic is many times the cache.
const LARGE: &str =
    "Mul,9000.0,\"\"\"1073741824;1073741824\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"1073741824\"\"\",FLOAT,ND";

/// A database of a memory-bound kernel that fits in the cache, one that the launch bounds, and one beyond the cache.
fn database() -> Context {
    let context = Context::new();
    context.ingest_records("db", &[SWIGLU, ADD, LARGE], &[]);
    context
}

fn run(context: &Context, more: &(impl Words + ?Sized)) -> String {
    let ran = context.done(&(STEADY_RUN, more));
    ran.stderr
}

fn cell(context: &Context, kernel: &str, column: &str) -> f64 {
    let row = context.rows("db", kernel).remove(0);
    row.get(column).and_then(|cell| cell.parse().ok()).unwrap_or_else(|| panic!("{kernel} {column}: {row:?}"))
}

fn medians_by_kernel(context: &Context, is_cold: bool) -> BTreeMap<String, f64> {
    let medians = context.true_medians().into_iter();
    let of_state = medians.filter(|median| median.run.ends_with("-cold") == is_cold);
    of_state.map(|median| (median.kernel, median.micros)).collect()
}

fn assert_near(found: f64, truth: f64) {
    assert!((found / truth - 1.0).abs() < 0.01, "{found} is not {truth}");
}

#[test]
fn cold_results_have_columns_of_their_own_and_leave_hot_cells_as_they_are() {
    let context = database();
    run(&context, "");
    let before = context.snapshot("db");
    let said = run(&context, &COLD);
    assert!(said.contains(": 3 cases on devices 0-1"), "hot results do not count: {said}");
    for kernel in ["SwiGlu", "Add", "Mul"] {
        let path = std::path::PathBuf::from(format!("db/{kernel}.csv"));
        let old = String::from_utf8(before[&path].clone()).expect("text");
        let new = context.read(&format!("db/{kernel}.csv"));
        assert_eq!(old.lines().count(), new.lines().count());
        for (old, new) in old.lines().zip(new.lines()) {
            assert!(new.strip_prefix(old).is_some_and(|rest| rest.starts_with(',')), "{old}\n{new}");
        }
    }
    let (hot, cold) = (medians_by_kernel(&context, false), medians_by_kernel(&context, true));
    for kernel in ["SwiGlu", "Add", "Mul"] {
        assert_near(cell(&context, kernel, MEDIAN), hot[kernel]);
        assert_near(cell(&context, kernel, COLD_MEDIAN), cold[kernel]);
    }
    // 9 MiB at the rate of device memory instead of that of the cache; 12 GiB do not fit in 192 MiB.
    assert!(cold["SwiGlu"] > 1.3 * hot["SwiGlu"], "{hot:?} {cold:?}");
    assert!(cold["Mul"] < 1.05 * hot["Mul"], "{hot:?} {cold:?}");
    let said = run(&context, &COLD);
    assert!(said.contains(": 0 cases on devices 0-1; 3 already measured"), "{said}");
    assert_eq!(
        number(&ledger(&context).expect("a ledger"), "SELECT count(DISTINCT cache) FROM collections"),
        2
    );
}

#[test]
fn later_samples_join_those_of_their_state() {
    let context = database();
    let precise = "--max-collections 2 --update all";
    run(&context, precise);
    run(&context, &(COLD, precise));
    run(&context, precise);
    run(&context, &(COLD, precise));
    let (hot, cold) = (medians_by_kernel(&context, false), medians_by_kernel(&context, true));
    for kernel in ["SwiGlu", "Add", "Mul"] {
        assert_near(cell(&context, kernel, MEDIAN), hot[kernel]);
        assert_near(cell(&context, kernel, "MicroBench Estimate(us)"), hot[kernel]);
        assert_near(cell(&context, kernel, COLD_MEDIAN), cold[kernel]);
        assert_near(cell(&context, kernel, "MicroBench Cold Estimate(us)"), cold[kernel]);
        let counts =
            ["MicroBench Samples", "MicroBench Cold Samples"].map(|column| cell(&context, kernel, column));
        assert!(counts[0] >= 40.0 && counts[1] >= 40.0, "{kernel}: {counts:?}");
        let all = format!(
            "SELECT count(*) FROM attempts a JOIN cases k USING (case_id) JOIN samples s USING (attempt)
             WHERE k.kernel = '{kernel}'"
        );
        let all = number(&ledger(&context).expect("a ledger"), &all);
        assert!((counts[0] + counts[1] - all as f64).abs() < 0.5, "{kernel}: {counts:?} of {all}");
    }
    let withdrawn = "SELECT count(*) FROM attempts WHERE is_withdrawn OR verdict <> 'ok'";
    assert_eq!(number(&ledger(&context).expect("a ledger"), withdrawn), 0);
    context.done("db check db");
    let before = context.snapshot("db");
    let ran = context.done("reparse --db db --write");
    let csv = |files: BTreeMap<std::path::PathBuf, Vec<u8>>| -> Vec<_> {
        files.into_iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "csv")).collect()
    };
    assert!(csv(context.snapshot("db")) == csv(before), "{}", ran.stdout);
    for (state, column) in [("hot", MEDIAN), ("cold", COLD_MEDIAN)] {
        let diff = context.done(&["diff", "db", "db", "--cache", state, "--format", "json"]);
        let cases: Vec<Value> =
            diff.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of = |kernel: &str| cases.iter().find(|case| case["kernel"] == kernel).expect("a case");
        assert_eq!(
            of("SwiGlu")["collections"][0],
            cell(&context, "SwiGlu", &column.replace("Median Duration(us)", "Collections")),
            "{cases:?}"
        );
        assert_near(of("SwiGlu")["medians_us"][0].float(), cell(&context, "SwiGlu", column));
        let noise = context.done(&["noise", "--db", "db", "--cache", state, "--format", "json"]);
        let found: Value = serde_json::from_str(noise.stdout.lines().next().expect("a line")).expect("JSON");
        let of_state = format!(
            "SELECT count(DISTINCT c.collection) FROM collections c JOIN attempts USING (collection) WHERE cache = '{state}'"
        );
        let collections = number(&ledger(&context).expect("a ledger"), &of_state);
        assert_eq!(found["collections"].as_i64(), Some(collections), "{found}");
    }
}

/// Production medians of this example are of the rehearsal host, so that they can be compared.
#[test]
fn both_states_are_measured_one_after_the_other_and_compared_with_production() {
    let context = Context::of_layer();
    let plan = context.done("plan --db db --devices 0-3 --cache both");
    plan.out_has("with a hot cache:");
    plan.out_has("with a cold cache:");
    let cost = |state: &str| -> f64 {
        let lines = context.run(&["plan", "--db", "db", "--cache", state, "--format", "json"]).stdout;
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter_map(|line| line["cost_s"].as_f64()).sum()
    };
    assert!(cost("cold") > 1.2 * cost("hot"), "each launch is flushed: {} {}", cost("hot"), cost("cold"));
    let ran = context.done(&(STEADY_RUN, "--cache both"));
    let runs = number(&ledger(&context).expect("a ledger"), "SELECT count(*) FROM runs");
    assert_eq!(runs, 2, "{}", ran.stderr);
    let line = ran.stderr.lines().find(|line| line.contains("a median of production and a measurement"));
    let line = line.unwrap_or_else(|| panic!("{}", ran.stderr));
    assert!(line.contains("20 rows have") && line.contains("of 20 with both states"), "{line}");
    let page = context.run("why SwiGlu.csv:2 --db db").stdout;
    let other = page.lines().find(|line| line.starts_with("cold cache")).unwrap_or_else(|| panic!("{page}"));
    assert!(other.contains("% of production") && other.contains("`--cache cold` explains it"), "{other}");
    let evidence = |state: &str| -> Value {
        let arguments = ["why", "SwiGlu.csv:2", "--db", "db", "--cache", state, "--format", "json"];
        serde_json::from_str(&context.run(&arguments).stdout).expect("JSON")
    };
    let (hot, cold) = (evidence("hot"), evidence("cold"));
    assert_eq!(hot["result"]["median_us"], cold["other_state"]["result"]["median_us"]);
    assert_eq!(cold["result"]["median_us"], hot["other_state"]["result"]["median_us"]);
    assert_ne!(cold["result"]["median_us"], hot["result"]["median_us"]);
    let runs =
        |page: &Value| page["collections"].list().iter().map(|one| one["run"].clone()).collect::<Vec<_>>();
    assert!(runs(&hot).iter().all(|run| !runs(&cold).contains(run)), "{hot} {cold}");
    assert!(cold["command"].text().contains(" --cache cold "), "{cold}");
    context.done("db copy db copy --kind rehearsal");
    let row = context.rows("copy", "SwiGlu").remove(0);
    assert!(row.iter().all(|(column, cell)| !column.starts_with("MicroBench") || cell.is_empty()), "{row:?}");
}
