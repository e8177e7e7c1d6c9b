//! Kernels between which CANN chooses: each call is measured once, as a case of the kernel that ran, by a choice that the
//! tests compute themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::{
    context::{Context, Ran, STEADY_RUN, profile},
    kill_resume::{killed_after, ledger, number, processes_in, tables},
};

/// Kernels of small and of large products.
const FAMILIES: [[&str; 2]; 2] = [["MatMulV2", "MatMulV3"], ["BatchMatMulV2", "BatchMatMulV3"]];

type Row = BTreeMap<String, String>;

/// Creates a database with products of a grid, in the rows of the first kernels.
pub(crate) fn products() -> Context {
    let context = Context::new();
    let grid = ["grid", "MatMulV2", "BatchMatMulV2", "--db", "db", "--kind", "rehearsal", "--rows", "24"];
    let ran = context.run(&grid);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    context
}

fn rows(context: &Context, kernel: &str) -> Vec<Row> {
    let exists = context.path(&format!("db/{kernel}.csv")).exists();
    if exists { context.rows("db", kernel) } else { Vec::new() }
}

/// Returns true for a large product `B,M,K; B,K,N -> B,M,N`, or `M,K; N,K -> M,N`, on a device with 24 matrix cores, by
/// the rule of docs/rehearsal.md.
fn is_large(row: &Row) -> bool {
    let shape = |text: &str| -> Vec<u64> {
        text.trim_matches('"').split(',').map(|number| number.parse().expect("a number")).collect()
    };
    let inputs: Vec<Vec<u64>> = row["Input Shapes"].split(';').map(shape).collect();
    let output = shape(&row["Output Shapes"]);
    let multiplications = output.iter().product::<u64>() * inputs[0].last().expect("K");
    let is_square = |dims: &Vec<u64>| dims[dims.len() - 2] == dims[dims.len() - 1];
    multiplications >= 24 << 25
        && output[output.len() - 2..].iter().all(|side| *side >= 128)
        && !inputs.iter().any(is_square)
}

fn is_measured(row: &Row) -> bool {
    row.get("Average Duration(us)").is_some_and(|cell| !cell.is_empty())
}

fn shapes(rows: &[Row]) -> BTreeSet<String> {
    rows.iter().map(|row| format!("{} {}", row["Input Shapes"], row["Output Shapes"])).collect()
}

/// Checks that each product of the first kernel's rows is measured once, under the kernel of the rule.
fn assert_measured_once(context: &Context) {
    for [first, second] in FAMILIES {
        let (of_grid, added) = (rows(context, first), rows(context, second));
        let (large, small): (Vec<Row>, Vec<Row>) = of_grid.into_iter().partition(is_large);
        assert!(large.len() >= 2 && small.len() > 2, "{first}: {} large, {} small", large.len(), small.len());
        assert_eq!(shapes(&added), shapes(&large), "{second}");
        assert_eq!(added.len(), large.len(), "a row for each product");
        for row in small.iter().chain(&added) {
            assert!(is_measured(row), "{first}: {row:?}");
            assert_eq!(row["MicroBench Verdict"], "ok", "{row:?}");
            assert_eq!(row["MicroBench Samples"], "20", "{row:?}");
        }
        for row in &large {
            assert!(!is_measured(row), "numbers of another kernel: {row:?}");
            assert_eq!(row["MicroBench Verdict"], "ran_as_other");
            assert_eq!(row["MicroBench Reason"], format!("ran as {second}; measured there"));
            assert_eq!(row["MicroBench Samples"], "");
        }
    }
    let ledger = ledger(context).expect("a run");
    let accepted = "SELECT count(*) FROM attempts WHERE verdict = 'ok'";
    assert_eq!(number(&ledger, accepted), 48, "one measurement for each product");
    let twice = "SELECT count(*) FROM (SELECT case_id FROM attempts GROUP BY case_id HAVING count(*) > 1)";
    assert_eq!(number(&ledger, twice), 0);
}

fn assert_nothing_is_launched(context: &Context) {
    let collections = || number(&ledger(context).expect("a run"), "SELECT count(*) FROM collections");
    let (before, of_tables) = (collections(), tables(context));
    let again = context.run(&STEADY_RUN);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{}", again.stderr);
    assert_eq!(collections(), before);
    assert_eq!(tables(context), of_tables);
}

