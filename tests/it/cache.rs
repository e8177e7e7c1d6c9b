//! Measurements with a hot and with a cold cache, which are never pooled.

use std::{collections::BTreeMap, fs, process::Stdio, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::Connection;
use serde_json::Value;

use crate::{
    context::{ADD, Context, STEADY_RUN, SWIGLU, profile},
    kill_resume::{count, ingested, killed_when, ledger, number},
};

const COLD: [&str; 2] = ["--cache", "cold"];
const COLD_MEDIAN: &str = "MicroBench Cold Median Duration(us)";
const MEDIAN: &str = "MicroBench Median Duration(us)";
/// A kernel whose traffic is many times the cache.
const LARGE: &str =
    "Mul,9000.0,\"\"\"1073741824;1073741824\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"1073741824\"\"\",FLOAT,ND";

/// A database of a memory-bound kernel that fits in the cache, one that the launch bounds, and one beyond the cache.
fn database() -> Context {
    let context = Context::new();
    context.write("profile.csv", &profile(&[SWIGLU, ADD, LARGE]));
    let ran = context.run(&["ingest", "profile.csv", "--db", "db", "--kind", "rehearsal"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    context
}

fn run(context: &Context, more: &[&str]) -> String {
    let ran = context.run(&[&STEADY_RUN[..], more].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    ran.stderr
}

fn cell(context: &Context, kernel: &str, column: &str) -> f64 {
    let row = context.rows("db", kernel).remove(0);
    row.get(column).and_then(|cell| cell.parse().ok()).unwrap_or_else(|| panic!("{kernel} {column}: {row:?}"))
}

/// Medians of the model by kernel, of all runs with a cold or a hot cache.
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
    run(&context, &[]);
    let before = context.snapshot("db");
    let said = run(&context, &COLD);
    assert!(said.contains(": 3 cases on devices 0-1"), "hot results do not count: {said}");
    for kernel in ["SwiGlu", "Add", "Mul"] {
        let path = std::path::PathBuf::from(format!("db/{kernel}.csv"));
        let old = String::from_utf8(before[&path].clone()).expect("text");
        let new = fs::read_to_string(context.path(&format!("db/{kernel}.csv"))).expect("text");
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

/// The samples of a later hot run join those of the hot one, whose collections are not the last ones.
#[test]
fn later_samples_join_those_of_their_state() {
    let context = database();
    let precise = ["--max-collections", "2", "--update", "all"];
    run(&context, &precise);
    run(&context, &[&COLD[..], &precise].concat());
    run(&context, &precise);
    run(&context, &[&COLD[..], &precise].concat());
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
    assert_eq!(context.run(&["db", "check", "db"]).code, 0);
    let before = context.snapshot("db");
    let ran = context.run(&["reparse", "--db", "db", "--write"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let csv = |files: BTreeMap<std::path::PathBuf, Vec<u8>>| -> Vec<_> {
        files.into_iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "csv")).collect()
    };
    assert!(csv(context.snapshot("db")) == csv(before), "{}", ran.stdout);
    for (state, column) in [("hot", MEDIAN), ("cold", COLD_MEDIAN)] {
        let diff = context.run(&["diff", "db", "db", "--cache", state, "--format", "json"]);
        assert_eq!(diff.code, 0, "{}", diff.stderr);
        let cases: Vec<Value> =
            diff.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of = |kernel: &str| cases.iter().find(|case| case["kernel"] == kernel).expect("a case");
        assert_eq!(
            of("SwiGlu")["collections"][0],
            cell(&context, "SwiGlu", &column.replace("Median Duration(us)", "Collections")),
            "{cases:?}"
        );
        assert_near(
            of("SwiGlu")["medians_us"][0].as_f64().expect("a number"),
            cell(&context, "SwiGlu", column),
        );
        let noise = context.run(&["noise", "--db", "db", "--cache", state, "--format", "json"]);
        assert_eq!(noise.code, 0, "{}", noise.stderr);
        let found: Value = serde_json::from_str(noise.stdout.lines().next().expect("a line")).expect("JSON");
        let of_state = format!(
            "SELECT count(DISTINCT c.collection) FROM collections c JOIN attempts USING (collection) WHERE cache = '{state}'"
        );
        let collections = number(&ledger(&context).expect("a ledger"), &of_state);
        assert_eq!(found["collections"].as_i64(), Some(collections), "{found}");
    }
}

#[test]
fn edited_cold_numbers_are_found_and_written_again_by_the_next_cold_run() {
    let context = database();
    run(&context, &["--cache", "both"]);
    assert_eq!(context.run(&["db", "check", "db"]).code, 0);
    let path = context.path("db/SwiGlu.csv");
    let whole = fs::read_to_string(&path).expect("text");
    let cold = context.rows("db", "SwiGlu").remove(0)[COLD_MEDIAN].clone();
    fs::write(&path, whole.replace(&format!(",{cold},"), ",1.000000,")).expect("written");
    let found = context.run(&["db", "check", "db"]);
    assert_eq!(found.code, 1, "{}", found.stdout);
    let expected = format!("`{COLD_MEDIAN}` is `1.000000`, the ledger has `{cold}`");
    assert!(found.stdout.contains(&expected), "{}", found.stdout);
    assert!(found.stdout.contains("the next `npubench run --cache cold` writes"), "{}", found.stdout);
    run(&context, &[]);
    assert_eq!(context.run(&["db", "check", "db"]).code, 1, "a hot run writes hot cells");
    run(&context, &COLD);
    assert_eq!(context.run(&["db", "check", "db"]).code, 0);
    assert_eq!(context.rows("db", "SwiGlu").remove(0)[COLD_MEDIAN], cold);
}

/// Production medians of this example are of the rehearsal host, so that they can be compared.
#[test]
fn both_states_are_measured_one_after_the_other_and_compared_with_production() {
    let context = ingested();
    let plan = context.run(&["plan", "--db", "db", "--devices", "0-3", "--cache", "both"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(
        plan.stdout.contains("with a hot cache:") && plan.stdout.contains("with a cold cache:"),
        "{}",
        plan.stdout
    );
    let cost = |state: &str| -> f64 {
        let lines = context.run(&["plan", "--db", "db", "--cache", state, "--format", "json"]).stdout;
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter_map(|line| line["cost_s"].as_f64()).sum()
    };
    assert!(cost("cold") > 1.2 * cost("hot"), "each launch is flushed: {} {}", cost("hot"), cost("cold"));
    let ran = context.run(&[&STEADY_RUN[..], &["--cache", "both"]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let runs = number(&ledger(&context).expect("a ledger"), "SELECT count(*) FROM runs");
    assert_eq!(runs, 2, "{}", ran.stderr);
    let line = ran.stderr.lines().find(|line| line.contains("a median of production and a measurement"));
    let line = line.unwrap_or_else(|| panic!("{}", ran.stderr));
    assert!(line.contains("20 rows have") && line.contains("of 20 with both states"), "{line}");
    let page = context.run(&["why", "SwiGlu.csv:2", "--db", "db"]).stdout;
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
    let runs = |page: &Value| {
        page["collections"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["run"].clone())
            .collect::<Vec<_>>()
    };
    assert!(runs(&hot).iter().all(|run| !runs(&cold).contains(run)), "{hot} {cold}");
    assert!(cold["command"].as_str().expect("text").contains(" --cache cold "), "{cold}");
    let copied = context.run(&["db", "copy", "db", "copy", "--kind", "rehearsal"]);
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    let row = context.rows("copy", "SwiGlu").remove(0);
    assert!(row.iter().all(|(column, cell)| !column.starts_with("MicroBench") || cell.is_empty()), "{row:?}");
}

#[test]
fn resumed_cold_runs_stay_cold() {
    for _ in 0..10 {
        let context = ingested();
        let arguments = [&STEADY_RUN[..], &COLD].concat();
        let is_begun = |ledger: &Connection| count(ledger, "SELECT count(*) FROM attempts") > Some(0);
        let was_running = killed_when(&context, &arguments, is_begun);
        let unended = "SELECT count(*) FROM runs WHERE ended_ns IS NULL";
        if !was_running || number(&ledger(&context).expect("a ledger"), unended) == 0 {
            continue;
        }
        let ran = context.run(&["resume", "--db", "db"]);
        assert!(ran.code <= 1, "{}", ran.stderr);
        let ledger = ledger(&context).expect("a ledger");
        assert_eq!(number(&ledger, "SELECT count(*) FROM collections WHERE cache = 'hot'"), 0);
        assert!(number(&ledger, "SELECT count(*) FROM collections WHERE cache = 'cold'") > 0);
        let row = context.rows("db", "SwiGlu").remove(0);
        assert!(row[COLD_MEDIAN].parse::<f64>().is_ok(), "{row:?}");
        assert!(row["Average Duration(us)"].is_empty() && !row.contains_key(MEDIAN), "{row:?}");
        assert_eq!(context.run(&["db", "check", "db"]).code, 0);
        return;
    }
    panic!("no run was killed after it had begun");
}

/// The first signal lets running collections end; then neither state starts another one.
#[test]
fn stop_requests_and_the_end_of_the_time_end_both_states() {
    let context = ingested();
    let arguments = [&STEADY_RUN[..], &["--cache", "both"]].concat();
    let mut command = context.command(&arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    let has_collection = || {
        ledger(&context).is_some_and(|ledger| {
            ledger
                .query_row("SELECT count(*) FROM collections", [], |row| row.get::<_, i64>(0))
                .is_ok_and(|all| all > 0)
        })
    };
    while !has_collection() {
        assert!(child.try_wait().expect("a status").is_none(), "the run ended before a collection");
        thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(child.id().cast_signed());
    // The second signal ends the collections as well.
    while child.try_wait().expect("a status").is_none() {
        kill(pid, Signal::SIGINT).expect("sent");
        thread::sleep(Duration::from_millis(20));
    }
    let ended = context.ran(&child.wait_with_output().expect("reaped"));
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("the cold cache was not measured: `npubench run"), "{}", ended.stderr);
    assert_eq!(number(&ledger(&context).expect("a ledger"), "SELECT count(*) FROM runs"), 1);
    // A minute is no more than a minute when the first state is measured.
    let context = database();
    let ran = context.run(&[&STEADY_RUN[..], &["--cache", "both", "--budget", "1m"]].concat());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("no time is left for the cold cache: `npubench run"), "{}", ran.stderr);
}

/// Each rank of a gang flushes its own cache, and calls that run as another kernel are cold results of that kernel.
#[test]
fn cold_gangs_and_calls_of_other_kernels_are_the_same_again_from_their_artefacts() {
    for context in [crate::gang::database(&[64], &["2"]), crate::equal_kernels::products()] {
        run(&context, &[]);
        run(&context, &COLD);
        let accepted = "SELECT count(*) FROM attempts a JOIN collections c USING (collection)
                        WHERE c.cache = 'cold' AND a.verdict = 'ok'";
        assert!(number(&ledger(&context).expect("a ledger"), accepted) > 0);
        for arguments in [&["reparse", "--db", "db"][..], &["db", "check", "db"]] {
            let ran = context.run(arguments);
            assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        }
        let said = run(&context, &COLD);
        assert!(said.contains(": 0 cases on devices 0-1"), "{said}");
    }
}
