//! `adapt`: batches of a grid's cases where lookups are worst, until the estimated error is small enough.

use std::{collections::BTreeSet, time::Duration};

use nix::sys::signal::Signal;

use crate::prelude::*;

/// Norms of two widths.
const GRID: &str = "\
summary: norms
patterns:
  norm:
    summary: norms
    kernels: [RmsNorm]
    axes: {t: [1..512 ratio 4], d: [1024, 4096]}
    inputs: {shapes: \"t,d; d\", dtypes: DT_BF16}
    outputs: {shapes: \"t,d; t,1\", dtypes: \"DT_BF16; FLOAT\"}
";

const ADAPT: &str = "adapt RmsNorm --db db --grids norms.yaml --host rehearsal --devices 0-3";

fn adapt(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    context.run(&(ADAPT, more))
}

fn prepared() -> Context {
    let context = Context::of_layer();
    context.write("norms.yaml", GRID);
    context
}

fn published(context: &Context) -> String {
    context.read("db/interpolation_error.yaml")
}

/// Cases of RmsNorm that have a latency.
fn measured(context: &Context) -> BTreeSet<String> {
    let rows = context.rows("db", "RmsNorm");
    let has_latency = rows.iter().filter(|row| !row["Average Duration(us)"].is_empty());
    has_latency.map(|row| row["Input Shapes"].clone()).collect()
}

#[test]
fn batches_are_measured_until_the_estimate_is_at_the_target() {
    let context = prepared();
    let before = context.rows("db", "RmsNorm").len();
    let ran = adapt(&context, "--target-error 40 --batch 35").ended(0);
    assert!(
        ran.stdout.lines().any(|line| line.trim_start().starts_with("RmsNorm") && line.ends_with("yes")),
        "{}",
        ran.stdout
    );
    ran.err_has("60 hold-outs; target 40.0 %");
    let file = published(&context);
    assert!(file.contains("kind: rehearsal") && file.contains("target: 0.4\n"), "{file}");
    assert_eq!(file.matches("\n    - ").count(), 60, "{file}");
    let rows = measured(&context);
    assert!(rows.len() > 60 && context.rows("db", "RmsNorm").len() > before, "{} rows", rows.len());
    // No other command takes the file for a table.
    let check = context.run("db check db");
    check.out_lacks("interpolation_error");
    // Answers between rows, and the coverage of a workload that has them, show the published error; others do not.
    let tokens = (100..500).find(|tokens| !rows.contains(&format!("\"{tokens},1024;1024\"")));
    let shapes = format!("{},1024;1024", tokens.expect("not all are measured"));
    let query = |shapes: &str, more: &str| {
        let query = ["query", "--db", "db", "--op", "RmsNorm", "--dtypes", "bf16", "--inputs", shapes];
        context.run(&(query, more)).stdout
    };
    let shown = "90 % of the interpolations of RmsNorm within ";
    let text = query(&shapes, "");
    assert!(text.contains("source      interpolated") && text.contains(shown), "{text}");
    assert!(query(&shapes, "--format json").contains(r#""published_error":{"kernel":"RmsNorm""#));
    let row = rows.iter().next().expect("a row").trim_matches('"').to_owned();
    assert!(!query(&row, "").contains("interpolations"), "{row}");
    context.write("w.csv", &format!("op,shapes,dtypes,count\nRmsNorm,\"{shapes}\",DT_BF16;DT_BF16,3\n"));
    let coverage = context.run("coverage --db db --workload w.csv");
    coverage.out_has(shown);
    // Nothing is left to do, and the file keeps its date.
    let again = adapt(&context, "--target-error 40 --batch 35");
    assert_eq!((again.code, measured(&context)), (0, rows), "{}{}", again.stdout, again.stderr);
    assert_eq!(published(&context), file);
}

#[test]
fn cases_that_are_spent_end_the_batches_before_the_target() {
    let context = prepared();
    let ran = adapt(&context, "--target-error 0.1 --max-cases 10 --batch 6").ended(1);
    assert!(
        ran.stdout.lines().any(|line| line.trim_start().starts_with("RmsNorm") && line.ends_with("no")),
        "{}",
        ran.stdout
    );
    ran.err_has("no estimate yet");
    let rows = measured(&context).len();
    assert!((8..=12).contains(&rows), "{rows}");
}

#[test]
fn an_interrupted_command_goes_on_from_its_rows() {
    let context = prepared();
    let mut command = context.command(&(ADAPT, "--target-error 0.1 --max-cases 80 --batch 20"));
    let mut child = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it runs");
    while !context.path("db/interpolation_error.yaml").exists()
        && child.try_wait().expect("a child").is_none()
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, Signal::SIGINT);
    assert_eq!(child.wait().expect("ended").code(), Some(5));
    let rows = measured(&context);
    let resumed = context.run("resume --db db");
    // The stop may have come between two runs.
    assert!(resumed.code <= 1 || resumed.stderr.contains("was interrupted"), "{}", resumed.stderr);
    adapt(&context, "--target-error 0.1 --max-cases 10").ended(1);
    assert!(measured(&context).is_superset(&rows));
}

#[test]
fn requests_without_candidates_or_with_wrong_targets_are_refused() {
    let context = prepared();
    for target in ["0", "-5", "nan", "x"] {
        adapt(&context, &["--target-error", target]).ended(2);
    }
    let unknown = context.exits(3, "adapt NoKernel --db db --host rehearsal");
    unknown.err_has("no grid declares `NoKernel`");
    context.write("norms.yaml", &GRID.replace("    inputs:", "    where: [t > 9999]\n    inputs:"));
    let none = adapt(&context, "").ended(3);
    none.err_has("have no candidate that can be measured");
    context.write("norms.yaml", GRID);
    context.write("db/interpolation_error.yaml", "npubench_interpolation_error: 1\nkind: npu\nkernels: {}\n");
    let other = adapt(&context, "").ended(3);
    other.err_has("estimates of kind `npu` in a database of kind `rehearsal`");
}
