//! `why`: from a row to its evidence and raw records.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::prelude::*;

const RUN: [&str; 9] =
    ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--rehearsal-model", "steady"];

fn measure(context: &Context, more: &(impl Words + ?Sized)) {
    context.done(&(RUN, more));
}

/// Evidence with the real paths of the temporary folder.
fn evidence(context: &Context, case: &str) -> Value {
    let output = context.command(&["why", case, "--db", "db", "--format", "json"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn page_explains_a_number_from_its_row_to_the_raw_records() {
    let context = Context::of_layer();
    measure(&context, "");
    measure(&context, "--update all");
    let row = context.rows("db", "SwiGlu").remove(0);
    let page = context.done(&["why", &row["MicroBench Case"][..7], "--db", "db"]);
    assert_eq!(context.run("why db/SwiGlu.csv:2 --db db").stdout, page.stdout);
    // The width of a column depends on the times in it.
    insta::with_settings!({filters => vec![
        (r"  +", "  "), (r"\b[0-9a-f]{64}\b", "DIGEST"),
        (r"rehearsal-[-0-9]+", "RUN"), (r"\b[0-9a-f]{16}\b", "ID"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d", "TIME"), (r"PROF_\w+", "PROF"), (r"op_summary_\w+", "op_summary"),
        (r"[0-9-]+ C, [0-9-]+ W", "SENSORS"), (r"TIME  \d+ \w+", "TIME  SECONDS"),
        (r"  \d{3,4}  ([+-])", "  CYCLES  $1"),
        (r"collections/\d{5}", "collections/NUMBER"), (r"RUN +\d+ ", "RUN  N "),
        (r"Neg with \d+ and \d+", "Neg with 2k+2 and 2k+3"), (r"CANN [^(]*\(ID\)", "SOFTWARE"),
    ]}, {
        insta::assert_snapshot!(page.stdout);
    });
}

/// Durations of the samples are those of the profiler's table that the page names.
#[test]
fn named_tables_have_the_samples() {
    let context = Context::of_layer();
    measure(&context, "");
    let found = evidence(&context, "SwiGlu.csv:2");
    let collection = &found["collections"][0];
    let samples = collection["samples_ns"].list();
    let samples: BTreeSet<i64> = samples.iter().filter_map(Value::as_i64).collect();
    assert!(samples.len() > 3, "{collection}");
    let mut records = collection["records"].list().iter().filter_map(Value::as_str);
    let table = records.rfind(|path| path.ends_with(".csv")).expect("a table of the profiler");
    let mut reader = csv::Reader::from_path(table).expect("a table");
    let rows = reader.deserialize().map(|row| row.expect("a row"));
    let recorded: BTreeSet<i64> = rows
        .filter(|row: &std::collections::BTreeMap<String, String>| row["OP Type"] == "SwiGlu")
        .map(|row| (row["Task Duration(us)"].trim().parse::<f64>().expect("a number") * 1e3).round() as i64)
        .collect();
    assert!(samples.is_subset(&recorded), "{samples:?} {recorded:?}");
    // A removed folder is no error.
    fs::remove_dir_all(Path::new(collection["folder"].text())).expect("removed");
    let page = context.run("why SwiGlu.csv:2 --db db");
    assert!(page.code == 0 && page.stdout.contains("does not exist: it was removed"), "{}", page.stdout);
}

#[test]
fn samples_of_other_software_are_listed_with_the_reason() {
    let context = Context::new();
    context.small_database("db");
    measure(&context, "");
    let plan = context.write("host.yaml", "software: {cann: 8.6.0}\n").to_string_lossy().into_owned();
    measure(&context, &["--update", "all", "--rehearsal-faults", &plan]);
    let found = evidence(&context, "Add.csv:2");
    let collections = found["collections"].list();
    assert_eq!(collections.len(), 2);
    assert_eq!((&collections[0]["is_used"], &collections[1]["is_used"]), (&false.into(), &true.into()));
    let why = collections[0]["left_out"].text();
    assert!(why.starts_with("measured with other software: CANN "), "{why}");
    assert_eq!(found["rows"][0]["ledger"], "the row is that of the ledger");
}

#[test]
fn cases_without_a_measurement_have_a_page() {
    let context = Context::of_layer();
    let page = |case: &str| context.run(&["why", case, "--db", "db"]).stdout;
    assert!(page("SwiGlu.csv:2").contains("result     no measurement: no run has planned the case"));
    context.write("more.csv", &profile(&[&SWIGLU.replacen("SwiGlu", "Mystery", 1)]));
    context.done("ingest more.csv --db db");
    measure(&context, "");
    let unknown = page("Mystery.csv:2");
    assert!(unknown.contains("result     no measurement: no_entry in run "), "{unknown}");
    assert!(unknown.contains("roofline   unknown: no_entry: "), "{unknown}");
}

#[test]
fn command_of_the_page_measures_the_case_alone() {
    let context = Context::of_layer();
    measure(&context, "");
    let found = evidence(&context, "SwiGlu.csv:2");
    let command = found["command"].text().to_owned();
    let arguments: Vec<&str> = command.split(' ').skip(1).chain(["--devices", "0"]).collect();
    context.done(&arguments);
    assert_eq!(evidence(&context, "SwiGlu.csv:2")["collections"].as_array().map(Vec::len), Some(2));
    assert_eq!(evidence(&context, "Sort.csv:2")["collections"].as_array().map(Vec::len), Some(1));
    let unknown = context.exits(3, &(RUN, "--case 0000000000000000"));
    insta::assert_snapshot!(unknown.stderr, @"
    error: no row of the database is a case whose id begins with `0000000000000000`
    hint: the column `MicroBench Case` and `npubench show` have the ids of cases that were planned
    ");
}

#[test]
fn unknown_cases_are_refused_with_the_nearest_ones() {
    let context = Context::new();
    context.small_database("db");
    let errors =
        ["", "SwiGlu", "0", "ffffffffffffffff", "SwiGlu.csv:9", "Nothing.csv:2", "12345678901234567"].map(
            |case| {
                let ran = context.run(&["why", case, "--db", "db"]);
                assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{case}: {}", ran.stderr);
                ran.stderr
            },
        );
    insta::assert_snapshot!(errors.concat(), @"
    error: `` is no id of a case and no row of a table
    hint: give 16 hexadecimal digits of the column `MicroBench Case`, their first ones, or a row such as `SwiGlu.csv:2`
    error: `SwiGlu` is no id of a case and no row of a table
    hint: give 16 hexadecimal digits of the column `MicroBench Case`, their first ones, or a row such as `SwiGlu.csv:2`
    error: no case of this database has an id that begins with `0`
    hint: the nearest are 8f553c480e90d7fb (Add), fdcfa094931c94fa (SwiGlu)
    error: no case of this database has an id that begins with `ffffffffffffffff`
    hint: the nearest are fdcfa094931c94fa (SwiGlu), 8f553c480e90d7fb (Add)
    error: SwiGlu.csv has no row in line 9
    hint: its last row is in line 2; line 1 is the header
    error: `Nothing.csv:2` is no id of a case and no row of a table
    hint: give 16 hexadecimal digits of the column `MicroBench Case`, their first ones, or a row such as `SwiGlu.csv:2`
    error: `12345678901234567` is no id of a case and no row of a table
    hint: give 16 hexadecimal digits of the column `MicroBench Case`, their first ones, or a row such as `SwiGlu.csv:2`
    ");
}