#[test]
fn each_product_of_a_grid_is_measured_once_under_the_kernel_that_ran() {
    let context = products();
    let ran = context.run(&STEADY_RUN);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("ran_as_other"), "{}", ran.stdout);
    assert_measured_once(&context);
    let shown = context.run(&["show", "--db", "db"]).stdout;
    assert!(shown.contains("ran as MatMulV3; measured there"), "{shown}");
    assert_nothing_is_launched(&context);
    // The products exist, also those that ran as the other kernel.
    let grid = context.run(&["grid", "MatMulV2", "BatchMatMulV2", "--db", "db", "--rows", "24"]);
    assert!(grid.stderr.contains("no rows added"), "{}", grid.stderr);
    let other = context.run(&["grid", "MatMulV3", "--db", "db"]);
    assert_eq!(other.code, 3);
    assert!(other.stderr.contains("has the same call as `MatMulV2`"), "{}", other.stderr);
}

fn finish(context: &Context) -> Ran {
    let ran = context.run(&["resume", "--db", "db"]);
    if ran.code == 3 { context.run(&STEADY_RUN) } else { ran }
}

#[test]
fn killed_runs_lose_no_measurement_of_another_kernel() {
    let undisturbed = products();
    let begun = Instant::now();
    assert_eq!(undisturbed.run(&STEADY_RUN).code, 0);
    let takes = begun.elapsed();
    let expected = tables(&undisturbed);
    for kill in 1..=3_u32 {
        let context = products();
        killed_after(&context, &STEADY_RUN, takes.mul_f64(f64::from(kill) / 4.0));
        if kill % 2 == 0 {
            killed_after(&context, &["resume", "--db", "db"], takes.mul_f64(f64::from(4 - kill) / 6.0));
        }
        let ran = finish(&context);
        assert_eq!(ran.code, 0, "kill {kill}: {}{}", ran.stdout, ran.stderr);
        assert_measured_once(&context);
        assert_eq!(tables(&context), expected, "kill {kill}");
        assert_eq!(processes_in(&context.path("db")), Vec::<String>::new(), "kill {kill}");
        assert_nothing_is_launched(&context);
    }
}

