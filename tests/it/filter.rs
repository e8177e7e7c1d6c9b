//! `--filter`: the same language in all commands that have it.

use std::fs;

use serde_json::Value;

use crate::context::Context;

/// A database with a measured SwiGlu and Add.
fn measured() -> Context {
    let context = Context::new();
    context.small_database("a3");
    let ran = context.run(&["run", "--db", "a3", "--host", "rehearsal", "--devices", "0-1"]);
    assert!(ran.code <= 1, "{}", ran.stderr);
    context
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Each command of docs/filters.md, with the quotes of a shell.
#[test]
fn examples_of_the_documentation_work() {
    let context = measured();
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/filters.md")).expect("a document");
    let block = text.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    for line in block.lines() {
        // Every second part is in single quotes.
        let parts = line.strip_prefix("npubench ").expect("a command").split('\'').enumerate();
        let words: Vec<&str> = parts
            .flat_map(|(part, text)| match part % 2 {
                0 => text.split_whitespace().collect(),
                _ => vec![text],
            })
            .collect();
        let ran = context.run(&words);
        // An example may select nothing here, which is an answer and not a fault of the filter.
        let is_empty = ran.stderr.contains("no row of the database matches");
        assert!(ran.code <= 1 || is_empty, "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("--filter:"), "{line}: {}", ran.stderr);
    }
    let ran = context.run(&["plan", "--db", "a3", "--filter", "kernel ~ MatMul & verdit = noisy"]);
    assert_eq!(ran.code, 2);
    let shown = text.split("```\nerror").nth(1).and_then(|rest| rest.split("```").next()).expect("an error");
    assert_eq!(ran.stderr, format!("error{shown}"));
}

#[test]
fn plan_and_show_list_only_matching_cases() {
    let context = measured();
    let kernels = |arguments: &[&str], filter: &str| -> Vec<String> {
        let ran = context.run(&[arguments, &["--db", "a3", "--format", "json", "--filter", filter]].concat());
        assert!(ran.code <= 1, "{filter}: {}", ran.stderr);
        let cases = objects(&ran.stdout);
        cases.iter().map(|case| case["kernel"].as_str().expect("a name").to_owned()).collect()
    };
    let plan = |filter: &str| kernels(&["plan", "--update", "all", "--devices", "0"], filter);
    let show = |filter: &str| kernels(&["show"], filter);
    for select in [&plan as &dyn Fn(&str) -> Vec<String>, &show] {
        assert_eq!(select("kernel = SwiGlu"), ["SwiGlu"]);
        assert_eq!(select("dim = 4096 & dtype = float32"), ["Add"]);
        assert_eq!(select("kernel = SwiGlu & median > 0 & age < 1h & run ~ rehearsal"), ["SwiGlu"]);
        assert_eq!(select("has median & has host & (device = 0 | device = 1)").len(), 2);
        assert_eq!(select("\"MicroBench Samples\" >= 1 & !(kernel = Add)"), ["SwiGlu"]);
    }
    let shown = objects(&context.run(&["show", "--db", "a3", "--format", "json"]).stdout);
    let swiglu = shown.iter().find(|case| case["kernel"] == "SwiGlu").expect("a case");
    let id = swiglu["case"].as_str().expect("an id");
    for select in [&plan as &dyn Fn(&str) -> Vec<String>, &show] {
        assert_eq!(select(&format!("case = {}", &id[..8])), ["SwiGlu"]);
        assert_eq!(select("dtype ~ bfloat16 & dtype ~ bf16"), select("dtype = BF16"));
        assert!(!select("dtype = bf16").is_empty());
    }
    let ran = context.run(&["show", "--db", "a3", "--filter", "dtype = bfloat"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("`bfloat` is no type of tensors") && ran.stderr.contains("hint: did you mean")
    );
    assert_eq!(show("age > 1h"), [""; 0]);
    let ran = context.run(&["plan", "--db", "a3", "--devices", "0", "--filter", "age > 1h"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("no row of the database matches the filter `age > 1h`"), "{}", ran.stderr);
}

/// The row is that of a later run.
#[test]
fn show_compares_the_durations_of_its_run() {
    let context = Context::new();
    context.small_database("a3");
    for seed in ["1", "2"] {
        let arguments =
            ["run", "--db", "a3", "--host", "rehearsal", "--devices", "0", "--update", "all", "--seed", seed];
        let ran = context.run(&[&arguments[..], &["--rehearsal-model", "lifelike"]].concat());
        assert!(ran.code <= 1, "{}", ran.stderr);
    }
    let runs = objects(&context.run(&["runs", "--db", "a3", "--format", "json"]).stdout);
    let shown = |run: &str, further: &[&str]| {
        let arguments = [&["show", run, "--db", "a3", "--format", "json"], further].concat();
        objects(&context.run(&arguments).stdout)
    };
    let mut medians = Vec::new();
    for run in &runs {
        let run = run["run"].as_str().expect("an id");
        for case in shown(run, &[]).iter().filter(|case| case["kernel"] == "SwiGlu") {
            let median = case["median_us"].as_f64().expect("a median");
            medians.push(median);
            for (filter, count) in [(format!("median = {median}"), 1), (format!("median > {median}"), 0)] {
                let found = shown(run, &["--filter", &format!("kernel = SwiGlu & {filter}")]);
                assert_eq!(found.len(), count, "run {run}: {filter}");
            }
        }
    }
    assert!(medians.len() == 2 && medians[0] != medians[1], "{medians:?}");
}

/// The run that a filter has started is continued with its cases.
#[test]
fn a_run_measures_only_matching_cases_and_keeps_its_filter() {
    let context = Context::new();
    context.small_database("a3");
    let filter = ["--filter", "!has verdict & kernel = Add"];
    let run = ["run", "--db", "a3", "--host", "rehearsal", "--devices", "0"];
    let ran = context.run(&[&run[..], &filter].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let shown = objects(&context.run(&["show", "--db", "a3", "--format", "json"]).stdout);
    assert_eq!(shown.iter().map(|case| &case["kernel"]).collect::<Vec<_>>(), ["Add"]);
    let resumed = context.run(&["resume", "last", "--db", "a3"]);
    assert!(resumed.code != 2 && !resumed.stderr.contains("--filter"), "{}", resumed.stderr);
    let again = objects(&context.run(&["show", "--db", "a3", "--format", "json"]).stdout);
    assert_eq!(again.len(), 1);
    assert!(context.rows("a3", "SwiGlu")[0].get("MicroBench Verdict").is_none_or(String::is_empty));
}

#[test]
fn grid_and_diff_have_the_same_filters() {
    let context = measured();
    let rows = |filter: &[&str]| -> u64 {
        let grid = ["grid", "SwiGlu", "--db", "a3", "--rows", "0", "--dry-run", "--format", "json"];
        let ran = context.run(&[&grid[..], filter].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        objects(&ran.stdout)[0]["rows"].as_u64().expect("a number")
    };
    let (all, small, other) =
        (rows(&[]), rows(&["--filter", "bytes < 1e6"]), rows(&["--filter", "!(bytes < 1e6)"]));
    assert!(small > 0 && other > 0, "{small} and {other}");
    assert_eq!(small + other, all);
    assert_eq!(rows(&["--filter", "median > 0 | median <= 0"]), 0);
    let ran = context.run(&["diff", "a3", "a3", "--filter", "kernel = Add"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("SwiGlu"), "{}", ran.stdout);
    for command in [&["grid", "--db", "a3", "--dry-run"][..], &["diff", "a3", "a3"], &["show", "--db", "a3"]]
    {
        let ran = context.run(&[command, &["--filter", "kernel ="]].concat());
        assert_eq!(ran.code, 2, "{command:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("  kernel =\n          ^\n"), "{}", ran.stderr);
    }
}
