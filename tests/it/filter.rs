//! `--filter`: the same language in all commands that have it.

use std::fs;

use crate::prelude::*;

/// A database with a measured SwiGlu and Add.
fn measured() -> Context {
    let context = Context::new();
    context.small_database("a3");
    context.run("run --db a3 --host rehearsal --devices 0-1").measured();
    context
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
        ran.err_lacks("--filter:");
    }
    let ran = context.exits(2, &["plan", "--db", "a3", "--filter", "kernel ~ MatMul & verdit = noisy"]);
    let shown = text.split("```\nerror").nth(1).and_then(|rest| rest.split("```").next()).expect("an error");
    assert_eq!(ran.stderr, format!("error{shown}"));
}

/// A device on which every attempt fails has measured nothing, whatever lists the cases.
#[test]
fn a_device_without_samples_has_measured_no_case() {
    let context = Context::new();
    context.small_database("a3");
    context.write("lost.yaml", "faults: [{device_error: {code: 507015}, where: {devices: 1}}]\n");
    let run = "run --db a3 --host rehearsal --devices 0-1 --rehearsal-faults lost.yaml";
    context.run(run).measured();
    let shown = |filter: &str| context.run(&["show", "--db", "a3", "--format", "json", "--filter", filter]);
    assert_eq!(shown("device = 0").json().len(), 2);
    assert_eq!(shown("device = 1").json().len(), 0);
    let planned = ["plan", "--db", "a3", "--update", "all", "--devices", "0", "--filter", "device = 1"];
    context.exits(3, &planned).err_has("no row of the database matches");
}

#[test]
fn plan_and_show_list_only_matching_cases() {
    let context = measured();
    let kernels = |arguments: &str, filter: &str| -> Vec<String> {
        let ran =
            context.run(&(arguments, &["--db", "a3", "--format", "json", "--filter", filter])).measured();
        let cases = ran.json();
        cases.iter().map(|case| case["kernel"].text().to_owned()).collect()
    };
    let plan = |filter: &str| kernels("plan --update all --devices 0", filter);
    let show = |filter: &str| kernels("show", filter);
    for select in [&plan as &dyn Fn(&str) -> Vec<String>, &show] {
        assert_eq!(select("kernel = SwiGlu"), ["SwiGlu"]);
        assert_eq!(select("dim = 4096 & dtype = float32"), ["Add"]);
        assert_eq!(select("kernel = SwiGlu & median > 0 & age < 1h & run ~ rehearsal"), ["SwiGlu"]);
        assert_eq!(select("has median & has host & (device = 0 | device = 1)").len(), 2);
        assert_eq!(select("\"MicroBench Samples\" >= 1 & !(kernel = Add)"), ["SwiGlu"]);
    }
    let shown = context.run("show --db a3 --format json").json();
    let swiglu = shown.iter().find(|case| case["kernel"] == "SwiGlu").expect("a case");
    let id = swiglu["case"].text();
    for select in [&plan as &dyn Fn(&str) -> Vec<String>, &show] {
        assert_eq!(select(&format!("case = {}", &id[..8])), ["SwiGlu"]);
        assert_eq!(select("dtype ~ bfloat16 & dtype ~ bf16"), select("dtype = BF16"));
        assert!(!select("dtype = bf16").is_empty());
    }
    let ran = context.exits(2, &["show", "--db", "a3", "--filter", "dtype = bfloat"]);
    ran.err_has("`bfloat` is no type of tensors");
    ran.err_has("hint: did you mean");
    assert_eq!(show("age > 1h"), [""; 0]);
    let ran = context.exits(3, &["plan", "--db", "a3", "--devices", "0", "--filter", "age > 1h"]);
    ran.err_has("no row of the database matches the filter `age > 1h`");
}

#[test]
fn a_run_measures_only_matching_cases_and_keeps_its_filter() {
    let context = Context::new();
    context.small_database("a3");
    let filter = ["--filter", "!has verdict & kernel = Add"];
    let run = ["run", "--db", "a3", "--host", "rehearsal", "--devices", "0"];
    context.done(&(&run[..], &filter));
    let shown = context.run("show --db a3 --format json").json();
    assert_eq!(shown.iter().map(|case| &case["kernel"]).collect::<Vec<_>>(), ["Add"]);
    let resumed = context.run("resume last --db a3");
    assert!(resumed.code != 2 && !resumed.stderr.contains("--filter"), "{}", resumed.stderr);
    let again = context.run("show --db a3 --format json").json();
    assert_eq!(again.len(), 1);
    assert!(context.rows("a3", "SwiGlu")[0].get("MicroBench Verdict").is_none_or(String::is_empty));
}