#[test]
fn lost_rows_of_another_kernel_are_written_again_from_the_ledger() {
    let context = products();
    assert_eq!(context.run(&STEADY_RUN).code, 0);
    let before = tables(&context);
    std::fs::remove_file(context.path("db/MatMulV3.csv")).expect("removed");
    let ran = context.run(&[&STEADY_RUN[..], &["--kernels", "MatMulV2"]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(tables(&context), before);
    assert_eq!(
        number(&ledger(&context).expect("a run"), "SELECT count(*) FROM attempts WHERE verdict = 'ok'"),
        48
    );
}

/// Database of records in the form `kernel shapes types -> output type`.
pub(crate) fn ingested(records: &[(&str, &str, &str, &str)]) -> Context {
    let context = Context::new();
    let records: Vec<String> = records
        .iter()
        .map(|(kernel, shapes, dtype, output)| {
            let slots = shapes.split(';').count();
            let (types, formats) = (vec![*dtype; slots].join(";"), vec!["ND"; slots].join(";"));
            format!("{kernel},90.5,\"\"\"{shapes}\"\"\",{types},{formats},\"\"\"{output}\"\"\",{dtype},ND")
        })
        .collect();
    context.write("k.csv", &profile(&records.iter().map(String::as_str).collect::<Vec<_>>()));
    let ran = context.run(&["ingest", "k.csv", "--db", "db", "--kind", "rehearsal"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    context
}

/// Verdict and measured duration of the only row of a kernel.
fn result(context: &Context, kernel: &str) -> (String, String) {
    let [row] = <[Row; 1]>::try_from(context.rows("db", kernel)).expect("a row");
    (row["MicroBench Verdict"].clone(), row["Average Duration(us)"].clone())
}

#[test]
fn rows_of_one_call_share_its_launches() {
    let names = ["MatMulCommon", "MatMulV2", "MatMulV3", "MatMulV3Common"];
    for (shapes, output, runs) in
        [("16,512;512,512", "16,512", &names[..2]), ("8192,4096;4096,2048", "8192,2048", &names[2..])]
    {
        let records = names.map(|name| (name, shapes, "DT_BF16", output));
        let context = ingested(&records);
        let ran = context.run(&STEADY_RUN);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        let measured: BTreeSet<String> = runs.iter().map(|name| result(&context, name).1).collect();
        assert!(measured.len() == 1 && !measured.contains(""), "one measurement for {runs:?}: {measured:?}");
        for name in names {
            let verdict = if runs.contains(&name) { "ok" } else { "ran_as_other" };
            assert_eq!(result(&context, name).0, verdict, "{name} {shapes}");
        }
        let launched = "SELECT count(*) FROM (SELECT DISTINCT collection FROM attempts)";
        assert_eq!(number(&ledger(&context).expect("a run"), launched), 1);
        assert_nothing_is_launched(&context);
    }
}

/// A product without a batch is a call of MatMulV2, under whatever name it is recorded: it is launched once, and measured
/// as the kernel that ran.
#[test]
fn product_without_a_batch_is_a_call_of_the_other_kernels() {
    let products = [
        ("BatchMatMulV2", "16,512;512,1024", "16,1024", "MatMulV2"),
        ("BatchMatMulNd", "8192,4096;2048,4096", "8192,2048", "MatMulV3"),
    ];
    for (name, shapes, output, ran_as) in products {
        for others in [&[][..], &["MatMulV2", "MatMulV3"][..]] {
            let records = [&[name][..], others].concat();
            let records: Vec<_> = records.iter().map(|name| (*name, shapes, "DT_BF16", output)).collect();
            let context = ingested(&records);
            let ran = context.run(&STEADY_RUN);
            assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
            assert_eq!(result(&context, name), ("ran_as_other".to_owned(), String::new()), "{name}");
            let [row] = <[Row; 1]>::try_from(context.rows("db", name)).expect("a row");
            assert_eq!(row["MicroBench Reason"], format!("ran as {ran_as}; measured there"));
            let (verdict, duration) = result(&context, ran_as);
            assert!(verdict == "ok" && !duration.is_empty(), "{ran_as}: {verdict}");
            let launched = "SELECT count(*) FROM (SELECT DISTINCT collection FROM attempts)";
            assert_eq!(number(&ledger(&context).expect("a run"), launched), 1);
            assert_nothing_is_launched(&context);
        }
    }
}

/// A call that was measured under another name of the kernel that ran is measured; there is no row of the type.
#[test]
fn call_measured_under_another_name_is_not_launched_again() {
    let shapes = "16,512;512,512";
    let context = ingested(&["MatMulCommon", "MatMulV3"].map(|name| (name, shapes, "DT_BF16", "16,512")));
    let ran = context.run(&STEADY_RUN);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(result(&context, "MatMulCommon").0, "ok");
    assert_eq!(result(&context, "MatMulV3"), ("ran_as_other".to_owned(), String::new()));
    let [row] = <[Row; 1]>::try_from(context.rows("db", "MatMulV3")).expect("a row");
    assert_eq!(row["MicroBench Reason"], "ran as MatMulV2; measured there");
    assert_nothing_is_launched(&context);
    assert!(!context.path("db/MatMulV2.csv").exists());
}

/// Rows that share launches are cases of their own for `plan`, and for the numbers of open cases during the run.
#[test]
fn cases_with_one_call_are_planned_and_counted_each() {
    let names = ["MatMulCommon", "MatMulV2", "MatMulV3"];
    let mut records = names.map(|name| (name, "16,512;512,512", "DT_BF16", "16,512")).to_vec();
    records.push(("Add", "64,512;64,512", "DT_BF16", "64,512"));
    let context = ingested(&records);
    let plan = context.run(&["plan", "--db", "db", "--devices", "0"]).stdout;
    assert!(plan.contains("4 cases in 1 collection on 1 device"), "{plan}");
    assert!(plan.contains("2 cases with the same call as another one: each call is launched once"), "{plan}");
    let json = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let lines = json(&context.run(&["plan", "--db", "db", "--devices", "0", "--format", "json"]).stdout);
    let kernels: Vec<&str> = lines.iter().filter_map(|line| line["kernel"].as_str()).collect();
    assert_eq!(kernels, ["Add", "MatMulCommon", "MatMulV2", "MatMulV3"]);
    let launched_as: Vec<&serde_json::Value> = lines.iter().map(|line| &line["launched_as"]).collect();
    let (none, first) = (&serde_json::Value::Null, &lines[1]["case"]);
    assert_eq!(launched_as, [none, none, first, first]);
    assert!(lines.iter().all(|line| line["device"] == 0), "{lines:?}");

    let ran = context.run(&[&STEADY_RUN[..], &["--format", "json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let (mut done, mut forecasts) = (0, Vec::new());
    for event in json(&ran.stdout) {
        match event["event"].as_str() {
            Some("run_started") => assert_eq!(event["cases"], 4),
            Some("case_finished") => done += 1,
            Some("progress") => forecasts.push((event["open"].as_u64(), Some(4 - done))),
            _ => {}
        }
    }
    assert!(done == 4 && !forecasts.is_empty());
    assert!(forecasts.iter().all(|(open, expected)| open == expected), "{forecasts:?}");
}

/// A noisy measurement of a kernel that no row of the run is of decides the exit code, also if it was made before an
/// interruption: here all that is left of the run is its end.
#[test]
fn noisy_measurement_of_another_kernel_counts_after_an_interruption() {
    let context = ingested(&[("MatMulV3", "16,512;512,512", "DT_BF16", "16,512")]);
    assert_eq!(context.run(&STEADY_RUN).code, 0);
    let interrupted = "UPDATE runs SET ended_ns = NULL, exit_code = NULL";
    let resumed = |context: &Context| context.run(&["resume", "--db", "db"]).code;
    ledger(&context).expect("a run").execute_batch(interrupted).expect("changed");
    assert_eq!(resumed(&context), 0);
    let noisy = format!("{interrupted}; UPDATE attempts SET verdict = 'noisy' WHERE verdict = 'ok'");
    ledger(&context).expect("a run").execute_batch(&noisy).expect("changed");
    assert_eq!(resumed(&context), 1);
}

#[test]
fn kernels_recorded_by_names_of_graphs_are_replayed_as_their_kernel() {
    let context = ingested(&[
        ("MatMulCommon", "3,6144;32,6144", "DT_BF16", "3,32"),
        ("AddAiCore", "64,512;64,512", "DT_BF16", "64,512"),
        ("BatchMatMulNd", "4,16,128;4,128,64", "DT_BF16", "4,16,64"),
        ("SoftmaxAiCore", "64,512", "FLOAT", "64,512"),
        ("NegAiCore", "64,512", "DT_BF16", "64,512"),
    ]);
    let ran = context.run(&STEADY_RUN);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for name in ["MatMulCommon", "AddAiCore", "BatchMatMulNd", "SoftmaxAiCore", "NegAiCore"] {
        assert_eq!(result(&context, name).0, "ok", "{name}");
    }
    // A row keeps the name under which it was recorded, and no other is added.
    assert!(!context.path("db/MatMulV2.csv").exists() && !context.path("db/Add.csv").exists());
    assert_nothing_is_launched(&context);
}

#[test]
fn many_concatenated_tensors_are_another_kernel() {
    // In a graph both kernels have the name ConcatD.
    let many = vec!["2,64"; 33].join(";");
    let few = vec!["2,64"; 32].join(";");
    let context = ingested(&[("ConcatD", &many, "DT_BF16", "66,64"), ("ConcatD", &few, "DT_BF16", "64,64")]);
    let ran = context.run(&STEADY_RUN);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let verdicts: Vec<String> =
        context.rows("db", "ConcatD").iter().map(|row| row["MicroBench Verdict"].clone()).collect();
    assert_eq!(verdicts, ["ran_as_other", "ok"]);
    assert_eq!(result(&context, "ConcatDV2").0, "ok");
    assert_nothing_is_launched(&context);
}

/// A lookup interpolates over the rows of all kernels with the call, so that an audit counts them together.
#[test]
fn audits_count_rows_under_every_name() {
    let context = ingested(&[
        ("MatMulV2", "16,512;512,512", "DT_BF16", "16,512"),
        ("MatMulV3", "64,512;512,512", "DT_BF16", "64,512"),
        ("MatMulCommon", "128,512;512,512", "DT_BF16", "128,512"),
    ]);
    let audit = |kernel: &str| {
        let ran = context.run(&["grid", "audit", kernel, "--db", "db", "--format", "json"]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let lines = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.map(|line: serde_json::Value| line["measured_rows"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(audit("MatMulV2"), audit("MatMulV3"));
    assert!(audit("MatMulV2").iter().all(|measured| measured == 3), "{:?}", audit("MatMulV2"));
}
