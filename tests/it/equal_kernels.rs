//! Kernels between which CANN chooses: each call is measured once, as a case of the kernel that ran, by a choice that the
//! tests compute themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::prelude::*;

/// Kernels of small and of large products.
const FAMILIES: [[&str; 2]; 2] = [["MatMulV2", "MatMulV3"], ["BatchMatMulV2", "BatchMatMulV3"]];

type Row = BTreeMap<String, String>;

/// Creates a database with products of a grid, in the rows of the first kernels.
pub(crate) fn products() -> Context {
    let context = Context::new();
    let grid = "grid MatMulV2 BatchMatMulV2 --db db --kind rehearsal --rows 24";
    context.done(grid);
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
    let ran = context.done(&STEADY_RUN);
    ran.out_has("ran_as_other");
    assert_measured_once(&context);
    let shown = context.run("show --db db").stdout;
    assert!(shown.contains("ran as MatMulV3; measured there"), "{shown}");
    assert_nothing_is_launched(&context);
    // The products exist, also those that ran as the other kernel.
    let grid = context.run("grid MatMulV2 BatchMatMulV2 --db db --rows 24");
    grid.err_has("no rows added");
    let other = context.exits(3, "grid MatMulV3 --db db");
    other.err_has("has the same call as `MatMulV2`");
}

fn finish(context: &Context) -> Ran {
    let ran = context.run("resume --db db");
    if ran.code == 3 { context.run(&STEADY_RUN) } else { ran }
}

#[test]
fn killed_runs_lose_no_measurement_of_another_kernel() {
    let undisturbed = products();
    let begun = Instant::now();
    assert_eq!(undisturbed.run(&STEADY_RUN).code, 0);
    let takes = begun.elapsed();
    let expected = tables(&undisturbed);
    let context = products();
    killed_after(&context, &STEADY_RUN, takes.mul_f64(0.5));
    killed_after(&context, "resume --db db", takes.mul_f64(0.3));
    finish(&context).ended(0);
    assert_measured_once(&context);
    assert_eq!(tables(&context), expected);
    assert_eq!(processes_in(&context.path("db")), Vec::<String>::new());
    assert_nothing_is_launched(&context);
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
    context.ingest_records("db", &records.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
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
        context.done(&STEADY_RUN);
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
    for (name, others, shapes, output, ran_as) in [
        ("BatchMatMulV2", &[][..], "16,512;512,1024", "16,1024", "MatMulV2"),
        ("BatchMatMulNd", &["MatMulV2", "MatMulV3"], "8192,4096;2048,4096", "8192,2048", "MatMulV3"),
    ] {
        let records = [&[name][..], others].concat();
        let records: Vec<_> = records.iter().map(|name| (*name, shapes, "DT_BF16", output)).collect();
        let context = ingested(&records);
        context.done(&STEADY_RUN);
        assert_eq!(result(&context, name), ("ran_as_other".to_owned(), String::new()), "{name}");
        let row = &context.rows("db", name)[0];
        assert_eq!(row["MicroBench Reason"], format!("ran as {ran_as}; measured there"));
        let (verdict, duration) = result(&context, ran_as);
        assert!(verdict == "ok" && !duration.is_empty(), "{ran_as}: {verdict}");
        let launched = "SELECT count(*) FROM (SELECT DISTINCT collection FROM attempts)";
        assert_eq!(number(&ledger(&context).expect("a run"), launched), 1);
        assert_nothing_is_launched(&context);
    }
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
    context.done(&STEADY_RUN);
    for name in ["MatMulCommon", "AddAiCore", "BatchMatMulNd", "SoftmaxAiCore", "NegAiCore"] {
        assert_eq!(result(&context, name).0, "ok", "{name}");
    }
    // A row keeps the name under which it was recorded, and no other is added.
    assert!(!context.path("db/MatMulV2.csv").exists() && !context.path("db/Add.csv").exists());
    assert_nothing_is_launched(&context);
}
