//! `npubench plan`: preview of a run.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::prelude::*;

#[test]
fn plan_lists_the_cases_to_measure_and_writes_no_file() {
    let context = Context::of_layer();
    let before = context.snapshot("db");
    let ran = context.done("plan --db db --devices 0-3");
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
    let further = context.run("plan --db db --devices 0-3 --max-collections 100");
    let last = further.stdout.lines().last().expect("lines");
    insta::assert_snapshot!(last, @"further collections for 1 % take from 1 second to 77 seconds, or the rest of the given time");
    assert_eq!(context.snapshot("db"), before);
    context.exits(3, "plan --db db --weight-column Weight");
}

#[test]
fn cases_that_would_end_after_the_deadline_are_left_out_and_the_most_valuable_are_not() {
    let context = Context::new();
    context.done("grid MatMulV2 --db db --rows 4000 --kind rehearsal");
    // Every tenth row has a higher weight.
    let path = context.path("db/MatMulV2.csv");
    let text = fs::read_to_string(&path).expect("rows");
    let weighted = text.lines().enumerate().map(|(line, row)| match line {
        0 => format!("{row},Weight\n"),
        line => format!("{row},{}\n", if line % 10 == 5 { 7.5 } else { 1.0 }),
    });
    context.write("db/MatMulV2.csv", &weighted.collect::<String>());
    let arguments = "plan --db db --devices 3 --weight-column Weight --budget 3m";
    let ran = context.done(&(arguments, "--format json"));
    let lines: Vec<Value> = ran.json();
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
