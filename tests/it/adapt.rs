//! `adapt`: batches of a grid's cases where lookups are worst, until the estimated error is small enough.

use std::{collections::BTreeSet, fs, time::Duration};

use nix::sys::signal::Signal;

use crate::{
    context::{Context, Ran},
    kill_resume::ingested,
    rehearsal::signal,
};

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

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let base = [
        "adapt",
        "RmsNorm",
        "--db",
        "db",
        "--grids",
        "norms.yaml",
        "--host",
        "rehearsal",
        "--devices",
        "0-3",
    ];
    [&base[..], more].concat()
}

fn adapt(context: &Context, more: &[&str]) -> Ran {
    context.run(&arguments(more))
}

fn prepared() -> Context {
    let context = ingested();
    context.write("norms.yaml", GRID);
    context
}

fn published(context: &Context) -> String {
    fs::read_to_string(context.path("db/interpolation_error.yaml")).expect("published")
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
    let ran = adapt(&context, &["--target-error", "40", "--batch", "35"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.lines().any(|line| line.trim_start().starts_with("RmsNorm") && line.ends_with("yes")),
        "{}",
        ran.stdout
    );
    assert!(ran.stderr.contains("60 hold-outs; target 40.0 %"), "{}", ran.stderr);
    let file = published(&context);
    assert!(file.contains("kind: rehearsal") && file.contains("target: 0.4\n"), "{file}");
    assert_eq!(file.matches("\n    - ").count(), 60, "{file}");
    let rows = measured(&context);
    assert!(rows.len() > 60 && context.rows("db", "RmsNorm").len() > before, "{} rows", rows.len());
    // No other command takes the file for a table.
    let check = context.run(&["db", "check", "db"]);
    assert!(!check.stdout.contains("interpolation_error"), "{}", check.stdout);
    // Answers between rows, and the coverage of a workload that has them, show the published error; others do not.
    let tokens = (100..500).find(|tokens| !rows.contains(&format!("\"{tokens},1024;1024\"")));
    let shapes = format!("{},1024;1024", tokens.expect("not all are measured"));
    let query = |shapes: &str, more: &[&str]| {
        context
            .run(
                &[&["query", "--db", "db", "--op", "RmsNorm", "--dtypes", "bf16", "--inputs", shapes], more]
                    .concat(),
            )
            .stdout
    };
    let shown = "90 % of the interpolations of RmsNorm within ";
    let text = query(&shapes, &[]);
    assert!(text.contains("source      interpolated") && text.contains(shown), "{text}");
    assert!(query(&shapes, &["--format", "json"]).contains(r#""published_error":{"kernel":"RmsNorm""#));
    let row = rows.iter().next().expect("a row").trim_matches('"').to_owned();
    assert!(!query(&row, &[]).contains("interpolations"), "{row}");
    context.write("w.csv", &format!("op,shapes,dtypes,count\nRmsNorm,\"{shapes}\",DT_BF16;DT_BF16,3\n"));
    let coverage = context.run(&["coverage", "--db", "db", "--workload", "w.csv"]);
    assert!(coverage.stdout.contains(shown), "{}{}", coverage.stdout, coverage.stderr);
    // Nothing is left to do, and the file keeps its date.
    let again = adapt(&context, &["--target-error", "40", "--batch", "35"]);
    assert_eq!((again.code, measured(&context)), (0, rows), "{}{}", again.stdout, again.stderr);
    assert_eq!(published(&context), file);
}

#[test]
fn a_dry_run_lists_the_first_batch_with_reasons_and_writes_nothing() {
    let context = prepared();
    let before = context.snapshot("db");
    let ran = adapt(&context, &["--dry-run"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    insta::assert_snapshot!(ran.stdout);
    let json = adapt(&context, &["--dry-run", "--format", "json"]);
    assert!(json.stdout.contains(r#""reason":"line_end""#), "{}", json.stdout);
    assert_eq!(context.snapshot("db"), before);
}

#[test]
fn cases_that_are_spent_end_the_batches_before_the_target() {
    let context = prepared();
    let ran = adapt(&context, &["--target-error", "0.1", "--max-cases", "10", "--batch", "6"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.lines().any(|line| line.trim_start().starts_with("RmsNorm") && line.ends_with("no")),
        "{}",
        ran.stdout
    );
    assert!(ran.stderr.contains("no estimate yet"), "{}", ran.stderr);
    let rows = measured(&context).len();
    assert!((8..=12).contains(&rows), "{rows}");
}

#[test]
fn an_interrupted_command_goes_on_from_its_rows() {
    let context = prepared();
    let mut command =
        context.command(&arguments(&["--target-error", "0.1", "--max-cases", "80", "--batch", "20"]));
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
    let resumed = context.run(&["resume", "--db", "db"]);
    // The stop may have come between two runs.
    assert!(resumed.code <= 1 || resumed.stderr.contains("was interrupted"), "{}", resumed.stderr);
    let ran = adapt(&context, &["--target-error", "0.1", "--max-cases", "10"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(measured(&context).is_superset(&rows));
}

#[test]
fn requests_without_candidates_or_with_wrong_targets_are_refused() {
    let context = prepared();
    for target in ["0", "-5", "nan", "x"] {
        let ran = adapt(&context, &["--target-error", target]);
        assert_eq!(ran.code, 2, "{target}: {}", ran.stderr);
    }
    let unknown = context.run(&["adapt", "NoKernel", "--db", "db", "--host", "rehearsal"]);
    assert_eq!(unknown.code, 3, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no grid declares `NoKernel`"), "{}", unknown.stderr);
    context.write("norms.yaml", &GRID.replace("    inputs:", "    where: [t > 9999]\n    inputs:"));
    let none = adapt(&context, &[]);
    assert_eq!(none.code, 3, "{}", none.stderr);
    assert!(none.stderr.contains("have no candidate that can be measured"), "{}", none.stderr);
    context.write("norms.yaml", GRID);
    context.write("db/interpolation_error.yaml", "npubench_interpolation_error: 1\nkind: npu\nkernels: {}\n");
    let other = adapt(&context, &[]);
    assert_eq!(other.code, 3, "{}", other.stderr);
    assert!(
        other.stderr.contains("estimates of kind `npu` in a database of kind `rehearsal`"),
        "{}",
        other.stderr
    );
}
