//! Which records and rows are one, seen through the program.

use crate::prelude::*;

fn matmul(duration: &str, shapes: &str, formats: &str) -> String {
    format!("MatMulV2,{duration},\"\"\"{shapes}\"\"\",DT_BF16;DT_BF16,{formats},\"\"\"8,100\"\"\",DT_BF16,ND")
}

#[test]
fn matmul_is_one_row_for_all_storage_orders() {
    let context = Context::new();
    let records = [
        matmul("10", "8,1000;100,1000", "ND;ND"),
        matmul("20", "8,1000;1000,100", "ND;ND"),
        matmul("60", "1000,8;1000,100", "ND;ND"),
        matmul("5", "8,1000;63,7,16,16", "ND;FRACTAL_NZ"),
        matmul("7", "8,1000;7,63,16,16", "ND;FRACTAL_NZ"),
    ];
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    context.write("k.csv", &profile(&records));
    context.done("ingest k.csv --db db");
    let rows = context.rows("db", "MatMulV2");
    assert_eq!(rows.len(), 2, "row-major, and blocked");
    assert_eq!(rows[0]["Input Shapes"], "\"8,1000;100,1000\"", "as it was recorded first");
    assert_eq!(rows[0]["Profiling Average Duration(us)"], "30.000000");
    assert_eq!(rows[1]["Profiling Average Duration(us)"], "6.000000");
    // Another profile shows it in the other orientation.
    let shapes = ["1000,8;100,1000", "1000,8;1000,100", "8,1000;100,1000"];
    let other = [("12", shapes[0]), ("14", shapes[1]), ("13", shapes[2])];
    let other = other.map(|(duration, shapes)| matmul(duration, shapes, "ND;ND"));
    context.write("other.csv", &profile(&other.each_ref().map(String::as_str)));
    let ran = context.run("ingest other.csv --db db");
    assert!(ran.stdout.ends_with("0 rows added, 1 updated, 0 unchanged\n"), "{}", ran.stdout);
    assert_eq!(context.rows("db", "MatMulV2")[0]["Profiling Average Duration(us)"], "13.000000");
}

#[test]
fn expert_rank_count_separates_rows_and_is_never_guessed() {
    let context = Context::new();
    let record = |duration: &str| {
        format!("DispatchFFNCombine,{duration},\"\"\"64,128\"\"\",DT_BF16,ND,\"\"\"64,128\"\"\",DT_BF16,ND")
    };
    for (ranks, duration) in [("8", "10"), ("16", "20")] {
        context.write("k.csv", &profile(&[&record(duration)]));
        let ran = context.run(&["ingest", "k.csv", "--db", "db", "--ep-size", ranks]);
        ran.out_has("1 row added");
    }
    let sizes = |context: &Context| -> Vec<(String, String)> {
        let rows = context.rows("db", "DispatchFFNCombine");
        rows.iter()
            .map(|row| (row["EP Size"].clone(), row["Profiling Average Duration(us)"].clone()))
            .collect()
    };
    let pair = |size: &str, average: &str| (size.to_owned(), average.to_owned());
    assert_eq!(sizes(&context), [pair("8", "10.000000"), pair("16", "20.000000")]);
    // Its own profile without the size is known by its numbers; another one gets a row that leaves it open.
    context.run("ingest k.csv --db db");
    assert_eq!(sizes(&context).len(), 2);
    context.write("k.csv", &profile(&[&record("30")]));
    context.run("ingest k.csv --db db");
    assert_eq!(sizes(&context)[2], pair("", "30.000000"));
    context.exits(2, "ingest k.csv --db db --ep-size 0");
}

#[test]
fn expert_rank_count_can_be_added_and_corrected() {
    let context = Context::new();
    let record = "DispatchFFNCombine,10,\"\"\"64,128\"\"\",DT_BF16,ND,\"\"\"64,128\"\"\",DT_BF16,ND";
    context.write("k.csv", &profile(&[record]));
    let ran = context.run("ingest k.csv --db db");
    ran.err_has("`EP Size` is unknown");
    context.run("ingest k.csv --db db --ep-size 16");
    let sizes = |context: &Context| -> Vec<String> {
        context.rows("db", "DispatchFFNCombine").iter().map(|row| row["EP Size"].clone()).collect()
    };
    assert_eq!(sizes(&context), ["16"], "the open row has it now");
    let ran = context.run("ingest k.csv --db db --ep-size 8");
    ran.out_has("0 rows added, 1 updated");
    assert_eq!(sizes(&context), ["8"], "the same records have one size");
}
