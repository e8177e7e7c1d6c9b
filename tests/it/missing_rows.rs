//! Rows and tables that are missing although the ledger has their results: `db check` reports them, `reparse` rebuilds them.

use std::fs;

use serde_json::Value;

use crate::prelude::*;

fn findings(context: &Context) -> Vec<(String, String, String)> {
    let ran = context.run("db check db --format json");
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let found = report["findings"].list().iter();
    let text = |found: &Value, key: &str| found[key].text().to_owned();
    found.map(|found| (text(found, "file"), text(found, "kind"), text(found, "text"))).collect()
}

/// A deleted table and deleted rows come back in their places; the profile fills what only it has, and the bytes are the same.
#[test]
fn deleted_tables_and_rows_are_reported_and_rebuilt() {
    let context = Context::of_measured_layer();
    assert_eq!(findings(&context), []);
    let [table, matmul] = ["db/RmsNorm.csv", "db/MatMulV3.csv"].map(|name| context.path(name));
    let before = [&table, &matmul].map(|path| fs::read(path).expect("a table"));
    let text = String::from_utf8(before[1].clone()).expect("text");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 6, "a header and five rows");
    fs::remove_file(&table).expect("removed");
    fs::write(&matmul, [lines[0], lines[2], lines[3], lines[5]].concat()).expect("written");

    let found = findings(&context);
    let [(first, kind, text), (second, other_kind, other_text)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((first.as_str(), kind.as_str()), ("MatMulV3.csv", "missing-row"), "{found:?}");
    assert!(text.starts_with("the table has no row of 2 cases with results in the ledger"), "{text}");
    assert_eq!((second.as_str(), other_kind.as_str()), ("RmsNorm.csv", "missing-table"), "{found:?}");
    assert!(other_text.starts_with("the table is missing, and the ledger has results of 3 cases"), "{text}");
    assert!(other_text.contains("`npubench db rebuild`"), "{other_text}");
    assert_eq!(context.run("db check db").code, 1);

    let compared = context.exits(1, "reparse --db db");
    compared.out_has("`--write` rebuilds the rows");
    assert!(!table.exists(), "a comparison writes nothing");
    let written = context.done("reparse --db db --write");
    written.out_has("with 3 cases of the ledger: rebuilt 3 rows");
    written.out_has("and your own, are lost");
    assert_eq!(findings(&context), []);
    let rebuilt = [&table, &matmul].map(|path| fs::read(path).expect("a table"));
    context.done("reparse --db db --write");
    assert!([&table, &matmul].map(|path| fs::read(path).expect("a table")) == rebuilt);

    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv");
    context.done(&["ingest", profile, "--db", "db"]);
    for (path, before) in [&table, &matmul].into_iter().zip(&before) {
        let after = fs::read(path).expect("a table");
        let [after, before] = [&after, before].map(|bytes| String::from_utf8_lossy(bytes));
        assert_same_lines(&before, &after);
    }
}

fn assert_same_lines(before: &str, after: &str) {
    for (number, (before, after)) in before.lines().zip(after.lines()).enumerate() {
        assert_eq!(after, before, "line {}", number + 1);
    }
    assert_eq!(after.len(), before.len());
}

/// Rows without usable evidence are named, and the exit code shows that they are missing.
#[test]
fn rows_without_evidence_are_named() {
    let context = Context::new();
    context.small_database("db");
    context.run(&STEADY_RUN).measured();
    fs::remove_file(context.path("db/Add.csv")).expect("removed");
    let runs = fs::read_dir(context.path("db/.npubench/runs")).expect("runs");
    for run in runs {
        let collections = run.expect("a run").path().join("collections");
        for collection in fs::read_dir(collections).expect("collections") {
            fs::remove_file(collection.expect("a collection").path().join("evidence.tar.gz"))
                .expect("evidence");
        }
    }
    let written = context.exits(1, "reparse --db db --write");
    let problem = "rebuilt 0 rows; 1 left out, of which no usable evidence is there";
    written.out_has(problem);
    assert!(!context.path("db/Add.csv").exists());
}
