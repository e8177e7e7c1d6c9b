//! `npubench plan`: preview of a run.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{context::Context, kill_resume::ingested};

#[test]
fn plan_lists_the_cases_to_measure_and_writes_no_file() {
    let context = ingested();
    let before = context.snapshot("db");
    let ran = context.run(&["plan", "--db", "db", "--devices", "0-3"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    insta::assert_snapshot!(ran.stdout, @r"
     kernel      to measure
     Add                  3
     GatherV2             1
     MatMulV2             1
     MatMulV3             5
     Mul                  2
     RmsNorm              3
     Slice                2
     Sort                 1
     SwiGlu               1
     TensorMove           1
     all                 20
    20 cases in 4 collections on 4 devices would take about 1 second; 0 cases already measured
    ");
    let further = context.run(&["plan", "--db", "db", "--devices", "0-3", "--max-collections", "100"]);
    let last = further.stdout.lines().last().expect("lines");
    insta::assert_snapshot!(last, @"further collections for 1 % take from 1 second to 77 seconds, or the rest of the given time");
    assert_eq!(context.snapshot("db"), before);
    let ran = context.run(&["plan", "--db", "db", "--weight-column", "Weight"]);
    assert_eq!(ran.code, 3);
}

#[test]
fn cases_that_would_end_after_the_deadline_are_left_out_and_the_most_valuable_are_not() {
    let context = Context::new();
    let grown = context.run(&["grid", "MatMulV2", "--db", "db", "--rows", "4000", "--kind", "rehearsal"]);
    assert_eq!(grown.code, 0, "{}", grown.stderr);
    // Every tenth row has a higher weight.
    let path = context.path("db/MatMulV2.csv");
    let text = fs::read_to_string(&path).expect("rows");
    let weighted = text.lines().enumerate().map(|(line, row)| match line {
        0 => format!("{row},Weight\n"),
        line => format!("{row},{}\n", if line % 10 == 5 { 7.5 } else { 1.0 }),
    });
    context.write("db/MatMulV2.csv", &weighted.collect::<String>());
    let arguments = ["plan", "--db", "db", "--devices", "3", "--weight-column", "Weight", "--budget", "3m"];
    let ran = context.run(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 4000);
    let (left, measured): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| !line["not_launched"].is_null());
    assert!(left.len() > 100 && measured.len() > 400, "{} left, {} measured", left.len(), measured.len());
    assert!(left.iter().all(|line| line["weight"] == 1.0), "a case of high weight is left");
    assert!(
        left.iter().all(|line| line["not_launched"].as_str().is_some_and(|why| why.contains("deadline")))
    );
    assert!(measured.iter().all(|line| line["end_s"].as_f64().is_some_and(|ends| ends <= 180.0)));
    assert!(measured.iter().all(|line| line["device"] == 3));
    // The first collection has only cases of high weight.
    let first = measured.iter().filter(|line| line["collection"] == 1);
    let values: BTreeSet<String> = first.map(|line| line["weight"].to_string()).collect();
    assert_eq!(values, BTreeSet::from(["7.5".to_owned()]));
}

/// A row can be noisy although one of its collections is steady: it has no accepted result, so that the next run measures it again and
/// does not count it as measured.
#[test]
fn noisy_rows_are_not_counted_as_measured() {
    let context = ingested();
    let plan = "faults:\n- unsteady_kernel: {pattern: step, factor: 1.1, launch: 8}\n  where: {kernel: MatMulV3, devices: [0, 1]}\n";
    fs::write(context.path("noisy.yaml"), plan).expect("written");
    let run =
        ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3", "--rehearsal-model", "lifelike"];
    let mut first = context.command(&run);
    first.args(["--rehearsal-faults", "noisy.yaml"]).env_remove("NPUBENCH_MAX_COLLECTIONS");
    let ran = context.ran(&first.output().expect("it runs"));
    assert!(ran.code <= 1, "{}", ran.stderr);
    let tables = [
        "Add",
        "GatherV2",
        "MatMulV2",
        "MatMulV3",
        "Mul",
        "RmsNorm",
        "Slice",
        "Sort",
        "SwiGlu",
        "TensorMove",
    ];
    let rows = tables.iter().flat_map(|kernel| context.rows("db", kernel));
    let noisy: Vec<String> = rows
        .filter(|row| row["MicroBench Verdict"] == "noisy")
        .map(|row| row["MicroBench Case"].clone())
        .collect();
    assert!(!noisy.is_empty(), "{}", ran.stderr);

    let planned = context.run(&["plan", "--db", "db", "--max-collections", "1"]);
    let totals = format!("; {} cases already measured\n", 20 - noisy.len());
    assert!(planned.stdout.contains(&totals), "{}{}", planned.stdout, planned.stderr);
    let again = context.run(&[&run[..], &["--max-collections", "1", "--format", "json"]].concat());
    let started: Value = again
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .find(|event| event["event"] == "run_started")
        .expect("a start");
    assert_eq!(
        (&started["cases"], &started["already_measured"]),
        (&noisy.len().into(), &(20 - noisy.len()).into())
    );
    let shown = context.run(&["show", "--db", "db", "--format", "json"]).stdout;
    for case in noisy {
        assert!(shown.contains(&case), "{case}: {shown}");
    }
}
